"""The worker of seed 002, on every kind of store; the oracle is what the handlers did."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.delayed_effects.conftest import Effects

from indoubt import Happened, Ledger
from indoubt.delayed_effects import (
    DelayedEffectAction,
    DelayedEffectIntent,
    DelayedEffectState,
    DelayedEffectStore,
    DelayedEffectWorker,
)
from indoubt.store import Store

S, A = DelayedEffectState, DelayedEffectAction
SOON_S = 30.0


async def add(store: DelayedEffectStore, name: str, kind: str = "unmute", **given: Any) -> str:
    delay = given.pop("delay", 0)
    intent = await store.register(name, kind, {"name": name, **given}, delay_seconds=delay)
    return intent.intent_id


async def eventually(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not done():  # noqa: ASYNC110 - what is waited for says nothing by itself
            await asyncio.sleep(0)


class Chat:
    """A provider that counts."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()

    async def unmute(self, intent: DelayedEffectIntent) -> dict[str, Any]:
        self.done[intent.payload["name"]] += 1
        return {"unmuted": intent.payload["name"], "fence": intent.fence}


async def test_d40_d41_a_pass_fires_what_is_due_and_keeps_its_receipt(effects: Effects) -> None:
    chat, store = Chat(), effects.lasting
    ids = [await add(store, f"op-{n}") for n in range(5)]
    await add(store, "later", delay=3600)
    worker = DelayedEffectWorker(store, {"unmute": chat.unmute})
    assert await worker.recover_once() == 5
    assert chat.done == {f"op-{n}": 1 for n in range(5)}
    for n, intent_id in enumerate(ids):
        intent = await store.get(intent_id)
        assert (intent.state, intent.receipt) == (S.COMPLETED, {"unmuted": f"op-{n}", "fence": 1})
    assert await worker.recover_once() == 0


async def test_d28_a_pass_is_bounded(effects: Effects) -> None:
    chat, store = Chat(), effects.lasting
    for n in range(7):
        await add(store, f"op-{n}")
    worker = DelayedEffectWorker(store, {"unmute": chat.unmute}, batch_size=3, concurrency=2)
    assert [await worker.recover_once() for _ in range(4)] == [3, 3, 1, 0]
    assert set(chat.done.values()) == {1}


async def test_a_plain_function_is_fired_in_a_thread(effects: Effects) -> None:
    store, threads = effects.lasting, set[int]()
    intent_id = await add(store, "op")

    def unmute(intent: DelayedEffectIntent) -> str:
        threads.add(threading.get_ident())
        return intent.operation_id

    assert await DelayedEffectWorker(store, {"unmute": unmute}).recover_once() == 1
    assert threads
    assert threading.get_ident() not in threads
    assert (await store.get(intent_id)).receipt == "op"


async def test_d34_d46_an_unknown_type_waits_and_holds_up_nobody(effects: Effects) -> None:
    chat, store = Chat(), effects.lasting
    unknown = [await add(store, f"new-{n}", "ban") for n in range(40)]
    await add(store, "op")
    worker = DelayedEffectWorker(store, {"unmute": chat.unmute}, batch_size=32)
    assert await worker.recover_once() == 1
    assert chat.done == {"op": 1}
    found = [await store.get(intent_id) for intent_id in unknown]
    assert {(intent.state, intent.attempts) for intent in found} == {(S.PENDING, 0)}
    knows = DelayedEffectWorker(store, {"ban": chat.unmute}, batch_size=100, concurrency=8)
    assert await knows.recover_once() == 40


async def test_d47_a_handler_that_raises_is_tried_again_later(effects: Effects) -> None:
    chat, store = Chat(), effects.lasting
    bad = await add(store, "bad", "boom")
    await add(store, "good")

    async def boom(intent: DelayedEffectIntent) -> None:
        raise ValueError(f"no {intent.payload['name']}\ud800 {'x' * 5000}")

    handlers = {"boom": boom, "unmute": chat.unmute}
    worker = DelayedEffectWorker(store, handlers, retry_delay_seconds=3600)
    report = await worker.run_once()
    assert report.results == {"RETRY_SCHEDULED": 1, "COMPLETED": 1}
    intent = await store.get(bad)
    assert (intent.state, intent.attempts) == (S.PENDING, 1)
    assert intent.error["type"] == "ValueError"
    assert intent.error["attempt"] == 1
    assert len(intent.error["message"]) <= 1024
    assert intent.due_at_ms - intent.created_at_ms >= 3_500_000
    assert await worker.recover_once() == 0


@pytest.mark.parametrize("receipt", [{1, 2}, float("nan"), {1: "a"}, object()])
async def test_d48_what_cannot_be_stored_did_happen(effects: Effects, receipt: object) -> None:
    store, done = effects.lasting, Counter[str]()
    intent_id = await add(store, "op")

    async def unmute(intent: DelayedEffectIntent) -> object:
        done[intent.operation_id] += 1
        return receipt

    worker = DelayedEffectWorker(store, {"unmute": unmute})
    assert [await worker.recover_once() for _ in range(2)] == [1, 0]
    intent = await store.get(intent_id)
    assert (intent.state, intent.receipt) == (S.COMPLETED, None)
    assert intent.error["code"] == "receipt_not_serialisable"
    assert done == {"op": 1}


async def test_d44_d45_a_provider_that_is_down_uses_up_no_attempt(effects: Effects) -> None:
    chat, store, up = Chat(), effects.lasting, False
    intent_id = await add(store, "op")

    async def each(_intent: DelayedEffectIntent) -> bool:
        return up

    def whole() -> bool:
        return up

    for check, claimed in ((whole, 0), (each, 1)):
        worker = DelayedEffectWorker(
            store,
            {"unmute": chat.unmute},
            readiness_check=check,
            retry_delay_seconds=0,
            batch_size=1,
        )
        for _ in range(3):
            assert await worker.recover_once() == claimed
        intent = await store.get(intent_id)
        assert (intent.state, intent.attempts, intent.error) == (S.PENDING, 0, None)
    assert chat.done == {}
    up = True
    assert await worker.recover_once() == 1
    assert chat.done == {"op": 1}


async def test_d44_a_check_that_fails_means_not_ready(effects: Effects) -> None:
    chat, store = Chat(), effects.lasting
    await add(store, "op")

    def broken() -> bool:
        raise ConnectionError("down")

    def two(_first: object, _second: object) -> bool:
        return True

    for check in (broken, lambda: "yes"):
        worker = DelayedEffectWorker(store, {"unmute": chat.unmute}, readiness_check=check)
        assert await worker.recover_once() == 0
    with pytest.raises(TypeError, match="readiness_check"):
        DelayedEffectWorker(store, {"unmute": chat.unmute}, readiness_check=two)


async def test_d49_a_handler_longer_than_its_lease_keeps_it(effects: Effects) -> None:
    store = effects.view(execution_lease_seconds=1.5)
    intent_id = await add(store, "op")
    entered, release = asyncio.Event(), asyncio.Event()

    async def unmute(intent: DelayedEffectIntent) -> int:
        entered.set()
        await release.wait()
        return intent.fence

    worker = DelayedEffectWorker(store, {"unmute": unmute})
    running = asyncio.create_task(worker.run_once())
    await entered.wait()
    other = DelayedEffectWorker(store, {"unmute": unmute})
    begun = (await store.get(intent_id)).created_at_ms
    async with asyncio.timeout(SOON_S):
        while (await _now(store)) - begun < 4500:  # three leases
            assert await other.recover_once() == 0
            await store.runtime().store.wait((), timeout=0.05)
    release.set()
    assert (await running).results == {"COMPLETED": 1}
    assert (await store.get(intent_id)).receipt == 1


async def _now(store: DelayedEffectStore) -> int:
    return (await store.runtime().store.read([])).now_ms


async def test_d54_the_result_of_one_that_was_replaced_is_not_kept(effects: Effects) -> None:
    store = effects.lasting
    intent_id = await add(store, "op")

    async def unmute(intent: DelayedEffectIntent) -> str:
        # The lease is ended behind its back: as if this process had been stopped for long.
        ended = effects.expiring
        await ended.requeue(intent, delay_seconds=0)
        other = await ended.claim(intent_id, "other")
        await store.complete(other, "other's")
        return "mine"

    report = await DelayedEffectWorker(store, {"unmute": unmute}).run_once()
    assert report.results == {"STALE_OWNER": 1}
    assert (await store.get(intent_id)).receipt == "other's"


async def test_d55_start_and_stop(effects: Effects) -> None:
    chat, store = Chat(), effects.lasting
    worker = DelayedEffectWorker(store, {"unmute": chat.unmute}, poll_interval_seconds=600)
    await worker.stop()
    for n in range(2):
        await worker.start()
        await worker.start()
        await add(store, f"op-{n}")  # wakes it: the next poll is ten minutes away
        await eventually(lambda n=n: chat.done[f"op-{n}"] == 1)
        await worker.stop()
        await worker.stop()
    assert chat.done == {"op-0": 1, "op-1": 1}


async def test_what_falls_due_wakes_the_worker_in_time(effects: Effects) -> None:
    chat, store = Chat(), effects.lasting
    await add(store, "op", delay=0.5)
    async with DelayedEffectWorker(store, {"unmute": chat.unmute}, poll_interval_seconds=600):
        await eventually(lambda: chat.done["op"] == 1)
    assert chat.done == {"op": 1}


async def test_d56_stop_lets_a_running_handler_finish(effects: Effects) -> None:
    store, entered, release = effects.lasting, asyncio.Event(), asyncio.Event()
    first = await add(store, "op-1")
    second = await add(store, "op-2")

    async def unmute(_intent: DelayedEffectIntent) -> str:
        entered.set()
        await release.wait()
        return "done"

    worker = DelayedEffectWorker(store, {"unmute": unmute})
    await worker.start()
    await entered.wait()
    stopping = asyncio.create_task(worker.stop())
    await asyncio.sleep(0)
    release.set()
    await stopping
    done = {(await store.get(intent_id)).state for intent_id in (first, second)}
    assert done == {S.COMPLETED, S.PENDING}


async def test_d56_stop_hands_over_what_does_not_finish(effects: Effects) -> None:
    store, entered = effects.lasting, asyncio.Event()
    intent_id = await add(store, "op")

    async def unmute(_intent: DelayedEffectIntent) -> None:
        entered.set()
        await asyncio.Event().wait()

    worker = DelayedEffectWorker(store, {"unmute": unmute}, grace_seconds=0.05)
    await worker.start()
    await entered.wait()
    await worker.stop()
    intent = await store.get(intent_id)
    assert (intent.state, intent.attempts) == (S.PENDING, 0)
    assert intent.error == {"code": "interrupted"}
    chat = Chat()
    assert await DelayedEffectWorker(store, {"unmute": chat.unmute}).recover_once() == 1


async def test_s23_poison_is_parked_and_listed_for_a_person(effects: Effects) -> None:
    chat = Chat()
    store = effects.expiring
    poison = await add(store, "poison")
    for n in range(3):  # three workers died of it
        assert (await store.claim(poison, f"dead-{n}")).should_execute
        await asyncio.sleep(0.01)  # handler under test blocks: a lease of a millisecond ends
    store = effects.lasting
    for n in range(20):
        await add(store, f"op-{n}")
    worker = DelayedEffectWorker(
        store, {"unmute": chat.unmute}, max_attempts=3, concurrency=4, batch_size=100
    )
    assert (await worker.run_once()).results == {"parked": 1, "COMPLETED": 20}
    assert "poison" not in chat.done
    intent = await store.get(poison)
    assert (intent.state, intent.error) == (S.PENDING, {"code": "parked"})
    assert poison not in await store.list_due()
    assert (await store.claim(poison, "w")).action is A.NOT_DUE
    ledger = Ledger(effects.ledger_store)
    (item,) = (await ledger.in_doubt(kinds=["delayed_effect"])).items
    assert item.reason == "a person must decide (parked)"


async def test_d42_s27_no_more_is_claimed_than_can_start(effects: Effects) -> None:
    store, running, most = effects.lasting, 0, 0
    for n in range(30):
        await add(store, f"op-{n}", f"kind-{n % 3}")

    async def slow(_intent: DelayedEffectIntent) -> None:
        nonlocal running, most
        running += 1
        held = [i for i in (await store.scan(limit=100)).items if i.state is S.EXECUTING]
        most = max(most, running, len(held))
        await asyncio.sleep(0)
        running -= 1

    handlers = {f"kind-{n}": slow for n in range(3)}
    worker = DelayedEffectWorker(store, handlers, concurrency=4, batch_size=100)
    assert await worker.recover_once() == 30
    assert 1 < most <= 4


def _order(order: str) -> str:
    return order


async def test_a_guarded_function_as_handler_is_sent_once_although_fired_again(
    ledger_store: Store, effects: Effects
) -> None:
    """What is not safe to repeat has a record of its own; the intent waits while it is in doubt."""
    ledger = Ledger(ledger_store, allow_ledger_loss=True, lease=timedelta(seconds=30))
    charged: Counter[str] = Counter()
    lost = True

    @ledger.effect(safety="non_idempotent", key=_order, name="charge")
    async def charge(order: str) -> dict[str, str]:
        charged[order] += 1
        if lost:
            raise ConnectionResetError("the answer was lost")
        return {"order": order}

    store = effects.lasting
    intent = await store.register("op", "charge", {"order": "o-1"}, delay_seconds=0)
    worker = DelayedEffectWorker(store, {"charge": charge}, retry_delay_seconds=0, batch_size=1)
    assert (await worker.run_once()).results == {"DEFERRED": 1}
    now = await store.get(intent.intent_id)
    assert (now.state, now.attempts, now.error["type"]) == (S.PENDING, 0, "OutcomeUnknown")
    lost = False
    assert (await worker.run_once()).results == {"DEFERRED": 1}
    assert charged == {"o-1": 1}
    (item,) = (await ledger.in_doubt(kinds=["effect"])).items
    await ledger.decide(item, Happened({"order": "o-1"}), actor="ada", reason="saw it")
    assert (await worker.run_once()).results == {"COMPLETED": 1}
    assert (await store.get(intent.intent_id)).receipt == {"order": "o-1"}
    assert charged == {"o-1": 1}
