"""What is recorded of a call, what tells it from another, and what is refused before it is made."""

import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, localcontext
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict, cast
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from msgspec import UNSET, Struct, UnsetType
from pydantic import BaseModel, Field, SecretStr

from indoubt.core.bounds import PAYLOAD_BYTES
from indoubt.guard.arguments import Arguments, Recorded
from indoubt.json_values import NotJson, TooLarge, fingerprint


def anything(value: Any) -> None:
    del value


def refund(order: str, cents: int = 100, note: str | None = None, *, effect: object = None) -> None:
    del order, cents, note, effect


def recorded(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Recorded:
    arguments = Arguments(fn)
    return arguments.record(arguments.bind(args, kwargs))


def text(value: Any) -> str:
    """The text that one value is recorded as."""
    whole = recorded(anything, value).text.decode()
    return whole.removeprefix('{"value":').removesuffix("}")


class Color(Enum):
    RED = "red"
    MIX = (1, "a")


class Size(IntEnum):
    BIG = 3


class Kind(StrEnum):
    CARD = "card"


@dataclass
class Line:
    sku: str
    price: Decimal
    total: Decimal = field(init=False)
    parts: list["Line"] = field(default_factory=list["Line"])

    def __post_init__(self) -> None:
        self.total = self.price * 2


class Sum:
    """Looks like a number where it must."""

    def __mul__(self, other: int) -> Decimal:
        return Decimal(other)


class Pair(NamedTuple):
    left: int
    right: Decimal


class Place(TypedDict):
    at: datetime


class Wire(Struct, rename="camel", tag="wire", omit_defaults=True):
    unit_price: Decimal
    note: str = ""
    tags: list[str] = []
    gone: str | UnsetType = UNSET


class Row(Struct, array_like=True, tag=7):
    price: Decimal
    note: str = ""


class Order(BaseModel):
    id: UUID
    price: Decimal = Field(alias="unitPrice")
    lines: list[Line] = []


class Imitation:
    """All that is asked of a model."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        return self.content if mode == "python" else json.loads(json.dumps(self.content))


ZERO = UUID(int=0)
NOON = datetime(2024, 2, 29, 12, 0, 0, 5, tzinfo=UTC)

TEXTS: list[tuple[Any, str]] = [
    (Decimal("1.50"), '"1.50"'),
    (Decimal("1E+5"), '"1E+5"'),
    (Decimal("-0"), '"-0"'),
    (NOON, '"2024-02-29T12:00:00.000005Z"'),
    (NOON.astimezone(timezone(timedelta(hours=-3.5))), '"2024-02-29T08:30:00.000005-03:30"'),
    (datetime(2024, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")), '"2024-07-01T00:00:00+02:00"'),
    (date(2024, 2, 29), '"2024-02-29"'),
    (time(12, 0), '"12:00:00"'),
    (time(12, 0, tzinfo=UTC), '"12:00:00Z"'),
    (timedelta(days=1, microseconds=-1), '"PT86399.999999S"'),
    (timedelta(hours=-1), '"-PT3600S"'),
    (ZERO, '"00000000-0000-0000-0000-000000000000"'),
    (Color.RED, '"red"'),
    (Color.MIX, '[1,"a"]'),
    (Size.BIG, "3"),
    (Kind.CARD, '"card"'),
    (Line("a", Decimal(1)), '{"sku":"a","price":"1","parts":[]}'),
    (Pair(1, Decimal("2.0")), '[1,"2.0"]'),
    (Place(at=NOON), '{"at":"2024-02-29T12:00:00.000005Z"}'),
    (Wire(Decimal(2)), '{"type":"wire","unitPrice":"2"}'),
    (
        Wire(Decimal(2), "n", ["t"], "g"),
        '{"type":"wire","unitPrice":"2","note":"n","tags":["t"],"gone":"g"}',
    ),
    (Row(Decimal(2)), '[7,"2",""]'),
    (
        Order(id=ZERO, unitPrice=Decimal("1.0")),
        '{"id":"00000000-0000-0000-0000-000000000000","price":"1.0","lines":[]}',
    ),
    (Imitation({"a": 1}), '{"a":1}'),
    (
        {"b": [(Decimal(1),)], "a": MappingProxyType({"x": ZERO})},
        '{"b":[["1"]],"a":{"x":"00000000-0000-0000-0000-000000000000"}}',
    ),
    (OrderedDict(b=1, a=(2, 3)), '{"b":1,"a":[2,3]}'),
]


@pytest.mark.parametrize(("value", "expected"), TEXTS, ids=[expected for _, expected in TEXTS])
def test_what_is_no_json_has_one_text(value: Any, expected: str) -> None:
    assert text(value) == expected
    assert recorded(anything, value).fingerprint == fingerprint({"value": json.loads(expected)})


S21: list[Any] = [
    2**63 - 1,
    -(2**53) - 1,
    2**4096 - 1,
    0.1,
    -0.0,
    1e308,
    [],
    {},
    [[]],
    "",
    "\0",
    "\U0001f4b6",
    {"\U0001f4b6": "e\u0301"},
    {"": None},
    True,
    1,
    1.0,
    None,
    "x" * 1_000_000,
]


@pytest.mark.parametrize("value", S21, ids=lambda value: repr(value)[:20])
def test_s21_json_is_recorded_as_it_is(value: Any) -> None:
    made = recorded(anything, value)
    back = json.loads(made.text)["value"]
    assert (repr(back), made.redacted, made.rebuildable) == (repr(value), False, True)
    assert made.fingerprint == fingerprint({"value": value})


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def loop() -> dict[str, Any]:
    value: dict[str, Any] = {"secret": Decimal(1)}
    value["again"] = [value]
    return value


def loop_of_objects() -> Line:
    line = Line("secret", Decimal(1))
    line.parts.append(line)
    return line


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (float("nan"), NotJson, "anything().value: a float must be finite"),
    ({"a": [float("inf")]}, NotJson, "anything().value.a[0]: a float must be finite"),
    (Decimal("nan"), NotJson, "anything().value: a Decimal must be finite"),
    ([Decimal("-inf")], NotJson, "anything().value[0]: a Decimal must be finite"),
    (b"secret", NotJson, "anything().value: bytes is not JSON"),
    (bytearray(b"secret"), NotJson, "anything().value: bytearray is not JSON"),
    ({"secret"}, NotJson, "anything().value: set is not JSON"),
    ([frozenset({"secret"})], NotJson, "anything().value[0]: frozenset is not JSON"),
    (object(), NotJson, "anything().value: object is not JSON"),
    (1j, NotJson, "anything().value: complex is not JSON"),
    (Decimal, NotJson, "anything().value: type is not JSON"),
    ("se\ud800cret", NotJson, "anything().value: text must not hold a lone surrogate"),
    ({1: "secret"}, NotJson, "anything().value: keys must be str, not int"),
    ({("secret", 1): Decimal("nan")}, NotJson, "anything().value[tuple]: a Decimal"),
    ({"a b": {"x": b""}}, NotJson, "anything().value['a b'].x: bytes is not JSON"),
    (2**4096, NotJson, "anything().value: an integer must be smaller than 2**4096"),
    (deep(70), NotJson, "more than 64 levels deep"),
    ([Decimal(1), deep(70)], NotJson, "more than 64 levels deep"),
    (deep(10_000), NotJson, "more than 64 levels deep"),
    (loop(), NotJson, "it contains itself"),
    (loop_of_objects(), NotJson, "anything().value.parts[0]: it contains itself"),
    (datetime(2024, 1, 1), ValueError, "anything().value: a datetime must have a time zone"),  # noqa: DTZ001
    (
        Line("a", Decimal(1), [cast("Any", datetime.max)]),  # noqa: DTZ901
        ValueError,
        "value.parts[0]: a datetime must",
    ),
    (
        NOON.astimezone(timezone(timedelta(seconds=1))),
        ValueError,
        "anything().value: an offset from UTC must be in whole minutes",
    ),
    (Line("a", cast("Any", Sum())), NotJson, "anything().value.price: Sum is not JSON"),
    (Wire(cast("Any", b"secret")), NotJson, "anything().value.unitPrice: bytes is not JSON"),
    (Imitation({"a": {1, 2}}), NotJson, "anything().value.a: set is not JSON"),
    (Imitation({"a": [datetime.max]}), ValueError, "anything().value.a[0]: a datetime must"),  # noqa: DTZ901
    (Imitation({"a": SecretStr("secret")}), NotJson, "value.a: SecretStr hides its value"),
    (SecretStr("secret"), NotJson, "anything().value: SecretStr hides its value"),
]


@pytest.mark.parametrize(
    ("value", "error", "said"),
    REFUSED,
    ids=[f"{n}: {said}" for n, (_, _, said) in enumerate(REFUSED)],
)
def test_refused_with_the_place_and_never_the_value(
    value: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as caught:
        recorded(anything, value)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value).replace("['secret']", "")
    assert not isinstance(caught.value, NotJson) or isinstance(caught.value, TypeError)


def test_bounds() -> None:
    room = PAYLOAD_BYTES - len(b'{"value":""}')
    assert len(recorded(anything, "x" * room).text) == PAYLOAD_BYTES
    for value in ("x" * (room + 1), [Decimal(1), "x" * room]):
        with pytest.raises(TooLarge, match=r"anything\(\): 1,048,5\d\d bytes of JSON"):
            recorded(anything, value)


def test_the_text_keeps_the_callers_order_and_the_fingerprint_does_not_see_it() -> None:
    one = recorded(refund, note="n", order="o")
    other = recorded(refund, "o", 100, "n")
    assert one.text == b'{"note":"n","order":"o"}'
    assert other.text == b'{"order":"o","note":"n"}'
    assert one.fingerprint == other.fingerprint


def test_json_types_are_told_apart() -> None:
    values = [1, 1.0, True, "1", None, [1], [1.0], [True], {"a": 1}, "\u00e9", "e\u0301", 0.0, -0.0]
    assert len({recorded(anything, value).fingerprint for value in values}) == len(values)


@pytest.mark.parametrize("value", [100, "100"], ids=repr)
def test_defaults_are_left_out(value: Any) -> None:
    made = recorded(refund, "o", value, None)
    assert made.text == (b'{"order":"o"}' if value == 100 else b'{"order":"o","cents":"100"}')


def test_a_new_parameter_with_a_default_changes_no_fingerprint() -> None:
    def newer(
        order: str, cents: int = 100, note: str | None = None, *, urgent: bool = False
    ) -> None: ...

    assert recorded(newer, "o", 5).fingerprint == recorded(refund, "o", 5).fingerprint
    assert recorded(newer, "o", 5, urgent=True).fingerprint != recorded(refund, "o", 5).fingerprint


DEFAULT = Line("a", Decimal("1.0"))
UNTOLD = object()


def defaults(  # noqa: PLR0917
    number: Any = 1,
    large: Any = 111111111111111111111111111111,
    real: Any = 0.0,
    amount: Any = Decimal("1.0"),
    color: Any = Color.RED,
    line: Any = DEFAULT,
    items: Any = (),
    untold: Any = UNTOLD,
    late: Any = datetime.max,  # noqa: DTZ901
) -> None: ...


@pytest.mark.parametrize(
    ("given", "left_out"),
    [
        ({"number": 1}, True), ({"number": 1.0}, False), ({"number": True}, False),
        ({"large": int("1" * 30)}, True),
        ({"large": float("1" * 30)}, False),
        ({"real": 0.0}, True), ({"real": -0.0}, False), ({"real": 0}, False),
        ({"amount": Decimal("1.0")}, True), ({"amount": Decimal("1.00")}, False),
        ({"color": Color.RED}, True), ({"color": "red"}, False),
        ({"line": Line("a", Decimal("1.0"))}, True), ({"line": Line("b", Decimal(1))}, False),
        ({"items": ()}, True), ({"items": []}, False), ({"items": [1]}, False),
        ({"untold": UNTOLD}, True), ({"untold": None}, False),
    ],
)  # fmt: skip
def test_left_out_is_what_equals_its_default_in_value_and_text(
    given: dict[str, Any],
    left_out: bool,  # noqa: FBT001
) -> None:
    assert (recorded(defaults, **given).text == b"{}") is left_out


def test_a_default_that_is_no_json_is_left_out_but_never_recorded() -> None:
    assert recorded(defaults).text == b"{}"
    with pytest.raises(NotJson):
        recorded(defaults, untold=object())
    with pytest.raises(ValueError, match="late"):
        recorded(defaults, late=datetime.min)  # noqa: DTZ901


class Array:
    """Compares as arrays do."""

    def __eq__(self, other: object) -> Any:
        raise ValueError("the truth of an array is ambiguous")

    __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


def test_values_that_cannot_be_compared_are_no_defaults() -> None:
    with pytest.raises(NotJson, match=r"defaults\(\).number: Array is not JSON"):
        recorded(defaults, number=Array())


def test_variable_parameters_are_a_list_and_a_mapping() -> None:
    def fn(*args: Any, **kwargs: Any) -> None: ...

    assert recorded(fn).text == b"{}"
    assert recorded(fn, 1, Decimal(2), a=3).text == b'{"args":[1,"2"],"kwargs":{"a":3}}'


def test_ignored_arguments_are_neither_seen_nor_told() -> None:
    arguments = Arguments(refund, ignore=["note"])
    one = arguments.record(arguments.bind(("o", 5), {"note": object()}))
    other = arguments.record(arguments.bind(("o", 5), {}))
    assert one == other == Recorded(b'{"order":"o","cents":5}', other.fingerprint, redacted=False)
    assert not arguments.replayable


@pytest.mark.parametrize("hidden", ["hunter2", Decimal(7), [1, 2], {"a": "hunter2"}], ids=repr)
def test_redacted_arguments_are_seen_and_not_told(hidden: Any) -> None:
    arguments = Arguments(refund, redact=["note"])
    made = arguments.record(arguments.bind(("o",), {"note": hidden}))
    assert made.text == b'{"order":"o","note":{"redacted":true}}'
    assert made.fingerprint == recorded(refund, "o", note=hidden).fingerprint
    assert (made.redacted, made.rebuildable, arguments.replayable) == (True, False, False)
    other = arguments.record(arguments.bind(("o",), {"note": "hunter3"}))
    assert other.fingerprint != made.fingerprint


def test_nothing_to_redact_in_a_default() -> None:
    arguments = Arguments(refund, redact=["note"])
    made = arguments.record(arguments.bind(("o",), {}))
    assert (made.text, made.redacted) == (b'{"order":"o"}', False)


class Login(BaseModel):
    user: str
    password: SecretStr


def in_a_list(text: str) -> list[SecretStr]:
    return [SecretStr(text)]


def in_a_model(text: str) -> Login:
    return Login(user="u", password=SecretStr(text))


@pytest.mark.parametrize("make", [SecretStr, in_a_list, in_a_model])
def test_what_hides_itself_is_seen_where_it_is_redacted(make: Callable[[str], Any]) -> None:
    arguments = Arguments(anything, redact=["value"])
    one, same, other = (
        arguments.record(arguments.bind((make(text),), {}))
        for text in ("hunter2", "hunter2", "hunter3")
    )
    assert one.text == other.text == b'{"value":{"redacted":true}}'
    assert one.fingerprint == same.fingerprint != other.fingerprint


def test_the_decimal_context_does_not_change_the_text() -> None:
    with localcontext(capitals=0):
        assert text(Decimal("1e+5")) == '"1E+5"'


def test_what_is_recorded_is_detached() -> None:
    value = {"items": [1]}
    arguments = Arguments(anything)
    bound = arguments.bind((value,), {})
    made = arguments.record(bound)
    value["items"].append(2)
    assert made.text == b'{"value":{"items":[1]}}'
    assert bound.args[0] is value, "the function gets the caller's own object"
