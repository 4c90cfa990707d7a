"""Whatever a guarded function, a probe or a result does to its caller: nothing hangs or is lost."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Crash, World, first, only

from indoubt import LeaseLost, Ledger, OutcomeUnknown, ReceiptNotStored
from indoubt.engine.background import background_loop, run_in_background

NOW = timedelta(0)


def stop(*_: Any) -> Any:
    """Raise what no future can carry."""
    raise StopIteration


async def orphan(world: World) -> Ledger:
    """A ledger in a new process, after one that died in a blocking function."""
    dying = world.process()

    @dying.effect(safety="idempotent", name="pay", key=first)
    def pay(order: str) -> None:
        raise Crash(order)

    with pytest.raises(Crash):
        pay("order-7")
    world.kill(dying)
    return world.process()


async def test_a_stop_iteration_of_a_function_that_recover_calls_hangs_nothing(
    world: World,
) -> None:
    ledger = await orphan(world)

    @ledger.effect(safety="idempotent", name="pay", key=first)
    def pay(order: str) -> Any:
        return stop(order)

    recovery = await asyncio.wait_for(ledger.recover(wait=NOW), 10)
    assert [view.state for view in recovery.replayed] == ["in_doubt"]
    assert recovery.replayed[0].evidence[-1]["note"] == "StopIteration"


async def test_a_stop_iteration_of_a_probe_hangs_nothing(world: World) -> None:
    ledger = await orphan(world)

    @ledger.effect(safety="status_query_required", name="pay", key=first, probe=stop)
    def pay(order: str) -> None: ...

    recovery = await asyncio.wait_for(ledger.recover(wait=NOW), 10)
    assert [view.evidence[-1]["status"] for view in recovery.waiting] == ["unavailable"]


def test_a_coroutine_of_a_blocking_call_has_ended_when_its_time_is_over(tmp_path: Path) -> None:
    ended: list[str] = []
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(lambda: None)
            ended.append("the request has left")

    @ledger.effect(
        safety="non_idempotent",
        name="pay",
        key=first,
        timeout=timedelta(milliseconds=50),
        clean_failures=(OSError,),  # of which a time-out is one: but not the ledger's own
    )
    def pay(_order: str) -> Any:
        return slow()

    with pytest.raises(OutcomeUnknown):
        pay.using(wait=NOW)("order-7")
    assert ended


def test_a_coroutine_that_nobody_waits_for_any_more_is_not_called_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
    goes_on, ended = threading.Event(), threading.Event()

    async def stubborn() -> None:
        await asyncio.to_thread(goes_on.wait)
        ended.set()

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    def pay(_order: str) -> Any:
        return stubborn()

    def interrupted(coroutine: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, background_loop())
        raise KeyboardInterrupt

    monkeypatch.setattr("indoubt.engine.invoke.run_in_background", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pay("order-7")
    item = run_in_background(only(ledger))
    assert not ended.is_set()
    goes_on.set()
    assert ended.wait(10)
    assert (item.state, item.silent) == ("in_doubt", False)


def test_a_system_exit_in_the_background_ends_its_caller_and_nobody_else() -> None:
    async def leave() -> None:
        raise SystemExit(3)

    async def stay() -> str:
        return "here"

    with pytest.raises(SystemExit):
        run_in_background(leave())
    assert run_in_background(asyncio.wait_for(stay(), 10)) == "here"


@dataclasses.dataclass
class Detached:
    """A row whose field cannot be read once its session is closed."""

    cents: int

    def __getattribute__(self, name: str) -> Any:
        if name == "cents":
            raise LookupError("the session is closed")
        return object.__getattribute__(self, name)


def deep() -> Any:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "result", [object, deep, lambda: Detached(1)], ids=["object", "deep", "row"]
)
async def test_a_result_that_cannot_be_read_did_happen(
    world: World, result: Callable[[], Any]
) -> None:
    pay = world.payer(world.process())

    def paid() -> Any:
        world.bank.acts.append(("order-7", 1, None))
        return result()

    world.bank.next = [paid]
    for _ in range(2):
        with pytest.raises(ReceiptNotStored):
            await pay("order-7")
    assert world.bank.count("order-7") == 1


async def test_no_waiting_for_a_person_can_be_said_over_a_declared_wait(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger, wait_for_decision=timedelta(hours=1))
    world.bank.next = ["lost"]
    with pytest.raises(OutcomeUnknown):
        await pay.using(wait_for_decision=NOW)("order-7")
    hour = timedelta(hours=1)
    with (
        ledger.scope(wait_for_decision=hour),
        ledger.scope(wait_for_decision=NOW),
        pytest.raises(OutcomeUnknown),
    ):
        await pay("order-7")
    assert world.clock.now() == 0


@pytest.mark.parametrize("known", [False, True])
async def test_a_late_result_that_cannot_be_stored_is_no_empty_one(
    world: World, *, known: bool
) -> None:
    dying, entered, free = world.process(), asyncio.Event(), asyncio.Event()

    @dying.effect(safety="non_idempotent", name="pay", key=first)
    async def pay(order: str, cents: int = 1) -> object:
        world.bank.acts.append((order, cents, None))
        entered.set()
        await free.wait()
        return object()

    running = asyncio.create_task(pay("order-7"))
    await entered.wait()
    world.kill(dying, proven=False)
    world.pass_time(31)
    world.bank.says = "truth" if known else "unavailable"
    ledger = world.process()
    again = world.payer(ledger, probe=world.bank.probe).using(wait=NOW)
    if known:
        assert await again("order-7") == {"id": "pay_1"}
    else:
        with pytest.raises(OutcomeUnknown):
            await again("order-7")
    free.set()
    with pytest.raises(LeaseLost):
        await running
    if known:  # nothing of it can be compared, and it was sent once
        assert (await ledger.in_doubt()).items == ()
        return
    with pytest.raises(ReceiptNotStored):
        await again("order-7")
