"""``recover()``: its lists, what it calls and what it never calls, pages and cursors (U10)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.conftest import ABSENCE, Crash, World, first, only

from indoubt import (
    AllowOneAttempt,
    Ledger,
    OutcomeUnknown,
    Recovery,
    StoreUnavailable,
)

BY = {"actor": "ana", "reason": "seen"}
RESEND: dict[str, Any] = ABSENCE | {"resend_on_proven_absence": True}
LISTS = ("settled", "replayed", "waiting", "asked", "skipped")


def lists(recovery: Recovery) -> dict[str, list[str | None]]:
    """The keys in each list that is not empty."""
    found = {name: [view.key for view in getattr(recovery, name)] for name in LISTS}
    return {name: keys for name, keys in found.items() if keys}


async def crash(world: World, order: str, how: str = "crash_after", **policy: Any) -> None:
    """A process that dies in the middle of paying."""
    dying = world.process()
    pay = world.payer(dying, **policy)
    world.bank.next = [how]
    with pytest.raises(Crash):
        await pay(order)
    world.kill(dying)


async def test_u10_what_happened_is_settled_by_its_probe(any_world: World) -> None:
    await crash(any_world, "order-7")
    ledger = any_world.process()
    pay = any_world.payer(ledger, probe=any_world.bank.probe)
    recovery = await ledger.recover()
    assert lists(recovery) == {"settled": ["order-7"]}
    assert (recovery.settled[0].state, recovery.settled[0].receipt) == (
        "succeeded",
        {"id": "pay_1"},
    )
    assert recovery.cursor is None
    assert lists(await ledger.recover()) == {}
    assert await pay("order-7") == {"id": "pay_1"}
    assert any_world.bank.calls == 1


async def test_u10_a_function_is_called_again_only_if_the_verdict_is_replay(
    any_world: World,
) -> None:
    for safety in ("pure", "idempotent", "retry_safe", "non_idempotent"):
        await crash(any_world, safety, "crash_before", safety=safety, name=f"pay_{safety}")
    ledger = any_world.process()
    for safety in ("pure", "idempotent", "retry_safe", "non_idempotent"):
        any_world.payer(ledger, safety=safety, name=f"pay_{safety}")
    recovery = await ledger.recover()
    found = lists(recovery)
    assert set(found.pop("replayed")) == {"idempotent", "pure", "retry_safe"}
    assert found == {"asked": ["non_idempotent"]}
    assert any_world.bank.count("non_idempotent") == 0
    assert [any_world.bank.count(one) for one in ("pure", "idempotent", "retry_safe")] == [1, 1, 1]


async def test_u10_an_unregistered_function_is_skipped_and_the_record_stays(
    any_world: World,
) -> None:
    await crash(any_world, "order-7", safety="idempotent")
    ledger = any_world.process()
    recovery = await ledger.recover()
    assert lists(recovery) == {"skipped": ["order-7"]}
    item = await only(ledger)
    assert item.state == "in_doubt"  # never prepared over an open attempt (head 8)
    pay = any_world.payer(ledger, safety="idempotent")
    assert (await pay.outcome("order-7")).attempt == 2  # the next repeat dispatches


async def test_u10_skipped_records_say_call_again(world: World) -> None:
    await crash(world, "order-7", "crash_before", safety="idempotent")
    ledger = world.process()
    await ledger.recover()
    pay = world.payer(ledger, safety="idempotent")
    world.bank.next = ["dropped", "dropped"]
    with pytest.raises(OutcomeUnknown) as caught:
        await pay("order-7")
    assert caught.value.next == "call_again"


async def test_u10_run_false_never_calls_application_code_but_probes(any_world: World) -> None:
    await crash(any_world, "again", safety="idempotent", name="again")
    await crash(any_world, "probed")
    ledger = any_world.process()
    any_world.payer(ledger, safety="idempotent", name="again")
    any_world.payer(ledger, probe=any_world.bank.probe)
    recovery = await ledger.recover(run=False)
    assert lists(recovery) == {"settled": ["probed"], "skipped": ["again"]}
    assert any_world.bank.calls == 2  # the two that crashed


async def test_u10_a_person_is_asked_where_nothing_can_be_asked(any_world: World) -> None:
    await crash(any_world, "order-7")
    ledger = any_world.process()
    any_world.payer(ledger)
    recovery = await ledger.recover()
    assert lists(recovery) == {"asked": ["order-7"]}
    assert recovery.asked[0].state == "awaiting_decision"
    assert lists(await ledger.recover()) == {}  # asked once; the inbox has it
    assert (await only(ledger)).state == "awaiting_decision"


async def test_u10_waiting_says_when_to_look_again(any_world: World) -> None:
    await crash(any_world, "order-7", "crash_before", **RESEND)
    ledger = any_world.process()
    any_world.payer(ledger, probe=any_world.bank.probe, **RESEND)
    recovery = await ledger.recover(wait=timedelta(0))
    assert lists(recovery) == {"waiting": ["order-7"]}
    retry_after = recovery.waiting[0].retry_after
    assert retry_after is not None
    assert retry_after == timedelta(seconds=35)  # permit and settle time
    any_world.clock.advance(retry_after)
    assert lists(await ledger.recover(wait=timedelta(0))) == {"replayed": ["order-7"]}
    assert any_world.bank.count("order-7") == 1


async def test_head7_recover_waits_for_absence_at_most_wait(world: World) -> None:
    await crash(world, "order-7", "crash_before", timeout=timedelta(seconds=10), **RESEND)
    ledger = world.process()
    world.payer(ledger, probe=world.bank.probe, **RESEND)
    before = world.clock.now()
    recovery = await ledger.recover(wait=timedelta(seconds=30))
    assert lists(recovery) == {"replayed": ["order-7"]}
    assert 15 <= world.clock.now() - before <= 30


async def test_head9_what_was_never_sent_is_listed_not_dispatched(any_world: World) -> None:
    ledger = any_world.process()
    slow = any_world.payer(ledger, timeout=timedelta(milliseconds=1))
    store = ledger.open().store
    write = store.write

    async def late(batches: Any) -> Any:
        answers = await write(batches)
        any_world.pass_time(1)
        return answers

    store.write = late  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await slow("order-7")
    store.write = write  # type: ignore[method-assign]
    other = any_world.process()
    pay = any_world.payer(other, safety="pure")
    recovery = await other.recover()
    assert lists(recovery) == {"waiting": ["order-7"]}
    assert recovery.waiting[0].state == "prepared"
    assert (await other.in_doubt()).items == ()
    assert any_world.bank.calls == 0
    await pay("order-7")  # its repeat dispatches
    assert any_world.bank.calls == 1


async def test_u10_a_live_holders_record_is_in_no_list(any_world: World) -> None:
    import asyncio  # noqa: PLC0415

    ledger, other = any_world.process(), any_world.process()
    entered, free = asyncio.Event(), asyncio.Event()

    @ledger.effect(safety="idempotent", name="pay", key=first)
    async def slow(_order: str) -> None:
        entered.set()
        await free.wait()

    running = asyncio.create_task(slow("order-7"))
    await entered.wait()
    any_world.payer(other, safety="idempotent")
    assert lists(await other.recover()) == {}
    assert (await other.in_doubt()).items == ()
    any_world.pass_time(100)  # it renews
    assert lists(await other.recover()) == {}
    free.set()
    await running
    assert any_world.bank.calls == 0


async def test_u10_a_replay_that_is_refused_leaves_the_earlier_attempt_open(world: World) -> None:
    await crash(world, "order-7", "crash_before", safety="idempotent")
    ledger = world.process()
    world.payer(ledger, safety="idempotent")
    world.bank.next = ["declined"] * 10
    recovery = await ledger.recover()
    assert lists(recovery) == {"replayed": ["order-7"]}
    item = await only(ledger)  # head 2
    assert item.state == "in_doubt"
    assert [one["closed"] for one in item.attempts][:2] == [None, "clean_failure"]
    assert world.bank.calls <= 3


async def test_u10_a_replay_in_doubt_is_not_looped(world: World) -> None:
    await crash(world, "order-7", "crash_before", safety="idempotent")
    ledger = world.process()
    world.payer(ledger, safety="idempotent")
    world.bank.next = ["dropped"] * 10
    await ledger.recover()
    assert world.bank.calls <= 3
    assert (await only(ledger)).state == "in_doubt"


async def test_u10_one_bad_record_does_not_cost_the_good_ones(world: World) -> None:
    await crash(world, "a")
    await crash(world, "b")
    ledger = world.process()

    def probe(attempt: Any) -> Any:
        if attempt.key == "a":
            raise RuntimeError("a bug in the probe")
        return attempt.succeeded({"ok": True})

    world.payer(ledger, probe=probe)
    recovery = await ledger.recover(wait=timedelta(0))
    assert lists(recovery) == {"settled": ["b"], "waiting": ["a"]}


# -- filters and pages -----------------------------------------------------------------------------


async def test_u10_a_tenant_sees_its_own(any_world: World) -> None:
    dying = any_world.process()
    pay = any_world.payer(dying)
    for tenant in ("acme", "bolt", None):
        any_world.bank.next = ["crash_after"]
        with pytest.raises(Crash):
            await pay.using(tenant_id=tenant)(f"order-{tenant}")
    any_world.kill(dying)
    ledger = any_world.process()
    any_world.payer(ledger)
    assert lists(await ledger.recover(tenant_id="acme")) == {"asked": ["order-acme"]}
    assert lists(await ledger.recover(tenant_id="nobody")) == {}
    assert lists(await ledger.recover(tenant_id=None)) == {"asked": ["order-None"]}
    assert lists(await ledger.recover(kinds=["run"])) == {}
    assert lists(await ledger.recover(kinds=["effect"])) == {"asked": ["order-bolt"]}


async def orphans(world: World, count: int) -> Ledger:
    dying = world.process()
    pay = world.payer(dying)
    for number in range(count):
        world.bank.next = ["crash_after"]
        with pytest.raises(Crash):
            await pay(f"order-{number}")
        world.pass_time(1)
    world.kill(dying)
    return world.process()


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
async def test_u10_pages_cover_everything_once(any_world: World, limit: int) -> None:
    ledger = await orphans(any_world, 7)
    any_world.payer(ledger, probe=any_world.bank.probe)
    seen: list[str | None] = []
    cursor: str | None = None
    for _ in range(20):
        recovery = await ledger.recover(limit=limit, cursor=cursor)
        assert len(recovery.settled) <= limit
        seen += [view.key for view in recovery.settled]
        if (cursor := recovery.cursor) is None:
            break
    assert sorted(seen, key=str) == [f"order-{number}" for number in range(7)]
    assert (await ledger.in_doubt()).items == ()


async def test_u10_pages_go_on_past_what_stays(world: World) -> None:
    ledger = await orphans(world, 5)
    world.bank.says = "unavailable"
    world.payer(ledger, probe=world.bank.probe)
    seen: list[str | None] = []
    cursor: str | None = None
    for _ in range(20):
        recovery = await ledger.recover(limit=2, cursor=cursor, wait=timedelta(0))
        seen += [view.key for view in recovery.waiting]
        if (cursor := recovery.cursor) is None:
            break
    assert set(seen) == {f"order-{number}" for number in range(5)}


async def test_u10_foreign_and_garbled_cursors_are_refused(any_world: World) -> None:
    ledger = await orphans(any_world, 3)
    any_world.payer(ledger)
    cursor = (await ledger.recover(limit=1)).cursor
    assert cursor is not None
    before = await any_world.records()
    inbox_cursor = (await ledger.in_doubt(limit=1)).cursor
    wrong: list[dict[str, Any]] = [
        {"cursor": cursor, "tenant_id": "acme"},
        {"cursor": cursor, "kinds": ["run"]},
        {"cursor": cursor[:-1] + ("A" if cursor[-1] != "A" else "B")},
        {"cursor": cursor + "AAAA"},
        {"cursor": inbox_cursor},
        {"cursor": "x"},
        {"cursor": ""},
        {"cursor": "é"},
        {"cursor": "\ud800"},
    ]
    for given in wrong:
        with pytest.raises(ValueError, match="cursor"):
            await ledger.recover(**given)
    other = await orphans(World(), 1)
    with pytest.raises(ValueError, match="cursor"):
        await other.recover(cursor=cursor)
    assert await any_world.records() == before
    assert inbox_cursor is not None


async def test_u10_permitted_records_are_sent_by_recover_only_where_the_code_is(
    world: World,
) -> None:
    ledger = world.process()
    world.bank.next = ["lost"]
    with pytest.raises(OutcomeUnknown) as doubt:
        await world.payer(ledger)("order-7")
    await ledger.decide(doubt.value, AllowOneAttempt(), **BY)
    bare = world.process()
    assert lists(await bare.recover()) == {"skipped": ["order-7"]}
    assert lists(await ledger.recover()) == {"replayed": ["order-7"]}
    assert world.bank.count("order-7") == 2
