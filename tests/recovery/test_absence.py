"""When "not found" may be believed: silence, settle times, two clocks (P1-P5; head 4-7, 17, 20)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.conftest import ABSENCE, SETTLE, Crash, World, first, only

from indoubt import EffectContext, Ledger, OutcomeUnknown
from indoubt.stores.memory import MemoryStore

NOW = timedelta(0)
RESEND: dict[str, Any] = ABSENCE | {"resend_on_proven_absence": True}


async def orphan(world: World, *, proven: bool = True, **policy: Any) -> Ledger:
    """An attempt whose process died before anything was sent."""
    policy = {"probe": world.bank.probe, **RESEND, **policy}
    dying = world.process()
    world.bank.next = ["crash_before"]
    with pytest.raises(Crash):
        await world.payer(dying, **policy)("order-7")
    world.kill(dying, proven=proven)
    ledger = world.process()
    world.payer(ledger, **policy)
    return ledger


async def replayed(ledger: Ledger) -> bool:
    """Whether a pass that waits for nothing sends it again."""
    return bool((await ledger.recover(wait=NOW)).replayed)


# -- the two clocks --------------------------------------------------------------------------------


async def test_p01_absence_needs_permit_and_settle_time_and_its_own_measure(
    any_world: World,
) -> None:
    ledger = await orphan(any_world)
    assert not await replayed(ledger)
    any_world.pass_time(30 + 5 - 0.1)
    assert not await replayed(ledger)
    any_world.pass_time(0.2)
    assert await replayed(ledger)


async def test_p01_the_recovering_process_measures_settle_time_itself(world: World) -> None:
    ledger = await orphan(world)
    world.pass_time(3600)
    assert not await replayed(ledger)  # its first sight of the doubt
    world.pass_time(4.9)
    assert not await replayed(ledger)
    world.pass_time(0.2)
    assert await replayed(ledger)


async def test_p05_a_step_of_the_store_clock_proves_nothing(world: World) -> None:
    ledger = await orphan(world)
    assert not await replayed(ledger)
    world.clock.step(timedelta(minutes=5))
    assert not await replayed(ledger)  # the wall clock says it is over, the own clock does not
    world.pass_time(1)
    assert not await replayed(ledger)
    world.pass_time(5)
    assert await replayed(ledger)


async def test_p05_the_own_clock_measures_from_the_first_sight_of_silence(world: World) -> None:
    dying = world.process()
    world.bank.next = ["crash_before"]
    policy = {"probe": world.bank.probe, **RESEND}
    with pytest.raises(Crash):
        await world.payer(dying, **policy)("order-7")
    world.kill(dying, proven=False)
    ledger = world.process()
    world.payer(ledger, **policy)
    world.pass_time(60)
    assert not await replayed(ledger)  # seen in doubt: its holder may still send
    world.pass_time(60)
    store = ledger.open().engine.store
    assert isinstance(store, MemoryStore)
    store.owners.declare_dead(dying.open().engine.owner.current())
    assert not await replayed(ledger)  # seen silent: its last request may be under way
    world.clock.step(timedelta(minutes=5))
    assert not await replayed(ledger)
    world.pass_time(5.1)
    assert await replayed(ledger)


async def test_p05_the_own_clock_is_read_before_the_probe_is_sent(world: World) -> None:
    """What it measures while a probe is under way says nothing about when the probe looked."""

    async def slow_probe(attempt: Any) -> Any:
        answer = world.bank.probe(attempt)
        world.pass_time(60)
        return answer

    ledger = await orphan(world)
    assert not await replayed(ledger)
    world.clock.step(timedelta(minutes=5))
    world.payer(ledger, **RESEND, probe=slow_probe)
    assert not await replayed(ledger)
    assert await replayed(ledger)


async def test_p01_the_probe_must_begin_after_quiet_at(world: World) -> None:
    """An answer from before the effect could land is no proof when it is read later."""

    async def slow_probe(attempt: Any) -> Any:
        answer = world.bank.probe(attempt)
        world.pass_time(60)  # the answer is old when it arrives
        return answer

    ledger = await orphan(world, probe=slow_probe)
    assert not await replayed(ledger)
    assert world.bank.count("order-7") == 0
    assert (await only(ledger)).state == "in_doubt"


async def test_p02_an_effect_that_lands_late_is_found_and_not_sent_again(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger, probe=world.bank.probe, **RESEND)
    world.bank.next = ["late"]
    with pytest.raises(OutcomeUnknown):
        await pay.using(wait=NOW)("order-7")
    world.pass_time(4)
    with pytest.raises(OutcomeUnknown):
        await pay.using(wait=NOW)("order-7")
    world.bank.land()
    assert await pay("order-7") == {"id": "pay_1"}
    assert world.bank.count("order-7") == 1


# -- the live holder's own doubt -------------------------------------------------------------------


async def test_head5_the_holders_report_ends_its_permit_at_once(any_world: World) -> None:
    ledger = any_world.process()
    pay = any_world.payer(ledger, probe=any_world.bank.probe, **RESEND)
    any_world.bank.next = ["dropped"]
    with pytest.raises(OutcomeUnknown) as caught:
        await pay.using(wait=NOW)("order-7")
    assert caught.value.retry_after == SETTLE  # not the permit's 30 seconds
    item = await only(ledger)
    assert item.silent
    assert item.quiet_at == item.since + SETTLE
    any_world.pass_time(5.1)
    assert (await pay.using(wait=NOW).outcome("order-7")).attempt == 2
    assert any_world.bank.count("order-7") == 1


async def test_head5_the_first_call_waits_for_absence_and_sends_again(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger, probe=world.bank.probe, **RESEND)
    world.bank.next = ["dropped"]
    before = world.clock.now()
    outcome = await pay.outcome("order-7")
    assert outcome.attempt == 2
    assert 5 <= world.clock.now() - before < 10
    assert world.bank.count("order-7") == 1


async def test_head5_a_detached_effect_is_never_silent(any_world: World) -> None:
    ledger = any_world.process()
    pay = any_world.payer(ledger, probe=any_world.bank.probe, detached=True, **RESEND)
    any_world.bank.next = ["dropped"]
    with pytest.raises(OutcomeUnknown):
        await pay("order-7")
    any_world.pass_time(3600)
    with pytest.raises(OutcomeUnknown):
        await pay("order-7")
    assert any_world.bank.count("order-7") == 0
    assert not (await only(ledger)).silent


async def test_p26_a_dead_holder_of_a_detached_effect_is_not_silent(any_world: World) -> None:
    """What it started may outlive it, and send."""
    ledger = await orphan(any_world, detached=True)
    for _ in range(5):
        assert not await replayed(ledger)
        any_world.pass_time(60)
    assert any_world.bank.count("order-7") == 0
    assert not (await only(ledger)).silent


async def test_head5_a_thread_that_lives_on_is_not_silent(world: World) -> None:
    import threading  # noqa: PLC0415

    def payer(ledger: Ledger, act: Any) -> Any:
        @ledger.effect(safety="idempotent", name="pay", key=first)
        def pay(order: str) -> None:
            act(order)

        return pay

    entered, free = threading.Event(), threading.Event()

    def hold(_order: str) -> None:
        entered.set()
        free.wait(20)

    def crash(_order: str) -> None:
        raise Crash

    dying = world.process()
    with pytest.raises(Crash):
        payer(dying, crash)("order-7")
    world.kill(dying)
    ledger = world.process()
    payer(ledger, hold)
    running = asyncio.create_task(ledger.recover())  # the replay runs in a thread
    assert await asyncio.to_thread(entered.wait, 20)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await ledger.open().driver.settle_aftermath()
    item = await only(ledger)
    assert not item.silent
    free.set()


# -- silence ---------------------------------------------------------------------------------------


async def test_head6_a_paused_holder_is_not_silent_so_nothing_is_sent(any_world: World) -> None:
    """Its lock is held, its lease is over: it may still wake up and send."""
    for safety in ("non_idempotent", "status_query_required"):
        name = f"pay_{safety}"
        given: dict[str, Any] = {"safety": safety, "name": name}
        if safety == "status_query_required":
            given["resend_on_proven_absence"] = False
        ledger = await orphan(any_world, proven=False, **given)
        any_world.pass_time(31)
        await ledger.recover(wait=NOW)
        any_world.pass_time(60)
        recovery = await ledger.recover(wait=NOW)
        assert recovery.replayed == ()
        assert any_world.bank.count("order-7") == 0
        while (recovery := await ledger.recover(wait=NOW)).waiting:
            any_world.pass_time(10)
        assert [view.name for view in recovery.asked] == [name]  # the budget ends, a person is


async def test_head6_its_death_later_makes_it_silent_and_settle_time_counts_from_then(
    world: World,
) -> None:
    dying = world.process()
    policy: dict[str, Any] = {"probe": world.bank.probe, **RESEND}
    world.bank.next = ["crash_before"]
    with pytest.raises(Crash):
        await world.payer(dying, **policy)("order-7")
    world.kill(dying, proven=False)
    ledger = world.process()
    world.payer(ledger, **policy)
    world.pass_time(31)
    assert not await replayed(ledger)
    world.pass_time(60)
    assert not await replayed(ledger)
    owner = dying.open().engine.owner.current()
    store = ledger.open().store
    assert isinstance(store, MemoryStore)
    store.owners.declare_dead(owner)
    assert not await replayed(ledger)  # the proof is new: packets may be under way
    world.pass_time(4.9)
    assert not await replayed(ledger)
    world.pass_time(0.2)
    assert await replayed(ledger)
    assert world.bank.count("order-7") == 1


async def test_head6_where_silence_cannot_be_decided_assumed_absence_serves_status_query(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    import msgspec  # noqa: PLC0415

    undecided = msgspec.structs.replace(MemoryStore().capabilities, decides_silence=False)
    monkeypatch.setattr(MemoryStore, "capabilities", undecided)
    monkeypatch.setattr(MemoryStore, "owner_dead", lambda _self, _owner: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    given: dict[str, Any] = {"safety": "status_query_required", "resend_on_proven_absence": False}
    ledger = await orphan(world, proven=False, **given)
    world.pass_time(31)
    assert not await replayed(ledger)
    world.pass_time(6)
    assert await replayed(ledger)
    world.bank.acts.clear()
    ledger = await orphan(world, proven=False, name="careful")
    world.pass_time(31)
    assert not await replayed(ledger)
    world.pass_time(6)
    recovery = await ledger.recover(wait=NOW)  # non_idempotent needs a proof
    assert (recovery.replayed, len(recovery.asked)) == ((), 1)


async def test_a_replaced_holder_that_returns_reports_its_silence(world: World) -> None:
    ledger, other = world.process(), world.process()
    entered, free = asyncio.Event(), asyncio.Event()
    policy: dict[str, Any] = {"name": "pay", "key": first, "safety": "non_idempotent"}
    policy |= {"probe": world.bank.probe, **RESEND}

    @ledger.effect(**policy)
    async def slow(order: str) -> None:
        entered.set()
        await free.wait()
        raise ConnectionResetError(order)

    running = asyncio.create_task(slow("order-7"))
    await entered.wait()
    world.kill(ledger, proven=False)
    world.pass_time(31)
    world.payer(other, **policy)
    assert not await replayed(other)
    assert not (await only(other)).silent
    free.set()
    with pytest.raises(Exception, match="took over"):
        await running
    assert (await only(other)).silent
    assert not await replayed(other)  # its settle time is measured from here
    world.pass_time(5.1)
    assert await replayed(other)


# -- head 20: proven absence is prepared -----------------------------------------------------------


async def test_head20_proven_absence_leaves_it_prepared(any_world: World) -> None:
    ledger = await orphan(any_world)
    await ledger.recover(wait=NOW)
    any_world.pass_time(36)
    recovery = await ledger.recover(wait=NOW, run=False)
    assert [(view.state, view.attempt) for view in recovery.waiting] == [("prepared", 1)]
    assert (await ledger.in_doubt()).items == ()
    bare = any_world.process()
    assert [view.state for view in (await bare.recover()).waiting] == ["prepared"]
    outcome = await any_world.payer(bare).outcome("order-7")
    assert outcome.attempt == 2
    assert any_world.bank.count("order-7") == 1


# -- head 4, 19: permits ---------------------------------------------------------------------------


async def test_head4_timeout_is_a_fixed_permit_and_cancels_an_async_def(world: World) -> None:
    ledger = world.process()
    seen: list[float] = []

    @ledger.effect(
        safety="non_idempotent", name="pay", key=first, timeout=timedelta(milliseconds=50)
    )
    async def pay(_order: str, *, effect: EffectContext) -> None:
        seen.append(effect.remaining())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(0)
            raise

    with pytest.raises(OutcomeUnknown) as caught:
        await pay("order-7")
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert seen == [0.05, 0]
    item = await only(ledger)
    assert item.silent  # cancelled and waited for: it sends nothing more


async def test_head4_without_timeout_each_renewal_moves_the_permit(world: World) -> None:
    ledger = world.process()
    left: list[float] = []
    ends: list[Any] = []

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    async def pay(_order: str, *, effect: EffectContext) -> str:
        ends.append(effect.permit_until)
        for _ in range(6):
            world.pass_time(25)
            left.append(effect.remaining())
        ends.append(effect.permit_until)
        return "paid"

    outcome = await pay.outcome("order-7")
    assert outcome.receipt == "paid"
    assert min(left) > 0
    assert ends[1] > ends[0] + timedelta(seconds=100)
    record = await ledger.get(outcome.record_id)
    assert record.attempts[0]["permit_until"] == ends[1].isoformat()


async def test_head4_a_fixed_permit_is_not_moved_by_renewals(world: World) -> None:
    ledger = world.process()

    @ledger.effect(safety="non_idempotent", name="pay", key=first, timeout=timedelta(seconds=100))
    async def pay(_order: str, *, effect: EffectContext) -> float:
        world.pass_time(90)
        return effect.remaining()

    outcome = await pay.outcome("order-7")
    assert outcome.receipt == pytest.approx(10)
    record = await ledger.get(outcome.record_id)
    assert (
        record.attempts[0]["permit_until"]
        == (record.created_at + timedelta(seconds=100)).isoformat()
    )


def test_head19_a_blocking_def_is_not_cancelled_and_settles_after_its_permit(
    world: World,
) -> None:
    ledger = world.process()

    @ledger.effect(safety="non_idempotent", name="pay", key=first, timeout=timedelta(seconds=1))
    def pay(order: str) -> str:
        world.pass_time(300)  # renewal goes on while it runs
        return order

    assert pay("order-7") == "order-7"
    assert pay.outcome("order-7").replayed


def test_head19_a_blocking_def_that_lost_its_lease_gets_lease_lost(world: World) -> None:
    ledger, other = world.process(), world.process()

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    def pay(order: str) -> str:
        world.kill(ledger, proven=False)
        world.pass_time(31)
        asyncio.run(take_over(order))
        return order

    async def take_over(order: str) -> None:
        with pytest.raises(OutcomeUnknown):
            await world.payer(other)(order)

    with pytest.raises(Exception, match="took over"):
        pay("order-7")


async def test_p03_the_permit_counts_from_before_the_write_was_sent(world: World) -> None:
    ledger = world.process()
    store = ledger.open().store
    write = store.write

    async def slow(batches: Any) -> Any:
        answers = await write(batches)
        world.pass_time(3)  # the answer was long under way
        return answers

    store.write = slow  # type: ignore[method-assign]

    @ledger.effect(safety="non_idempotent", name="pay", key=first, timeout=timedelta(seconds=10))
    async def pay(_order: str, *, effect: EffectContext) -> float:
        return effect.remaining()

    assert await pay("order-7") == pytest.approx(7)
