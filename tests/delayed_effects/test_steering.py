"""Steering intents, and registering them from inside a call, on every kind of store."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.delayed_effects.conftest import Effects
from tests.delayed_effects.making import add, passed

from indoubt import ANY_TENANT, AllowOneAttempt, EffectContext, Happened, Ledger
from indoubt.delayed_effects import (
    DelayedEffectAction,
    DelayedEffectConflict,
    DelayedEffectIntent,
    DelayedEffectState,
    DelayedEffectStore,
    delayed_effect_store_for_context,
    register_delayed_effect,
)
from indoubt.store import Store

S, A = DelayedEffectState, DelayedEffectAction


# -- steering (D-1) --------------------------------------------------------------------------------


async def test_cancel_answers_what_it_came_to(effects: Effects) -> None:
    store = effects.lasting
    waiting = await add(store, "waiting", delay_seconds=60)
    done = await store.cancel(waiting)
    assert (done.action, done.state) == (A.COMPLETED, S.COMPLETED)
    assert (done.receipt, done.error) == (None, {"code": "cancelled"})
    assert (await store.cancel(waiting)).action is A.CACHED
    assert (await add(store, "waiting")).action is A.CACHED
    assert (await store.cancel("0" * 64)).action is A.MISSING
    tried = await add(store, "tried")
    held = await store.claim(tried.intent_id, "w")
    assert (await store.cancel(tried)).action is A.BUSY
    assert (await store.complete(held, 1)).action is A.COMPLETED  # it did happen
    again = await add(store, "again")
    held = await store.claim(again.intent_id, "w")
    await store.requeue(held, delay_seconds=60)
    assert (await store.cancel(again)).error == {"code": "cancelled"}


async def test_s23_a_cancelled_claim_ends_at_the_next_take_over(effects: Effects) -> None:
    intent = await add(effects.lasting)
    await effects.expiring.claim(intent.intent_id, "dies")
    await passed()
    held = await effects.view(execution_lease_seconds=1).claim(intent.intent_id, "dies too")
    assert (await effects.lasting.cancel(intent)).action is A.BUSY
    async with asyncio.timeout(30):
        while held.intent_id not in await effects.lasting.list_due():
            assert held.should_execute
    assert await effects.lasting.claim_due("w", limit=9) == []
    ended = await effects.lasting.get(intent.intent_id)
    assert (ended.state, ended.error) == (S.COMPLETED, {"code": "cancelled"})


async def test_reschedule_moves_the_due_time(effects: Effects) -> None:
    store = effects.lasting
    intent = await add(store)
    moved = await store.reschedule(intent, delay_seconds=60)
    assert (moved.action, await store.list_due()) == (A.DEFERRED, [])
    assert moved.due_at_ms - intent.due_at_ms >= 59_000
    await store.reschedule(intent.intent_id, delay_seconds=0)
    held = await store.claim(intent.intent_id, "w")
    assert (await store.reschedule(intent, delay_seconds=9)).action is A.BUSY
    await store.complete(held, 1)
    assert (await store.reschedule(intent, delay_seconds=9)).action is A.CACHED
    assert (await store.reschedule("0" * 64, delay_seconds=9)).action is A.MISSING


async def test_s27_what_is_of_no_use_any_more_is_closed_as_expired(effects: Effects) -> None:
    store, past = effects.lasting, datetime.now(UTC) - timedelta(days=1)
    one = await add(store, "one", no_use_after=past)
    two = await add(store, "two", no_use_after=past)
    assert (await store.claim(one.intent_id, "w")).action is A.CACHED
    assert await store.claim_due("w", limit=9) == []
    for intent in (one, two):
        ended = await store.get(intent.intent_id)
        assert (ended.state, ended.error) == (S.COMPLETED, {"code": "expired"})


async def test_a_parked_intent_is_released_or_settled_by_a_person(effects: Effects) -> None:
    store, ledger = effects.lasting, Ledger(effects.ledger_store)
    for name, decision in (("again", AllowOneAttempt()), ("done", Happened({"seen": 1}))):
        intent = await add(store, name)
        await effects.expiring.claim(intent.intent_id, "dies")
        await passed()
        await store.park(await store.claim(intent.intent_id, "w"))
        assert (await store.claim(intent.intent_id, "w")).action is A.NOT_DUE
        record = await store.record(intent.intent_id)
        assert record is not None
        assert record.state == "awaiting_decision"
        await _decided(ledger, record.record_id, decision)
    again = await store.get(DelayedEffectStore.intent_id_for("again"))
    assert again.state is S.PENDING
    assert (await store.claim(again.intent_id, "w")).should_execute
    done = await store.get(DelayedEffectStore.intent_id_for("done"))
    assert (done.state, done.receipt) == (S.COMPLETED, {"seen": 1})


async def _decided(ledger: Ledger, record_id: str, decision: Any) -> None:
    """Decide; too early while the lease that was cut short might still send."""
    from indoubt import TooEarly  # noqa: PLC0415

    async with asyncio.timeout(30):
        while True:
            item = await ledger.get(record_id)
            try:
                await ledger.decide(item, decision, actor="ada", reason="looked")
            except TooEarly:
                await asyncio.sleep(0)
            else:
                return


async def test_scan_pages_through_a_namespace(effects: Effects) -> None:
    store = effects.lasting
    for n in range(7):
        await add(store, f"op-{n}", effect_type=f"kind-{n % 2}", delay_seconds=n)
    await add(effects.view(namespace="other"), "op-x")
    for types, names in ((None, range(7)), (["kind-1"], (1, 3, 5))):
        found: list[str] = []
        cursor = None
        while True:
            page = await store.scan(effect_types=types, limit=2, cursor=cursor)
            found += [intent.operation_id for intent in page.items]
            cursor = page.cursor
            if cursor is None:
                break
        assert sorted(found) == [f"op-{n}" for n in names]
    with pytest.raises(ValueError, match="cursor"):
        await store.scan(cursor="garbled")


async def test_tenants_are_kept_apart_in_listings(effects: Effects) -> None:
    await add(effects.lasting, "a", tenant_id="acme")
    await add(effects.lasting, "b")
    for tenant, names in (("acme", ["a"]), (None, ["b"]), ("nobody", []), (ANY_TENANT, ["a", "b"])):
        page = await effects.lasting.scan(tenant_id=tenant)
        assert sorted(intent.operation_id for intent in page.items) == names


# -- inside a call (4.4) ---------------------------------------------------------------------------


async def test_d70_where_the_store_of_a_context_comes_from(ledger_store: Store) -> None:
    made = DelayedEffectStore(ledger_store)
    assert delayed_effect_store_for_context(SimpleNamespace(delayed_effects=made)) is made
    ledger = Ledger(ledger_store)
    found = delayed_effect_store_for_context(SimpleNamespace(ledger=ledger, redis=None))
    assert found.namespace == "sg:delayed_effect:v1"
    with pytest.raises(RuntimeError, match="delayed_effects"):
        delayed_effect_store_for_context(SimpleNamespace())


@pytest.mark.parametrize("operation", [None, "", " ", 7])
async def test_d72_without_an_active_call_nothing_is_registered(
    ledger_store: Store, operation: Any
) -> None:
    ctx = SimpleNamespace(ledger=Ledger(ledger_store), operation_id=operation)
    with pytest.raises(RuntimeError, match="operation_id"):
        await register_delayed_effect(ctx, effect_type="unmute", payload={}, delay_seconds=0)
    assert (await DelayedEffectStore(ledger_store).scan()).items == ()


async def test_d71_d73_d74_d77_registering_is_stable_under_replay(ledger_store: Store) -> None:
    ledger = Ledger(ledger_store, allow_ledger_loss=True)
    seen: list[DelayedEffectIntent] = []
    left: list[EffectContext] = []

    @ledger.effect(safety="idempotent", name="mute", key=_user)
    async def mute(user: int, *, effect: EffectContext) -> str:
        for name in (None, "notice"):
            kind, payload = name or "unmute", {"user": user}
            seen.append(await _registered(effect, kind, payload, name))
        left.append(effect)
        if len(seen) == 2:
            raise ConnectionResetError("the answer was lost")
        return "muted"

    assert await mute(7) == "muted"  # replayed by the call itself: it is idempotent
    assert [intent.action for intent in seen] == [A.REGISTERED, A.REGISTERED, A.CACHED, A.CACHED]
    assert [i.intent_id for i in seen[:2]] == [i.intent_id for i in seen[2:]]
    assert [i.due_at_ms for i in seen[:2]] == [i.due_at_ms for i in seen[2:]]
    with pytest.raises(RuntimeError, match="over"):
        await register_delayed_effect(left[0], effect_type="x", payload={}, delay_seconds=0)
    ctx = SimpleNamespace(ledger=ledger, operation_id=left[0].operation_id)
    with pytest.raises(DelayedEffectConflict):
        await register_delayed_effect(ctx, effect_type="unmute", payload={}, delay_seconds=0)


async def _registered(
    effect: EffectContext, kind: str, payload: dict[str, Any], name: str | None
) -> DelayedEffectIntent:
    return await register_delayed_effect(
        effect, effect_type=kind, payload=payload, delay_seconds=60, name=name
    )


def _user(user: int) -> str:
    return str(user)
