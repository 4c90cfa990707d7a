"""What a caller gets: the record's JSON as the annotated type, the first time and every time."""

import functools
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw, Struct
from pydantic import BaseModel, Field, SecretStr, computed_field, field_validator

from indoubt.core.bounds import RECEIPT_BYTES
from indoubt.guard.receipts import Receipts, encode_receipt
from indoubt.json_values import NotJson, TooLarge

if TYPE_CHECKING:
    from fractions import Fraction


class Color(Enum):
    RED = "red"


@dataclass
class Refund:
    id: str
    amount: Decimal
    at: datetime | None = None


@dataclass
class Declined:
    code: int


class Pair(NamedTuple):
    left: int
    right: Decimal


class Charge(TypedDict):
    id: str
    at: datetime


class Card(TypedDict):
    last4: str


class Wire(Struct, rename="camel"):
    unit_price: Decimal


class Invoice(BaseModel):
    id: UUID
    total: Decimal = Field(alias="grandTotal")
    lines: list[Refund] = []

    @computed_field
    @property
    def twice(self) -> Decimal:
        return self.total * 2


class Imitation:
    """All that is asked of a model."""

    def __init__(self, price: Decimal) -> None:
        self.price = price

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        return {"price": self.price if mode == "python" else str(self.price)}

    @classmethod
    def model_validate(cls, content: Any) -> "Imitation":
        return cls(Decimal(content["price"]))


def returning(kind: Any) -> Receipts:
    """The receipts of a function that is annotated to return `kind`."""

    def fn() -> None: ...

    fn.__annotations__ = {"return": kind}
    return Receipts(fn)


NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
REFUND = Refund("rf_1", Decimal("1.50"), NOON)
INVOICE = Invoice(id=UUID(int=7), grandTotal=Decimal("2.0"), lines=[REFUND])

VALUES: list[tuple[Any, Any]] = [
    (Refund, REFUND),
    (Refund | None, REFUND),
    (Refund | None, None),
    (Refund | Declined, Declined(5)),
    (Refund | Declined, REFUND),
    (list[Refund], [REFUND, REFUND]),
    (dict[str, Refund], {"a": REFUND}),
    (tuple[int, Decimal], (1, Decimal(2))),
    (Pair, Pair(1, Decimal(2))),
    (Charge, Charge(id="c", at=NOON)),
    (Card, Card(last4="4242")),
    (Wire, Wire(Decimal("3.0"))),
    (Invoice, INVOICE),
    (list[Invoice], [INVOICE]),
    (Invoice | Refund | None, INVOICE),
    (Decimal, Decimal("1E+5")),
    (datetime, NOON),
    (date, date(2024, 2, 29)),
    (timedelta, timedelta(minutes=5)),
    (UUID, UUID(int=7)),
    (Color, Color.RED),
    (set[int] | None, None),
    (Awaitable[Refund], REFUND),
    (Coroutine[Any, Any, Refund], REFUND),
    (int, 7),
    (dict[str, Any], {"id": "ch_1", "amount": 5.0}),
    (Any, [1, 2.0, "3", None]),
    (object, {"a": 1}),
    (None, None),
]


@pytest.mark.parametrize(
    ("kind", "value"), VALUES, ids=[f"{n} {kind}" for n, (kind, _) in enumerate(VALUES)]
)
def test_the_caller_gets_what_the_function_returned(
    kind: Any, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    receipts = returning(kind)
    text = encode_receipt(value)
    for given_back in (receipts.give_back(text), receipts.give_back(Raw(text))):
        assert given_back == value
        assert type(given_back) is type(value)
        assert given_back is not value or value is None or isinstance(value, Color | int)
    assert not caplog.records


jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=6,
)  # fmt: skip
KINDS = [
    Any,
    dict[str, Any],
    int,
    float,
    str,
    Card,
    Refund,
    Decimal,
    Invoice,
    list[Refund],
    "Later",
    Callable[[], int],
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=30)
@given(value=jsons)
def test_whatever_was_recorded_the_first_and_every_later_caller_get_the_same(
    kind: Any, value: Any
) -> None:
    text = encode_receipt(value)
    receipts = returning(kind)
    first, later = receipts.give_back(text), receipts.give_back(text)
    elsewhere = returning(kind).give_back(text)
    assert repr(first) == repr(later) == repr(elsewhere)
    if not isinstance(first, Decimal):
        assert json.loads(encode_receipt(first)) == json.loads(text)


def test_what_is_given_back_is_fresh() -> None:
    receipts = returning(dict[str, Any])
    text = encode_receipt({"items": [1]})
    receipts.give_back(text)["items"].append(2)
    assert receipts.give_back(text) == {"items": [1]}


def test_no_annotation() -> None:
    def fn():  # type: ignore[no-untyped-def] # noqa: ANN202
        pass

    assert Receipts(fn).give_back(encode_receipt(REFUND)) == {
        "id": "rf_1",
        "amount": "1.50",
        "at": "2024-02-29T12:00:00Z",
    }


def test_null_is_none_whatever_is_annotated(caplog: pytest.LogCaptureFixture) -> None:
    for kind in (Refund, Decimal, list[Refund], Invoice):
        assert returning(kind).give_back(b"null") is None
    assert not caplog.records


def for_the_checker_only() -> "Fraction":
    raise NotImplementedError


class Shop:
    async def refund(self) -> Refund:
        raise NotImplementedError

    def __call__(self) -> Refund:
        raise NotImplementedError


@pytest.mark.parametrize(
    "fn",
    [Shop.refund, Shop().refund, Shop(), functools.partial(Shop.refund)],
    ids=["method", "bound", "object", "partial"],
)
def test_every_callable(fn: Callable[..., Any]) -> None:
    assert Receipts(fn).give_back(encode_receipt(REFUND)) == REFUND


def test_an_annotation_that_names_nothing_here_is_plain_json() -> None:
    assert Receipts(for_the_checker_only).give_back(b'"1/2"') == "1/2"


class Raising(BaseModel):
    secret: str

    @field_validator("secret")
    @classmethod
    def check(cls, value: str) -> str:
        raise LookupError(value)


MISFITS: list[tuple[Any, bytes]] = [
    (Refund, b'{"code":"secret"}'),
    (Refund, b'"secret"'),
    (Decimal, b'"secret"'),
    (list[Refund], b'[{"secret":1}]'),
    (Raising, b'{"secret":"secret"}'),
    (Charge, b'{"id":"secret"}'),
    (Refund | Declined, b'{"secret":1}'),
    (Decimal | str, b'"1.50"'),
    (Callable[[], int], b'"secret"'),
]


@pytest.mark.parametrize(
    ("kind", "text"), MISFITS, ids=[f"{n} {kind}" for n, (kind, _) in enumerate(MISFITS)]
)
def test_what_does_not_fit_is_given_as_json_and_told_once(
    kind: Any, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    receipts = returning(kind)
    with caplog.at_level(logging.WARNING, "indoubt"):
        assert [receipts.give_back(text) for _ in range(3)] == [json.loads(text)] * 3
    (told,) = caplog.messages
    assert told.startswith("a receipt of returning.<locals>.fn is no ")
    assert "secret" not in told


def test_json_under_another_json_annotation_is_no_misfit(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing would be converted, so nothing can be missing."""
    assert returning(int).give_back(b'"7"') == "7"
    assert returning(Card).give_back(b'{"last4":"1","more":2}') == {"last4": "1", "more": 2}
    assert returning(Mapping[str, object]).give_back(b"[1]") == [1]
    assert not caplog.records


def test_a_probe_may_report_more_than_the_class_holds() -> None:
    made = returning(Refund).give_back(b'{"id":"rf_1","amount":"1.5","status":"done"}')
    assert made == Refund("rf_1", Decimal("1.5"))


def test_an_imitated_model() -> None:
    made = returning(Imitation).give_back(encode_receipt(Imitation(Decimal("1.0"))))
    assert (type(made), made.price) == (Imitation, Decimal("1.0"))


def test_a_time_without_a_zone_is_kept_in_a_receipt() -> None:
    value = Refund("rf_1", Decimal(1), datetime(2024, 2, 29))  # noqa: DTZ001
    assert returning(Refund).give_back(encode_receipt(value)) == value


class Login(BaseModel):
    password: SecretStr


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "receipt: a float must be finite"),
        ({"a": [b"secret"]}, "receipt.a[0]: bytes is not JSON"),
        ({"secret"}, "receipt: set is not JSON"),
        (object(), "receipt: object is not JSON"),
        (Refund("a", Decimal("nan")), "receipt.amount: a Decimal must be finite"),
        (Login(password=SecretStr("secret")), "receipt.password: SecretStr hides its value"),
        (lambda: 1, "receipt: function is not JSON"),
        ({1: 2}, "receipt: keys must be str, not int"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_is_no_json_is_refused(value: object, said: str) -> None:
    with pytest.raises(NotJson) as caught:
        encode_receipt(value)
    assert str(caught.value).startswith(said)


def test_bounds() -> None:
    assert len(encode_receipt("x" * (RECEIPT_BYTES - 2))) == RECEIPT_BYTES
    for value in ("x" * RECEIPT_BYTES, [Decimal(1), "x" * RECEIPT_BYTES]):
        with pytest.raises(TooLarge, match="receipt: "):
            encode_receipt(value)
