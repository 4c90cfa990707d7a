"""S32: a cancel races with the completion, and callers are cancelled while it is written."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

import pytest
from tests.scenarios.performing import SCRIPT, Payment, told_by

from indoubt import Ledger, RecordNotFound, RecordView, StaleDecision
from indoubt.store import Batch
from indoubt.testing import CrashStore, FakeProvider, Fate, Worker
from indoubt.testing.crash import name_of
from indoubt.testing.provider import act_async

Hook = Callable[[], Awaitable[None]]
POINTS = ("F0", "F1", "F3", "F4", "F5", "after")
EARLY = {"F1", "F3", "F4"}


class Pointed(CrashStore):
    """Calls the test's hooks at the points of an effect."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner, Fate())
        self.hooks: dict[str, Hook] = {}

    async def write(self, batches: Sequence[Batch]) -> Any:
        name = name_of(batches)
        before, after = {"write dispatched": ("F0", ""), "write succeeded": ("F4", "F5")}.get(
            name, ("", "")
        )
        await self.at(before)
        answers = await super().write(batches)
        await self.at(after)
        return answers

    async def at(self, point: str) -> None:
        if hook := self.hooks.pop(point, None):
            await hook()


class Host:
    """A worker, and an operator with a ledger of her own."""

    def __init__(self, payment: Payment) -> None:
        self.store = Pointed(payment.open())
        self.ledger: Ledger = payment.ledger(self.store)
        self.operator: Ledger = payment.ledger()
        self.pay = payment.guard(self.ledger, send=self.send)
        self.said: list[str] = []

    async def send(self, **request: Any) -> Any:
        await self.store.at("F1")
        answer = await act_async(**request)
        await self.store.at("F3")
        return answer

    async def cancel(self, order: str) -> None:
        """The operator asks, and notes what she is told."""
        try:
            found = await self.operator.find("pay", order)
            ref = found.record_id if found else "rec_none"
            await self.operator.cancel(ref, actor="ana", reason="not wanted")
            self.said.append("accepted")
        except (RecordNotFound, StaleDecision) as error:
            self.said.append(type(error).__name__)

    async def found(self, order: str) -> RecordView:
        found = await self.operator.find("pay", order)
        assert found is not None
        return found


@pytest.fixture
async def host(payment: Payment) -> AsyncIterator[Host]:
    """Both on one file."""
    host = Host(payment)
    yield host
    await host.ledger.close()
    await host.operator.close()


@pytest.mark.parametrize("point", POINTS)
async def test_a_cancel_at_each_point(
    bank: FakeProvider, host: Host, order: str, point: str
) -> None:
    """One terminal state, whoever comes first.

    If completion committed first, cancel says "too late" and the result stays; if cancel was
    first, the tool row still says what is known, never "not done".
    """
    host.store.hooks[point] = lambda: host.cancel(order)
    told = await told_by(host.pay, order)
    await host.store.at("after")
    found = await host.found(order)
    expected = "accepted" if point in EARLY else "StaleDecision"
    assert host.said == ["RecordNotFound" if point == "F0" else expected]
    assert (told[0], found.state, bank.count(order)) == ("returned", "succeeded", 1)
    assert found.cancel_requested is (point in EARLY)
    assert [entry.state for entry in await host.ledger.journal(found.record_id)].count(
        "succeeded"
    ) == 1


async def test_cancel_and_completion_race(bank: FakeProvider, host: Host) -> None:
    """200 seeds: one terminal state, decided in one atomic step."""
    for seed in range(200):
        order, chance = f"raced-{seed}", random.Random(seed)  # noqa: S311 - no secret

        async def soon(order: str = order, chance: random.Random = chance) -> None:
            for _ in range(chance.randrange(40)):
                await asyncio.sleep(0)
            await host.cancel(order)

        cancelling: list[asyncio.Future[None]] = []

        async def begin(soon: Hook = soon, into: list[Any] = cancelling) -> None:
            into.append(asyncio.ensure_future(soon()))

        host.store.hooks["F3" if seed % 2 else "F1"] = begin
        told = await told_by(host.pay, order)
        await asyncio.gather(*cancelling)
        found = await host.found(order)
        assert (told[0], found.state) == ("returned", "succeeded")
        assert found.cancel_requested is (host.said[-1] == "accepted"), seed
    assert set(host.said) == {"accepted", "StaleDecision"}
    assert [bank.count(f"raced-{seed}") for seed in range(200)] == [1] * 200


async def test_a_cancelled_act_whose_answer_was_lost(
    bank: FakeProvider, host: Host, order: str
) -> None:
    """The tool row still says what is known, never "not done"; no retry after cancel."""
    bank.next("apply_then_drop", key=order)
    host.store.hooks["F1"] = lambda: host.cancel(order)
    for _ in range(3):
        assert (await told_by(host.pay, order))[:2] == ["raised", "OutcomeUnknown"]
        await host.operator.recover(wait=timedelta(0))
    found = await host.found(order)
    assert (found.state, found.cancel_requested, bank.count(order)) == (
        "awaiting_decision",
        True,
        1,
    )
    assert "allow_one_attempt" not in [choice.decision for choice in found.choices]


@pytest.mark.parametrize("cut", ["F1", "F3"])
async def test_a_stale_act_is_cancelled_and_then_swept(
    bank: FakeProvider, payment: Payment, order: str, cut: Literal["F1", "F3"]
) -> None:
    """Pending cancel wins over reclaim; no retry after cancel."""
    payment = replace(payment, safety="idempotent", keyed=True)

    def die() -> None:
        with Worker(SCRIPT, payment.text(), cut=cut) as worker:
            worker.say(order)
            worker.wait_cut()

    await asyncio.to_thread(die)
    host = Host(payment)
    await host.cancel(order)
    recovery = await host.ledger.recover(wait=timedelta(0))
    assert (host.said, recovery.replayed, recovery.errors) == (["accepted"], (), ())
    assert (await told_by(host.pay, order))[0] == "raised"
    found = await host.found(order)
    assert found.state in {"in_doubt", "awaiting_decision", "unknown"}
    assert found.effect != "none"
    assert bank.count(order) == (1 if cut == "F3" else 0)
    await host.ledger.close()
    await host.operator.close()


@pytest.mark.parametrize("point", ["F4", "F5"])
async def test_the_caller_is_cancelled_in_the_completion_write(
    bank: FakeProvider, host: Host, payment: Payment, order: str, point: str
) -> None:
    """What was handed in is written, whoever waits for it.

    A caller's `CancelledError` neither loses a committed completion nor leaves a connection
    inside a transaction.
    """

    async def cancel_caller() -> None:
        caller.cancel()
        await asyncio.sleep(0)

    host.store.hooks[point] = cancel_caller
    caller = asyncio.ensure_future(host.pay(order))
    with pytest.raises(asyncio.CancelledError):
        await caller
    await host.ledger.open().driver.settle_aftermath()
    assert (await host.found(order)).state == "succeeded"
    other = payment.ledger()  # another connection: it gets the write lock at once
    assert (await told_by(payment.guard(other), f"{order} b"))[0] == "returned"
    assert (await told_by(host.pay, f"{order} c"))[0] == "returned"
    assert (await told_by(host.pay, order))[0] == "returned"
    assert [bank.count(one) for one in (order, f"{order} b", f"{order} c")] == [1, 1, 1]
    await other.close()
