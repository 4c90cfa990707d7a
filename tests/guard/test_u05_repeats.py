"""What a repeat of a call gets from each state of its record (U5; protocol head 1, 2, 18, 20)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.conftest import ABSENCE, LEASE, Crash, Declined, World, first, only

from indoubt import (
    AllowOneAttempt,
    DidNotHappen,
    EffectBusy,
    EffectContext,
    EffectFailed,
    GiveUp,
    Happened,
    LeaseLost,
    OutcomeUnknown,
)

BY = {"actor": "ana", "reason": "seen in the bank's console"}


async def test_u05_first_call_raises_its_own_clean_exception_unchanged(world: World) -> None:
    ledger = world.process()

    class Refused(Exception):
        """With state of its own."""

    refusal = Refused("insufficient", 402)

    @ledger.effect(safety="non_idempotent", name="pay", key=first, clean_failures=(Refused,))
    async def pay(_order: str) -> None:
        raise refusal

    with pytest.raises(Refused) as caught:
        await pay("order-7")
    assert caught.value is refusal
    assert caught.value.__cause__ is None
    assert caught.value.args == ("insufficient", 402)


async def test_u05_repeat_of_a_success_is_the_receipt(any_world: World) -> None:
    pay = any_world.payer(any_world.process())
    receipt = await pay("order-7")
    again = any_world.payer(any_world.process())
    outcome = await again.outcome("order-7")
    assert outcome == (receipt, True, outcome.record_id, 1)
    assert any_world.bank.calls == 1


async def test_u05_repeat_of_a_clean_failure_is_a_new_attempt(any_world: World) -> None:
    ledger = any_world.process()
    pay = any_world.payer(ledger)
    any_world.bank.next = ["declined"]
    with pytest.raises(Declined):
        await pay("order-7")
    failed = await ledger.find("pay", "order-7")
    assert failed is not None
    assert (failed.state, failed.effect, failed.attempt) == ("failed", "none", 1)
    outcome = await pay.outcome("order-7")
    assert (outcome.replayed, outcome.attempt) == (False, 2)
    assert any_world.bank.count("order-7") == 1


async def test_u05_a_clean_failure_may_happen_again_and_again(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger)
    world.bank.next = ["declined"] * 20
    for _ in range(20):
        with pytest.raises(Declined):
            await pay("order-7")
    assert (await pay.outcome("order-7")).attempt == 21
    assert world.bank.count("order-7") == 1


@pytest.mark.parametrize("says", ["failed", "cancelled"])
async def test_u05_repeat_of_a_failure_with_possible_effect_raises_it(
    world: World, says: str
) -> None:
    ledger = world.process()
    pay = world.payer(ledger, probe=world.bank.probe)
    world.bank.next, world.bank.says = ["lost"], says
    with pytest.raises(EffectFailed):  # the first call probes at once (head 18)
        await pay("order-7")
    with pytest.raises(EffectFailed) as caught:
        await pay("order-7")
    assert caught.value.effect == "possible"
    record = await ledger.get(caught.value.record_id)
    assert (record.state, record.effect) == (says, "possible")
    assert world.bank.calls == 1
    assert caught.value.code == ("declined" if says == "failed" else "cancelled")
    assert (await ledger.in_doubt()).items == ()


async def test_head1_a_possible_failure_goes_on_only_by_allow_one_attempt(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger, probe=world.bank.probe)
    world.bank.next, world.bank.says = ["dropped"], "failed"
    with pytest.raises(EffectFailed) as caught:
        await pay("order-7")
    ref = (await ledger.get(caught.value.record_id)).ref
    for refused in (Happened(), DidNotHappen(), GiveUp()):
        with pytest.raises(Exception, match="nothing_to_decide"):
            await ledger.decide(ref, refused, **BY)
    allowed = await ledger.decide(ref, AllowOneAttempt(), **BY)
    assert allowed.state == "permitted"
    world.bank.says = "truth"
    assert (await pay.outcome("order-7")).attempt == 2
    assert world.bank.count("order-7") == 1


async def test_u05_in_doubt_without_a_probe_asks_a_person(any_world: World) -> None:
    ledger = any_world.process()
    pay = any_world.payer(ledger)
    any_world.bank.next = ["lost"]
    with pytest.raises(OutcomeUnknown) as caught:
        await pay("order-7")
    assert isinstance(caught.value.__cause__, ConnectionResetError)
    assert caught.value.next == "ask_person"
    assert caught.value.retry_after is None
    with pytest.raises(OutcomeUnknown) as again:
        await pay("order-7")
    assert again.value.ref == caught.value.ref == f"{caught.value.record_id}.1"
    assert any_world.bank.calls == 1


async def test_u05_in_doubt_with_a_probe_is_probed(any_world: World) -> None:
    ledger = any_world.process()
    pay = any_world.payer(ledger, probe=any_world.bank.probe)
    any_world.bank.next, any_world.bank.says = ["lost"], "unavailable"
    with pytest.raises(OutcomeUnknown) as caught:
        await pay.using(wait=timedelta(0))("order-7")
    assert caught.value.next == "probe_again"
    assert caught.value.retry_after is not None
    assert caught.value.retry_after > timedelta(0)
    any_world.bank.says = "truth"
    assert await pay("order-7") == {"id": "pay_1"}
    assert any_world.bank.calls == 1


async def test_u05_unknown_is_closed(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger)
    world.bank.next = ["lost"]
    with pytest.raises(OutcomeUnknown) as doubt:
        await pay("order-7")
    await ledger.decide(doubt.value, GiveUp(), **BY)
    with pytest.raises(OutcomeUnknown) as caught:
        await pay("order-7")
    assert caught.value.next == "closed"
    assert caught.value.retry_after is None
    assert caught.value.choices == ("allow_one_attempt", "did_not_happen", "happened")
    assert world.bank.calls == 1


async def test_u05_held_by_another_waits_up_to_the_lease_then_busy(world: World) -> None:
    ledger, other = world.process(), world.process()
    entered, free = asyncio.Event(), asyncio.Event()

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    async def slow(order: str) -> Any:
        entered.set()
        await free.wait()
        return world.bank.pay(order)

    running = asyncio.create_task(slow("order-7"))
    await entered.wait()
    pay = world.payer(other)
    before = world.clock.now()
    with pytest.raises(EffectBusy) as caught:
        await pay("order-7")
    assert world.clock.now() - before == pytest.approx(LEASE.total_seconds())
    assert caught.value.record_id
    assert caught.value.retry_after is not None
    before = world.clock.now()
    with pytest.raises(EffectBusy):
        await pay.using(wait=timedelta(seconds=2))("order-7")
    assert world.clock.now() - before == pytest.approx(2)
    free.set()
    assert await running == await pay("order-7") == {"id": "pay_1", "cents": 1}


async def test_u05_held_by_another_who_ends_is_answered_from_the_record(world: World) -> None:
    ledger, other = world.process(), world.process()
    entered = asyncio.Event()

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    async def slow(order: str) -> Any:
        entered.set()
        for _ in range(50):
            await asyncio.sleep(0)
        return world.bank.pay(order)

    running = asyncio.create_task(slow("order-7"))
    await entered.wait()
    outcome = await world.payer(other).outcome("order-7")
    assert outcome.replayed
    assert outcome.receipt == await running


async def test_u05_a_second_task_of_the_same_process_does_not_inherit_the_hold(
    world: World,
) -> None:
    ledger = world.process()
    entered, free = asyncio.Event(), asyncio.Event()

    @ledger.effect(safety="idempotent", name="pay", key=first)
    async def slow(order: str) -> Any:
        entered.set()
        await free.wait()
        return world.bank.pay(order)

    running = asyncio.create_task(slow("order-7"))
    await entered.wait()
    with pytest.raises(EffectBusy):
        await slow.using(wait=timedelta(0))("order-7")
    free.set()
    await running
    assert world.bank.count("order-7") == 1


async def test_head2_a_clean_failure_over_an_earlier_doubt_is_evidence_only(
    any_world: World,
) -> None:
    ledger = any_world.process()
    pay = any_world.payer(ledger)
    any_world.bank.next = ["lost", "declined"]
    with pytest.raises(OutcomeUnknown) as doubt:
        await pay("order-7")
    await ledger.decide(doubt.value, AllowOneAttempt(), **BY)
    with pytest.raises(OutcomeUnknown) as caught:
        await pay("order-7")
    assert isinstance(caught.value.__cause__, Declined)
    item = await only(ledger)
    assert item.ref == caught.value.ref == f"{item.record_id}.2"
    assert [one["closed"] for one in item.attempts] == [None, "clean_failure"]
    assert any_world.bank.count("order-7") == 1


async def test_head2_a_clean_failure_after_a_closed_attempt_counts(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger)
    world.bank.next = ["dropped", "declined"]
    with pytest.raises(OutcomeUnknown) as doubt:
        await pay("order-7")
    await ledger.decide(doubt.value, DidNotHappen(), **BY)
    with pytest.raises(Declined):
        await pay("order-7")
    record = await ledger.get(doubt.value.record_id)
    assert (record.state, record.effect) == ("failed", "none")


async def test_head18_the_first_call_goes_on_like_a_repeat_and_adopts(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger, probe=world.bank.probe)
    world.bank.next = ["lost"]
    outcome = await pay.outcome("order-7")
    assert outcome.receipt == {"id": "pay_1"}
    assert world.bank.calls == 1


async def test_head18_the_first_call_replays_where_the_verdict_is_replay(world: World) -> None:
    pay = world.payer(world.process(), safety="idempotent")
    world.bank.next = ["dropped"]
    outcome = await pay.outcome("order-7")
    assert (outcome.replayed, outcome.attempt) == (False, 2)
    assert world.bank.count("order-7") == 1


async def test_head18_one_replay_in_a_call_then_the_caller_is_told(world: World) -> None:
    pay = world.payer(world.process(), safety="idempotent")
    world.bank.next = ["dropped"] * 3
    with pytest.raises(OutcomeUnknown) as caught:
        await pay("order-7")
    assert caught.value.next == "call_again"
    assert isinstance(caught.value.__cause__, ConnectionResetError)
    assert world.bank.calls == 2
    assert (await pay("order-7"))["id"] == "pay_1"


async def test_head18_it_sleeps_at_most_wait(world: World) -> None:
    pay = world.payer(world.process(), probe=world.bank.probe)
    world.bank.next, world.bank.says = ["lost"], "active"
    before = world.clock.now()
    with pytest.raises(OutcomeUnknown):
        await pay("order-7")
    assert 15 <= world.clock.now() - before <= 30
    before = world.clock.now()
    with pytest.raises(OutcomeUnknown):
        await pay.using(wait=timedelta(seconds=1))("order-7")
    assert world.clock.now() - before <= 1


async def test_head18_the_callers_own_cancellation_is_never_delayed(world: World) -> None:
    ledger = world.process()
    entered = asyncio.Event()

    @ledger.effect(safety="non_idempotent", name="pay", key=first, probe=world.bank.probe)
    async def slow(order: str) -> Any:
        world.bank.pay(order)
        entered.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(slow("order-7"))
    await entered.wait()
    before = world.clock.now()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert world.clock.now() == before
    assert world.bank.asked == []
    await ledger.open().driver.settle_aftermath()
    item = await only(ledger)  # the state was saved, and the attempt is silent
    assert (item.state, item.silent) == ("in_doubt", True)
    assert await slow("order-7") == {"id": "pay_1"}


async def test_head18_a_timeout_around_the_call_is_the_callers(world: World) -> None:
    ledger = world.process()

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    async def slow(_order: str) -> Any:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await slow("order-7")
    await ledger.open().driver.settle_aftermath()
    assert (await only(ledger)).state == "in_doubt"


async def test_head20_a_repeat_of_a_cancelled_act_raises_where_cancel_was_asked(
    world: World,
) -> None:
    ledger = world.process()
    pay = world.payer(ledger, probe=world.bank.probe, resend_on_proven_absence=True, **ABSENCE)
    world.bank.next = ["dropped"]
    with pytest.raises(OutcomeUnknown) as doubt:
        await pay.using(wait=timedelta(0))("order-7")
    await ledger.cancel(doubt.value.ref, **BY)
    world.pass_time(60)
    recovery = await ledger.recover()
    assert [(view.state, view.effect) for view in recovery.settled] == [("cancelled", "none")]
    with pytest.raises(EffectFailed) as caught:
        await pay("order-7")
    assert caught.value.effect == "none"
    assert world.bank.calls == 1


async def test_a_replaced_holder_gets_lease_lost_and_its_result_is_evidence(
    any_world: World,
) -> None:
    ledger, other = any_world.process(), any_world.process()
    entered, free = asyncio.Event(), asyncio.Event()

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    async def slow(order: str) -> Any:
        entered.set()
        await free.wait()
        return any_world.bank.pay(order)

    running = asyncio.create_task(slow("order-7"))
    await entered.wait()
    any_world.kill(ledger, proven=False)  # it stands still: nothing is renewed
    any_world.pass_time(31)
    pay = any_world.payer(other)
    with pytest.raises(OutcomeUnknown):
        await pay("order-7")
    free.set()
    with pytest.raises(LeaseLost) as caught:
        await running
    assert caught.value.record_id
    record = await other.get(caught.value.record_id)
    assert record.attempts[0]["late_result"]
    assert record.evidence[-1]["source"] == "late_result"
    assert record.evidence[-1]["data"] == {"id": "pay_1", "cents": 1}


async def test_a_crash_leaves_the_record_to_the_next_process(any_world: World) -> None:
    ledger = any_world.process()
    any_world.bank.next = ["crash_before"]
    with pytest.raises(Crash):
        await any_world.payer(ledger, safety="idempotent")("order-7")
    any_world.kill(ledger)
    outcome = await any_world.payer(any_world.process(), safety="idempotent").outcome("order-7")
    assert (outcome.replayed, outcome.attempt) == (False, 2)


async def test_nothing_is_sent_when_the_permit_ended_before_the_call(world: World) -> None:
    ledger = world.process()
    calls: list[str] = []

    @ledger.effect(
        safety="non_idempotent", name="pay", key=first, timeout=timedelta(milliseconds=1)
    )
    async def pay(order: str, *, effect: EffectContext) -> None:
        calls.append(f"{order} {effect.remaining()}")

    write = ledger.open().store.write

    async def slow_write(batches: Any) -> Any:
        answers = await write(batches)
        world.pass_time(1)
        return answers

    ledger.open().store.write = slow_write  # type: ignore[method-assign]
    with pytest.raises(Exception, match="nothing was sent"):
        await pay("order-7")
    assert calls == []
    record = await ledger.find("pay", "order-7")
    assert record is not None
    assert record.state == "prepared"
    assert [one["closed"] for one in record.attempts] == ["never_sent"]
