"""One ledger in many loops, threads and races: each act is still one (Q8, P26, head 16, B1)."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Crash, World, first, only

from indoubt import DidNotHappen, EffectBusy, Happened, Ledger, OutcomeUnknown, ProbeBudget
from indoubt.ledger import LEASE, WAIT

BY = {"actor": "ana", "reason": "seen"}


def counting(ledger: Ledger, acts: list[Any]) -> Any:
    @ledger.effect(safety="non_idempotent", name="act", key=first)
    async def act(order: str) -> str:
        acts.append(order)
        await asyncio.sleep(0)
        return order

    return act


def test_q08_a_module_global_ledger_serves_one_loop_after_another(tmp_path: Path) -> None:
    ledger, acts = Ledger(f"sqlite:///{tmp_path}/a.db"), list[Any]()
    act = counting(ledger, acts)
    assert asyncio.run(act("order-7")) == "order-7"
    assert asyncio.run(act.outcome("order-7")).replayed
    assert asyncio.run(act("order-8")) == "order-8"
    asyncio.run(ledger.close())
    assert acts == ["order-7", "order-8"]


def test_q08_loops_in_several_threads_share_it(tmp_path: Path) -> None:
    ledger, acts = Ledger(f"sqlite:///{tmp_path}/a.db"), list[Any]()
    act = counting(ledger, acts)
    together = threading.Barrier(6)

    def work(number: int) -> list[Any]:
        async def calls() -> list[Any]:
            return [await act("shared"), await act(f"own-{number}")]

        together.wait(20)
        return asyncio.run(calls())

    with ThreadPoolExecutor(6) as pool:
        receipts = list(pool.map(work, range(6)))
    assert receipts == [["shared", f"own-{number}"] for number in range(6)]
    assert acts.count("shared") == 1
    assert len(acts) == 7
    asyncio.run(ledger.close())


def test_q08_blocking_calls_from_many_threads_are_one_act(tmp_path: Path) -> None:
    ledger, acts = Ledger(f"sqlite:///{tmp_path}/a.db"), list[str]()
    together = threading.Barrier(8)

    @ledger.effect(safety="non_idempotent", name="act", key=first)
    def act(order: str) -> str:
        acts.append(order)
        return order

    def work(_: int) -> str:
        together.wait(20)
        return act("order-7")

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(8))) == {"order-7"}
    assert acts == ["order-7"]
    asyncio.run(ledger.close())


async def test_b1_two_commits_and_no_statement_before_the_first(any_world: World) -> None:
    ledger = any_world.process()
    pay = any_world.payer(ledger)
    store: Any = ledger.open().store
    asked: list[str] = []
    for name in ("read", "write"):
        setattr(store, name, _told(name, getattr(store, name), asked))
    await pay("order-7")
    assert asked == ["write", "write"]
    asked.clear()
    await pay("order-7")  # a repeat: its blind write brings the record
    assert asked == ["write"]


def _told(name: str, verb: Any, asked: list[str]) -> Any:
    async def tell(argument: Any) -> Any:
        asked.append(name)
        return await verb(argument)

    return tell


# -- ending another's hold (head 16) ---------------------------------------------------------------


async def lapsed(world: World) -> tuple[Ledger, Ledger, Any]:
    """A holder that stood still past its lease and wakes up just before another's write."""
    ledger, other = world.process(), world.process()
    entered, free = asyncio.Event(), asyncio.Event()

    @ledger.effect(safety="idempotent", name="pay", key=first)
    async def slow(order: str, cents: int = 1) -> Any:
        entered.set()
        await free.wait()
        return world.bank.pay(order, cents)

    running = asyncio.create_task(slow("order-7"))
    await entered.wait()
    engine = ledger.open().engine
    world.kill(ledger, proven=False)
    world.pass_time(31)
    store: Any = other.open().store
    write = store.write
    woken: list[bool] = []

    async def renewed_first(batches: Any) -> Any:
        if not woken:
            woken.append(True)
            heartbeat: Any = engine.heartbeat
            heartbeat.ring()
        return await write(batches)

    store.write = renewed_first

    async def end() -> Any:
        free.set()
        return await running

    return ledger, other, end


async def test_head16_a_renewal_between_read_and_claim_keeps_the_hold(world: World) -> None:
    _, other, end = await lapsed(world)
    pay = world.payer(other, safety="idempotent")
    with pytest.raises(EffectBusy):
        await pay.using(wait=timedelta(0))("order-7")
    assert (await end())["id"] == "pay_1"
    assert world.bank.count("order-7") == 1


async def test_head16_a_renewal_between_read_and_decision_keeps_the_hold(world: World) -> None:
    _, other, end = await lapsed(world)
    item = await only(other)
    assert item.state == "in_doubt"
    with pytest.raises(EffectBusy):
        await other.decide(item, Happened(), **BY)
    assert (await end())["id"] == "pay_1"


async def test_two_people_decide_at_once_one_is_first(any_world: World) -> None:
    ledger, other = any_world.process(), any_world.process()
    any_world.bank.next = ["lost"]
    with pytest.raises(OutcomeUnknown) as doubt:
        await any_world.payer(ledger)("order-7")
    answers = await asyncio.gather(
        ledger.decide(doubt.value, Happened({"by": "ana"}), **BY),
        other.decide(doubt.value, DidNotHappen(), actor="bob", reason="seen"),
        return_exceptions=True,
    )
    kinds = sorted(type(one).__name__ for one in answers)
    assert kinds == ["AlreadyDecided", "RecordView"]


async def test_two_passes_at_once_send_once(any_world: World) -> None:
    dying = any_world.process()
    any_world.bank.next = ["crash_before"]
    with pytest.raises(Crash):
        await any_world.payer(dying, safety="idempotent")("order-7")
    any_world.kill(dying)
    ledgers = [any_world.process() for _ in range(3)]
    for ledger in ledgers:
        any_world.payer(ledger, safety="idempotent")
    passes = await asyncio.gather(*(ledger.recover() for ledger in ledgers))
    assert sum(len(one.replayed) for one in passes) == 1
    assert any_world.bank.count("order-7") == 1


def test_head21_defaults() -> None:
    budget = ProbeBudget()
    assert timedelta(seconds=30) == LEASE == WAIT
    assert (budget.count, budget.within_ms) == (10, 600_000)


# -- callers that go away --------------------------------------------------------------------------


async def test_u07_a_cancelled_aio_ends_in_its_thread_and_is_settled(world: World) -> None:
    ledger = world.process()
    entered, free = threading.Event(), threading.Event()

    @ledger.effect(safety="non_idempotent", name="act", key=first)
    def act(order: str) -> str:
        entered.set()
        free.wait(20)
        return order

    running = asyncio.create_task(act.aio("order-7"))
    assert await asyncio.to_thread(entered.wait, 20)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    free.set()
    async with asyncio.timeout(20):
        while (await asyncio.to_thread(act.find, "order-7")).state == "dispatched":
            pass
    assert act.outcome("order-7").replayed


@pytest.mark.parametrize("gone", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_call_saves_its_doubt_and_is_silent(
    world: World, gone: type[BaseException]
) -> None:
    ledger = world.process()

    @ledger.effect(safety="non_idempotent", name="act", key=first)
    def act(order: str) -> str:
        raise gone(order)

    with pytest.raises(gone):
        act("order-7")
    item = asyncio.run(only(ledger))
    assert (item.state, item.silent) == ("in_doubt", True)
    assert item.evidence[-1]["note"] == "the caller was cancelled"


async def test_an_effect_inside_itself_is_told_that_it_is_busy(world: World) -> None:
    ledger = world.process()

    @ledger.effect(safety="non_idempotent", name="act", key=first)
    async def act(order: str) -> str:
        with pytest.raises(EffectBusy):
            await act(order)
        return order

    assert await act("order-7") == "order-7"
