"""What a ledger's own recovery does to delayed effects: nothing; they are their workers'."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from indoubt import Ledger
from indoubt.delayed_effects import DelayedEffectState, DelayedEffectStore
from indoubt.store import Store

from .conftest import Effects

S = DelayedEffectState


async def test_recover_leaves_delayed_effects_to_their_workers(
    ledger_store: Store, effects: Effects
) -> None:
    """One that waits is not abandoned; one whose lease is over is not called by its type's name."""
    sent: list[str] = []
    ledger = Ledger(ledger_store, allow_ledger_loss=True, abandon_after=timedelta(milliseconds=1))

    @ledger.effect(safety="non_idempotent", name="charge")
    async def charge(to: str) -> None:
        sent.append(to)

    assert charge.__name__
    store = effects.expiring
    later = await store.register("later", "charge", {"to": "later"}, delay_seconds=60)
    waits = await store.register("waits", "charge", {"to": "waits"}, delay_seconds=0)
    died = await store.register("died", "charge", {"to": "died"}, delay_seconds=0)
    held = await store.claim(died.intent_id, "dead")
    async with asyncio.timeout(20):
        while died.intent_id not in await store.list_due():
            pass
    done = await ledger.recover()
    assert (done.settled, done.replayed, sent) == ((), (), [])
    assert (await store.get(later.intent_id)).state is S.PENDING
    assert (await store.get(waits.intent_id)).state is S.PENDING
    now = await store.get(died.intent_id)
    assert (now.state, now.fence) == (S.EXECUTING, held.fence)
    with pytest.raises(LookupError):
        await ledger.probe(store.key_for_intent(died.intent_id))


@pytest.mark.parametrize("namespace", ["", " ", "a.b", "a/b", "a\nb", "a\x1fb", 7, None])
async def test_a_namespace_that_would_garble_ids_is_refused(
    ledger_store: Store, namespace: object
) -> None:
    with pytest.raises((TypeError, ValueError)):
        DelayedEffectStore(ledger_store, namespace=namespace)  # pyright: ignore[reportArgumentType]
