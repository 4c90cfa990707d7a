"""Real ``kill -9`` at each cut point on a server, where only the lease tells of a death.

The provider's own count is the judge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.race.conftest import eventually
from tests.race.test_kill import (
    check_recovered,
    finish,
    kill_one_at_each_cut,
    orders_of,
    states,
)
from tests.race.worker import Job, guard, ledger_of
from tests.servers.places import SERVERS, place

from indoubt import Ledger
from indoubt.testing import FakeProvider
from indoubt.testing.crash import CUTS

DOUBTFUL = ["F1", "F2", "F3", "F4"]


@pytest.fixture(params=SERVERS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    with place(request.param, tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    ("safety", "probe"),
    [("retry_safe", False), ("non_idempotent", False), ("non_idempotent", True)],
)
async def test_each_cut_ends_in_one_effect(
    bank: FakeProvider,
    job: Job,
    url: str,
    safety: str,
    probe: bool,  # noqa: FBT001
) -> None:
    job = replace(job, store=url, safety=safety, probe=probe, timeout_ms=1500, lease_ms=2000)
    await asyncio.to_thread(kill_one_at_each_cut, bank, job)
    ledger = ledger_of(job)
    pay = guard(ledger, job)
    await eventually(lambda: all_listed(ledger, job))
    recovery = await ledger.recover(wait=timedelta(seconds=10))
    assert recovery.errors == ()
    await check_recovered(ledger, bank, job)
    for order in orders_of(job).values():
        await finish(ledger, pay, bank, order)
    counts = {cut: bank.count(order) for cut, order in orders_of(job).items()}
    assert counts == dict.fromkeys(CUTS, 1)
    assert (await ledger.in_doubt()).items == ()
    await ledger.close()


async def all_listed(ledger: Ledger, job: Job) -> bool | None:
    """Whether every lease has ended: the dead are in the inbox."""
    box = await ledger.in_doubt()
    return True if sorted(states(box.items, job)) == DOUBTFUL else None
