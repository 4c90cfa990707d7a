"""The wrapper is the function it guards, and ways to call it (decisions U7, U11, U12)."""

from __future__ import annotations

import asyncio
import inspect
import threading
import typing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from tests.conftest import World, first, only

from indoubt import (
    AllowOneAttempt,
    EffectContext,
    ExecutionSafetyClass,
    GiveUp,
    Happened,
    Ledger,
    OutcomeUnknown,
    RecordView,
    current_effect,
)

BY = {"actor": "ana", "reason": "seen"}


def second(_one: Any, two: Any) -> Any:
    return two


def blocking(ledger: Ledger, **policy: Any) -> Any:
    given: dict[str, Any] = {"safety": "non_idempotent", "name": "block", "key": first}

    @ledger.effect(**(given | policy))
    def block(order: str, cents: int = 1, *, effect: EffectContext) -> dict[str, Any]:
        """Say who ran it."""
        return {
            "order": order,
            "cents": cents,
            "thread": threading.get_ident(),
            "key": effect.idempotency_key,
        }

    return block


def awaitable(ledger: Ledger, **policy: Any) -> Any:
    given: dict[str, Any] = {"safety": "non_idempotent", "name": "wait", "key": first}

    @ledger.effect(**(given | policy))
    async def wait(order: str, cents: int = 1, *, effect: EffectContext) -> dict[str, Any]:
        """Say who ran it."""
        return {"order": order, "cents": cents, "key": effect.idempotency_key}

    return wait


async def asked(ledger: Ledger) -> RecordView:
    """Wait until a person is asked."""
    while True:
        for item in (await ledger.in_doubt()).items:
            if item.state == "awaiting_decision":
                return item
        await asyncio.sleep(0)


# -- U7: what it looks like ------------------------------------------------------------------------


def test_u07_the_wrapper_is_a_real_function_of_its_own_kind(world: World) -> None:
    ledger = world.process()
    plain, coroutine = blocking(ledger), awaitable(ledger)
    assert inspect.isfunction(plain)
    assert inspect.isfunction(coroutine)
    assert inspect.iscoroutinefunction(coroutine)
    assert not inspect.iscoroutinefunction(plain)
    assert (plain.__name__, plain.__doc__, plain.__module__) == (
        "block",
        "Say who ran it.",
        __name__,
    )


@pytest.mark.parametrize("make", [blocking, awaitable])
def test_u07_effect_is_hidden_from_signature_and_hints(
    world: World, make: Callable[[Ledger], Any]
) -> None:
    guarded = make(world.process())
    signature = inspect.signature(guarded)
    assert list(signature.parameters) == ["order", "cents"]
    assert signature.parameters["cents"].default == 1
    hints = typing.get_type_hints(guarded)
    assert hints == {"order": str, "cents": int, "return": dict[str, Any]}
    assert set(guarded.__annotations__) == {"order", "cents", "return"}


def test_u07_a_def_stays_blocking_on_the_callers_thread(world: World) -> None:
    block = blocking(world.process())
    receipt = block("order-7")
    assert receipt["thread"] == threading.get_ident()
    assert block("order-7") == receipt


async def test_u07_a_def_stays_blocking_on_the_loops_thread(any_world: World) -> None:
    block = blocking(any_world.process())
    assert block("order-7")["thread"] == threading.get_ident()


async def test_u07_an_async_def_stays_one(world: World) -> None:
    call = awaitable(world.process())("order-7")
    assert inspect.iscoroutine(call)
    assert (await call)["order"] == "order-7"


async def test_u07_aio_runs_a_def_in_a_thread(any_world: World) -> None:
    block = blocking(any_world.process())
    receipt = await block.aio("order-7", cents=3)
    assert receipt["thread"] != threading.get_ident()
    assert receipt["cents"] == 3
    assert await block.aio("order-7", 3) == receipt
    assert await awaitable(any_world.process()).aio("order-7")


async def test_u07_the_caller_cannot_give_effect(world: World) -> None:
    wait = awaitable(world.process())
    with pytest.raises(TypeError, match="effect"):
        await wait("order-7", effect=None)
    assert await world.records() == []


async def test_u07_every_kind_of_call_is_the_same_act(any_world: World) -> None:
    ledger = any_world.process()
    block = blocking(ledger)
    receipt = await block.aio("order-7")
    assert block("order-7") == receipt
    outcome = block.outcome("order-7")
    assert (outcome.receipt, outcome.replayed, outcome.attempt) == (receipt, True, 1)
    found = block.find("order-7")
    assert found is not None
    assert found.record_id == outcome.record_id
    assert block.find("order-8") is None


def _answer(probe: Callable[[Any], Any], attempt: Any) -> Any:
    return probe(attempt)


@pytest.mark.parametrize("kind", ["async", "plain", "lambda"])
@pytest.mark.parametrize("make", [blocking, awaitable])
async def test_u07_sync_and_async_probes_go_with_either(
    world: World, make: Callable[..., Any], kind: str
) -> None:
    probe: Any = world.bank.probe_async if kind == "async" else world.bank.probe
    if kind == "lambda":  # a plain function that answers a coroutine
        probe = partial(_answer, world.bank.probe_async)
    ledger = world.process()
    make(ledger, probe=probe)
    name = "block" if make is blocking else "wait"

    @ledger.effect(safety="non_idempotent", name=f"{name}_lost", key=first, probe=probe)
    def lost(order: str) -> None:
        world.bank.acts.append((order, 1, None))
        raise ConnectionResetError

    assert await asyncio.to_thread(lost, "order-7") == {"id": "pay_1"}
    assert await lost.aio("order-7") == {"id": "pay_1"}
    assert len(world.bank.asked) == 1


async def test_u07_an_async_probe_of_a_def_called_on_a_loop(world: World) -> None:
    ledger = world.process()

    @ledger.effect(safety="non_idempotent", name="lost", key=first, probe=world.bank.probe_async)
    def lost(order: str) -> None:
        world.bank.acts.append((order, 1, None))
        raise ConnectionResetError

    assert lost("order-7") == {"id": "pay_1"}


async def test_u07_an_async_key_function_is_refused(world: World) -> None:
    ledger = world.process()

    async def key(order: str) -> str:
        return order

    with pytest.raises(TypeError, match="key"):
        awaitable(ledger, key=key)


def test_u07_generators_cannot_be_guarded(world: World) -> None:
    ledger = world.process()

    def rows() -> Any:
        yield 1

    async def rows_async() -> Any:
        yield 1

    for made in (rows, rows_async):
        with pytest.raises(TypeError, match="generator"):
            ledger.effect(safety="pure", name="rows", key=lambda: "k")(made)


async def test_u07_methods_are_guarded_without_their_object(world: World) -> None:
    ledger = world.process()

    class Shop:
        @ledger.effect(safety="non_idempotent", name="sell", key=second)
        async def sell(self, order: str) -> int:
            return len(order)

    assert await Shop().sell("order-7") == 7
    record = await ledger.find("sell", "order-7")
    assert record is not None
    assert record.arguments == {"order": "order-7"}


async def test_u07_safety_may_be_text_or_the_class(world: World) -> None:
    ledger = world.process()
    for number, safety in enumerate(("pure", ExecutionSafetyClass.PURE)):
        wait = awaitable(ledger, safety=safety, name=f"wait_{number}")
        outcome = await wait.outcome("order-7")
        assert (await ledger.get(outcome.record_id)).safety == "pure"


# -- U11: scope, current_effect --------------------------------------------------------------------


async def test_u11_scope_is_synchronous_and_async_with_is_accepted(world: World) -> None:
    ledger = world.process()
    wait = awaitable(ledger, key=None)
    with ledger.scope("run-42", tenant_id="acme"):
        first_call = await wait.outcome("a")
    async with ledger.scope("run-42", tenant_id="acme"):
        assert (await wait.outcome("a")).record_id == first_call.record_id
    record = await ledger.get(first_call.record_id)
    assert (record.scope, record.tenant_id) == ("run-42", "acme")


async def test_u11_a_scope_ends_with_its_block_and_is_the_tasks_own(world: World) -> None:
    ledger = world.process()
    wait = awaitable(ledger, key=None)
    inside = asyncio.Event()
    go = asyncio.Event()

    async def other() -> None:
        with ledger.scope("run-1"):
            inside.set()
            await go.wait()

    running = asyncio.create_task(other())
    await inside.wait()
    with pytest.raises(Exception, match="scope"):
        await wait("a")
    go.set()
    await running
    scope = ledger.scope("run-2")
    with scope:
        await wait("a")
        with pytest.raises(RuntimeError, match="entered"), scope:
            pass
        await wait("a")  # still inside
    with pytest.raises(Exception, match="scope"):
        await wait("a")
    with scope:
        assert (await wait.outcome("a")).replayed


async def test_u11_scopes_of_two_ledgers_do_not_mix(world: World) -> None:
    ledger, other = world.process(), World().process()
    wait = awaitable(ledger, key=None)
    with ledger.scope("mine", tenant_id="acme"), other.scope("theirs", tenant_id="bolt"):
        outcome = await wait.outcome("a")
    record = await ledger.get(outcome.record_id)
    assert (record.scope, record.tenant_id) == ("mine", "acme")


async def test_u11_current_effect_in_tool_bodies(world: World) -> None:
    ledger = world.process()

    @ledger.effect(safety="non_idempotent", name="tool", key=first)
    async def tool(order: str, *, effect: EffectContext) -> list[str]:
        assert current_effect() is effect
        deep = await asyncio.create_task(deeper())
        thread = await asyncio.to_thread(lambda: current_effect().idempotency_key)
        return [order, effect.idempotency_key, deep, thread]

    async def deeper() -> str:
        return current_effect().idempotency_key

    _, *keys = await tool("order-7")
    assert len(set(keys)) == 1
    with pytest.raises(RuntimeError, match="no guarded effect"):
        current_effect()


async def test_u11_current_effect_raises_in_run_in_executor_and_never_guesses(
    world: World,
) -> None:
    ledger = world.process()
    told: list[str] = []

    @ledger.effect(safety="non_idempotent", name="tool", key=first)
    async def tool(_order: str) -> None:
        with ThreadPoolExecutor(1) as pool:
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(pool, current_effect)
            except RuntimeError as error:
                told.append(str(error))

    await tool("order-7")
    assert told == ["no guarded effect is running in this context"]


async def test_u11_an_unkeyed_effect_in_run_in_executor_raises_scope_required(
    world: World,
) -> None:
    ledger = world.process()
    block = blocking(ledger, key=None)
    with ledger.scope("run-1"), ThreadPoolExecutor(1) as pool:
        loop = asyncio.get_running_loop()
        assert await asyncio.to_thread(block, "a")
        with pytest.raises(Exception, match="scope"):
            await loop.run_in_executor(pool, block, "b")


async def test_u11_the_context_of_an_ended_call_checkpoints_nothing(world: World) -> None:
    ledger = world.process()
    kept: list[EffectContext] = []

    @ledger.effect(safety="non_idempotent", name="tool", key=first)
    async def tool(_order: str, *, effect: EffectContext) -> None:
        kept.append(effect)

    await tool("order-7")
    before = await world.records()
    with pytest.raises(RuntimeError, match="over"):
        await kept[0].checkpoint({"a": 1})
    assert await world.records() == before


async def test_u11_the_context_says_who_and_how_long(world: World) -> None:
    ledger = world.process()
    seen: list[EffectContext] = []

    @ledger.effect(safety="non_idempotent", name="tool", key=first, timeout=timedelta(seconds=10))
    async def tool(_order: str, *, effect: EffectContext) -> float:
        seen.append(effect)
        before = effect.remaining()
        world.pass_time(4)
        assert before - effect.remaining() == pytest.approx(4)
        world.pass_time(1000)
        assert effect.remaining() == 0.0
        return before

    left = await tool.using(tenant_id="acme")("order-7")
    (effect,) = seen
    assert left == pytest.approx(10)
    assert (effect.key, effect.tenant_id) == ("order-7", "acme")
    assert (effect.attempt, effect.fence) == (1, 1)
    assert effect.execution_id == f"{effect.operation_id}.1"
    assert effect.ledger is ledger
    record = await ledger.get(effect.operation_id)
    assert record.attempts[0]["permit_until"] == effect.permit_until.isoformat()


# -- U12: using ------------------------------------------------------------------------------------


async def test_u12_using_adds_up_and_changes_nothing_else(world: World) -> None:
    ledger = world.process()
    wait = awaitable(ledger)
    outcome = await wait.using(tenant_id="acme").using(key="k").outcome("order-7")
    record = await ledger.get(outcome.record_id)
    assert (record.tenant_id, record.key, record.scope) == ("acme", "k", None)
    outcome = await wait.outcome("order-7")
    record = await ledger.get(outcome.record_id)
    assert (record.tenant_id, record.key) == (None, "order-7")


async def test_u12_using_wins_over_the_scope(world: World) -> None:
    ledger = world.process()
    wait = awaitable(ledger, key=None)
    with ledger.scope("outer", tenant_id="acme"):
        outcome = await wait.using(scope="inner", tenant_id="bolt").outcome("a")
    record = await ledger.get(outcome.record_id)
    assert (record.scope, record.tenant_id) == ("inner", "bolt")


@pytest.mark.parametrize("where", ["using", "effect", "scope"])
async def test_u12_wait_for_decision_ends_when_another_process_decides(
    any_world: World, where: str
) -> None:
    ledger, other = any_world.process(), any_world.process()
    hour = timedelta(hours=1)
    pay = any_world.payer(ledger, wait_for_decision=hour if where == "effect" else None)
    any_world.bank.next = ["lost"]
    call = pay.using(wait_for_decision=hour) if where == "using" else pay

    async def go() -> Any:
        if where != "scope":
            return await call("order-7")
        with ledger.scope(wait_for_decision=hour):
            return await call("order-7")

    running = asyncio.create_task(go())
    await other.decide(await asked(other), Happened({"id": "seen"}), **BY)
    assert await running == {"id": "seen"}
    assert any_world.clock.now() < 3600


async def test_u12_a_decision_to_allow_is_used_by_the_waiting_call(world: World) -> None:
    ledger, other = world.process(), world.process()
    pay = world.payer(ledger)
    world.bank.next = ["dropped"]
    running = asyncio.create_task(pay.using(wait_for_decision=timedelta(hours=1))("order-7"))
    await other.decide(await asked(other), AllowOneAttempt(), **BY)
    assert await running == {"id": "pay_1", "cents": 1}


async def test_u12_a_decision_to_give_up_is_told_to_the_waiting_call(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger)
    world.bank.next = ["dropped"]
    running = asyncio.create_task(pay.using(wait_for_decision=timedelta(hours=1))("order-7"))
    await ledger.decide(await asked(ledger), GiveUp(), **BY)
    with pytest.raises(OutcomeUnknown) as caught:
        await running
    assert caught.value.next == "closed"


async def test_u12_wait_for_decision_ends_by_itself(world: World) -> None:
    pay = world.payer(world.process())
    world.bank.next = ["lost"]
    before = world.clock.now()
    with pytest.raises(OutcomeUnknown) as caught:
        await pay.using(wait_for_decision=timedelta(seconds=20))("order-7")
    assert caught.value.next == "ask_person"
    assert world.clock.now() - before == pytest.approx(20, abs=1)


async def test_u12_waiting_ends_although_nobody_may_send_what_was_permitted(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger, no_use_after=timedelta(seconds=60))
    world.bank.next = ["lost"]
    with pytest.raises(OutcomeUnknown):
        await pay("order-7")
    await ledger.decide(await only(ledger), AllowOneAttempt(), **BY)
    world.pass_time(61)
    with pytest.raises(OutcomeUnknown):
        async with asyncio.timeout(5):
            await pay.using(wait_for_decision=timedelta(seconds=20))("order-7")
    assert world.bank.calls == 1


async def test_u12_wait_zero_does_not_sleep(world: World) -> None:
    pay = world.payer(world.process(), probe=world.bank.probe)
    world.bank.next, world.bank.says = ["lost"], "active"
    before = world.clock.now()
    with pytest.raises(OutcomeUnknown) as caught:
        await pay.using(wait=timedelta(0))("order-7")
    assert world.clock.now() == before
    assert caught.value.retry_after == timedelta(seconds=0.5)
