"""S18: the store is stopped hard in the middle of a recovery, and comes back."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest
from tests.race.conftest import WORKER, eventually
from tests.race.worker import Job, guard, ledger_of
from tests.servers.fixtures import postgres_versions, redis_versions
from tests.servers.places import SERVERS
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis

from indoubt import Ledger
from indoubt.errors import StoreError
from indoubt.testing import FakeProvider, Worker

Stopped = tuple[Postgres | Redis, str, signal.Signals]
STALE = 200
HARD = {"postgresql": signal.SIGQUIT, "redis": signal.SIGKILL}
"""SIGQUIT is PostgreSQL's own crash: nothing is written out, and every backend is gone with it."""


@pytest.fixture(params=SERVERS)
def server(
    request: pytest.FixtureRequest,
) -> Iterator[tuple[Postgres | Redis, str, signal.Signals]]:
    """A server of the test's own, a ledger's place there, and the signal that ends it hard."""
    kind = str(request.param)
    made = Postgres(postgres_versions()[0]) if kind == "postgresql" else Redis(redis_versions()[0])
    made.start()
    url = made.url if isinstance(made, Redis) else made.url()
    yield made, url, HARD[kind]
    made.remove()


def leave_stale(bank: FakeProvider, job: Job) -> None:
    """A worker dies while every one of its calls is at the provider, paid and unanswered."""
    held = bank.fault("hang", times=STALE)
    with Worker(WORKER, job.text()) as worker:
        held.wait_reached(60, requests=STALE)
        worker.kill()
    held.drop()


async def stale(ledger: Ledger) -> bool | None:
    """Whether every lease has ended."""
    box = await ledger.in_doubt(limit=STALE)
    return True if len(box.items) == STALE else None


async def states(ledger: Ledger, orders: tuple[str, ...]) -> dict[str, tuple[str, int, int]]:
    """State, attempts and fence by order."""
    found: dict[str, tuple[str, int, int]] = {}
    for order in orders:
        view = await ledger.find("pay", order)
        assert view is not None
        fence = (await ledger.journal(view.record_id))[-1].fence
        found[order] = (view.state, len(view.attempts), fence)
    return found


async def test_the_store_restarts_while_recovery_is_running(
    bank: FakeProvider, server: Stopped
) -> None:
    """Its own failure leaves everything recoverable.

    After it drains, every run is reclaimed once or still listed; no attempt counter was used up by
    the outage; an item error is reported per item, never turned into "nothing to do".
    """
    machine, url, hard = server
    orders = tuple(f"{url}-{n}" for n in range(STALE))
    job = Job(store=url, bank=bank.url, orders=orders, probe=True, lease_ms=2000)
    await asyncio.to_thread(leave_stale, bank, job)
    ledger = ledger_of(job)
    guard(ledger, job)
    await eventually(lambda: stale(ledger))
    recovering = asyncio.ensure_future(ledger.recover(limit=STALE))
    await asyncio.wait([recovering], timeout=0.1)
    assert not recovering.done()
    await asyncio.to_thread(machine.kill, hard)
    await asyncio.wait([recovering], timeout=1)
    await asyncio.to_thread(machine.start)
    try:
        first = await recovering
    except StoreError:
        first = None  # it says so itself
    found = await states(ledger, orders)
    unsettled = [order for order in orders if found[order][0] != "succeeded"]
    if first is not None:
        said = len(first.errors) + len(first.waiting) + len(first.skipped) + len(first.asked)
        assert said >= len(unsettled)
    await eventually(lambda: drained(ledger))
    assert await states(ledger, orders) == dict.fromkeys(orders, ("succeeded", 1, 2))
    assert {bank.count(order) for order in orders} == {1}
    await ledger.close()


async def drained(ledger: Ledger) -> bool | None:
    """Whether the same call from the start, again and again, leaves nothing."""
    again = await ledger.recover(limit=STALE)
    assert again.asked == ()
    return True if (await ledger.in_doubt(limit=1)).items == () else None
