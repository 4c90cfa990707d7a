"""A recorded call can be made again: the same values, of the same types, or not at all."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntFlag, StrEnum
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NotRequired, Protocol, TypedDict, cast
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, field_validator

from indoubt.guard.arguments import Arguments, NotRebuildable
from indoubt.json_values import canonical

if TYPE_CHECKING:
    from fractions import Fraction


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Rank(Enum):
    LOW = 1
    HIGH = 2


class Kind(StrEnum):
    CARD = "card"


class Rights(IntFlag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Line:
    sku: str
    price: Decimal
    at: datetime | None = None
    parts: tuple["Line", ...] = ()
    total: Decimal = field(init=False, default=Decimal(0))


class Pair(NamedTuple):
    left: int
    right: Decimal


class Place(TypedDict):
    at: datetime
    price: NotRequired[Decimal]


class Plain(TypedDict):
    a: int


class Cat(Struct, tag=True, rename="kebab", omit_defaults=True, frozen=True):
    born_on: date
    price: Decimal = Decimal(0)
    lines: tuple[Line, ...] = ()


class Dog(Struct, tag=True, array_like=False, frozen=True):
    born_on: date


class Row(Struct, array_like=True, frozen=True):
    price: Decimal
    note: str = ""


class Order(BaseModel):
    id: UUID
    price: Decimal
    lines: list[Line] = []
    at: datetime | None = None


class Aliased(BaseModel):
    model_config = ConfigDict(strict=True)
    price: Decimal = Field(alias="unitPrice")
    on: date | None = Field(default=None, alias="shippedOn")


class Imitation:
    """All that is asked of a model."""

    def __init__(self, price: Decimal) -> None:
        self.price = price

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Imitation) and self.price == other.price

    __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        return {"price": self.price if mode == "python" else str(self.price)}

    @classmethod
    def model_validate(cls, content: Any) -> "Imitation":
        return cls(Decimal(content["price"]))


decimals = st.decimals(allow_nan=False, allow_infinity=False)
zones = st.one_of(
    st.just(UTC),
    st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
instants = st.datetimes(
    datetime.min + timedelta(days=2),  # noqa: DTZ901 - the zone is drawn
    datetime.max - timedelta(days=2),  # noqa: DTZ901
    timezones=zones,
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
lines = st.recursive(
    st.builds(Line, texts, decimals, st.none() | instants),
    lambda inner: st.builds(Line, texts, decimals, parts=st.lists(inner, max_size=2).map(tuple)),
    max_leaves=4,
)
jsons = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
cats = st.builds(Cat, st.dates(), decimals, st.lists(lines, max_size=2).map(tuple))
orders = st.builds(
    Order, id=st.uuids(), price=decimals, lines=st.lists(lines, max_size=2), at=st.none() | instants
)

TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Any, jsons),
    (object, jsons),
    (dict[str, object], st.dictionaries(texts, jsons)),
    (Mapping[str, Any], st.dictionaries(texts, jsons)),
    (Iterable[int], st.lists(st.integers())),
    (int, st.integers()),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (str, texts),
    (int | str, st.integers() | texts | st.just("7")),
    (bool | None, st.none() | st.booleans()),
    (Literal["a", "b"], st.sampled_from(["a", "b"])),
    (Decimal, decimals),
    (datetime, instants),
    (date, st.dates()),
    (time, st.times(timezones=st.none() | zones)),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (Color, st.sampled_from(Color)),
    (Rank, st.sampled_from(Rank)),
    (Kind, st.sampled_from(Kind)),
    (Rights, st.sampled_from([Rights.READ, Rights.READ | Rights.WRITE])),
    (Line, lines),
    (Line | None, st.none() | lines),
    (list[Line], st.lists(lines, max_size=3)),
    (Sequence[Decimal], st.lists(decimals)),
    (dict[str, Line], st.dictionaries(texts, lines, max_size=3)),
    (tuple[int, Decimal], st.tuples(st.integers(), decimals)),
    (tuple[Decimal, ...], st.lists(decimals).map(tuple)),
    (Pair, st.builds(Pair, st.integers(), decimals)),
    (list[Pair], st.lists(st.builds(Pair, st.integers(), decimals), max_size=3)),
    (Place, st.fixed_dictionaries({"at": instants}, optional={"price": decimals})),
    (Cat, cats),
    (Cat | Dog, cats | st.builds(Dog, st.dates())),
    (Line | Pair, lines | st.builds(Pair, st.integers(), decimals)),
    (Row, st.builds(Row, decimals, texts)),
    (Order, orders),
    (list[Order] | None, st.none() | st.lists(orders, max_size=2)),
    (Order | Line, orders | lines),
    (Aliased, st.builds(Aliased, unitPrice=decimals, shippedOn=st.none() | st.dates())),
    (Imitation, st.builds(Imitation, decimals)),
]


def of_type(kind: Any) -> Arguments:
    """The arguments of a function whose one parameter is annotated with `kind`."""

    def fn(value: Any) -> None:
        del value

    fn.__annotations__ = {} if kind is Parameter.empty else {"value": kind}
    return Arguments(fn)


def shape(value: Any) -> Any:
    """What makes two equal values the same: types, at every depth."""
    if isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        return type(items), [shape(item) for item in items]
    if isinstance(value, dict):
        return {key: shape(item) for key, item in cast("dict[str, Any]", value).items()}
    return type(value), repr(value) if isinstance(value, float | Decimal) else None


@pytest.mark.parametrize(("kind", "values"), TYPES, ids=[str(kind) for kind, _ in TYPES])
@settings(max_examples=25)
@given(data=st.data())
def test_round_trip(kind: Any, values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    value = data.draw(values)
    arguments = of_type(kind)
    recorded = arguments.record(arguments.bind((value,), {}))
    args, kwargs = arguments.rebuild(recorded.text)
    assert (args, kwargs) == ((value,), {})
    assert shape(args[0]) == shape(value)
    assert recorded.rebuildable
    assert arguments.replayable
    again = arguments.record(arguments.bind(args, kwargs))
    assert again.fingerprint == recorded.fingerprint


@given(st.dictionaries(texts, jsons), st.lists(decimals), st.dictionaries(texts, decimals), jsons)
def test_round_trip_of_a_call(
    a: Any, more: list[Decimal], rest: dict[str, Decimal], c: Any
) -> None:
    def fn(a: Any, b: int = 2, *more: Decimal, c: Any = None, **rest: Decimal) -> Any:
        return a, b, more, c, rest

    rest = {name: value for name, value in rest.items() if name not in ("a", "b", "c")}
    arguments = Arguments(fn)
    bound = arguments.bind((a, *([2, *more] if more else [])), {"c": c, **rest})
    recorded = arguments.record(bound)
    args, kwargs = arguments.rebuild(recorded.text)
    assert fn(*args, **kwargs) == fn(*bound.args, **bound.kwargs)
    assert recorded.rebuildable


def rebuilt(arguments: Arguments, text: bytes) -> Any:
    args, kwargs = arguments.rebuild(text)
    return kwargs or args[0]


def test_places_names_and_the_ledgers_own() -> None:
    def fn(a: int, /, effect: object, b: int = 2, *, c: int = 3) -> Any:
        return a, b, c, effect

    arguments = Arguments(fn)
    args, kwargs = arguments.rebuild(b'{"a":1,"b":5}')
    assert fn(*args, **kwargs, effect="given") == (1, 5, 3, "given")
    args, kwargs = arguments.rebuild(b'{"c":5,"a":1}')
    assert fn(*args, **kwargs, effect="given") == (1, 2, 5, "given")


def only_for_the_checker(order: Decimal, value: "Fraction") -> None:
    del order, value


@pytest.mark.parametrize(
    "kind",
    [
        Any,
        object,
        str,
        float,
        dict[str, Any],
        "Later",
        Decimal | str,
        datetime | str,
        list[Decimal | str],
        Line,
    ],
    ids=str,
)
def test_what_no_annotation_brings_back_is_recorded_but_not_rebuildable(kind: Any) -> None:
    arguments = of_type(kind)
    recorded = arguments.record(arguments.bind((Decimal("1.50"),), {}))
    assert recorded.text == b'{"value":"1.50"}'
    assert not recorded.rebuildable


@pytest.mark.parametrize(
    "value", [[Decimal(1)], {"a": Decimal(1)}, (Line("a", Decimal(1)),)], ids=repr
)
@pytest.mark.parametrize("kind", [list, dict, tuple, list[str], Any], ids=str)
def test_at_every_depth(kind: Any, value: Any) -> None:
    arguments = of_type(kind)
    assert not arguments.record(arguments.bind((value,), {})).rebuildable


def test_without_annotations_json_is_rebuilt_as_it_is() -> None:
    arguments = of_type(Parameter.empty)
    assert rebuilt(arguments, b'{"value":{"a":[1,2.0,"3"]}}') == {"a": [1, 2.0, "3"]}
    assert arguments.replayable
    assert not arguments.record(arguments.bind((Decimal(1),), {})).rebuildable


def test_none_is_none_whatever_is_annotated() -> None:
    assert of_type(Decimal).rebuild(b'{"value":null}') == ((None,), {})


def test_one_name_for_the_checker_only_does_not_spoil_the_others() -> None:
    arguments = Arguments(only_for_the_checker)
    args, _ = arguments.rebuild(b'{"order":"1.50","value":"1/2"}')
    assert args == (Decimal("1.50"), "1/2")


@pytest.mark.parametrize("kind", [int, float, str, list[int], bool, dict[str, int], Plain], ids=str)
@settings(max_examples=25)
@given(value=jsons)
def test_json_under_another_annotation_stays_what_it_was(kind: Any, value: Any) -> None:
    arguments = of_type(kind)
    recorded = arguments.record(arguments.bind((value,), {}))
    args, _ = arguments.rebuild(recorded.text)
    assert canonical(args[0]) == canonical(value)


class Failing(BaseModel):
    secret: str

    @field_validator("secret")
    @classmethod
    def check(cls, value: str) -> str:
        raise LookupError(value)


@dataclass
class Raising:
    secret: str

    def __post_init__(self) -> None:
        raise ArithmeticError(self.secret)


class Shouting(BaseModel):
    secret: str

    @field_validator("secret")
    @classmethod
    def shout(cls, value: str) -> str:
        return value.upper()


class Switch(BaseModel):
    on: bool


class Looks(Protocol):
    secret: str


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Decimal, b'"secret"'),
        (datetime, b'"secret"'),
        (Color, b'"secret"'),
        (Line, b'{"secret":"1"}'),
        (Line, b'{"sku":"a","price":"1","secret":1}'),
        (Line, b'"secret"'),
        (Place, b'{"secret":1}'),
        (Order, b'{"secret":1}'),
        (list[Order], b'[{"secret":1}]'),
        (Failing, b'{"secret":"secret"}'),
        (Raising, b'{"secret":"secret"}'),
        (Shouting, b'{"secret":"secret"}'),
        (Switch, b'{"on":1}'),
        (Looks, b'{"secret":"secret"}'),
        (Callable[[], int], b'"secret"'),
        (Order | Line, b'{"secret":1}'),
    ],
    ids=repr,
)
def test_what_does_not_fit_is_not_called(kind: Any, text: bytes) -> None:
    with pytest.raises(NotRebuildable, match=r"fn\(\): 'value' is not recorded as") as caught:
        of_type(kind).rebuild(b'{"value":' + text + b"}")
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_class_may_get_a_field_with_a_default_and_may_not_lose_one() -> None:
    newer = make_dataclass("newer", [("a", Decimal), ("b", int, 5)])
    assert rebuilt(of_type(newer), b'{"value":{"a":"1"}}') == newer(Decimal(1), 5)
    with pytest.raises(NotRebuildable):
        of_type(newer).rebuild(b'{"value":{"a":"1","c":0}}')


def test_a_function_may_get_a_parameter_with_a_default_and_may_not_lose_one() -> None:
    def newer(value: int, more: int = 5) -> None: ...

    assert Arguments(newer).rebuild(b'{"value":1}') == ((1, 5), {})
    with pytest.raises(NotRebuildable, match="lost a parameter"):
        Arguments(newer).rebuild(b'{"value":1,"less":2}')
    with pytest.raises(NotRebuildable, match="missing a required argument: 'value'"):
        Arguments(newer).rebuild(b'{"more":1}')


def test_whole_numbers_may_become_floats_where_the_class_says_so() -> None:
    priced = make_dataclass("priced", [("price", float), ("on", date)])
    made = rebuilt(of_type(priced), b'{"value":{"price":3,"on":"2024-02-29"}}')
    assert (made.price, type(made.price)) == (3, float)
    with pytest.raises(NotRebuildable):
        of_type(priced).rebuild(b'{"value":{"price":%d,"on":"2024-02-29"}}' % (2**53 + 1))


@pytest.mark.parametrize(
    ("kind", "replayable"),
    [
        (int, True),
        (Line, True),
        (Order | Line | None, True),
        (dict[str, object], True),
        ("Later", True),
        (Looks, False),
        (list[Looks], False),
        (Callable[[], int], False),
        (list[Decimal | str], False),
        (make_dataclass("unreadable", [("a", "Later")]), False),
    ],
    ids=str,
)
def test_the_function_tells_whether_its_calls_are_replayable(kind: Any, replayable: bool) -> None:  # noqa: FBT001
    assert of_type(kind).replayable is replayable


def test_what_is_hidden_or_left_out_cannot_be_rebuilt() -> None:
    def fn(value: int) -> None: ...

    for arguments in (
        Arguments(fn, ignore=["value"]),
        Arguments(fn, redact=["value"]),
    ):
        assert not arguments.replayable
        with pytest.raises(NotRebuildable, match="not all of its arguments are recorded"):
            arguments.rebuild(b"{}")
