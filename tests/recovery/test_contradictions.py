"""Evidence against a record that is closed: kept, listed, never overwriting (P12, G2)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.conftest import World, first, only

from indoubt import (
    AllowOneAttempt,
    DidNotHappen,
    GiveUp,
    Happened,
    LeaseLost,
    Ledger,
    OutcomeUnknown,
    StaleDecision,
)

BY = {"actor": "ana", "reason": "seen in the bank's console"}


class Zombie:
    """A holder that stands still in the middle of paying, and returns when it is told to."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ledger = world.process()
        self.entered, self._free = asyncio.Event(), asyncio.Event()
        self._running: asyncio.Task[Any] | None = None

    async def start(self, order: str = "order-7") -> Ledger:
        """Begin, stand still, and lose the record to another process; answers that one's ledger."""

        @self.ledger.effect(safety="non_idempotent", name="pay", key=first)
        async def pay(order: str, cents: int = 1) -> Any:
            self.entered.set()
            await self._free.wait()
            return self.world.bank.pay(order, cents)

        self._running = asyncio.create_task(pay(order))
        await self.entered.wait()
        self.world.kill(self.ledger, proven=False)
        self.world.pass_time(31)
        other = self.world.process()
        with pytest.raises(OutcomeUnknown):
            await self.world.payer(other)(order)
        return other

    async def wake(self) -> None:
        """Go on: what it did is told to nobody but the ledger."""
        assert self._running is not None
        self._free.set()
        with pytest.raises(LeaseLost):
            await self._running


async def test_p12_a_late_result_after_did_not_happen_is_a_contradiction(any_world: World) -> None:
    zombie = Zombie(any_world)
    ledger = await zombie.start()
    question = await only(ledger)
    await ledger.decide(question, DidNotHappen(), **BY)
    await zombie.wake()
    item = await only(ledger)
    assert (item.state, item.effect) == ("failed", "none")  # never overwritten
    assert item.contradicted == item.reason == "it happened although the record says otherwise"
    assert item.evidence[-1]["source"] == "late_result"
    assert [choice.decision for choice in item.choices] == ["happened"]
    with pytest.raises(OutcomeUnknown) as caught:  # nothing is sent over a contradiction
        await any_world.payer(ledger)("order-7")
    assert (caught.value.next, caught.value.ref) == ("ask_person", item.ref)
    assert caught.value.choices == ("happened",)
    assert any_world.bank.count("order-7") == 1


async def test_p12_a_contradiction_is_corrected_only_by_a_decision(world: World) -> None:
    zombie = Zombie(world)
    ledger = await zombie.start()
    await ledger.decide(await only(ledger), DidNotHappen(), **BY)
    await zombie.wake()
    for _ in range(3):
        await ledger.recover()
    item = await only(ledger)
    for refused in (DidNotHappen(), AllowOneAttempt()):
        with pytest.raises(StaleDecision, match="came in"):
            await ledger.decide(item, refused, **BY)
    corrected = await ledger.decide(item, Happened({"id": "pay_1"}), **BY)
    assert (corrected.state, corrected.contradicted) == ("succeeded", None)
    assert (await ledger.in_doubt()).items == ()
    assert await world.payer(ledger)("order-7") == {"id": "pay_1"}
    assert world.bank.count("order-7") == 1


async def test_p12_two_different_results_raise_happened_twice(any_world: World) -> None:
    zombie = Zombie(any_world)
    ledger = await zombie.start()
    await ledger.decide(await only(ledger), AllowOneAttempt(), **BY)
    receipt = await any_world.payer(ledger)("order-7")
    await zombie.wake()
    assert any_world.bank.count("order-7") == 2
    item = await only(ledger)
    assert (item.state, item.contradicted) == ("succeeded", "happened twice")
    assert await any_world.payer(ledger)("order-7") == receipt
    assert item.receipt == receipt


async def test_p12_a_late_result_voids_a_permission_that_was_given_without_it(
    any_world: World,
) -> None:
    zombie = Zombie(any_world)
    ledger = await zombie.start()
    await ledger.decide(await only(ledger), AllowOneAttempt(), **BY)
    await zombie.wake()
    assert (await only(ledger)).state == "in_doubt"
    assert await any_world.payer(ledger)("order-7") == {"id": "pay_1", "cents": 1}
    assert any_world.bank.count("order-7") == 1
    assert (await ledger.in_doubt()).items == ()


@pytest.mark.parametrize("decision", [DidNotHappen(), AllowOneAttempt()])
async def test_p08_who_read_the_item_before_the_success_came_in_cannot_have_it_sent_again(
    any_world: World, decision: DidNotHappen | AllowOneAttempt
) -> None:
    zombie = Zombie(any_world)
    ledger = await zombie.start()
    await ledger.recover()
    read = await only(ledger)
    assert read.state == "awaiting_decision"
    await zombie.wake()
    with pytest.raises(StaleDecision, match="came in") as stale:
        await ledger.decide(read, decision, **BY)
    assert stale.value.current_ref == read.ref
    now = await only(ledger)
    assert [choice.decision for choice in now.choices] == ["give_up", "happened"]
    assert now.reason == "a person must decide (the success of an attempt has come in)"
    with pytest.raises(OutcomeUnknown):
        await any_world.payer(ledger)("order-7")
    assert (await ledger.decide(read, Happened(), **BY)).state == "succeeded"
    assert any_world.bank.count("order-7") == 1


async def test_p12_a_late_result_equal_to_the_receipt_is_no_contradiction(world: World) -> None:
    zombie = Zombie(world)
    ledger = await zombie.start()
    await ledger.decide(await only(ledger), Happened({"id": "pay_1", "cents": 1}), **BY)
    await zombie.wake()
    assert (await ledger.in_doubt()).items == ()


async def test_p12_a_late_result_after_give_up_is_evidence_for_the_correction(
    world: World,
) -> None:
    zombie = Zombie(world)
    ledger = await zombie.start()
    ref = (await only(ledger)).ref
    await ledger.decide(ref, GiveUp(), **BY)
    await zombie.wake()
    item = await only(ledger)  # listed again
    assert (item.ref, item.state) == (ref, "unknown")
    assert item.contradicted == "its result came in after it was given up"
    assert item.attempts[0]["late_result"]
    assert (await ledger.decide(ref, Happened(), **BY)).state == "succeeded"


async def test_p12_the_zombies_failure_contradicts_nothing(world: World) -> None:
    zombie = Zombie(world)
    ledger = await zombie.start()
    await ledger.decide(await only(ledger), Happened({"id": "seen"}), **BY)
    world.bank.next = ["lost"]
    await zombie.wake()
    assert (await ledger.in_doubt()).items == ()
    assert await world.payer(ledger)("order-7") == {"id": "seen"}


async def test_p12_contradicted_records_are_filtered_by_tenant_like_all_others(
    world: World,
) -> None:
    zombie = Zombie(world)
    ledger = await zombie.start()
    await ledger.decide(await only(ledger), DidNotHappen(), **BY)
    await zombie.wake()
    assert (await ledger.in_doubt(tenant_id="acme")).items == ()
    assert len((await ledger.in_doubt(tenant_id=None)).items) == 1


async def test_a_probe_by_hand_on_an_unknown_record_adds_evidence_only(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger, probe=world.bank.probe)
    world.bank.next, world.bank.says = ["lost"], "unknown"
    with pytest.raises(OutcomeUnknown) as doubt:
        await pay.using(wait=timedelta(0))("order-7")
    before = len((await only(ledger)).evidence)
    world.bank.says = "truth"
    view = await ledger.probe(doubt.value.ref)
    assert (view.state, len(view.evidence)) == ("awaiting_decision", before + 1)
    await ledger.decide(doubt.value, GiveUp(), **BY)
    view = await ledger.probe(doubt.value.ref)
    assert view.state == "unknown"
    assert view.evidence[-1]["status"] == "succeeded"


async def test_a_probe_by_hand_settles_what_it_may_settle(any_world: World) -> None:
    ledger = any_world.process()
    pay = any_world.payer(ledger, probe=any_world.bank.probe)
    any_world.bank.next, any_world.bank.says = ["lost"], "unavailable"
    with pytest.raises(OutcomeUnknown) as doubt:
        await pay.using(wait=timedelta(0))("order-7")
    any_world.bank.says = "truth"
    assert (await ledger.probe(doubt.value.ref)).state == "succeeded"


async def test_a_probe_by_hand_sends_nothing(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger, safety="idempotent", probe=world.bank.probe)
    world.bank.next, world.bank.says = ["dropped", "dropped"], "unknown"
    with pytest.raises(OutcomeUnknown) as doubt:
        await pay.using(wait=timedelta(0))("order-7")
    calls = world.bank.calls
    view = await ledger.probe(doubt.value.ref)
    assert (view.state, world.bank.calls) == ("in_doubt", calls)


async def test_a_probe_by_hand_needs_the_code(world: World) -> None:
    ledger = world.process()
    world.bank.next = ["lost"]
    with pytest.raises(OutcomeUnknown) as doubt:
        await world.payer(ledger)("order-7")
    for asking, why in ((ledger, "declares no probe"), (world.process(), "not loaded here")):
        with pytest.raises(LookupError, match=why):
            await asking.probe(doubt.value.ref)
