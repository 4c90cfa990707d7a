"""Guarded calls with the ledger in Redis: how many scripts they take, with and without a loop."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from tests.race.worker import Job, call, guard, itself
from tests.servers.fixtures import redis

from indoubt import Ledger
from indoubt.sync import Ledger as BlockingLedger
from indoubt.testing import FakeProvider


@pytest.fixture
def url() -> Generator[str]:
    with redis("valkey").ledger() as found:
        yield found


async def test_a_guarded_call_is_two_scripts(bank: FakeProvider, job: Job, url: str) -> None:
    ledger = Ledger(url)
    pay = guard(ledger, job)
    await call(pay, "warm")
    before = scripts()
    for n in range(10):
        assert (await call(pay, f"redis-{n}"))[1] == "returned"
    assert scripts() - before == 20
    assert bank.count("redis-3") == 1
    await ledger.close()


def test_a_blocking_ledger_works_on_redis(bank: FakeProvider, url: str) -> None:
    ledger = BlockingLedger(url)

    @ledger.effect(safety="non_idempotent", name="pay", key=itself)
    def pay(order: str) -> dict[str, Any]:
        return {"order": order, "count": bank.count(order)}

    assert pay("x") == pay("x") == {"order": "x", "count": 0}
    assert ledger.in_doubt().items == ()
    ledger.close()


def scripts() -> int:
    """How many scripts the server has run so far."""
    stats: Any = redis("valkey").administer("INFO", "commandstats")
    return int(stats["cmdstat_evalsha"]["calls"])
