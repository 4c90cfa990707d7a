"""S11: a worker is stopped past its lease, and carries on when somebody took over, or nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.scenarios.performing import SCRIPT, Payment, reached, told_by

from indoubt import Ledger, RecordView
from indoubt.testing import FakeProvider, Worker
from indoubt.testing.provider import Fault

LEASE_MS = 1000


@pytest.fixture
def payment(kept_payment: Payment) -> Payment:
    """A payment under a lease of a second, on each kind of store."""
    return replace(kept_payment, lease_ms=LEASE_MS, wait_ms=10_000)


async def lapsed(ledger: Ledger, order: str) -> RecordView:
    """Wait until the lease is over by the store's clock, looking only."""

    async def shown() -> RecordView | None:
        found = await ledger.find("pay", order)
        # Shown as in doubt: nobody holds it any more.
        return found if found is not None and found.state != "dispatched" else None

    return await reached(shown)


async def fence(ledger: Ledger, found: RecordView) -> int:
    """The fence as it stands."""
    return (await ledger.journal(found.record_id))[-1].fence


def stopped_at_f3(bank: FakeProvider, payment: Payment, order: str) -> Worker:
    """A worker that was stopped when the provider had paid."""
    worker = Worker(SCRIPT, payment.text(), cut="F3", by="stop", provider=bank, key=order)
    worker.start()
    worker.say(order)
    worker.wait_cut()
    return worker


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    """Workers that are gone after the test."""
    made: list[Worker] = []
    yield made
    for worker in made:
        worker.__exit__()


@pytest.mark.parametrize("plain", [True, False], ids=["def", "async def"])
async def test_stopped_at_f3_and_replaced(
    bank: FakeProvider, payment: Payment, order: str, workers: list[Worker], *, plain: bool
) -> None:
    """It comes too late.

    In (ii) A's late result is kept as evidence beside the row and shown to whoever decides,
    but does not change state. Fence grew by exactly 1 in x.
    """
    payment = replace(payment, plain=plain)
    workers.append(worker := await asyncio.to_thread(stopped_at_f3, bank, payment, order))
    async with payment.ledger() as ledger:
        before = await fence(ledger, await lapsed(ledger, order))
        told = await told_by(payment.guard(ledger), order)
        assert told == ["raised", "OutcomeUnknown", "ask_person"]
        taken = await ledger.find("pay", order)
        assert taken is not None
        assert await fence(ledger, taken) == before + 1
        assert worker.held is not None
        worker.held.release()
        worker.go_on()
        assert (await asyncio.to_thread(worker.hear))[:2] == ["raised", "LeaseLost"]
        found = await ledger.find("pay", order)
        assert found is not None
        assert (found.state, found.ref) == ("awaiting_decision", taken.ref)
        assert await fence(ledger, found) == before + 1
        if plain:  # an `async def` is cancelled when it is replaced, so it may have learned nothing
            assert found.attempts[0]["late_result"] is True
            late = [one for one in found.evidence if one["source"] == "late_result"]
            assert [one["data"]["key"] for one in late] == [order]
    assert bank.count(order) == 1


@pytest.mark.parametrize("plain", [True, False], ids=["def", "async def"])
async def test_stopped_at_f3_and_not_replaced(
    bank: FakeProvider, payment: Payment, order: str, workers: list[Worker], *, plain: bool
) -> None:
    """It was late, and that did not matter.

    y: A's owner and fence still match, so its completion is accepted and the run goes on.
    Fence grew by 0 in y.
    """
    payment = replace(payment, plain=plain)
    workers.append(worker := await asyncio.to_thread(stopped_at_f3, bank, payment, order))
    async with payment.ledger() as ledger:
        before = await fence(ledger, await lapsed(ledger, order))
        assert worker.held is not None
        worker.held.release()
        worker.go_on()
        assert (await asyncio.to_thread(worker.hear))[0] == "returned"
        found = await ledger.find("pay", order)
        assert found is not None
        assert (found.state, await fence(ledger, found)) == ("succeeded", before)
        worker.say(f"{order} next")
        assert (await asyncio.to_thread(worker.hear))[0] == "returned"
    assert bank.count(order) == 1


@pytest.mark.parametrize("taken", [True, False], ids=["x", "y"])
async def test_stopped_between_two_steps(
    bank: FakeProvider, payment: Payment, order: str, workers: list[Worker], *, taken: bool
) -> None:
    """The store says whether it may go on.

    x: A's next renew/complete/checkpoint is STALE_OWNER, A dispatches nothing more (it checks
    ownership with the store before each dispatch, not with its own timer), B's row is untouched.
    y: its completion is accepted and the run goes on.
    """
    gate: Fault = bank.gate(order, on="find", times=1)
    payment = replace(payment, plain=True, two_steps=True)
    workers.append(worker := Worker(SCRIPT, payment.text()).start())
    worker.say(order)
    await gate.wait_reached_async()
    await asyncio.to_thread(worker.stop)
    async with payment.ledger() as ledger:
        before = await fence(ledger, await lapsed(ledger, order))
        if taken:
            recovery = await ledger.recover()
            assert [view.state for view in recovery.asked] == ["awaiting_decision"]
        theirs = await ledger.find("pay", order)
        gate.release()
        worker.go_on()
        told: Any = await asyncio.to_thread(worker.hear)
        found = await ledger.find("pay", order)
        assert theirs is not None
        assert found is not None
        assert await fence(ledger, found) == before + taken
        if taken:
            assert told[:2] == ["raised", "LeaseLost"]
            assert (found.state, found.ref) == ("awaiting_decision", theirs.ref)
        else:
            assert (told[0], found.state) == ("returned", "succeeded")
    steps = (bank.count(order), bank.count(f"{order} second"))
    assert steps == ((1, 0) if taken else (1, 1))
