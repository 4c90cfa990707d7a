"""What ``recover`` does where somebody is faster between its look and its write, or goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.conftest import ABSENCE, Crash, World, first, only
from tests.recovery.test_windows_and_cancel import never_sent

from indoubt import Ledger
from indoubt.core.commands import Release

BY = {"actor": "ana", "reason": "the order was withdrawn"}


async def orphan(world: World, order: str = "order-7", **policy: Any) -> Ledger:
    """An act whose process died before it paid; answers that process' ledger."""
    dying = world.process()
    world.bank.next = ["crash_before"]
    with pytest.raises(Crash):
        await world.payer(dying, **policy)(order)
    world.kill(dying)
    return dying


def before_the_next_write(ledger: Ledger, happens: Callable[[], Awaitable[object]]) -> None:
    """Somebody is faster, once."""
    store = ledger.open().store
    write = store.write

    async def overtaken(batches: Any) -> Any:
        store.write = write  # type: ignore[method-assign]
        await happens()
        return await write(batches)

    store.write = overtaken  # type: ignore[method-assign]


async def test_p21_recover_sends_nothing_that_was_let_go_unsent_under_its_eyes(
    world: World,
) -> None:
    dying = await orphan(world, safety="idempotent")
    ledger = world.process()
    world.payer(ledger, safety="idempotent")
    record_id, old, calls = (await only(ledger)).record_id, dying.open(), world.bank.calls

    async def let_go() -> None:
        seen = await old.driver.drive(old.engine.read(record_id))
        assert seen.record is not None
        release = Release(fence=seen.record.fence, never_sent=True)
        deadline = old.engine.clock.now() + 10
        await old.driver.drive(old.engine.persist(seen, (release,), deadline=deadline))

    before_the_next_write(ledger, let_go)
    recovery = await ledger.recover()
    assert world.bank.calls == calls
    assert recovery.replayed == ()
    assert [view.state for view in recovery.waiting] == ["prepared"]


async def test_what_is_being_sent_is_not_listed_as_abandoned(world: World) -> None:
    await never_sent(world, world.process())
    world.pass_time(100)
    ledger, other = world.process(abandon_after=timedelta(seconds=10)), world.process()
    begun, free = asyncio.Event(), asyncio.Event()

    @other.effect(safety="non_idempotent", name="pay", key=first)
    async def pay(order: str) -> str:
        assert order == "order-7"
        begun.set()
        await free.wait()
        return "paid"

    running: list[asyncio.Task[Any]] = []

    async def call() -> None:
        running.append(asyncio.create_task(pay("order-7")))
        await begun.wait()

    before_the_next_write(ledger, call)
    recovery = await ledger.recover()
    free.set()
    assert await running[0] == "paid"
    assert recovery.settled == ()


async def test_absent_and_cancelled_and_past_no_use_after_is_closed_as_cancelled(
    any_world: World,
) -> None:
    policy: dict[str, Any] = ABSENCE | {
        "probe": any_world.bank.probe,
        "resend_on_proven_absence": True,
        "no_use_after": timedelta(minutes=5),
    }
    await orphan(any_world, **policy)
    ledger = any_world.process()
    any_world.payer(ledger, **policy)
    await ledger.cancel((await only(ledger)).ref, **BY)
    any_world.pass_time(600)
    recovery = await ledger.recover()
    assert recovery.errors == ()
    assert [(view.state, view.effect) for view in recovery.settled] == [("cancelled", "none")]


async def test_a_probe_that_cancels_itself_costs_no_other_record(world: World) -> None:
    await orphan(world, "order-1")
    await orphan(world, "order-2")

    async def probe(attempt: Any) -> Any:
        if attempt.key == "order-1":
            raise asyncio.CancelledError
        return attempt.succeeded({"id": "found"})

    ledger = world.process()
    world.payer(ledger, probe=probe)
    recovery = await ledger.recover(wait=timedelta(0))
    assert [view.key for view in recovery.settled] == ["order-2"]
    assert [error for _, error in recovery.errors] == ["CancelledError"]


async def test_a_cancelled_recover_is_cancelled(world: World) -> None:
    await orphan(world)
    asked = asyncio.Event()

    async def probe(_attempt: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    ledger = world.process()
    world.payer(ledger, probe=probe)
    running = asyncio.create_task(ledger.recover(wait=timedelta(0)))
    await asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
