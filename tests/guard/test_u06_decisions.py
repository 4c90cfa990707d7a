"""A person's decisions: what they answer, when, and what they do (U6, G2; protocol P8, P9, P22)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.conftest import SETTLE, Crash, Declined, World, first, only

from indoubt import (
    AllowOneAttempt,
    AlreadyDecided,
    DidNotHappen,
    EffectBusy,
    EffectContext,
    GiveUp,
    Happened,
    Ledger,
    OutcomeUnknown,
    RecordNotFound,
    RecordView,
    StaleDecision,
    TooEarly,
    decision_from_dict,
)

BY = {"actor": "ana", "reason": "seen in the bank's console"}
ALL = (Happened({"id": "x"}), DidNotHappen(), AllowOneAttempt(), GiveUp())


async def doubtful(world: World, ledger: Ledger, order: str = "order-7", how: str = "lost") -> str:
    """Bring one act in doubt; answers its ref."""
    world.bank.next = [how]
    with pytest.raises(OutcomeUnknown) as caught:
        await world.payer(ledger)(order)
    return caught.value.ref


# -- what may be answered -------------------------------------------------------------------------


async def test_u06_a_bare_record_id_is_no_question(world: World) -> None:
    ledger = world.process()
    ref = await doubtful(world, ledger)
    record_id = ref.partition(".")[0]
    before = await world.records()
    for wrong in (record_id, f"{record_id}.", f"{record_id}.x", ".1", "", f"{record_id}.-1"):
        with pytest.raises(ValueError, match="ref"):
            await ledger.decide(wrong, GiveUp(), **BY)
    lookalike = type("Lookalike", (), {"ref": ref})()
    for wrong in (None, 1, object(), ledger, {"ref": ref}, lookalike):
        with pytest.raises(TypeError, match="ref"):
            await ledger.decide(wrong, GiveUp(), **BY)  # type: ignore[arg-type]
    assert await world.records() == before


async def test_u06_refs_items_and_errors_are_questions(world: World) -> None:
    ledger = world.process()
    orders = ("a", "b", "c")
    refs: list[str] = []
    for order in orders:
        refs.append(await doubtful(world, ledger, order))
        world.pass_time(1)
    with pytest.raises(OutcomeUnknown) as doubt:
        await world.payer(ledger)("a")
    items = (await ledger.in_doubt()).items
    assert [item.ref for item in items] == refs
    for question in (doubt.value, items[1], refs[2]):
        assert (await ledger.decide(question, Happened(), **BY)).state == "succeeded"
    assert (await ledger.in_doubt()).items == ()


async def test_u06_a_ref_that_is_no_longer_the_question_is_stale(any_world: World) -> None:
    ledger = any_world.process()
    ref = await doubtful(any_world, ledger)
    await ledger.decide(ref, AllowOneAttempt(), **BY)
    any_world.bank.next = ["lost"]
    with pytest.raises(OutcomeUnknown) as caught:
        await any_world.payer(ledger)("order-7")
    assert caught.value.ref == ref.replace(".1", ".2")
    before = await any_world.records()
    for decision in ALL:
        with pytest.raises(StaleDecision) as stale:
            await ledger.decide(ref, decision, **BY)
        assert stale.value.current_ref == caught.value.ref
        assert stale.value.record_id == caught.value.record_id
    assert await any_world.records() == before


async def test_u06_a_decided_question_is_already_decided_with_the_decision(world: World) -> None:
    ledger = world.process()
    ref = await doubtful(world, ledger)
    await ledger.decide(ref, DidNotHappen(), actor="ana", reason="ticket 881")
    for decision in ALL:
        with pytest.raises(AlreadyDecided) as caught:
            await ledger.decide(ref, decision, actor="bob", reason="other")
        assert caught.value.decision["kind"] == "did_not_happen"
        assert caught.value.decision["actor"] == "ana"
        assert caught.value.decision["reason"] == "ticket 881"
        assert caught.value.record_id == ref.partition(".")[0]


async def test_u06_the_same_decision_id_returns_the_first_answer(any_world: World) -> None:
    ledger = any_world.process()
    ref = await doubtful(any_world, ledger)
    one = await ledger.decide(ref, AllowOneAttempt(), decision_id="d-1", **BY)
    before = await any_world.records()
    again = await any_world.process().decide(ref, AllowOneAttempt(), decision_id="d-1", **BY)
    assert again.to_dict() == one.to_dict()
    assert await any_world.records() == before
    await any_world.payer(ledger)("order-7")
    spent = await ledger.decide(ref, AllowOneAttempt(), decision_id="d-1", **BY)
    assert spent.state == "succeeded"  # allowed once, not once for each repeat
    assert any_world.bank.count("order-7") == 2


async def test_u06_nothing_is_asked_of_an_act_that_is_not_in_doubt(world: World) -> None:
    ledger = world.process()
    outcome = await world.payer(ledger).outcome("order-7")
    for decision in ALL:
        with pytest.raises(StaleDecision) as caught:
            await ledger.decide(f"{outcome.record_id}.1", decision, **BY)
        assert caught.value.current_ref is None


async def test_u06_a_held_act_is_busy(world: World) -> None:
    ledger, other = world.process(), world.process()
    entered, free = asyncio.Event(), asyncio.Event()

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    async def slow(_order: str) -> Any:
        entered.set()
        await free.wait()

    running = asyncio.create_task(slow("order-7"))
    await entered.wait()
    record = await other.find("pay", "order-7")
    assert record is not None
    for decision in ALL:
        with pytest.raises(EffectBusy) as caught:
            await other.decide(record.ref, decision, **BY)
        assert caught.value.record_id == record.record_id
    free.set()
    await running


async def test_u06_a_dead_holders_act_can_be_decided_before_anybody_marked_it(
    any_world: World,
) -> None:
    ledger, other = any_world.process(), any_world.process()
    any_world.bank.next = ["crash_after"]
    with pytest.raises(Crash):
        await any_world.payer(ledger)("order-7")
    any_world.kill(ledger)
    item = await only(other)
    assert item.state == "in_doubt"
    assert [choice.decision for choice in item.choices] == [
        "allow_one_attempt",
        "did_not_happen",
        "give_up",
        "happened",
    ]
    shown = await other.get(item.ref)
    assert (shown.state, shown.choices) == (item.state, item.choices)
    with pytest.raises(TooEarly):
        await other.decide(item, DidNotHappen(), **BY)
    decided = await other.decide(item, Happened({"id": "seen"}), **BY)
    assert (decided.state, decided.receipt) == ("succeeded", {"id": "seen"})


async def test_u06_a_foreign_tenant_decides_nothing(world: World) -> None:
    ledger = world.process()
    world.bank.next = ["lost"]
    with pytest.raises(OutcomeUnknown) as doubt:
        await world.payer(ledger).using(tenant_id="acme")("order-7")
    for tenant in ("bolt", None):
        with pytest.raises(RecordNotFound):
            await ledger.decide(doubt.value, GiveUp(), tenant_id=tenant, **BY)
    decided = await ledger.decide(doubt.value, GiveUp(), tenant_id="acme", **BY)
    assert decided.state == "unknown"


async def test_u06_every_choice_says_its_risk_in_one_sentence(world: World) -> None:
    ledger = world.process()
    await doubtful(world, ledger)
    item = await only(ledger)
    assert len({choice.risk for choice in item.choices}) == len(item.choices) == 4
    assert all(choice.risk and "\n" not in choice.risk for choice in item.choices)


# -- what each decision means ---------------------------------------------------------------------


async def test_u06_happened_is_succeeded_with_the_receipt(any_world: World) -> None:
    ledger = any_world.process()
    ref = await doubtful(any_world, ledger)
    view = await ledger.decide(ref, Happened({"id": "pay_9"}), **BY)
    assert (view.state, view.receipt, view.effect) == ("succeeded", {"id": "pay_9"}, None)
    assert await any_world.payer(ledger)("order-7") == {"id": "pay_9"}
    assert any_world.bank.calls == 1


async def test_u06_happened_without_a_receipt_is_a_success_of_none(world: World) -> None:
    ledger = world.process()
    await ledger.decide(await doubtful(world, ledger), Happened(), **BY)
    outcome = await world.payer(ledger).outcome("order-7")
    assert (outcome.receipt, outcome.replayed) == (None, True)


async def test_u06_did_not_happen_is_failed_without_effect_and_may_be_tried_anew(
    any_world: World,
) -> None:
    ledger = any_world.process()
    ref = await doubtful(any_world, ledger, how="dropped")
    view = await ledger.decide(ref, DidNotHappen(), **BY)
    assert (view.state, view.effect) == ("failed", "none")
    recovery = await ledger.recover()  # recovery sends nothing
    assert (recovery.replayed, recovery.waiting, any_world.bank.calls) == ((), (), 1)
    assert (await any_world.payer(ledger).outcome("order-7")).attempt == 2
    assert any_world.bank.count("order-7") == 1


async def test_u06_allow_one_attempt_is_one_dispatch_spent_by_it(any_world: World) -> None:
    ledger = any_world.process()
    pay = any_world.payer(ledger)
    ref = await doubtful(any_world, ledger)
    view = await ledger.decide(ref, AllowOneAttempt(), **BY)
    assert view.state == "permitted"
    assert (await only(ledger)).reason == "one attempt is permitted and not yet sent"
    any_world.bank.next = ["lost"]
    with pytest.raises(OutcomeUnknown):
        await pay("order-7")
    for _ in range(3):
        with pytest.raises(OutcomeUnknown):
            await pay("order-7")
    assert any_world.bank.count("order-7") == 2  # the doubted one, and the permitted one


async def test_u06_a_permitted_attempt_is_sent_by_recover(any_world: World) -> None:
    ledger = any_world.process()
    ref = await doubtful(any_world, ledger)
    await ledger.decide(ref, AllowOneAttempt(), **BY)
    recovery = await ledger.recover(run=False)
    assert [view.state for view in recovery.skipped] == ["permitted"]
    recovery = await ledger.recover()
    assert [view.state for view in recovery.replayed] == ["succeeded"]
    assert any_world.bank.count("order-7") == 2


async def test_u06_a_permission_survives_a_dispatch_that_was_never_sent(world: World) -> None:
    ledger = world.process()
    ref = await doubtful(world, ledger)
    await ledger.decide(ref, AllowOneAttempt(), **BY)
    slow = world.payer(ledger, timeout=timedelta(milliseconds=1))
    store = ledger.open().store
    write = store.write

    async def late(batches: Any) -> Any:
        answers = await write(batches)
        world.pass_time(1)
        return answers

    store.write = late  # type: ignore[method-assign]
    with pytest.raises(Exception, match="nothing was sent"):
        await slow("order-7")
    store.write = write  # type: ignore[method-assign]
    assert (await only(ledger)).state == "permitted"
    await world.payer(ledger)("order-7")
    assert world.bank.count("order-7") == 2


async def test_u06_give_up_is_unknown(world: World) -> None:
    ledger = world.process()
    ref = await doubtful(world, ledger)
    view = await ledger.decide(ref, GiveUp(), **BY)
    assert (view.state, view.effect) == ("unknown", "possible")
    assert (await ledger.in_doubt()).items == ()


@pytest.mark.parametrize(
    ("decision", "state"), [(Happened(), "succeeded"), (DidNotHappen(), "failed")]
)
async def test_u06_unknown_may_be_corrected_once(
    world: World, decision: Happened | DidNotHappen, state: str
) -> None:
    ledger = world.process()
    ref = await doubtful(world, ledger)
    await ledger.decide(ref, GiveUp(), **BY)
    view = await ledger.decide(ref, decision, **BY)
    assert view.state == state
    for again in ALL:
        with pytest.raises(AlreadyDecided) as caught:
            await ledger.decide(ref, again, **BY)
        assert caught.value.decision["kind"] == decision.kind


async def test_head1_unknown_goes_on_by_allow_one_attempt(world: World) -> None:
    ledger = world.process()
    ref = await doubtful(world, ledger, how="dropped")
    await ledger.decide(ref, GiveUp(), **BY)
    with pytest.raises(AlreadyDecided):
        await ledger.decide(ref, GiveUp(), **BY)
    assert (await ledger.decide(ref, AllowOneAttempt(), **BY)).state == "permitted"
    await world.payer(ledger)("order-7")
    assert world.bank.count("order-7") == 1


# -- when a decision is too early -----------------------------------------------------------------


async def orphaned(world: World, **policy: Any) -> tuple[Ledger, RecordView]:
    """An act whose holder died: its permit still runs."""
    ledger = world.process()
    world.bank.next = ["crash_after"]
    with pytest.raises(Crash):
        await world.payer(ledger, **policy)("order-7")
    world.kill(ledger)
    other = world.process()
    return other, await only(other)


@pytest.mark.parametrize("decision", [DidNotHappen(), AllowOneAttempt()])
async def test_p09_no_and_again_wait_until_quiet_at(
    any_world: World, decision: DidNotHappen | AllowOneAttempt
) -> None:
    ledger, item = await orphaned(any_world, settle_time=SETTLE)
    assert item.quiet_at is not None
    with pytest.raises(TooEarly) as caught:
        await ledger.decide(item, decision, **BY)
    assert caught.value.until == item.quiet_at
    assert caught.value.record_id == item.record_id
    assert (item.quiet_at - item.created_at).total_seconds() == 30 + 5
    any_world.pass_time(34.9)
    with pytest.raises(TooEarly):
        await ledger.decide(item, decision, **BY)
    any_world.pass_time(0.2)
    assert (await ledger.decide(item, decision, **BY)).state in {"failed", "permitted"}


@pytest.mark.parametrize("decision", [Happened(), GiveUp()])
async def test_p09_yes_and_give_up_need_not_wait(world: World, decision: Happened | GiveUp) -> None:
    ledger, item = await orphaned(world, settle_time=SETTLE)
    assert (await ledger.decide(item, decision, **BY)).state in {"succeeded", "unknown"}


async def test_head17_without_settle_time_quiet_at_is_the_permits_end(world: World) -> None:
    ledger, item = await orphaned(world, timeout=timedelta(seconds=7))
    with pytest.raises(TooEarly) as caught:
        await ledger.decide(item, DidNotHappen(), **BY)
    assert caught.value.until == item.quiet_at
    world.pass_time(7)
    assert (await ledger.decide(item, DidNotHappen(), **BY)).state == "failed"


async def test_p09_no_second_attempt_while_one_is_acknowledged(world: World) -> None:
    ledger = world.process()

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    async def pay(_order: str, *, effect: EffectContext) -> None:
        await effect.checkpoint({"at": "the bank"}, external_ref="ref_1")
        raise ConnectionResetError

    with pytest.raises(OutcomeUnknown) as doubt:
        await pay("order-7")
    world.pass_time(3600)
    with pytest.raises(TooEarly) as caught:
        await ledger.decide(doubt.value, AllowOneAttempt(), **BY)
    assert caught.value.until is None  # no clock ends it
    item = await only(ledger)
    assert (item.attempts[0]["stage"], item.attempts[0]["token"]) == (
        "acknowledged",
        {"at": "the bank"},
    )
    assert (await ledger.decide(doubt.value, DidNotHappen(), **BY)).state == "failed"


async def test_p09_no_second_attempt_while_the_provider_is_at_it(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger, probe=world.bank.probe)
    world.bank.next, world.bank.says = ["dropped"], "active"
    with pytest.raises(OutcomeUnknown) as doubt:
        await pay.using(wait=timedelta(0))("order-7")
    world.pass_time(3600)  # the probe budget is over, too
    with pytest.raises(TooEarly) as caught:
        await ledger.decide(doubt.value, AllowOneAttempt(), **BY)
    assert caught.value.until is None
    world.bank.says = "unknown"
    await ledger.probe(doubt.value.ref)
    assert (await ledger.decide(doubt.value, AllowOneAttempt(), **BY)).state == "permitted"


async def test_p22_where_cancel_was_asked_no_attempt_is_allowed(world: World) -> None:
    ledger = world.process()
    ref = await doubtful(world, ledger)
    view = await ledger.cancel(ref, **BY)
    assert view.cancel_requested
    assert "allow_one_attempt" not in [choice.decision for choice in view.choices]
    with pytest.raises(StaleDecision, match="cancel"):
        await ledger.decide(ref, AllowOneAttempt(), **BY)
    assert (await ledger.decide(ref, DidNotHappen(), **BY)).state == "failed"


async def test_p09_a_decision_in_doubt_raises_the_fence_so_a_probe_under_way_loses(
    world: World,
) -> None:
    ledger = world.process()
    entered, free = asyncio.Event(), asyncio.Event()

    async def slow_probe(attempt: Any) -> Any:
        entered.set()
        await free.wait()
        return attempt.succeeded({"id": "by the probe"})

    pay = world.payer(ledger, probe=slow_probe)
    world.bank.next = ["lost"]
    running = asyncio.create_task(pay("order-7"))
    await entered.wait()
    record = await ledger.find("pay", "order-7")
    assert record is not None
    await ledger.decide(record.ref, Happened({"id": "by a person"}), **BY)
    free.set()
    assert await running == {"id": "by a person"}
    view = await ledger.get(record.ref)
    assert view.receipt == {"id": "by a person"}


async def test_u06_actor_and_reason_are_in_the_journal(world: World) -> None:
    ledger = world.process()
    ref = await doubtful(world, ledger)
    await ledger.decide(ref, GiveUp(), actor="ana", reason="ticket 881")
    before, last = (await ledger.journal(ref))[-2:]
    assert (last.did, last.actor, last.reason) == (("give_up",), "ana", "ticket 881")
    assert last.fence == before.fence + 1  # whoever was at it has lost it


def test_u06_a_decision_travels_as_json() -> None:
    for decision in ALL:
        assert decision_from_dict(decision.to_dict()) == decision
    assert decision_from_dict({"decision": "did-not-happen"}) == DidNotHappen()
    assert decision_from_dict({"decision": "allow-one"}) == AllowOneAttempt()
    for wrong in ({}, {"decision": "yes"}, {"decision": "give_up", "receipt": 1}, {"decision": 1}):
        with pytest.raises(ValueError, match=r"decision|takes"):
            decision_from_dict(wrong)
    with pytest.raises(TypeError):
        decision_from_dict("happened")


async def test_p08_the_permission_is_for_the_next_number_only(world: World) -> None:
    ledger = world.process()
    ref = await doubtful(world, ledger)
    await ledger.decide(ref, AllowOneAttempt(), **BY)
    world.bank.next = ["declined"]
    with pytest.raises(OutcomeUnknown) as caught:  # attempt 1 is still open (head 2)
        await world.payer(ledger)("order-7")
    assert isinstance(caught.value.__cause__, Declined)
    with pytest.raises(StaleDecision):
        await ledger.decide(ref, AllowOneAttempt(), **BY)
    with pytest.raises(OutcomeUnknown):
        await world.payer(ledger)("order-7")
    assert world.bank.calls == 2
