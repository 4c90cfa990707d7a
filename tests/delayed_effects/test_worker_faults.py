"""A worker between two stools: while it claims, waits, stops, or its store does not answer."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from indoubt import AllowOneAttempt, Happened, Ledger
from indoubt.delayed_effects import (
    DelayedEffectIntent,
    DelayedEffectState,
    DelayedEffectStore,
    DelayedEffectWorker,
)
from indoubt.engine.holds import Hold
from indoubt.errors import StoreUnavailable, TooEarly
from indoubt.store import Store

from .conftest import Effects

S = DelayedEffectState
PATIENCE_S = 30.0
HOUR_S = 3600


class Stuck:
    """A handler that is inside until it is let go; ``deaf``: it swallows its cancellation."""

    def __init__(self, *, deaf: bool = False) -> None:
        self.inside, self.go, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.deaf, self.cancelled = deaf, asyncio.Event()

    async def __call__(self, intent: DelayedEffectIntent) -> str:
        self.inside.set()
        while True:
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                if not self.deaf:
                    raise
            else:
                return intent.operation_id


class Thread:
    """A plain handler, which runs in a thread until it is let go."""

    def __init__(self) -> None:
        self.inside, self.go = threading.Event(), threading.Event()

    def __call__(self, intent: DelayedEffectIntent) -> str:
        self.inside.set()
        assert self.go.wait(PATIENCE_S)
        return intent.operation_id


async def put(store: DelayedEffectStore, name: str = "op", **options: Any) -> str:
    options = {"delay_seconds": 0} | options
    return (await store.register(name, "mail", {"to": name}, **options)).intent_id


async def soon(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), PATIENCE_S)


async def ended(store: DelayedEffectStore, intent_id: str) -> DelayedEffectIntent:
    async with asyncio.timeout(PATIENCE_S):
        while not (now := await store.get(intent_id)).terminal:  # noqa: ASYNC110
            await asyncio.sleep(0)  # handler under test blocks
    return now


async def answer(intent: DelayedEffectIntent) -> str:
    return intent.operation_id


# -- waiting ---------------------------------------------------------------------------------------


async def test_d55_what_is_due_at_once_does_not_wait_for_the_poll(effects: Effects) -> None:
    store = effects.lasting
    worker = DelayedEffectWorker(store, {"mail": answer}, poll_interval_seconds=HOUR_S)
    async with worker:
        for name in ("first", "second"):
            assert (await ended(store, await put(store, name))).receipt == name


async def test_d55_what_comes_between_looking_and_waiting_is_not_missed(
    effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, ground = effects.lasting, effects.ledger_store
    scan = ground.scan
    late: list[str] = []

    async def looked(query: Any) -> Any:
        page = await scan(query)
        if not late:
            late.append(await put(store))
        return page

    monkeypatch.setattr(ground, "scan", looked)
    worker = DelayedEffectWorker(store, {"mail": answer}, poll_interval_seconds=HOUR_S)
    async with worker, asyncio.timeout(PATIENCE_S):
        while not late:  # noqa: ASYNC110 - the worker says nothing by itself
            await asyncio.sleep(0)  # handler under test blocks
        assert (await ended(store, late[0])).receipt == "op"


async def test_s22_not_ready_is_no_reason_to_spin(effects: Effects) -> None:
    store, asked = effects.lasting, 0

    def never() -> bool:
        nonlocal asked
        asked += 1
        return False

    intent_id = await put(store)
    worker = DelayedEffectWorker(
        store, {"mail": answer}, readiness_check=never, poll_interval_seconds=HOUR_S
    )
    async with worker:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.3)
    assert asked == 1
    assert (await store.get(intent_id)).attempts == 0


async def test_no_handlers_claim_nothing(effects: Effects) -> None:
    intent_id = await put(effects.lasting)
    worker = DelayedEffectWorker(effects.lasting, {}, poll_interval_seconds=0.01)
    async with worker:
        assert await worker.recover_once() == 0
    assert (await effects.lasting.get(intent_id)).state is S.PENDING


# -- the lease -------------------------------------------------------------------------------------


async def test_d51_the_lease_is_counted_from_before_the_claim(
    effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that was long on its way does not lengthen what the holder may count on."""
    store, ground = effects.lasting, effects.ledger_store
    engine, lease = store.runtime().engine, ground.lease
    holds: list[Hold] = []
    answered: list[float] = []

    async def slow(*query: Any) -> Any:
        page = await lease(*query)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.1)
        answered.append(engine.clock.now())
        return page

    monkeypatch.setattr(ground, "lease", slow)
    monkeypatch.setattr(engine.heartbeat, "hold", holds.append)
    await put(store)
    await DelayedEffectWorker(store, {"mail": answer}, batch_size=1).recover_once()
    (hold,) = holds
    assert hold.ends <= answered[0] - 0.1 + store.lease_ms / 1000


async def test_d50_whoever_cannot_renew_is_cancelled_and_writes_nothing(
    effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-51: one worker's store is away for longer than its lease; another's is not."""
    short, other, stuck = effects.view(execution_lease_seconds=0.3), effects.lasting, Stuck()

    def away(batches: Any) -> Any:
        raise StoreUnavailable(f"{len(batches)} renewals lost")

    monkeypatch.setattr(short.runtime().engine.heartbeat, "_write", away)
    intent_id = await put(short)
    worker = DelayedEffectWorker(short, {"mail": stuck}, poll_interval_seconds=HOUR_S)
    await worker.start()
    await soon(stuck.inside)
    async with asyncio.timeout(PATIENCE_S):
        while not (taken := await other.claim(intent_id, "other")).should_execute:  # noqa: ASYNC110
            await asyncio.sleep(0)  # handler under test blocks
    await soon(stuck.cancelled)
    await worker.stop()
    now = await effects.lasting.get(intent_id)
    assert (now.state, now.fence, now.error) == (S.EXECUTING, taken.fence, None)


async def test_d57_what_happened_is_told_when_the_store_is_back(
    effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = effects.lasting
    complete, failures = store.complete, 3

    async def away(*given: Any, **options: Any) -> Any:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise StoreUnavailable("away")
        return await complete(*given, **options)

    monkeypatch.setattr(store, "complete", away)
    intent_id = await put(store)
    await DelayedEffectWorker(store, {"mail": answer}).recover_once()
    now = await store.get(intent_id)
    assert (now.receipt, now.fence) == ("op", 1)


# -- stopping --------------------------------------------------------------------------------------


async def test_d56_a_thread_cannot_be_ended_and_keeps_its_lease(effects: Effects) -> None:
    """Longer than a lease after ``stop``: still nobody else may fire it."""
    store, handler = effects.view(execution_lease_seconds=1.5), Thread()
    intent_id = await put(store)
    worker = DelayedEffectWorker(store, {"mail": handler}, grace_seconds=0)
    await worker.start()
    assert await asyncio.to_thread(handler.inside.wait, PATIENCE_S)
    await asyncio.wait_for(worker.stop(), PATIENCE_S)
    release = asyncio.ensure_future(asyncio.Event().wait())
    until = asyncio.get_running_loop().time() + 2
    while asyncio.get_running_loop().time() < until:
        assert not (await effects.lasting.claim(intent_id, "thief")).should_execute
        await asyncio.wait({release}, timeout=0.02)
    release.cancel()
    handler.go.set()
    now = await ended(store, intent_id)
    assert (now.receipt, now.fence) == ("op", 1)


async def test_d56_a_deaf_handler_does_not_hold_up_stop_and_keeps_its_lease(
    effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indoubt.delayed_effects.worker.ENDING_S", 0.05)
    store, stuck = effects.lasting, Stuck(deaf=True)
    intent_id = await put(store)
    worker = DelayedEffectWorker(store, {"mail": stuck}, grace_seconds=0)
    await worker.start()
    await soon(stuck.inside)
    await asyncio.wait_for(worker.stop(), PATIENCE_S)
    assert (await store.get(intent_id)).state is S.EXECUTING
    stuck.go.set()
    assert (await ended(store, intent_id)).receipt == "op"


async def test_d56_what_is_claimed_while_it_stops_is_not_left_running(
    effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, ground, stuck = effects.lasting, effects.ledger_store, Stuck()
    lease, claiming, go = ground.lease, asyncio.Event(), asyncio.Event()

    async def slow(*query: Any) -> Any:
        claiming.set()
        await go.wait()
        return await lease(*query)

    monkeypatch.setattr(ground, "lease", slow)
    intent_id = await put(store)
    worker = DelayedEffectWorker(store, {"mail": stuck}, grace_seconds=0)
    await worker.start()
    await soon(claiming)
    stopping = asyncio.create_task(worker.stop())
    await asyncio.wait({stopping}, timeout=0.05)
    go.set()
    await asyncio.wait_for(stopping, PATIENCE_S)
    now = await store.get(intent_id)
    assert (now.state, now.attempts, now.error) == (S.PENDING, 0, {"code": "interrupted"})


async def test_d55_a_stopped_worker_can_be_used_again(effects: Effects) -> None:
    store = effects.lasting
    worker = DelayedEffectWorker(store, {"mail": answer})
    await worker.stop()
    await put(store, "one")
    assert await worker.recover_once() == 1
    await worker.start()
    await worker.stop()
    await put(store, "two")
    assert await worker.recover_once() == 1


# -- people ----------------------------------------------------------------------------------------


async def test_s23_a_person_may_allow_a_parked_intent_one_more_attempt(
    ledger_store: Store, effects: Effects
) -> None:
    """It is fired once more, and parked again if it fails."""
    store, ledger = effects.view(execution_lease_seconds=1.5), Ledger(ledger_store)
    tried: list[int] = []

    async def fails(intent: DelayedEffectIntent) -> None:
        tried.append(intent.attempts)
        raise OSError

    intent_id = await put(store)
    worker = DelayedEffectWorker(
        store, {"mail": fails}, max_attempts=2, retry_delay_seconds=0, batch_size=20
    )
    assert (await worker.run_once()).results == {"RETRY_SCHEDULED": 2, "parked": 1}
    for _ in range(2):
        (item,) = (await ledger.in_doubt(kinds=["delayed_effect"])).items
        await allowed(ledger, item.ref)
        before = len(tried)
        await worker.run_once()
        assert len(tried) == before + 1
    now = await store.get(intent_id)
    assert (now.state, now.error) == (S.PENDING, {"code": "parked"})


async def allowed(ledger: Ledger, ref: str) -> None:
    """Allow one attempt, once it is not too early to."""
    while True:
        try:
            await ledger.decide(ref, AllowOneAttempt(), actor="ana", reason="it is mended")
        except TooEarly:
            await asyncio.sleep(0)  # handler under test blocks
        else:
            return


async def test_a_guarded_handler_in_doubt_waits_for_a_person_of_its_tenant(
    ledger_store: Store, effects: Effects
) -> None:
    store, ledger = effects.lasting, Ledger(ledger_store, allow_ledger_loss=True)
    sent: list[str] = []

    @ledger.effect(safety="non_idempotent", name="mail")
    async def mail(to: str) -> None:
        sent.append(to)
        raise ConnectionResetError

    intent_id = await put(store, tenant_id="acme")
    worker = DelayedEffectWorker(store, {"mail": mail}, retry_delay_seconds=0, batch_size=1)
    for _ in range(3):  # the first attempt raises what the function raised, the next the doubt
        await worker.recover_once()
    now = await store.get(intent_id)
    assert (now.state, now.error["type"]) == (S.PENDING, "OutcomeUnknown")
    (item,) = (await ledger.in_doubt(tenant_id="acme", kinds=["effect"])).items
    assert (item.ref, item.key) == (now.error["ref"], "op")
    await ledger.decide(item.ref, Happened({"id": 7}), actor="ana", reason="the bank says")
    await worker.recover_once()
    assert (await store.get(intent_id)).receipt == {"id": 7}
    assert sent == ["op"]


# -- arguments -------------------------------------------------------------------------------------


def test_d58_d59_wrong_arguments_are_refused(effects: Effects) -> None:
    def two(first: Any, second: Any) -> bool:
        return first is second

    wrong: list[dict[str, Any]] = [
        {"owner_token": " "},
        {"batch_size": 0},
        {"concurrency": 0},
        {"concurrency": True},
        {"poll_interval_seconds": 0},
        {"poll_interval_seconds": float("nan")},
        {"retry_delay_seconds": -1},
        {"max_attempts": 0},
        {"readiness_check": two},
        {"readiness_check": "yes"},
    ]
    for arguments in wrong:
        with pytest.raises((TypeError, ValueError)):
            DelayedEffectWorker(effects.lasting, {}, **arguments)
    tokens = {DelayedEffectWorker(effects.lasting, {}).owner_token for _ in range(50)}
    assert len(tokens) == 50
