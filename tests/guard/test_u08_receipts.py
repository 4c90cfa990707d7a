"""What the caller gets, and what is recorded of arguments, seen from a call (U8, U9)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pytest
from tests.conftest import Crash, World, first, only

from indoubt import EffectContext, KeyConflict, Ledger, Outcome, OutcomeUnknown, ReceiptNotStored


class Colour(StrEnum):
    RED = "red"


@dataclass
class Money:
    cents: int
    currency: str = "EUR"


class Row(TypedDict):
    id: str
    cents: int


class Refund(msgspec.Struct):
    id: str
    at: datetime
    amount: Decimal


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def giving(ledger: Ledger, value: Any, annotation: Any, calls: list[Any]) -> Any:
    async def give(order: str) -> Any:
        calls.append(order)
        return value

    give.__annotations__["return"] = annotation
    return ledger.effect(safety="non_idempotent", name="give", key=first)(give)


GIVEN: list[tuple[str, Any, Any, Any]] = [
    ("dataclass", Money(5), Money, Money(5)),
    ("typed dict", {"id": "a", "cents": 5}, Row, {"id": "a", "cents": 5}),
    ("struct", Refund("a", NOON, Decimal("1.50")), Refund, Refund("a", NOON, Decimal("1.50"))),
    ("decimal", Decimal("1.50"), Decimal, Decimal("1.50")),
    ("datetime", NOON, datetime, NOON),
    ("date", date(2026, 3, 1), date, date(2026, 3, 1)),
    ("duration", timedelta(seconds=1.5), timedelta, timedelta(seconds=1.5)),
    ("uuid", UUID(int=1), UUID, UUID(int=1)),
    ("enum", Colour.RED, Colour, Colour.RED),
    ("list", [Money(1), Money(2)], list[Money], [Money(1), Money(2)]),
    ("optional", None, Money | None, None),
    ("tuple without annotation", (1, 2), Any, [1, 2]),
    ("dict", {"a": [1, 1.0, True, None, "é"]}, dict[str, Any], {"a": [1, 1.0, True, None, "é"]}),
    ("none", None, None, None),
]


@pytest.mark.parametrize(("value", "annotation", "expected"), [one[1:] for one in GIVEN])
async def test_u08_the_receipt_has_the_return_annotation_first_time_and_every_time(
    world: World, value: Any, annotation: Any, expected: Any
) -> None:
    calls: list[Any] = []
    give = giving(world.process(), value, annotation, calls)
    one = await give("order-7")
    two = await give("order-7")
    other = await giving(world.process(), value, annotation, calls)("order-7")
    for receipt in (one, two, other):
        assert receipt == expected
        assert type(receipt) is type(expected)
    assert calls == ["order-7"]


async def test_u08_what_a_caller_does_to_a_receipt_reaches_nothing(world: World) -> None:
    shared = {"list": [1]}
    give = giving(world.process(), shared, dict[str, Any], [])
    one = await give("order-7")
    one["list"].append(2)
    shared["list"].append(3)
    assert await give("order-7") == {"list": [1]}


async def test_u08_an_adopted_receipt_has_the_annotation_too(world: World) -> None:
    ledger = world.process()

    async def pay(order: str) -> Money:
        world.bank.acts.append((order, 1, None))
        raise ConnectionResetError

    def probe(attempt: Any) -> Any:
        return attempt.succeeded({"cents": 7, "currency": "USD"})

    guarded = ledger.effect(safety="non_idempotent", name="pay", key=first, probe=probe)(pay)
    assert await guarded("order-7") == Money(7, "USD")
    assert await guarded("order-7") == Money(7, "USD")


async def test_u08_outcome_says_what_happened(world: World) -> None:
    give = giving(world.process(), 1, int, [])
    outcome = await give.outcome("order-7")
    assert isinstance(outcome, Outcome)
    assert outcome._fields == ("receipt", "replayed", "record_id", "attempt")
    assert outcome == (1, False, outcome.record_id, 1)
    assert await give.outcome("order-7") == (1, True, outcome.record_id, 1)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        b"bytes",
        float("nan"),
        {1: 2},
        "\ud800",
        10**5000,
        {"a": {"b": object()}},
        "x" * 1_048_577,
    ],
    ids=["object", "set", "bytes", "nan", "key", "surrogate", "int", "deep", "large"],
)
async def test_u08_a_result_that_is_not_json_happened_and_is_never_retried(
    any_world: World, value: Any
) -> None:
    calls: list[Any] = []
    ledger = any_world.process()
    give = giving(ledger, value, Any, calls)
    with pytest.raises(ReceiptNotStored) as caught:
        await give("order-7")
    for process in (ledger, any_world.process()):
        with pytest.raises(ReceiptNotStored):
            await giving(process, value, Any, calls)("order-7")
    record = await ledger.get(caught.value.record_id)
    assert (record.state, record.receipt, record.receipt_lost) == ("succeeded", None, True)
    assert calls == ["order-7"]
    assert (await ledger.recover()).replayed == ()


async def test_u08_a_result_that_cannot_be_stored_is_not_shown(world: World) -> None:
    give = giving(world.process(), {"secret-key": {"inner": {"s3cr3t"}}}, Any, [])
    with pytest.raises(ReceiptNotStored) as caught:
        await give("order-7")
    assert "s3cr3t" not in str(caught.value)
    assert "inner" in str(caught.value)  # where


async def test_u08_a_receipt_that_no_longer_fits_is_given_as_json(world: World) -> None:
    await giving(world.process(), {"other": 1}, dict[str, Any], [])("order-7")
    assert await giving(world.process(), None, Money, [])("order-7") == {"other": 1}


# -- U9: arguments ---------------------------------------------------------------------------------


async def test_u09_defaults_are_left_out_so_a_new_one_breaks_nothing(world: World) -> None:
    ledger, later = world.process(), world.process()

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    async def pay(order: str, cents: int = 1) -> str:
        return f"{order} {cents}"

    @later.effect(safety="non_idempotent", name="pay", key=first)
    async def newer(order: str, cents: int = 1, *, urgent: bool = False) -> str:
        return f"{order} {cents} {urgent}"

    receipt = await pay("order-7", 1)
    assert await newer("order-7") == receipt
    assert await newer(order="order-7", cents=1, urgent=False) == receipt
    with pytest.raises(KeyConflict):
        await newer("order-7", urgent=True)


async def test_u09_values_are_recorded_as_json_and_rebuilt_for_a_replay(any_world: World) -> None:
    seen: list[tuple[Any, ...]] = []

    def payer(ledger: Ledger, *, crash: bool) -> Any:
        @ledger.effect(safety="idempotent", name="pay", key=first)
        async def pay(  # noqa: PLR0917
            order: str, amount: Decimal, when: datetime, who: UUID, colour: Colour, money: Money
        ) -> None:
            if crash:
                raise Crash
            seen.append((order, amount, when, who, colour, money))

        return pay

    given = ("order-7", Decimal("1.50"), NOON, UUID(int=7), Colour.RED, Money(5))
    ledger = any_world.process()
    with pytest.raises(Crash):
        await payer(ledger, crash=True)(*given)
    any_world.kill(ledger)
    other = any_world.process()
    payer(other, crash=False)
    recovery = await other.recover()
    assert [view.state for view in recovery.replayed] == ["succeeded"]
    assert seen == [given]
    assert [type(one) for one in seen[0]] == [type(one) for one in given]
    assert recovery.replayed[0].arguments == {
        "order": "order-7",
        "amount": "1.50",
        "when": "2026-03-01T12:00:00Z",
        "who": "00000000-0000-0000-0000-000000000007",
        "colour": "red",
        "money": {"cents": 5, "currency": "EUR"},
    }


@pytest.mark.parametrize("option", ["ignore", "redact"])
async def test_u09_ignore_and_redact_make_it_not_replayable_by_recover(
    any_world: World, option: str
) -> None:
    calls: list[Any] = []

    def payer(ledger: Ledger, *, crash: bool) -> Any:
        policy: dict[str, Any] = {option: ("card",)}

        @ledger.effect(safety="idempotent", name="pay", key=first, **policy)
        async def pay(_order: str, card: str) -> str:
            if crash:
                raise Crash
            calls.append(card)
            return "paid"

        return pay

    ledger = any_world.process()
    with pytest.raises(Crash):
        await payer(ledger, crash=True)("order-7", "4242")
    any_world.kill(ledger)
    other = any_world.process()
    pay = payer(other, crash=False)
    recovery = await other.recover()
    assert (len(recovery.skipped), calls) == (1, [])
    item = await only(other)
    assert "4242" not in str(item.to_dict())
    assert item.state == "in_doubt"
    assert await pay("order-7", "4242") == "paid"  # the caller's own repeat can


async def test_u09_redact_keeps_the_fingerprint_and_stores_no_value(world: World) -> None:
    ledger = world.process()

    @ledger.effect(safety="non_idempotent", name="pay", key=first, redact=("card",))
    async def pay(order: str, card: str) -> str:
        return f"{order} {card[:1]}"

    outcome = await pay.outcome("order-7", "4242")
    record = await ledger.get(outcome.record_id)
    assert record.arguments == {"order": "order-7", "card": {"redacted": True}}
    with pytest.raises(KeyConflict):
        await pay("order-7", "4243")
    assert (await pay.outcome("order-7", "4242")).replayed


async def test_u09_ignored_arguments_are_no_part_of_the_act(world: World) -> None:
    ledger = world.process()

    @ledger.effect(safety="non_idempotent", name="pay", ignore=("context",))
    async def pay(order: str, context: object) -> str:
        return f"{order} {type(context).__name__}"

    with ledger.scope("run-1"):
        await pay("order-7", object())
        outcome = await pay.outcome("order-7", context=open)
    assert outcome == ("order-7 object", True, outcome.record_id, 1)
    assert (await ledger.get(outcome.record_id)).arguments == {"order": "order-7"}


async def test_u09_a_record_whose_function_changed_is_left_to_the_caller(world: World) -> None:
    ledger = world.process()
    world.bank.next = ["crash_before"]
    with pytest.raises(Crash):
        await world.payer(ledger, safety="idempotent")("order-7", 5)
    world.kill(ledger)
    other = world.process()

    @other.effect(safety="idempotent", name="pay", key=first)
    async def pay(order: str) -> str:
        return order

    recovery = await other.recover()
    assert [view.key for view in recovery.skipped] == ["order-7"]
    assert (recovery.replayed, recovery.errors) == ((), ())
    with pytest.raises(KeyConflict):
        await pay("order-7")


# -- checkpoints (decisions D) ---------------------------------------------------------------------


async def test_d_a_checkpoint_is_evidence_and_the_probes_token(any_world: World) -> None:
    ledger = any_world.process()

    @ledger.effect(safety="idempotent", name="pay", key=first, probe=any_world.bank.probe)
    async def pay(_order: str, *, effect: EffectContext) -> None:
        await effect.checkpoint({"job": 1})
        await effect.checkpoint({"job": 2}, external_ref="job_2")
        raise ConnectionResetError

    any_world.bank.says = "unknown"
    with pytest.raises(OutcomeUnknown) as caught:
        await pay("order-7")
    asked = any_world.bank.asked[0]
    assert (asked.token, asked.external_ref, asked.attempt) == ({"job": 2}, "job_2", 1)
    assert caught.value.next == "ask_person"  # acknowledged: never sent again blindly
    item = await only(ledger)
    assert item.attempts[0]["stage"] == "acknowledged"
    assert item.attempts[0]["token"] == {"job": 2}


def test_d_a_def_checkpoints_without_await(world: World) -> None:
    ledger = world.process()

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    def pay(_order: str, *, effect: EffectContext) -> str:
        effect.checkpoint("sent")  # pyright: ignore[reportUnusedCoroutine]
        record = ledger.look_up_blocking(effect.operation_id)
        assert record is not None
        return str(record.attempts[0]["token"])

    assert pay("order-7") == "sent"


async def test_d_a_def_checkpoints_in_the_thread_of_aio(world: World) -> None:
    ledger = world.process()

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    def pay(_order: str, *, effect: EffectContext) -> str:
        effect.checkpoint("sent")  # pyright: ignore[reportUnusedCoroutine]
        return "paid"

    outcome = await pay.aio("order-7"), await pay.aio("order-7")
    assert outcome == ("paid", "paid")


async def test_d_a_def_replayed_by_recover_checkpoints_too(world: World) -> None:
    def payer(ledger: Ledger, *, crash: bool) -> Any:
        @ledger.effect(safety="idempotent", name="pay", key=first)
        def pay(_order: str, *, effect: EffectContext) -> str:
            if crash:
                raise Crash
            effect.checkpoint("sent")  # pyright: ignore[reportUnusedCoroutine]
            return "paid"

        return pay

    ledger = world.process()
    with pytest.raises(Crash):
        payer(ledger, crash=True)("order-7")
    world.kill(ledger)
    other = world.process()
    payer(other, crash=False)
    recovery = await other.recover()
    assert [view.receipt for view in recovery.replayed] == ["paid"]
    assert recovery.replayed[0].attempts[-1]["stage"] == "acknowledged"


@pytest.mark.parametrize("note", [object(), float("nan"), "x" * 4096, {"a": b""}])
async def test_d_a_checkpoint_that_is_no_note_is_refused_unwritten(world: World, note: Any) -> None:
    ledger = world.process()
    refused: list[str] = []

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    async def pay(_order: str, *, effect: EffectContext) -> str:
        try:
            await effect.checkpoint(note)
        except (TypeError, ValueError) as error:
            refused.append(str(error))
        return "paid"

    outcome = await pay.outcome("order-7")
    assert len(refused) == 1
    assert "checkpoint note" in refused[0]
    record = await ledger.get(outcome.record_id)
    assert record.attempts[0]["stage"] == "sent"


async def test_d_a_checkpoint_of_a_replaced_holder_is_lease_lost(world: World) -> None:
    ledger, other = world.process(), world.process()
    told: list[str] = []

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    async def pay(order: str, *, effect: EffectContext) -> None:
        world.kill(ledger, proven=False)
        world.pass_time(31)
        with pytest.raises(OutcomeUnknown):
            await world.payer(other)(order)
        try:
            await effect.checkpoint("late")
        except Exception as error:
            told.append(type(error).__name__)
            raise

    with pytest.raises(Exception, match=r"took over|stop"):
        await pay("order-7")
    assert told == ["LeaseLost"]
