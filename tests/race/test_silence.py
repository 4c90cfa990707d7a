"""A killed process is proven dead at once, a stopped one never: the lock of its owner says so."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.race.conftest import WORKER, eventually
from tests.race.worker import Job, call, guard, ledger_of

from indoubt import EffectBusy, OutcomeUnknown
from indoubt.testing import FakeProvider, Worker

AT_ONCE = timedelta(0)


async def test_a_killed_holder_is_dead_at_once_not_after_its_lease(
    bank: FakeProvider, job: Job
) -> None:
    """Its lease has an hour to go, and nobody waits for it."""
    job = replace(job, lease_ms=3_600_000, probe=True)
    with Worker(WORKER, job.text(), cut="F3", provider=bank) as worker:
        await asyncio.to_thread(worker.wait_cut)
    ledger = ledger_of(job)
    pay = guard(ledger, job)
    told = await pay.using(wait=AT_ONCE)(job.orders[0])
    assert told["key"] == job.orders[0]
    assert bank.count(job.orders[0]) == 1
    await ledger.close()


async def test_a_stopped_holder_is_not_dead(bank: FakeProvider, job: Job) -> None:
    """While its lease runs it is busy, and to one who waits it is no proof of anything."""
    job = replace(job, lease_ms=60_000, probe=True)
    with Worker(WORKER, job.text(), cut="F3", by="stop", provider=bank) as worker:
        await asyncio.to_thread(worker.wait_cut)
        ledger = ledger_of(job)
        pay = guard(ledger, job)
        with pytest.raises(EffectBusy):
            await pay.using(wait=AT_ONCE)(job.orders[0])
        assert (await ledger.in_doubt()).items == ()
        assert worker.held is not None
        worker.held.release()
        worker.go_on()
        told = await asyncio.to_thread(worker.hear)
        assert told[:2] == [job.orders[0], "returned"]
    assert await pay(job.orders[0]) == told[2]
    assert bank.count(job.orders[0]) == 1
    await ledger.close()


async def test_a_stopped_sender_is_waited_for_however_absent_its_effect(
    bank: FakeProvider, job: Job
) -> None:
    """Exactly once under a paused holder: it stands before its send, and sends when it wakes.

    Permit, lease and settle time are long over and the provider has nothing; but its lock is
    held, so nothing is sent in its place.
    """
    job = replace(
        job, safety="status_query_required", lease_ms=400, timeout_ms=400, probe=True, absence=True
    )
    with Worker(WORKER, job.text(), cut="F2", by="stop") as worker:
        await asyncio.to_thread(worker.wait_cut)
        ledger = ledger_of(job)
        pay = guard(ledger, job)
        looks = itertools.count()

        async def not_sent() -> bool | None:
            """Ask the provider three times after everything is over; nothing is sent."""
            with pytest.raises((EffectBusy, OutcomeUnknown)):
                await pay.using(wait=AT_ONCE)(job.orders[0])
            found = await ledger.find("pay", job.orders[0])
            assert found is not None
            quiet = found.state == "in_doubt" and len(found.evidence) > 1
            return True if quiet and next(looks) >= 3 else None

        await eventually(not_sent)
        assert bank.count(job.orders[0]) == 0
        worker.go_on()  # between its own permit check and its send, where no library can look
        assert (await asyncio.to_thread(worker.hear))[:2] == [job.orders[0], "raised"]
    told = await pay(job.orders[0])
    assert told["key"] == job.orders[0]
    assert bank.count(job.orders[0]) == 1
    await ledger.close()


async def test_a_request_that_lands_while_somebody_waits_for_its_absence(
    bank: FakeProvider, job: Job
) -> None:
    """Its sender is dead, the first look-up finds nothing; then it lands, and is adopted."""
    order = job.orders[0]
    job = replace(
        job,
        safety="status_query_required",
        timeout_ms=2_000,
        settle_ms=2_000,
        probe=True,
        absence=True,
    )
    with Worker(WORKER, job.text(), cut="F2", provider=bank, key=order) as worker:
        await asyncio.to_thread(worker.wait_cut)
        ledger = ledger_of(job)
        looked = bank.fault("slow", key=order, on="find")
        repeated = asyncio.ensure_future(call(guard(ledger, job), order))
        await looked.wait_reached_async()
        assert bank.count(order) == 0
        assert worker.held is not None
        worker.held.release()
        assert bank.count(order, at_least=1) == 1
        told: Any = await repeated
    assert told[:2] == [order, "returned"]
    assert bank.count(order) == 1
    await ledger.close()


async def test_processes_that_race_for_the_same_keys(bank: FakeProvider, job: Job) -> None:
    """Three processes, twelve orders, one barrier: each order happens once, and all are told."""
    orders = tuple(f"{job.orders[0]}-{n}" for n in range(12))
    job = replace(job, orders=orders, barrier=True)
    workers = [Worker(WORKER, job.text()).start() for _ in range(3)]
    try:
        for worker in workers:
            assert (await asyncio.to_thread(worker.hear))[1] == "ready"
        for worker in workers:
            worker.say("go")
        told = [await asyncio.to_thread(worker.hear) for worker in workers for _ in orders]
    finally:
        for worker in workers:
            worker.kill()
    assert {order: bank.count(order) for order in orders} == dict.fromkeys(orders, 1)
    assert {answer[1] for answer in told} == {"returned"}, told
    receipts = {order: [a[2] for a in told if a[0] == order] for order in orders}
    assert all(len(given) == 3 and given[0] == given[1] == given[2] for given in receipts.values())
    assert Counter(answer[0] for answer in told) == dict.fromkeys(orders, 3)
