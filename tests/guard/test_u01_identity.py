"""Which calls are one act: key, scope, tenant, name, arguments (decisions U1, U3, U4, head 15)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.conftest import ABSENCE, Crash, World, first

from indoubt import DidNotHappen, EffectContext, KeyConflict, Ledger, OutcomeUnknown, ScopeRequired


def notifier(ledger: Ledger, sent: list[Any], **policy: Any) -> Any:
    """An effect without a key."""
    given: dict[str, Any] = {"safety": "non_idempotent", "name": "notify"}

    @ledger.effect(**(given | policy))
    async def notify(who: str, times: int = 1) -> int:
        sent.append((who, times))
        return len(sent)

    return notify


async def test_u01_a_key_is_one_act_whatever_the_scope(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger)
    with ledger.scope("run-1"):
        first = await pay("order-7")
    with ledger.scope("run-2"):
        second = await pay("order-7")
    assert first == second == await pay("order-7") == {"id": "pay_1", "cents": 1}
    assert world.bank.count("order-7") == 1
    assert len(await world.records()) == 1


async def test_u01_without_a_key_one_act_per_scope_and_arguments(world: World) -> None:
    ledger, sent = world.process(), list[Any]()
    notify = notifier(ledger, sent)
    with ledger.scope("run-1"):
        assert await notify("ann") == 1
        assert await notify("ann") == 1
        assert await notify("bob") == 2
    with ledger.scope("run-2"):
        assert await notify("ann") == 3
    assert sent == [("ann", 1), ("bob", 1), ("ann", 1)]


async def test_u01_the_same_call_twice_in_a_scope_leaves_an_event(world: World) -> None:
    ledger = world.process()
    notify = notifier(ledger, [])
    with ledger.scope("run-1"):
        outcome = await notify.outcome("ann")
        again = await notify.outcome("ann")
    assert (outcome.replayed, again.replayed) == (False, True)
    journal = await ledger.journal(outcome.record_id)
    assert [entry.evidence[0]["source"] for entry in journal if entry.evidence] == [
        "served_from_record"
    ]
    assert (await ledger.get(outcome.record_id)).evidence == ()  # it is about no attempt


async def test_u01_a_key_makes_two_acts_of_the_same_call(world: World) -> None:
    ledger, sent = world.process(), list[Any]()
    notify = notifier(ledger, sent)
    with ledger.scope("run-1"):
        await notify("ann")
        await notify.using(key="second")("ann")
        await notify.using(key="second")("ann")
    assert len(sent) == 2


@pytest.mark.parametrize("scope", [False, True])
async def test_u01_without_key_and_scope_nothing_is_written(world: World, *, scope: bool) -> None:
    ledger, sent = world.process(), list[Any]()
    notify = notifier(ledger, sent)
    if scope:  # a scope that names no place
        with ledger.scope(tenant_id="acme"), pytest.raises(ScopeRequired, match="notify"):
            await notify("ann")
    with pytest.raises(ScopeRequired, match="notify"):
        await notify("ann")
    with pytest.raises(ScopeRequired):
        await notify.find("ann")
    assert (sent, await world.records()) == ([], [])


async def test_u01_tenants_share_no_act(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger)
    for tenant in ("acme", "Acme", " acme", None, "bolt"):
        await pay.using(tenant_id=tenant)("order-7")
        await pay.using(tenant_id=tenant)("order-7")
    with ledger.scope(tenant_id="acme"):
        await pay("order-7")
    assert world.bank.count("order-7") == 5
    assert {row.tenant_id for row in await world.records()} == {
        "acme",
        "Acme",
        " acme",
        None,
        "bolt",
    }


async def test_u01_an_inner_scope_keeps_the_tenant(world: World) -> None:
    ledger, sent = world.process(), list[Any]()
    notify = notifier(ledger, sent)
    with ledger.scope(tenant_id="acme"), ledger.scope("run-1"):
        await notify("ann")
    with ledger.scope("run-1", tenant_id="acme"):
        await notify("ann")
    assert len(sent) == 1
    assert [row.tenant_id for row in await world.records()] == ["acme"]


async def test_u01_a_key_in_using_wins_over_the_key_function(world: World) -> None:
    pay = world.payer(world.process())
    await pay("order-7")
    await pay.using(key="order-7/b")("order-7")
    assert world.bank.count("order-7") == 2


async def test_u01_the_record_id_is_rec_and_26_characters(world: World) -> None:
    pay = world.payer(world.process())
    outcome = await pay.outcome("order-7")
    head, body = outcome.record_id.split("_")
    assert head == "rec"
    assert len(body) == 26
    assert set(body) <= set("abcdefghijklmnopqrstuvwxyz234567")


async def test_u01_a_key_used_with_other_arguments_is_a_conflict(any_world: World) -> None:
    ledger = any_world.process()
    pay = any_world.payer(ledger)
    await pay("order-7", 1200)
    before = await any_world.records()
    with pytest.raises(KeyConflict) as caught:
        await pay("order-7", 1201)
    record = await ledger.get(caught.value.record_id)
    assert caught.value.recorded == record.fingerprint
    assert caught.value.given != record.fingerprint
    assert "120" not in str(caught.value)  # no argument leaves the record
    assert "order-7" not in str(caught.value)
    assert any_world.bank.count("order-7") == 1
    assert await any_world.records() == before


async def test_u01_a_conflict_is_told_in_every_state(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger)
    world.bank.next = ["lost", "declined"]
    with pytest.raises(OutcomeUnknown):
        await pay("order-7", 1)
    with pytest.raises(KeyConflict):
        await pay("order-7", 2)
    with pytest.raises(Exception, match="insufficient"):
        await pay("order-8", 1)
    with pytest.raises(KeyConflict):  # a clean failure frees the act, not the key
        await pay("order-8", 2)
    assert world.bank.calls == 2


async def test_u01_two_calls_at_once_are_one_act(world: World) -> None:
    pay = world.payer(world.process())
    receipts = await asyncio.gather(*(pay("order-7") for _ in range(8)))
    assert receipts == [{"id": "pay_1", "cents": 1}] * 8
    assert world.bank.count("order-7") == 1


async def test_head15_a_nested_effect_takes_the_outer_record_as_scope(world: World) -> None:
    ledger, sent = world.process(), list[Any]()
    notify = notifier(ledger, sent)

    @ledger.effect(safety="non_idempotent", name="ship", key=first)
    async def ship(_order: str, *, effect: EffectContext) -> Any:
        await notify("ann")
        await notify("ann")
        return effect.operation_id

    outer = await ship.using(tenant_id="acme")("order-7")
    await ship.using(tenant_id="acme")("order-8")
    assert len(sent) == 2
    rows = [await ledger.get(row.id) for row in await world.records()]
    inner = [row for row in rows if row.name == "notify"]
    assert {row.tenant_id for row in inner} == {"acme"}
    assert outer in {row.scope for row in inner}
    assert len({row.scope for row in inner}) == 2
    assert {row.root_id == row.id for row in await world.records()} == {True}  # its own root


async def test_head15_a_nested_effect_survives_the_death_of_the_outer_one(world: World) -> None:
    ledger, sent = world.process(), list[Any]()

    def shipper(ledger: Ledger) -> Any:
        notify = notifier(ledger, sent)

        @ledger.effect(safety="idempotent", name="ship", key=first)
        async def ship(order: str) -> None:
            await notify("ann")
            world.bank.pay(order)

        return ship

    world.bank.next = ["crash_before"]
    with pytest.raises(Crash):
        await shipper(ledger)("order-7")
    world.kill(ledger)
    await shipper(world.process())("order-7")
    assert sent == [("ann", 1)]
    assert world.bank.count("order-7") == 1


async def test_u03_one_idempotency_key_per_series(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger, safety="idempotent")
    world.bank.next = ["lost", "ok"]
    await pay("order-7")
    keys = [key for _, _, key in world.bank.acts]
    assert len(keys) == 2
    assert len(set(keys)) == 1  # a replay repeats it
    assert keys[0]
    assert len(keys[0]) <= 64


async def test_u03_the_series_rises_only_after_a_clean_failure(world: World) -> None:
    ledger, keys = world.process(), list[str]()

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    async def pay(order: str, *, effect: EffectContext) -> Any:
        keys.append(effect.idempotency_key)
        assert effect.key == order
        if len(keys) == 1:
            raise effect.reject("declined")
        return 1

    with pytest.raises(Exception, match="declined"):
        await pay("order-7")
    await pay("order-7")
    assert keys[0] != keys[1]


async def test_u03_what_a_person_says_starts_no_new_series(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger)
    world.bank.next = ["lost"]
    with pytest.raises(OutcomeUnknown) as doubt:
        await pay("order-7")
    await ledger.decide(doubt.value, DidNotHappen(), actor="ana", reason="a guess")
    await pay("order-7")  # the provider recognises the first one, should it have happened
    assert len({key for _, _, key in world.bank.acts}) == 1


async def test_u03_tenants_names_and_keys_have_their_own_idempotency_keys(world: World) -> None:
    ledger = world.process()
    pay, charge = world.payer(ledger), world.payer(ledger, name="charge")
    await pay("order-7")
    await pay("order-8")
    await charge("order-7")
    await pay.using(tenant_id="acme")("order-7")
    keys = {key for _, _, key in world.bank.acts}
    assert len(keys) == 4
    assert not any("order" in str(key) for key in keys)


async def test_u04_the_name_is_the_qualified_name_without_its_module(world: World) -> None:
    ledger = world.process()
    guarded = ledger.effect(safety="pure", key=lambda: "k")(plain_function)
    assert guarded() == 1
    record = await ledger.find("plain_function", "k")
    assert record is not None
    assert record.name == "plain_function"


def plain_function() -> int:
    return 1


def test_u04_lambdas_and_local_functions_need_a_name(world: World) -> None:
    ledger = world.process()

    def local() -> None:
        """Has no lasting name."""

    for nameless in (local, lambda: None):
        with pytest.raises(ValueError, match="name"):
            ledger.effect(safety="pure", key=lambda: "k")(nameless)


def test_u04_two_functions_under_one_name_are_refused(world: World) -> None:
    ledger = world.process()
    notifier(ledger, [])
    with pytest.raises(ValueError, match="notify"):
        ledger.effect(safety="pure", name="notify")(plain_function)
    notifier(world.process(), [])  # another ledger is another register
    assert notifier(ledger, []) is not None  # the same function anew replaces (a reload)


async def test_u04_the_newer_of_one_function_replaces_the_older(world: World) -> None:
    ledger, older, newer = world.process(), list[Any](), list[Any]()
    notifier(ledger, older, key=first, safety="idempotent")
    world.bank.next = ["crash_before"]

    def crash(_: Any) -> None:
        raise Crash

    dying = world.process()
    broken = notifier(dying, _Crashing(crash), key=first, safety="idempotent")
    with pytest.raises(Crash):
        await broken("ann")
    world.kill(dying)
    notifier(ledger, newer, key=first, safety="idempotent")
    recovery = await ledger.recover()
    assert len(recovery.replayed) == 1
    assert (older, newer) == ([], [("ann", 1)])


class _Crashing(list[Any]):
    def __init__(self, act: Any) -> None:
        super().__init__()
        self._act = act

    def append(self, value: Any) -> None:
        self._act(value)


async def test_u04_formerly_finds_older_records(any_world: World) -> None:
    older = any_world.process()
    await any_world.payer(older, name="pay_old")("order-7")
    ledger = any_world.process()
    pay = any_world.payer(ledger, name="pay_new", formerly=("pay_older", "pay_old"))
    outcome = await pay.outcome("order-7")
    assert (outcome.receipt, outcome.replayed) == ({"id": "pay_1", "cents": 1}, True)
    assert any_world.bank.count("order-7") == 1
    found = await pay.find("order-7")
    assert found is not None
    assert found.name == "pay_old"
    await pay("order-8")
    new = await ledger.find("pay_new", "order-8")
    assert new is not None
    assert any_world.bank.count("order-8") == 1


async def test_u04_formerly_goes_on_with_an_older_doubt(world: World) -> None:
    older = world.process()
    world.bank.next = ["lost"]
    with pytest.raises(OutcomeUnknown):
        await world.payer(older, name="pay_old")("order-7")
    ledger = world.process()
    pay = world.payer(
        ledger, name="pay_new", formerly=("pay_old",), probe=world.bank.probe, **ABSENCE
    )
    box = await ledger.in_doubt()
    assert [item.name for item in box.items] == ["pay_old"]
    with pytest.raises(OutcomeUnknown):  # asked already: a person's turn
        await pay("order-7")
    with pytest.raises(KeyConflict):
        await pay("order-7", 2)
    assert world.bank.calls == 1


async def test_u04_formerly_recovers_older_doubts(world: World) -> None:
    older = world.process()
    world.bank.next = ["crash_after"]
    with pytest.raises(Crash):
        await world.payer(older, name="pay_old")("order-7")
    world.kill(older)
    ledger = world.process()
    world.payer(ledger, name="pay_new", formerly=("pay_old",), probe=world.bank.probe, **ABSENCE)
    recovery = await ledger.recover()
    assert [view.name for view in recovery.settled] == ["pay_old"]


def test_u04_a_former_name_may_not_be_anothers(world: World) -> None:
    ledger = world.process()
    notifier(ledger, [])
    with pytest.raises(ValueError, match="notify"):
        world.payer(ledger, formerly=("notify",))
    ledger.effect(safety="pure", formerly=("pay_old",))(plain_function)
    with pytest.raises(ValueError, match="pay_old"):
        world.payer(ledger, name="charge", formerly=("pay_old",))
    with pytest.raises(ValueError, match="pay_old"):
        world.payer(ledger, name="pay_old")
