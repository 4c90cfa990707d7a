"""Sections 4.2 and 4.4 of seed 002's acceptance list, by id, on every kind of store."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import inspect
import json
import math
import time
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.delayed_effects.conftest import Effects
from tests.delayed_effects.making import OP, add, passed

from indoubt.delayed_effects import (
    DelayedEffectAction,
    DelayedEffectConflict,
    DelayedEffectIntent,
    DelayedEffectState,
    DelayedEffectStore,
    DelayedEffectWorker,
)

S, A = DelayedEffectState, DelayedEffectAction


async def now_ms(store: DelayedEffectStore) -> int:
    return (await store.runtime().store.read([])).now_ms


# -- values --------------------------------------------------------------------------------------


def test_d01_states_and_actions_are_texts_with_value_equal_to_name() -> None:
    assert [state.value for state in S] == ["PENDING", "EXECUTING", "COMPLETED"]
    assert len(A) == 14
    for one in (*S, *A):
        assert isinstance(one, str)
        assert one.value == one.name
        assert json.dumps(one) == f'"{one.name}"'


def test_d02_an_intent_has_the_seeds_fields_in_order_and_is_frozen() -> None:
    assert [field.name for field in dataclasses.fields(DelayedEffectIntent)] == [
        "action", "state", "intent_id", "operation_id", "effect_type", "payload_fingerprint",
        "payload", "due_at_ms", "created_at_ms", "owner_token", "fence", "attempts", "receipt",
        "error",
    ]  # fmt: skip
    assert [f.default for f in dataclasses.fields(DelayedEffectIntent)][-2:] == [None, None]
    parameters = inspect.signature(DelayedEffectStore).parameters
    assert {name: p.default for name, p in list(parameters.items())[1:4]} == {
        "namespace": "sg:delayed_effect:v1",
        "terminal_ttl_seconds": 604_800,
        "execution_lease_seconds": 300,
    }


async def test_d02_j4_values_are_plain_fresh_and_private(effects: Effects) -> None:
    given: dict[str, Any] = {"list": [1, {"a": 2}], "big": 2**53 + 1}
    first = await add(effects.lasting, payload=given)
    given["list"] = "changed"
    assert type(first.payload) is dict
    assert first.payload == {"list": [1, {"a": 2}], "big": 2**53 + 1}
    first.payload["list"].append(3)
    again = await effects.lasting.get(first.intent_id)
    assert again.payload == {"list": [1, {"a": 2}], "big": 2**53 + 1}
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.fence = 9  # pyright: ignore[reportAttributeAccessIssue]


async def test_d03_d04_terminal_should_execute_and_no_state(effects: Effects) -> None:
    intent = await add(effects.lasting)
    assert (intent.terminal, intent.should_execute) == (False, False)
    held = await effects.lasting.claim(intent.intent_id, "w")
    assert (held.terminal, held.should_execute) == (False, True)
    done = await effects.lasting.complete(held, None)
    assert (done.terminal, done.should_execute) == (True, False)
    gone = await effects.lasting.claim("0" * 64, "w")
    assert (gone.action, gone.state) == (A.MISSING, None)


def test_d06_d08_ids_and_keys_are_pure_and_tell_no_operation() -> None:
    intent_id = DelayedEffectStore.intent_id_for(OP)
    assert intent_id == hashlib.sha256(OP.encode()).hexdigest()
    store = DelayedEffectStore("memory:")
    key = store.key_for_intent(intent_id)
    assert key == store.key_for_intent(intent_id)
    assert key.startswith("sg:delayed_effect:v1:{")
    assert OP not in key
    other = DelayedEffectStore("memory:", namespace="my:{tag}")
    assert other.key_for_intent("abc") == "my:{tag}:intent:abc"


async def test_d07_no_raw_operation_id_is_in_any_record_id(effects: Effects) -> None:
    await add(effects.lasting)
    from indoubt.store import ScanQuery  # noqa: PLC0415

    page = await effects.ledger_store.scan(ScanQuery())
    assert [row.id.endswith(DelayedEffectStore.intent_id_for(OP)) for row in page.records] == [True]
    assert OP not in page.records[0].id + page.records[0].queue


async def test_d09_namespaces_separate(effects: Effects) -> None:
    one, two = effects.view(namespace="one"), effects.view(namespace="two")
    assert (await add(one)).action is A.REGISTERED
    assert (await add(two, payload={"user": 8})).action is A.REGISTERED
    assert len(await one.list_due()) == 1
    worker = DelayedEffectWorker(two, {"unmute": _payload})
    assert await worker.recover_once() == 1
    assert (await one.get(DelayedEffectStore.intent_id_for(OP))).state is S.PENDING


# -- registering -----------------------------------------------------------------------------------


async def test_d10_the_fingerprint_is_of_type_and_payload(effects: Effects) -> None:
    store = effects.lasting
    first = await add(store, payload={"a": 1, "b": [1, 2]}, delay_seconds=50)
    same = await add(store, payload={"b": [1, 2], "a": 1}, delay_seconds=0)
    assert (same.action, same.due_at_ms) == (A.CACHED, first.due_at_ms)
    for other in ({"a": 1.0, "b": [1, 2]}, {"a": True, "b": [1, 2]}, {"a": 1, "b": [2, 1]}):
        with pytest.raises(DelayedEffectConflict):
            await add(store, payload=other)


async def test_d11_d12_a_conflict_leaves_everything_as_it_is(effects: Effects) -> None:
    store = effects.lasting
    await add(store, delay_seconds=77)
    before = await store.get(DelayedEffectStore.intent_id_for(OP))
    others: list[dict[str, Any]] = [{"payload": {"user": 8}}, {"effect_type": "ban"}]
    for given in others:
        with pytest.raises(DelayedEffectConflict) as caught:
            await add(store, **given)
        assert isinstance(caught.value, RuntimeError)
        assert caught.value.intent.action is A.CONFLICT
        assert caught.value.intent.payload == {"user": 7}
    assert await store.get(before.intent_id) == before


BAD: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"effect_type": " "}, ValueError),
    ({"effect_type": 7}, TypeError),
    ({"payload": [1]}, TypeError),
    ({"payload": {"a": {1, 2}}}, TypeError),
    ({"payload": {"a": math.nan}}, TypeError),
    ({"payload": {1: 2}}, TypeError),
    ({"payload": {"a": "\ud800"}}, TypeError),
    ({"payload": {"a": "x" * 2_000_000}}, ValueError),
    ({"delay_seconds": True}, TypeError),
    ({"delay_seconds": "5"}, TypeError),
    ({"delay_seconds": math.nan}, ValueError),
    ({"delay_seconds": math.inf}, ValueError),
    ({"delay_seconds": -1}, ValueError),
    ({"delay_seconds": -1e12}, ValueError),
    ({"delay_seconds": 1e12}, ValueError),
    ({"no_use_after": datetime(2030, 1, 1)}, ValueError),  # noqa: DTZ001 - that is the point
    ({"no_use_after": 5}, TypeError),
]


@pytest.mark.parametrize(("given", "error"), BAD, ids=range(len(BAD)))
async def test_d13_s22_a_wrong_argument_writes_nothing(
    effects: Effects, given: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await add(effects.lasting, **given)
    assert (await effects.lasting.scan()).items == ()


@pytest.mark.parametrize("name", ["", "  ", "\ud800", 7, None])
async def test_d13_an_operation_has_a_name(effects: Effects, name: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        await add(effects.lasting, name)
    assert (await effects.lasting.scan()).items == ()


@pytest.mark.parametrize(
    ("delay", "ms"),
    [(0, 0), (0.0004, 1), (0.5, 500), (1.9999, 2000), (3, 3000), (timedelta(hours=1), 3_600_000)],
)
async def test_d13_s22_delays_are_kept_to_the_millisecond(
    effects: Effects, delay: Any, ms: int
) -> None:
    intent = await add(effects.lasting, delay_seconds=delay)
    assert intent.due_at_ms - intent.created_at_ms == ms
    stored = await effects.lasting.get(intent.intent_id)
    assert stored.due_at_ms - stored.created_at_ms == ms


async def test_d14_times_are_the_stores(effects: Effects, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose clock is an hour off registers for the same time."""
    before = await now_ms(effects.lasting)
    real = time.time
    if type(effects.ledger_store).__name__ in {"PostgresStore", "RedisStore"}:
        monkeypatch.setattr(time, "time", lambda: real() + 3600)
    intent = await add(effects.lasting, delay_seconds=10)
    after = await now_ms(effects.lasting)
    assert before + 10_000 <= intent.due_at_ms <= after + 10_000


async def test_d15_payload_receipt_and_error_are_opaque(effects: Effects) -> None:
    odd: dict[str, Any] = {
        "empty": [],
        "int": 9007199254740993,
        "huge": 2**200,
        "deep": [[[[[]]]]],
        "nul": "\0",
    }
    intent = await add(effects.lasting, payload=odd)
    held = await effects.lasting.claim(intent.intent_id, "w")
    assert held.payload == odd
    retried = await effects.lasting.requeue(held, delay_seconds=0, error=odd)
    assert retried.error == odd
    held = await effects.lasting.claim(intent.intent_id, "w")
    assert (await effects.lasting.complete(held, odd)).receipt == odd


async def test_d16_d17_after_its_time_an_operation_runs_again(effects: Effects) -> None:
    store = effects.view(terminal_ttl_seconds=0.001)
    intent = await add(store)
    held = await store.claim(intent.intent_id, "w")
    await store.complete(held, 1)
    await passed()
    assert (await store.get(intent.intent_id)).action is A.MISSING
    again = await add(store, payload={"other": 1})
    assert (again.action, again.fence, again.attempts) == (A.REGISTERED, 0, 0)
    assert (await store.claim(intent.intent_id, "w")).action is A.ACQUIRED


async def test_d17_a_tombstone_knows_the_operation_for_longer(effects: Effects) -> None:
    store = effects.view(terminal_ttl_seconds=0.001, tombstone_seconds=3600)
    intent = await add(store)
    held = await store.claim(intent.intent_id, "w")
    await store.complete(held, {"receipt": 1})
    await passed()
    cached = await add(store)
    assert (cached.action, cached.receipt) == (A.CACHED, None)
    with pytest.raises(DelayedEffectConflict):
        await add(store, payload={"other": 1})


async def test_d25_p25_a_holder_of_the_life_before_completes_nothing(effects: Effects) -> None:
    """Same owner token, same fence, and another intent since."""
    store = effects.view(terminal_ttl_seconds=0.001)
    intent = await add(store)
    old = await store.claim(intent.intent_id, "w")
    await store.complete(old, "first life")
    await passed()
    await add(store)
    new = await store.claim(intent.intent_id, "w")
    assert (new.fence, new.owner_token) == (old.fence, old.owner_token)
    late = await store.complete(old, "late")
    assert late.action in {A.STALE_OWNER, A.INVALID_STATE}
    done = await effects.lasting.complete(new, "second life")
    assert (done.action, done.receipt) == (A.COMPLETED, "second life")


# -- holding ---------------------------------------------------------------------------------------


async def test_d18_d19_fences_rise_and_an_owner_is_cleared(effects: Effects) -> None:
    store = effects.lasting
    intent = await add(store)
    for number in range(1, 4):
        held = await store.claim(intent.intent_id, f"w{number}")
        assert (held.fence, held.attempts, held.owner_token) == (number, number, f"w{number}")
        let_go = await store.requeue(held, delay_seconds=0)
        assert (let_go.owner_token, let_go.fence) == ("", number)


async def test_d20_of_two_racing_claims_one_wins(effects: Effects) -> None:
    store = effects.lasting
    rounds = 40
    for n in range(rounds):
        intent = await add(store, f"op-{n}")
        found = await asyncio.gather(*(store.claim(intent.intent_id, f"w{w}") for w in range(3)))
        assert Counter(one.action for one in found) == {A.ACQUIRED: 1, A.BUSY: 2}


async def test_d21_d23_who_was_replaced_may_do_nothing(effects: Effects) -> None:
    intent = await add(effects.lasting)
    old = await effects.expiring.claim(intent.intent_id, "w")
    await passed()
    new = await effects.lasting.claim(intent.intent_id, "w")  # its own earlier task is fenced too
    assert (new.action, new.fence) == (A.RECLAIMED, old.fence + 1)
    assert (await effects.lasting.claim(intent.intent_id, "w")).action is A.BUSY
    for verb in (
        effects.lasting.renew(old),
        effects.lasting.complete(old, 1),
        effects.lasting.requeue(old, delay_seconds=0),
    ):
        assert (await verb).action is A.STALE_OWNER
    assert (await effects.lasting.complete(new, 2)).receipt == 2


async def test_d22_the_end_of_a_lease_is_one_moment_for_claim_and_list(effects: Effects) -> None:
    intent = await add(effects.lasting)
    held = await effects.view(execution_lease_seconds=0.05).claim(intent.intent_id, "w")
    assert held.should_execute
    async with asyncio.timeout(30):
        while intent.intent_id not in await effects.lasting.list_due():
            assert held.fence == 1
    assert (await effects.lasting.claim(intent.intent_id, "x")).action is A.RECLAIMED


@pytest.mark.parametrize("receipt", [{1}, math.nan, b"x", object(), {1: 2}])
async def test_d25_a_receipt_that_is_no_json_changes_nothing(
    effects: Effects, receipt: object
) -> None:
    held = await effects.lasting.claim((await add(effects.lasting)).intent_id, "w")
    with pytest.raises(TypeError):
        await effects.lasting.complete(held, receipt)
    assert (await effects.lasting.get(held.intent_id)).state is S.EXECUTING


async def test_d27_receipts_and_errors_are_bounded(effects: Effects) -> None:
    held = await effects.lasting.claim((await add(effects.lasting)).intent_id, "w")
    with pytest.raises(ValueError, match="receipt"):
        await effects.lasting.complete(held, "x" * 2_000_000)
    assert (await effects.lasting.get(held.intent_id)).state is S.EXECUTING


async def test_d28_d32_due_is_oldest_first_and_bounded(effects: Effects) -> None:
    store = effects.lasting
    ids = [(await add(store, f"op-{n}", effect_type=f"kind-{n % 3}")).intent_id for n in range(9)]
    assert sorted(await store.list_due(limit=9)) == sorted(ids)
    dues = [(await store.get(one)).due_at_ms for one in await store.list_due()]
    assert dues == sorted(dues)
    assert len(await store.list_due(limit=4)) == 4
    assert await effects.view(namespace="empty").list_due() == []


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, 1001])
async def test_d29_a_limit_is_a_positive_number(effects: Effects, limit: Any) -> None:
    for ask in (
        effects.lasting.list_due(limit=limit),
        effects.lasting.claim_due("w", limit=limit),
        effects.lasting.scan(limit=limit),
    ):
        with pytest.raises((TypeError, ValueError)):
            await ask


async def test_d38_d39_owner_and_fence_are_compared_and_told_as_digest(effects: Effects) -> None:
    intent = await add(effects.lasting)
    held = await effects.lasting.claim(intent.intent_id, "my-worker")
    seen = await effects.lasting.get(intent.intent_id)
    assert seen.owner_token == "sha256:" + hashlib.sha256(b"my-worker").hexdigest()[:12]
    assert (await effects.lasting.complete(seen, 1)).action is A.STALE_OWNER
    ahead = dataclasses.replace(held, fence=held.fence + 5)
    assert (await effects.lasting.complete(ahead, 1)).action is A.STALE_OWNER
    assert (await effects.lasting.complete(held, 1)).action is A.COMPLETED


async def test_claim_due_takes_each_once(effects: Effects) -> None:
    store = effects.lasting
    for n in range(30):
        await add(store, f"op-{n}")
    pages = await asyncio.gather(*(store.claim_due(f"w{n}", limit=7) for n in range(6)))
    taken = [intent.intent_id for page in pages for intent in page]
    assert len(taken) == len(set(taken)) == 30
    assert {intent.action for page in pages for intent in page} == {A.ACQUIRED}
    done = [await store.complete(intent, 1) for page in pages for intent in page]
    assert {intent.action for intent in done} == {A.COMPLETED}


def _payload(intent: DelayedEffectIntent) -> int:
    return intent.payload["user"]
