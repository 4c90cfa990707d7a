"""The JSON door: what passes, what does not, and that the quick way decides as the exact walk."""

import dataclasses
import datetime as dt
import decimal
import enum
import json
import pickle
import subprocess
import sys
import uuid
from collections import OrderedDict
from types import MappingProxyType
from typing import Any, NamedTuple, Self, cast
from unittest.mock import MagicMock

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from indoubt.json_values import Encoded, Json, NotJson, TooLarge, detach, exact, parse


class Level(enum.IntEnum):
    """Passes msgspec as an int, equal to it."""

    HIGH = 3


class Colour(enum.StrEnum):
    """Passes msgspec as a str, equal to it."""

    RED = "red"


class Mixed(str, enum.Enum):  # noqa: UP042 - it prints otherwise than a StrEnum
    """A str whose value, which msgspec writes, is another one."""

    ODD = "text"

    def __new__(cls, text: str) -> Self:
        made = str.__new__(cls, text)
        made._value_ = "another"
        return made


class Number(int):
    """A subclass of int; msgspec refuses it."""


class Pair(NamedTuple):
    """A tuple with names; as JSON it is an array."""

    a: int
    b: int


@dataclasses.dataclass
class Point:
    """msgspec writes it as an object; JSON it is not."""

    x: int = 1


class Struct(msgspec.Struct):
    """As `Point`."""

    x: int = 1

    def __repr__(self) -> str:
        return "Struct"  # also of one that is half made


def half_made() -> Struct:
    """A Struct without its field: msgspec raises AttributeError."""
    made = Struct()
    del made.x
    return made


ODD: list[Any] = [
    float("nan"),
    float("inf"),
    b"bytes",
    bytearray(b"x"),
    {1, 2},
    frozenset({1}),
    decimal.Decimal("1.5"),
    uuid.UUID(int=7),
    dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    dt.date(2024, 1, 1),
    dt.timedelta(1),
    Point(),
    Struct(),
    half_made(),
    msgspec.Raw(b"1"),
    msgspec.Raw(b"{"),
    MagicMock(spec=dict),
    MagicMock(spec=str),
    MagicMock(spec=int),
    msgspec.UNSET,
    object(),
    1j,
    "\ud800",
    2**4096,
    -(2**4096),
    {1: 2},
    {None: 1},
    {True: 1, "true": 2},
    {"\udfff": 1},
    {b"a": 1},
    {Level.HIGH: 1},
]
UNUSUAL: list[tuple[Any, Any]] = [
    ((1, (2,)), [1, [2]]),
    (Pair(1, 2), [1, 2]),
    (Level.HIGH, 3),
    (Colour.RED, "red"),
    (Mixed.ODD, "text"),
    (Number(5), 5),
    ({Colour.RED: Colour.RED}, {"red": "red"}),
    ({Mixed.ODD: 1}, {"text": 1}),
    (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    (MappingProxyType({"a": (1,)}), {"a": [1]}),
    (2**4096 - 1, 2**4096 - 1),
    (1 - 2**4096, 1 - 2**4096),
    ("\x00\u0000", "\x00\x00"),
    ({"": ""}, {"": ""}),
]

texts = st.text(st.characters(exclude_categories=["Cs"]))
floats = st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
)
anything = st.recursive(
    st.sampled_from([*ODD, *(value for value, _ in UNUSUAL)])
    | st.integers()
    | st.floats()
    | st.booleans()
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
    ),
)


def typed(value: Any) -> Any:
    """The value with every type spelled out: unlike ==, it tells 1, 1.0 and True apart."""
    if type(value) is dict:
        entries = cast("dict[Any, Any]", value)
        return dict, {typed(key): typed(item) for key, item in entries.items()}
    if type(value) is list:
        return list, [typed(item) for item in cast("list[Any]", value)]
    return type(value), repr(value)


def quick(value: Any) -> Any:
    """The copy that the door gives."""
    return detach(value).value


def verdict(door: Any, value: Any) -> Any:
    """What a door makes of a value: the typed copy, or path and rule."""
    try:
        return typed(door(value))
    except NotJson as refused:
        return refused.path, refused.rule


@given(plain)
def test_json_passes_unchanged_and_detached(value: Any) -> None:
    """J2: equal means JSON, and the decoded copy is the detached one."""
    text, copy = detach(value)
    assert typed(copy) == typed(value)
    assert typed(json.loads(text)) == typed(value)
    if isinstance(value, list | dict):
        assert copy is not value


@settings(max_examples=500)
@given(anything)
def test_the_quick_way_decides_as_the_exact_walk(value: Any) -> None:
    """J2: unequal or failing goes to the exact walk; equal must be what the walk would say."""
    assert verdict(quick, value) == verdict(exact, value)


@given(anything)
def test_text_and_copy_are_the_same_json(value: Any) -> None:
    """Design 7: stored text is what was validated."""
    try:
        text, copy = detach(value)
    except NotJson:
        assume(False)  # noqa: FBT003 - its only argument
        return
    assert typed(json.loads(text)) == typed(copy)


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_what_msgspec_would_let_pass(value: Any) -> None:
    """J2: NaN, bytes, int keys, sets, datetime, UUID, Decimal, dataclasses are not JSON."""
    with pytest.raises(NotJson, match=r"^args\.a\[1\]"):
        detach({"a": [0, value]}, where="args")
    with pytest.raises(NotJson, match=r"^args"):
        detach(value, where="args")


@pytest.mark.parametrize(("value", "kept"), UNUSUAL, ids=range(len(UNUSUAL)))
def test_what_is_taken_as_the_plain_value_it_holds(value: Any, kept: Any) -> None:
    """J2, V-30, V-31: tuples and subclasses are normalised, in the text and in the copy."""
    text, copy = detach({"a": [value]})
    assert typed(copy) == typed({"a": [kept]})
    assert typed(json.loads(text)) == typed({"a": [kept]})


def test_the_copy_shares_nothing_with_the_caller() -> None:
    """V-21: also where the exact walk made the copy."""
    for inner in ([1], (1,)):
        mine: dict[str, Any] = {"a": {"b": inner, "c": [2]}}
        copy: Any = detach(mine).value
        mine["a"]["c"].append("late")
        mine["a"]["d"] = "late"
        assert copy == {"a": {"b": [1], "c": [2]}}


def test_two_keys_of_one_text() -> None:
    """A str subclass with an identity of its own must not make a text with duplicate keys."""

    class Own(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            return self is other

        def __hash__(self) -> int:
            return id(self)

    with pytest.raises(NotJson, match="two keys have the same text"):
        detach({"a": 1, Own("a"): 2})


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [{"b": b""}]}, "args.a[0].b"),
        ({"a b": b""}, "args['a b']"),
        ({"": b""}, "args['']"),
        ({"\u00e9": b""}, "args['\\xe9']"),
        ({"'": [[b""]]}, 'args["\'"][0][0]'),
        ({"k" * 41: b""}, f"args['{'k' * 40}...']"),
        ([[[[[[[[b""]]]]]]]], "args" + 8 * "[0]"),
        ([[[[[[[[[1, b""]]]]]]]]], "args" + 4 * "[0]" + "..." + 3 * "[0]" + "[1]"),
        (b"", "args"),
    ],
    ids=range(9),
)
def test_paths(value: Any, path: str) -> None:
    """Design 5.7: naming the field and the rule."""
    with pytest.raises(NotJson) as caught:
        detach(value, where="args")
    assert (caught.value.path, caught.value.rule) == (path, "bytes is not JSON")
    assert str(caught.value) == f"{path}: bytes is not JSON"


def test_errors_pickle() -> None:
    """An error may have to cross a process."""
    for error in (NotJson("args", "no"), TooLarge("args", 1200, 1000)):
        back = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
        assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize("value", [b"sk-secret", {"k": ["sk-secret\ud800"]}, {1: "sk-secret"}])
def test_errors_never_show_the_value(value: Any) -> None:
    """Design 5.7: never the value; nor does anything that the error drags along."""
    with pytest.raises(NotJson) as caught:
        detach(value)
    error: BaseException | None = caught.value
    while error is not None:
        assert "sk-secret" not in repr(error) + str(error)
        error = error.__cause__ or error.__context__


def nested(depth: int, core: Any = 1) -> Any:
    """So many containers, lists and maps in turn."""
    for level in range(depth):
        core = [core] if level % 2 else {"k": core}
    return core


def test_depth_of_64() -> None:
    """V-27: cycles and excessive depth (limit 64) are refused, and never with RecursionError."""
    assert detach(nested(64)).value == nested(64)
    for depth in (65, 66, 1_000, 100_000):
        with pytest.raises(NotJson, match="more than 64 levels deep"):
            detach(nested(depth))


@pytest.mark.parametrize("text", ["\\", '"', "[", "]", '\\"', '"\\', "\\\\"])
def test_strings_around_it_do_not_hide_depth(text: str) -> None:
    """V-27: a text read wrongly would take all that stands between two strings for a string."""
    for hidden in ([text, nested(70), text], {text: nested(70), text + "x": text}):
        with pytest.raises(NotJson, match="more than 64 levels deep"):
            detach(hidden)
    feigned: Any = 1
    for _ in range(70):
        feigned = ["]", feigned, "["]
    with pytest.raises(NotJson, match="more than 64 levels deep"):
        detach(feigned)


def test_cycles() -> None:
    """V-27: cycles and excessive depth (limit 64) are refused, and never with RecursionError."""
    loop: list[Any] = [1, {}]
    loop[1]["x"] = loop
    with pytest.raises(NotJson, match=r"value\[1\]\.x: it contains itself"):
        detach(loop)


@given(
    depth=st.integers(60, 68),
    strings=st.lists(st.text('[]{}"\\a,:'), max_size=3),
    front=st.booleans(),
)
@example(depth=65, strings=['"]', "]"], front=True)
@example(depth=64, strings=["[", "\\", '\\"[', "\\\\"], front=True)
@example(depth=63, strings=["[" * 70, "{", '"' * 3, "\\" * 5 + "["], front=False)
def test_depth_is_read_off_the_text_whatever_its_strings_say(
    *, depth: int, strings: list[str], front: bool
) -> None:
    """V-27: brackets, quotes and backslashes in strings neither hide depth nor feign it."""
    value: Any = 1
    for level in range(depth):
        texts_here: list[Any] = [*strings, {text: text for text in strings}] if level else []
        value = [*texts_here, value] if front else [value, *texts_here]
    wide: list[Any] = [value, *[{} for _ in range(70)]]
    if depth < 64:
        assert detach(wide).value == wide
    else:
        with pytest.raises(NotJson, match="more than 64 levels deep"):
            detach(wide)


@given(
    before=st.integers(0, 2600),
    after=st.integers(0, 40),
    sign=st.sampled_from([-1, 1]),
    small=st.booleans(),
)
def test_the_bound_of_integers_holds_at_every_place_of_a_text(
    *, before: int, after: int, sign: int, small: bool
) -> None:
    """J3: |n| < 2**4096 accepted, 2**4096 refused, wherever in the text its digits begin."""
    number = sign * (2**4096 - small)
    value = ["x" * before, number, "y" * after]
    if small:
        assert detach(value).value == value
    else:
        with pytest.raises(NotJson, match=r"value\[1\]: an integer must be smaller"):
            detach(value)


@pytest.mark.parametrize("digits", [1233, 1234, 1235, 5000])
def test_long_rows_of_digits_in_text_are_no_integers(digits: int) -> None:
    """J3: the bound is for integers."""
    assert detach({"n": "7" * digits}).value == {"n": "7" * digits}


def test_integers_beyond_what_python_prints() -> None:
    """V-28: beyond 4,300 digits Python refuses with a ValueError; we refuse with our own."""
    for number in (10**4300, 10**5000, -(10**5000)):
        with pytest.raises(NotJson, match=r"value\.n: an integer must be smaller than 2\*\*4096"):
            detach({"n": number})


def test_size() -> None:
    """Design 7: bounded bytes, counted as UTF-8, and named."""
    value: dict[str, Json] = {"k": "\u00e9" * 10}
    assert (
        detach(value, max_bytes=28)
        == detach(value)
        == Encoded(b'{"k":"' + b"\xc3\xa9" * 10 + b'"}', value)
    )
    with pytest.raises(TooLarge, match="args: 28 bytes of JSON, at most 27 are kept") as caught:
        detach(value, where="args", max_bytes=27)
    assert (caught.value.size, caught.value.max_bytes) == (28, 27)
    assert isinstance(caught.value, ValueError)


def test_size_of_what_the_exact_walk_made() -> None:
    """Design 7: bounded bytes, on either way through the door."""
    value = (1, MappingProxyType({"a": Mixed.ODD}))
    assert detach(value, max_bytes=16).text == b'[1,{"a":"text"}]'
    with pytest.raises(TooLarge, match="16 bytes of JSON, at most 15"):
        detach(value, max_bytes=15)


def test_what_is_no_json_is_not_called_too_large() -> None:
    """The reason that stays when there is more room is named first."""
    with pytest.raises(NotJson):
        detach(["x" * 100, {1}], max_bytes=9)


@pytest.mark.parametrize(
    "text", ["1e400", '"\\ud800"', "{", "", "nan", "NaN", "[1,]", b"\xff", "01"]
)
def test_text_that_is_not_json(text: str | bytes) -> None:
    """J2: 1e400 and lone surrogates are no JSON as text either."""
    with pytest.raises(NotJson, match=r"^receipt: not JSON text$"):
        parse(text, where="receipt")


def test_text_is_held_to_the_same_rules() -> None:
    """J2: text from outside passes by the rules of `detach`."""
    assert parse(' {"b": 1, "a": [1.0, -0.0]} ') == parse(b'{"b":1,"a":[1.0,-0.0]}')
    assert parse('{"b": 1, "a": 2}').text == b'{"b":1,"a":2}'
    assert parse('{"a": 1, "a": 2}').value == {"a": 2}
    assert parse(str(2**4096 - 1)).value == 2**4096 - 1
    for text in (str(2**4096), "[" * 65 + "]" * 65, "[" * 100_000 + "]" * 100_000):
        with pytest.raises(NotJson):
            parse(text)
    with pytest.raises(TooLarge):
        parse("[1, 2]", max_bytes=4)


def test_bytes_beside_text_under_bb() -> None:
    """Comparing bytes with text raises BytesWarning under `python -bb`: the door still answers."""
    program = """
from indoubt.json_values import detach
try:
    detach({"a": b"eHg="})
except TypeError as refused:
    print(refused)
"""
    command = [sys.executable, "-bb", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "value.a: bytes is not JSON\n"
