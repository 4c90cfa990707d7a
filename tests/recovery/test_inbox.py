"""Looking: the inbox, a record, its journal, an act by name, and who may see what (Q8, P15)."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from tests.conftest import Crash, World, first, only

from indoubt import (
    ANY_TENANT,
    AllowOneAttempt,
    GiveUp,
    Inbox,
    Ledger,
    OutcomeUnknown,
    RecordNotFound,
    RecordView,
)

BY = {"actor": "ana", "reason": "seen"}
NOBODY = "rec_" + "a" * 26


async def doubts(world: World, ledger: Ledger, *tenants: str | None) -> list[str]:
    """One doubt a tenant, a second apart; answers their refs."""
    refs: list[str] = []
    for number, tenant in enumerate(tenants):
        world.bank.next = ["lost"]
        with pytest.raises(OutcomeUnknown) as caught:
            await world.payer(ledger).using(tenant_id=tenant)(f"order-{number}")
        refs.append(caught.value.ref)
        world.pass_time(1)
    return refs


async def all_pages(ledger: Ledger, **given: Any) -> list[RecordView]:
    found: list[RecordView] = []
    cursor: str | None = None
    for _ in range(50):
        box = await ledger.in_doubt(cursor=cursor, **given)
        found += box.items
        if (cursor := box.cursor) is None:
            return found
    pytest.fail("the listing does not end")


# -- in_doubt --------------------------------------------------------------------------------------


async def test_q08_an_item_says_what_a_person_needs(any_world: World) -> None:
    ledger = any_world.process()

    @ledger.effect(safety="non_idempotent", name="pay", key=first, redact=("card",))
    async def pay(order: str, cents: int, card: str) -> None:
        raise ConnectionResetError(order, cents, card)

    with pytest.raises(OutcomeUnknown) as caught:
        await pay.using(tenant_id="acme")("order-7", 1200, "4242")
    item = await only(ledger)
    assert (item.ref, item.kind, item.name) == (caught.value.ref, "effect", "pay")
    assert (item.tenant_id, item.attempt, item.key) == ("acme", 1, "order-7")
    assert item.arguments == {"order": "order-7", "cents": 1200, "card": {"redacted": True}}
    assert item.fingerprint.startswith("v1:")
    assert item.since.tzinfo is not None
    assert item.evidence[0]["note"] == "ConnectionResetError"
    assert item.reason.startswith("a person must decide")
    assert {choice.decision for choice in item.choices} == {
        "happened",
        "did_not_happen",
        "allow_one_attempt",
        "give_up",
    }
    assert "4242" not in json.dumps(item.to_dict())


async def test_q08_every_kind_of_doubt_is_listed_and_nothing_else(any_world: World) -> None:
    ledger = any_world.process()
    pay = any_world.payer(ledger)
    awaiting, permitted, given_up = await doubts(any_world, ledger, None, None, None)
    await ledger.decide(permitted, AllowOneAttempt(), **BY)
    await ledger.decide(given_up, GiveUp(), **BY)
    await pay("settled")
    any_world.bank.next = ["declined"]
    with pytest.raises(Exception, match="insufficient"):
        await pay("failed")
    dying = any_world.process()
    any_world.bank.next = ["crash_after"]
    with pytest.raises(Crash):
        await any_world.payer(dying)("unmarked")
    any_world.kill(dying)
    items = await all_pages(ledger)
    assert [(item.key, item.state) for item in items] == [
        ("order-0", "awaiting_decision"),
        ("order-1", "permitted"),
        ("unmarked", "in_doubt"),
    ]
    assert [item.ref for item in items[:2]] == [awaiting, permitted]


async def test_q08_oldest_first(world: World) -> None:
    ledger = world.process()
    refs = await doubts(world, ledger, *[None] * 5)
    items = await all_pages(ledger)
    assert [item.ref for item in items] == refs
    assert [item.since for item in items] == sorted(item.since for item in items)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 1000])
async def test_q08_pages_cover_everything_once(any_world: World, limit: int) -> None:
    ledger, dying = any_world.process(), any_world.process()
    refs = await doubts(any_world, ledger, *[None] * 3)
    for number in range(3):
        any_world.bank.next = ["crash_after"]
        with pytest.raises(Crash):
            await any_world.payer(dying)(f"unmarked-{number}")
    any_world.kill(dying)
    items = await all_pages(ledger, limit=limit)
    assert len(items) == len({item.ref for item in items}) == 6
    assert [item.ref for item in items[:3]] == refs
    assert len((await ledger.in_doubt(limit=limit)).items) <= limit


async def test_q08_filters_by_tenant_and_kind(any_world: World) -> None:
    ledger = any_world.process()
    await doubts(any_world, ledger, "acme", "bolt", None, "acme")

    async def keys(**given: Any) -> list[str | None]:
        return [item.key for item in await all_pages(ledger, limit=1, **given)]

    assert await keys(tenant_id="acme") == ["order-0", "order-3"]
    assert await keys(tenant_id="bolt") == ["order-1"]
    assert await keys(tenant_id=None) == ["order-2"]
    assert await keys(tenant_id="Acme") == []
    assert await keys(tenant_id=ANY_TENANT) == ["order-0", "order-1", "order-2", "order-3"]
    assert await keys(kinds=["effect"]) == ["order-0", "order-1", "order-2", "order-3"]
    assert await keys(kinds=("run", "tool_call")) == []
    assert await keys(kinds=["run", "effect"], tenant_id="bolt") == ["order-1"]


async def test_q08_foreign_and_garbled_cursors_are_refused(any_world: World) -> None:
    ledger = any_world.process()
    await doubts(any_world, ledger, "acme", "acme", "bolt", "bolt")
    any_world.payer(ledger)
    cursor = (await ledger.in_doubt(limit=1, tenant_id="acme")).cursor
    assert cursor is not None
    recovering = World()
    other = recovering.process()
    await doubts(recovering, other, "acme", "acme")
    for wrong in (cursor[:-1], cursor + "A", cursor[2:], "m.x", "u.x", "x", "", "é", "\ud800", "m"):
        with pytest.raises(ValueError, match="cursor"):
            await ledger.in_doubt(cursor=wrong, tenant_id="acme")
    others: list[dict[str, Any]] = [
        {"tenant_id": "bolt"},
        {"tenant_id": ANY_TENANT},
        {"tenant_id": "acme", "kinds": ["effect"]},
    ]
    for given in others:
        with pytest.raises(ValueError, match="cursor"):
            await ledger.in_doubt(cursor=cursor, **given)
    with pytest.raises(ValueError, match="cursor"):
        await other.in_doubt(cursor=cursor, tenant_id="acme")


async def test_q08_an_empty_inbox(any_world: World) -> None:
    assert await any_world.process().in_doubt() == Inbox((), None)


# -- get, find -------------------------------------------------------------------------------------


async def test_q08_get_takes_an_id_or_a_ref(any_world: World) -> None:
    ledger = any_world.process()
    outcome = await any_world.payer(ledger).outcome("order-7", 5)
    by_id = await ledger.get(outcome.record_id)
    assert await ledger.get(f"{outcome.record_id}.1") == by_id
    assert (by_id.state, by_id.receipt, by_id.arguments, by_id.key) == (
        "succeeded",
        {"id": "pay_1", "cents": 5},
        {"order": "order-7", "cents": 5},
        "order-7",
    )


async def test_q08_find_by_name_and_key_only_reads(any_world: World) -> None:
    ledger = any_world.process()
    pay = any_world.payer(ledger)
    await pay.using(tenant_id="acme")("order-7")
    before = await any_world.records()
    found = await ledger.find("pay", "order-7", tenant_id="acme")
    assert found is not None
    assert found.key == "order-7"
    assert await ledger.find("pay", "order-7") is None
    assert await ledger.find("pay", "order-7", tenant_id="bolt") is None
    assert await ledger.find("pay2", "order-7", tenant_id="acme") is None
    with ledger.scope(tenant_id="acme"):
        assert await pay.find("order-7") == found
        assert await pay.find("order-7", 99) == found  # the key names the act
    assert await pay.find("order-7") is None
    assert await pay.using(tenant_id="acme").find("order-7") == found
    assert await any_world.records() == before
    assert any_world.bank.calls == 1


async def test_q08_views_are_plain_values(any_world: World) -> None:
    ledger = any_world.process()
    await doubts(any_world, ledger, "acme")
    item = await only(ledger)
    data = item.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["ref"] == item.ref
    assert datetime.fromisoformat(data["since"]) == item.since
    with pytest.raises(AttributeError):
        item.state = "succeeded"  # type: ignore[misc]


# -- the journal -----------------------------------------------------------------------------------


async def test_p15_the_journal_is_gap_free_one_event_per_write(any_world: World) -> None:
    ledger = any_world.process()
    pay = any_world.payer(ledger, probe=any_world.bank.probe)
    any_world.bank.next, any_world.bank.says = ["lost"], "unknown"
    with pytest.raises(OutcomeUnknown) as caught:
        await pay("order-7")
    await ledger.decide(caught.value, AllowOneAttempt(), **BY)
    await pay("order-7")
    journal = await ledger.journal(caught.value.ref)
    assert [entry.sequence for entry in journal] == list(range(1, len(journal) + 1))
    assert [(entry.did, entry.state) for entry in journal] == [
        (("prepare", "claim", "dispatch"), "dispatched"),
        (("doubt",), "in_doubt"),
        (("note", "ask"), "awaiting_decision"),
        (("allow_one_attempt",), "permitted"),
        (("claim", "dispatch"), "dispatched"),
        (("settle",), "succeeded"),
    ]
    assert [entry.attempt for entry in journal] == [1, 1, 1, 1, 2, 2]
    assert all(json.dumps(entry.to_dict()) for entry in journal)
    assert [entry.at for entry in journal] == sorted(entry.at for entry in journal)


async def test_p15_the_journal_pages_by_sequence(any_world: World) -> None:
    ledger = any_world.process()
    (ref,) = await doubts(any_world, ledger, None)
    for _ in range(3):
        await ledger.cancel(ref, **BY)
    whole = await ledger.journal(ref)
    assert len(whole) == 6
    assert await ledger.journal(ref, limit=2) == whole[:2]
    assert await ledger.journal(ref, after=2, limit=2) == whole[2:4]
    assert await ledger.journal(ref, after=6) == []
    assert await ledger.journal(ref, after=10**15) == []


async def test_d_the_record_keeps_the_newest_20_pieces_and_the_journal_all(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger, probe=world.bank.probe)
    world.bank.next, world.bank.says = ["lost"], "unknown"
    with pytest.raises(OutcomeUnknown) as caught:
        await pay("order-7")
    for _ in range(30):
        await ledger.probe(caught.value.ref)
    item = await only(ledger)
    assert len(item.evidence) == 20
    pieces = [
        piece for entry in await ledger.journal(item.ref, limit=1000) for piece in entry.evidence
    ]
    assert len(pieces) == 32


# -- a foreign tenant's id answers like a missing one ---------------------------------------------


async def test_a_foreign_id_answers_exactly_like_a_missing_one(any_world: World) -> None:
    ledger = any_world.process()
    (ref,) = await doubts(any_world, ledger, "acme")
    any_world.payer(ledger, probe=any_world.bank.probe)
    before = await any_world.records()
    record_id = ref.partition(".")[0]

    async def answers(tenant: str | None, asked: str) -> list[tuple[Any, ...]]:
        given: dict[str, Any] = {"tenant_id": tenant}
        verbs: list[Any] = [
            lambda: ledger.get(asked, **given),
            lambda: ledger.get(asked.partition(".")[0], **given),
            lambda: ledger.journal(asked, **given),
            lambda: ledger.probe(asked, **given),
            lambda: ledger.cancel(asked, **BY, **given),
            lambda: ledger.decide(asked, GiveUp(), **BY, **given),
        ]
        told: list[tuple[Any, ...]] = []
        for verb in verbs:
            with pytest.raises(RecordNotFound) as caught:
                await verb()
            error = caught.value
            assert error.record_id == asked.partition(".")[0]
            words = [str(word).replace(error.record_id, "ID") for word in (error, *error.args)]
            told.append((type(error), *words))
        return told

    for tenant in ("bolt", None, "Acme", " acme"):
        foreign = await answers(tenant, ref)
        missing = await answers(tenant, f"{NOBODY}.1")
        assert foreign == missing
        assert record_id not in str(foreign)
    assert await any_world.records() == before
    assert (await ledger.get(ref, tenant_id="acme")).tenant_id == "acme"
    assert (await ledger.get(ref)).tenant_id == "acme"


async def test_an_unknown_record_has_no_journal(world: World) -> None:
    ledger = world.process()
    with pytest.raises(RecordNotFound):
        await ledger.journal(NOBODY)
    with pytest.raises(LookupError):
        await ledger.get(NOBODY)
    assert await world.records() == []


# -- the ledger itself -----------------------------------------------------------------------------


async def test_q08_a_ledger_opens_at_its_first_use_and_again_after_close(tmp_path: Any) -> None:
    path = tmp_path / "sub.db"
    ledger = Ledger(f"sqlite:///{path}")

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    async def pay(order: str) -> str:
        return order

    assert not path.exists()  # cheap: a module global
    assert await pay("order-7") == "order-7"
    await ledger.close()
    await ledger.close()
    assert (await pay.outcome("order-7")).replayed
    await ledger.close()
    async with ledger:
        assert await ledger.find("pay", "order-7")


async def test_q08_without_a_store_the_environment_names_it(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INDOUBT_URL", raising=False)
    with pytest.raises(ValueError, match="INDOUBT_URL"):
        await Ledger().in_doubt()
    monkeypatch.setenv("INDOUBT_URL", f"sqlite:///{tmp_path}/env.db")
    async with Ledger() as ledger:
        assert (await ledger.in_doubt()).items == ()
    assert (tmp_path / "env.db").exists()
