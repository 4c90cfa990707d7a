"""Messages name the effect and the record, and say which argument it is: names, never values."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from tests.conftest import World, first

from indoubt import (
    EffectContext,
    EffectFailed,
    KeyConflict,
    Ledger,
    OutcomePruned,
    OutcomeUnknown,
    ReceiptNotStored,
    RecordNotFound,
    Retention,
)

NAMED = re.compile(r"^pay \(rec_[a-z2-7]{26}(\.\d+)?\)[: ]")


def paying(ledger: Ledger, **policy: Any) -> Any:
    given: dict[str, Any] = {"name": "pay", "safety": "non_idempotent", "key": first}

    @ledger.effect(**(given | policy))
    def pay(order: str, cents: int = 1, note: str = "", card: Any = None) -> Any:
        return {"order": order, "card": card, "paid": cents, "note": note}

    return pay


async def test_a_key_conflict_names_the_arguments_that_differ(any_world: World) -> None:
    pay = paying(any_world.process(), redact=("card",))
    pay("order-7", 12, "4711", card="4242")
    for given, which in (
        ({"cents": 13, "note": "4711", "card": "4242"}, "(cents)"),
        ({"cents": 12, "note": "4712", "card": "4242"}, "(note)"),
        ({"cents": 12, "card": "4242"}, "(note)"),  # left at its default
        ({"note": "new", "card": "4242"}, "(cents, note)"),
        ({"cents": 12.0, "note": "4711", "card": "4242"}, "(cents)"),
        ({"cents": 12, "note": "4711", "card": "4343"}, "(one whose value is not recorded)"),
        ({"cents": 13, "note": "4711", "card": "4343"}, "(cents)"),
    ):
        with pytest.raises(KeyConflict) as caught:
            pay("order-7", **given)
        assert which in str(caught.value)
        assert NAMED.match(str(caught.value))
        assert not re.search("4711|4712|4242|4343|order-7", str(caught.value))


async def test_hiding_an_argument_later_is_not_told_as_a_difference(world: World) -> None:
    paying(world.process())("order-7", 12, card="4242")
    hiding = paying(world.process(), redact=("card",))
    with pytest.raises(KeyConflict, match=r"\(cents\)"):
        hiding("order-7", 13, card="4242")


async def test_what_a_key_function_returns_is_called_so(world: World) -> None:
    def place(order: str, *_: Any) -> int:
        return len(order)

    pay = paying(world.process(), key=place)
    with pytest.raises(TypeError, match=r"^pay: what key= returns must be str, not int"):
        pay("order-7")


async def test_a_rejection_names_the_act_and_keeps_the_authors_own_words(world: World) -> None:
    ledger = world.process()

    @ledger.effect(name="pay", safety="non_idempotent", key=first)
    def pay(_order: str, *, effect: EffectContext) -> None:
        raise effect.reject("card_declined", "no cover")

    with pytest.raises(EffectFailed) as caught:
        pay("order-7")
    assert NAMED.match(str(caught.value))
    assert str(caught.value).endswith("was refused: card_declined: no cover")
    assert (caught.value.code, caught.value.effect) == ("card_declined", "none")
    record = await ledger.find("pay", "order-7")
    assert record is not None
    kept = {"code": "card_declined", "message": "card_declined: no cover"}
    assert record.error == {"type": "EffectFailed"} | kept


async def test_every_answer_about_a_record_names_it(world: World) -> None:
    ledger = world.process()
    world.bank.next = ["lost"]
    with pytest.raises(OutcomeUnknown) as doubt:
        await world.payer(world.process())("order-8")

    @ledger.effect(name="pay", safety="non_idempotent", key=first)
    def pay(_order: str) -> Any:
        return object()

    with pytest.raises(ReceiptNotStored) as unstored:
        pay("order-9")
    with pytest.raises(ReceiptNotStored) as still:
        pay("order-9")
    for caught in (doubt, unstored, still):
        assert NAMED.match(str(caught.value))


async def test_a_pruned_act_is_named_too() -> None:
    world = World()
    ledger = world.process()
    pay = paying(ledger)
    pay("order-7")
    world.pass_time(86_400)
    await ledger.prune(Retention(after=timedelta(hours=1)))
    with pytest.raises(OutcomePruned, match=NAMED):
        pay("order-7")
    await world.close()


async def test_a_record_that_is_not_there_is_named_by_its_id(world: World) -> None:
    with pytest.raises(RecordNotFound, match=r"^rec_none: no such record$"):
        await world.process().get("rec_none.1")
