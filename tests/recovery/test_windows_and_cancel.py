"""What ends an act from outside: key windows, no_use_after, abandon_after, cancel (P13, P21-22)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.conftest import ABSENCE, Crash, Declined, World, first, only

from indoubt import (
    AllowOneAttempt,
    DidNotHappen,
    EffectFailed,
    Happened,
    Ledger,
    OutcomeUnknown,
    StaleDecision,
    StoreUnavailable,
)

NOW = timedelta(0)
DAY = timedelta(hours=24)
BY = {"actor": "ana", "reason": "the order was withdrawn"}


async def orphan(world: World, how: str = "crash_after", **policy: Any) -> Ledger:
    dying = world.process()
    world.bank.next = [how]
    with pytest.raises(Crash):
        await world.payer(dying, **policy)("order-7")
    world.kill(dying)
    ledger = world.process()
    world.payer(ledger, **policy)
    return ledger


async def never_sent(world: World, ledger: Ledger, **policy: Any) -> None:
    """An act that was prepared and whose dispatch never left the process."""
    store = ledger.open().store
    write = store.write

    async def late(batches: Any) -> Any:
        answers = await write(batches)
        world.pass_time(1)
        return answers

    store.write = late  # type: ignore[method-assign]
    slow = world.payer(ledger, timeout=timedelta(milliseconds=1), **policy)
    with pytest.raises(StoreUnavailable):
        await slow("order-7")
    store.write = write  # type: ignore[method-assign]


# -- P13, S33 --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "sent"),
    [
        (timedelta(hours=1), True),
        (DAY - timedelta(seconds=31), True),
        (DAY - timedelta(seconds=30), False),  # equality is too late
        (DAY - timedelta(minutes=1) + timedelta(seconds=40), False),
        (DAY + timedelta(hours=1), False),
    ],
)
async def test_p13_a_key_replay_must_be_able_to_land_inside_the_window(
    world: World, after: timedelta, *, sent: bool
) -> None:
    ledger = await orphan(world, safety="idempotent", key_retention=DAY)
    world.clock.advance(after)
    recovery = await ledger.recover()
    assert len(recovery.replayed) == sent
    assert len(recovery.asked) == (not sent)
    keys = {key for _, _, key in world.bank.acts}
    assert len(keys) == 1  # a new key is never made for an undecided act


async def test_p13_settle_time_and_timeout_count_against_the_window(world: World) -> None:
    given: dict[str, Any] = {"safety": "retry_safe", "key_retention": DAY}
    given |= {"timeout": timedelta(minutes=10), "settle_time": timedelta(minutes=5)}
    ledger = await orphan(world, **given)
    world.clock.advance(DAY - timedelta(minutes=15))
    assert (await ledger.recover()).replayed == ()


async def test_p13_outside_the_window_the_class_falls_back_to_a_status_query(world: World) -> None:
    given: dict[str, Any] = {"safety": "idempotent", "key_retention": DAY}
    ledger = await orphan(world, probe=world.bank.probe, **given)
    world.bank.acts.clear()
    world.clock.advance(DAY)
    recovery = await ledger.recover(wait=NOW)
    assert [view.state for view in recovery.asked] == ["awaiting_decision"]  # no settle time
    assert len(world.bank.asked) == 1
    given = {"safety": "idempotent", "key_retention": DAY, "name": "with_absence", **ABSENCE}
    ledger = await orphan(world, "crash_before", probe=world.bank.probe, **given)
    world.clock.advance(DAY)
    assert len((await ledger.recover(wait=NOW)).waiting) == 1
    world.pass_time(6)
    assert len((await ledger.recover(wait=NOW)).replayed) == 1


async def test_p13_an_unknown_window_is_zero_and_by_nature_there_is_none(world: World) -> None:
    ledger = await orphan(world, safety="idempotent", key_retention=NOW)
    assert len((await ledger.recover()).asked) == 1
    ledger = await orphan(world, safety="idempotent", name="by_nature")
    world.clock.advance(timedelta(days=400))
    assert len((await ledger.recover()).replayed) == 1


async def test_p13_the_window_counts_from_the_first_dispatch_of_the_series(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger, safety="idempotent", key_retention=DAY)
    world.bank.next = ["declined"]
    with pytest.raises(Declined):
        await pay("order-7")
    world.clock.advance(DAY * 3)
    world.bank.next = ["dropped"]  # a new key since the proven refusal
    assert (await pay.outcome("order-7")).attempt == 3
    world.bank.next = ["dropped", "dropped"]
    with pytest.raises(OutcomeUnknown):
        await pay("order-8")
    world.clock.advance(timedelta(hours=20))
    world.bank.next = ["dropped", "dropped"]
    with pytest.raises(OutcomeUnknown):
        await pay("order-8")
    world.clock.advance(timedelta(hours=5))
    with pytest.raises(OutcomeUnknown) as caught:
        await pay("order-8")
    assert caught.value.next == "ask_person"


# -- no_use_after ----------------------------------------------------------------------------------


async def test_head21_no_use_after_closes_what_was_never_sent(any_world: World) -> None:
    ledger = any_world.process()
    await never_sent(any_world, ledger, no_use_after=timedelta(minutes=1))
    assert [view.state for view in (await ledger.recover()).waiting] == ["prepared"]
    any_world.pass_time(60)
    recovery = await ledger.recover()
    assert [(view.state, view.effect) for view in recovery.settled] == [("cancelled", "none")]
    assert any_world.bank.calls == 0


@pytest.mark.parametrize("instant", [True, False])
async def test_head21_past_no_use_after_a_call_sends_nothing(
    world: World, *, instant: bool
) -> None:
    ledger = world.process()
    minute = timedelta(minutes=1)
    end = datetime.fromtimestamp(world.clock.wall_ms() / 1000, UTC) + minute
    pay = world.payer(ledger, safety="idempotent", no_use_after=end if instant else minute)
    world.bank.next = ["dropped", "dropped"]
    with pytest.raises(OutcomeUnknown):
        await pay("order-7")
    world.pass_time(61)
    with pytest.raises(OutcomeUnknown) as caught:
        await pay("order-7")
    assert caught.value.next == "ask_person"
    assert world.bank.calls == 2
    if instant:
        with pytest.raises(EffectFailed) as late:
            await pay("order-8")
        assert (late.value.effect, late.value.code) == ("none", "no_use_after")
    else:
        await pay("order-8")  # its own minute begins now
    assert world.bank.calls == (2 if instant else 3)


async def test_head21_a_repeat_after_a_clean_failure_sends_nothing_either(world: World) -> None:
    pay = world.payer(world.process(), no_use_after=timedelta(minutes=1))
    world.bank.next = ["declined"]
    with pytest.raises(Declined):
        await pay("order-7")
    world.pass_time(61)
    with pytest.raises(EffectFailed):
        await pay("order-7")
    assert world.bank.calls == 1


async def test_head21_proven_absent_past_no_use_after_is_closed(world: World) -> None:
    given: dict[str, Any] = {"no_use_after": timedelta(minutes=1), "probe": world.bank.probe}
    given |= ABSENCE | {"resend_on_proven_absence": True}
    ledger = await orphan(world, "crash_before", **given)
    world.pass_time(61)
    await ledger.recover(wait=NOW)
    world.pass_time(6)
    recovery = await ledger.recover(wait=NOW)
    assert [(view.state, view.effect) for view in recovery.settled] == [("cancelled", "none")]
    assert world.bank.calls == 1


@pytest.mark.parametrize("how", ["recover", "repeat"])
async def test_o3_a_permission_past_no_use_after_is_asked_about_again_and_can_end(
    any_world: World, how: str
) -> None:
    ledger = any_world.process()
    pay = any_world.payer(ledger, no_use_after=timedelta(minutes=1))
    any_world.bank.next = ["lost"]
    with pytest.raises(OutcomeUnknown) as doubt:
        await pay("order-7")
    await ledger.decide(doubt.value, AllowOneAttempt(), actor="ana", reason="seen")
    any_world.pass_time(61)
    if how == "recover":
        recovery = await ledger.recover()
        assert [view.state for view in recovery.asked] == ["awaiting_decision"]
    else:
        with pytest.raises(OutcomeUnknown) as caught:
            await pay("order-7")
        assert caught.value.next == "ask_person"
    (item,) = (await ledger.in_doubt()).items
    assert item.reason == "a person must decide (the permitted attempt can be sent no more)"
    assert [c.decision for c in item.choices] == ["did_not_happen", "give_up", "happened"]
    with pytest.raises(StaleDecision, match="no_use_after"):
        await ledger.decide(item, AllowOneAttempt(), actor="ana", reason="seen")
    ended = await ledger.decide(item, Happened({"id": 1}), actor="ana", reason="seen")
    assert (ended.state, any_world.bank.calls) == ("succeeded", 1)


# -- abandon_after ---------------------------------------------------------------------------------


async def test_p21_abandon_after_closes_what_nobody_repeats(any_world: World) -> None:
    ledger = any_world.process()
    await never_sent(any_world, ledger)
    tidy = any_world.process(abandon_after=timedelta(hours=1))
    pay = any_world.payer(tidy)
    any_world.pass_time(3590)
    assert [view.state for view in (await tidy.recover()).waiting] == ["prepared"]
    any_world.pass_time(20)
    assert [view.state for view in (await ledger.recover()).waiting] == ["prepared"]  # not its rule
    recovery = await tidy.recover()
    assert [(view.state, view.effect) for view in recovery.settled] == [("cancelled", "none")]
    assert (await pay.outcome("order-7")).attempt == 2  # head 20: a repeat starts a new attempt
    assert any_world.bank.count("order-7") == 1


async def test_p21_abandon_after_closes_nothing_that_may_have_been_sent(world: World) -> None:
    await orphan(world)
    ledger = world.process(abandon_after=timedelta(seconds=1))
    world.pass_time(3600)
    await ledger.recover(wait=NOW)
    assert (await only(ledger)).state == "awaiting_decision"


# -- cancel ----------------------------------------------------------------------------------------


async def test_p22_cancelling_what_was_never_sent_ends_it(any_world: World) -> None:
    ledger = any_world.process()
    await never_sent(any_world, ledger)
    record = await ledger.find("pay", "order-7")
    assert record is not None
    view = await ledger.cancel(record.ref, **BY)
    assert (view.state, view.effect, view.cancel_requested) == ("cancelled", "none", True)
    with pytest.raises(EffectFailed) as caught:
        await any_world.payer(ledger)("order-7")
    assert caught.value.effect == "none"
    assert any_world.bank.calls == 0


@pytest.mark.parametrize("safety", ["idempotent", "non_idempotent"])
async def test_p22_cancelling_a_doubt_sends_nothing_more_and_keeps_it_listed(
    world: World, safety: str
) -> None:
    ledger = await orphan(world, safety=safety)
    item = await only(ledger)
    view = await ledger.cancel(item.record_id, **BY)
    assert view.cancel_requested
    for _ in range(3):
        await ledger.recover()
        world.pass_time(60)
    with pytest.raises(OutcomeUnknown):
        await world.payer(ledger, safety=safety)("order-7")
    assert world.bank.calls == 1
    assert (await only(ledger)).cancel_requested


async def test_p22_a_cancelled_doubt_is_still_probed(world: World) -> None:
    ledger = await orphan(world, probe=world.bank.probe)
    await ledger.cancel((await only(ledger)).ref, **BY)
    recovery = await ledger.recover()
    assert [view.state for view in recovery.settled] == ["succeeded"]  # the past is what it is


async def test_p22_an_unspent_permission_is_void(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger)
    world.bank.next = ["lost"]
    with pytest.raises(OutcomeUnknown) as doubt:
        await pay("order-7")
    await ledger.decide(doubt.value, AllowOneAttempt(), **BY)
    view = await ledger.cancel(doubt.value.ref, **BY)
    assert view.state == "awaiting_decision"
    with pytest.raises(OutcomeUnknown):
        await pay("order-7")
    assert world.bank.calls == 1
    assert (await ledger.decide(doubt.value, DidNotHappen(), **BY)).state == "failed"
    with pytest.raises(EffectFailed):
        await pay("order-7")
    assert world.bank.calls == 1


async def test_p22_cancelling_what_has_ended_is_too_late(world: World) -> None:
    ledger = world.process()
    outcome = await world.payer(ledger).outcome("order-7")
    before = await world.records()
    with pytest.raises(StaleDecision, match="too late"):
        await ledger.cancel(outcome.record_id, **BY)
    assert await world.records() == before


async def test_p22_cancelling_in_flight_lets_the_call_end_and_settles_it(world: World) -> None:
    ledger = world.process()
    entered, free = asyncio.Event(), asyncio.Event()

    @ledger.effect(safety="idempotent", name="pay", key=first)
    async def slow(order: str) -> Any:
        entered.set()
        await free.wait()
        return world.bank.pay(order)

    running = asyncio.create_task(slow("order-7"))
    await entered.wait()
    record = await ledger.find("pay", "order-7")
    assert record is not None
    assert (await ledger.cancel(record.ref, **BY)).cancel_requested
    free.set()
    assert await running == {"id": "pay_1", "cents": 1}
    assert (await ledger.get(record.ref)).state == "succeeded"


async def test_p22_a_cancelled_call_in_flight_is_not_replayed(world: World) -> None:
    ledger = world.process()
    entered, free = asyncio.Event(), asyncio.Event()

    @ledger.effect(safety="idempotent", name="pay", key=first)
    async def slow(_order: str) -> Any:
        world.bank.calls += 1
        entered.set()
        await free.wait()
        raise ConnectionResetError

    running = asyncio.create_task(slow("order-7"))
    await entered.wait()
    record = await ledger.find("pay", "order-7")
    assert record is not None
    await ledger.cancel(record.ref, **BY)
    free.set()
    with pytest.raises(OutcomeUnknown):
        await running
    assert world.bank.calls == 1


async def test_p22_who_cancelled_is_in_the_journal(world: World) -> None:
    ledger = await orphan(world)
    ref = (await only(ledger)).ref
    await ledger.cancel(ref, **BY)
    last = (await ledger.journal(ref))[-1]
    assert (last.did, last.actor, last.reason) == (("cancel",), BY["actor"], BY["reason"])
