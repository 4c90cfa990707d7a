"""V-21 to V-32: result, error and raw are deeply frozen JSON."""

import collections
import datetime as dt
import decimal
import enum
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import pytest

from indoubt.contracts import ProviderProbeResult
from indoubt.json_values import FrozenList, FrozenMap, NotJson, fingerprint

Write = Callable[[Any], object]


def made(**fields: Any) -> ProviderProbeResult:
    """A result of which a test says only what matters."""
    required: dict[str, Any] = {"status": "active", "execution_id": "exec-1"}
    return ProviderProbeResult(**required | fields)


@pytest.mark.parametrize("field", ["result", "error", "raw"])
def test_v21_later_changes_are_invisible(field: str) -> None:
    """V-21 [S] later changes to the caller's dict or nested list are invisible.

    ([M] mappingproxy over the caller's dict leaks; shallow proxy leaves nested lists writable).
    """
    inner: list[Any] = [1, {"deep": []}]
    outer: dict[str, Any] = {"list": inner, "map": {"k": "v"}}
    kept = getattr(made(**{field: MappingProxyType(outer)}), field)
    inner[1]["deep"].append("late")
    inner.append("late")
    outer["map"]["k"] = "late"
    outer["new"] = "late"
    assert kept == {"list": [1, {"deep": []}], "map": {"k": "v"}}


def _add_in_place(container: Any) -> None:
    container["list"] += [1]


def _merge_in_place(container: Any) -> None:
    container["map"] |= {"x": 1}


def _delete(container: Any) -> None:
    del container["list"]


MAP_WRITES: dict[str, Write] = {
    "setitem": lambda m: m.__setitem__("list", 1),
    "new key": lambda m: m.__setitem__("new", 1),
    "del": _delete,
    "|= on a field": _merge_in_place,
    "+= on a field": _add_in_place,
    "|=": lambda m: m.__ior__({"x": 1}),
    "update": lambda m: m.update(x=1),
    "setdefault": lambda m: m.setdefault("x", 1),
    "pop": lambda m: m.pop("list"),
    "popitem": lambda m: m.popitem(),
    "clear": lambda m: m.clear(),
    "attribute": lambda m: setattr(m, "_entries", {}),
    "new attribute": lambda m: setattr(m, "x", 1),
    "del attribute": lambda m: delattr(m, "_entries"),
}
LIST_WRITES: dict[str, Write] = {
    "setitem": lambda items: items.__setitem__(0, 1),
    "slice": lambda items: items.__setitem__(slice(0, 1), []),
    "del": lambda items: items.__delitem__(0),
    "append": lambda items: items.append(1),
    "extend": lambda items: items.extend([1]),
    "insert": lambda items: items.insert(0, 1),
    "remove": lambda items: items.remove(1),
    "pop": lambda items: items.pop(),
    "clear": lambda items: items.clear(),
    "sort": lambda items: items.sort(),
    "reverse": lambda items: items.reverse(),
    "+=": lambda items: items.__iadd__([1]),
    "*=": lambda items: items.__imul__(2),
    "new attribute": lambda items: setattr(items, "x", 1),
}
CONTENT: dict[str, Any] = {
    "list": [1, 2, {"list": [3], "map": {}}],
    "map": {"list": [4], "map": {"a": 1}},
}
PATHS: dict[str, Callable[[Any], Any]] = {
    "top": lambda m: m,
    "in a map": lambda m: m["map"],
    "in a list": lambda m: m["list"][2],
}


@pytest.mark.parametrize("field", ["result", "error", "raw"])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("write", MAP_WRITES)
def test_v22_maps_cannot_be_written(field: str, path: str, write: str) -> None:
    """V-22 [S] every nested write fails, at every depth, incl. `|=`, `.append`, `.setdefault`."""
    probe = made(**{field: CONTENT})
    with pytest.raises((TypeError, AttributeError)):
        MAP_WRITES[write](PATHS[path](getattr(probe, field)))
    assert getattr(probe, field) == CONTENT


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("write", LIST_WRITES)
def test_v22_lists_cannot_be_written(path: str, write: str) -> None:
    """V-22 [S] every nested write fails, at every depth, incl. `|=`, `.append`, `.setdefault`."""
    probe = made(raw=CONTENT)
    with pytest.raises((TypeError, AttributeError)):
        LIST_WRITES[write](PATHS[path](probe.raw)["list"])
    assert probe.raw == CONTENT


def test_v22_a_second_init_changes_nothing() -> None:
    """V-22 [S] every nested write fails, at every depth."""
    raw: Any = made(raw=CONTENT).raw
    raw.__init__({"x": 1})
    raw["list"].__init__([1])
    assert raw == CONTENT


def test_v22_the_frozen_types_stand_at_every_depth() -> None:
    """V-22 [S] every nested write fails, at every depth."""
    raw: Any = made(raw=CONTENT).raw
    maps = [raw, raw["map"], raw["map"]["map"], raw["list"][2], raw["list"][2]["map"]]
    lists = [raw["list"], raw["map"]["list"], raw["list"][2]["list"]]
    assert {type(each) for each in maps} == {FrozenMap}
    assert {type(each) for each in lists} == {FrozenList}


PROXY: Mapping[str, int] = MappingProxyType({"a": 1})
ACCEPTED: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**63,
    0.0,
    -0.5,
    1e308,
    "",
    "\u00e9\U0001f600\x00",
    [],
    [1, [2, [3]]],
    (1, (2,)),
    {},
    {"": {"a": None}},
    PROXY,
    collections.ChainMap({"a": 1}),
]


@pytest.mark.parametrize("value", ACCEPTED, ids=ascii)
def test_v23_accepted(value: Any) -> None:
    """V-23 [S] accepted: None, bool, int, finite float, str, list/tuple, mapping with str keys."""
    kept = made(result={"x": [value]}).result
    assert kept is not None
    assert kept["x"][0] == ({"a": 1} if value is PROXY else value)


def _generator() -> Iterator[int]:
    yield 1


class _Opaque:
    pass


REFUSED: dict[str, Any] = {
    "bytes": b"x",
    "bytearray": bytearray(b"x"),
    "memoryview": memoryview(b"x"),
    "set": {1},
    "frozenset": frozenset({1}),
    "datetime": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    "date": dt.date(2024, 1, 1),
    "timedelta": dt.timedelta(1),
    "Decimal": decimal.Decimal(1),
    "UUID": uuid.UUID(int=0),
    "_Opaque": _Opaque(),
    "type": int,
    "generator": _generator(),
    "range": range(3),
    "complex": 1j,
    "dict_values": {"a": 1}.values(),
    "deque": collections.deque([1]),
    "ProviderProbeResult": made(),
    "MagicMock": MagicMock(spec=dict),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("field", ["result", "error", "raw"])
def test_v24_refused(field: str, name: str) -> None:
    """V-24 [S] TypeError for bytes, set, datetime, Decimal, UUID, objects, generators."""
    with pytest.raises(TypeError) as caught:
        made(**{field: {"a": [0, {"b c": REFUSED[name]}]}})
    assert str(caught.value) == f"{field}.a[1]['b c']: {name} is not JSON"


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_v25_no_nan_no_infinity(number: str) -> None:
    """V-25 [R] NaN, ±∞ → TypeError ([M] `json.dumps` emits NaN; `json.loads("1e400")` is inf)."""
    with pytest.raises(TypeError, match=r"raw.x: a float must be finite"):
        made(raw={"x": float(number)})
    with pytest.raises(TypeError, match=r"raw.x: a float must be finite"):
        made(raw=json.loads('{"x": 1e400}'))


@pytest.mark.parametrize("key", [1, True, None, 1.5, b"a", ("a",)], ids=repr)
def test_v26_keys_are_str(key: object) -> None:
    """V-26 [R] non-str keys → TypeError at any depth ([M] json coerces int/bool/None/float keys).

    (and writes duplicates for {1:…,"1":…}).
    """
    with pytest.raises(TypeError, match="raw: keys must be str, not"):
        made(raw={key: 1, "1": 2})
    with pytest.raises(TypeError, match=r"result.a\[0\]: keys must be str, not"):
        made(result={"a": [{key: 1}]})


def _cycle_of_lists() -> Any:
    loop: list[Any] = []
    loop.append([loop])
    return loop


def _cycle_of_maps() -> Any:
    loop: dict[str, Any] = {}
    loop["x"] = [loop]
    return loop


@pytest.mark.parametrize("loop", [_cycle_of_lists(), _cycle_of_maps()], ids=["lists", "maps"])
def test_v27_cycles(loop: Any) -> None:
    """V-27 [R] cycles and excessive depth (limit 64) → TypeError, not RecursionError."""
    with pytest.raises(TypeError, match="contains itself"):
        made(raw={"x": loop})


def _nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


def test_v27_the_same_part_twice_is_no_cycle() -> None:
    """V-27 [R] cycles and excessive depth (limit 64) → TypeError, not RecursionError."""
    for part in ([1], {"k": 1}):
        assert made(raw={"a": part, "b": [part, part]}).raw == {"a": part, "b": [part, part]}


def test_v27_depth() -> None:
    """V-27 [R] cycles and excessive depth (limit 64) → TypeError, not RecursionError."""
    assert made(raw={"x": _nested(63)}).raw == {"x": _nested(63)}
    for depth in (64, 65, 100, 100_000):
        with pytest.raises(TypeError, match="more than 64 levels deep"):
            made(raw={"x": _nested(depth)})


def test_v27_freezing_what_is_frozen_adds_to_its_depth() -> None:
    """V-27 [R] a frozen value of 64 levels cannot become one of 65 by being wrapped."""
    deepest = made(raw={"x": _nested(63)}).raw
    with pytest.raises(TypeError, match="more than 64 levels deep"):
        made(raw={"x": deepest})


@pytest.mark.parametrize("sign", [1, -1])
def test_v28_bound_of_integers(sign: int) -> None:
    """V-28 [R] |n| < 2**4096 accepted, 2**4096 refused with TypeError.

    ([M] >4300 digits fails in json with ValueError).
    """
    assert made(raw={"n": sign * (2**4096 - 1)}).raw == {"n": sign * (2**4096 - 1)}
    for number in (2**4096, 10**4300, 10**5000):
        with pytest.raises(TypeError, match=r"raw.n: an integer must be smaller than 2\*\*4096"):
            made(raw={"n": sign * number})


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\udc00\ud800"], ids=ascii)
def test_v29_lone_surrogates(text: str) -> None:
    """V-29 [R] lone surrogates → TypeError ([M] dumps passes, UTF-8 encoding fails later)."""
    with pytest.raises(TypeError, match=r"raw.x: text must not hold a lone surrogate"):
        made(raw={"x": text})
    with pytest.raises(TypeError, match=r"raw: a key must not hold a lone surrogate"):
        made(raw={text: 1})


class _Colour(enum.StrEnum):
    RED = "red"


class _Level(enum.IntEnum):
    HIGH = 3


class _Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "another"


class _Number(int):
    def __int__(self) -> int:
        return 7


class _Pair(NamedTuple):
    a: int
    b: int


NORMALISED: dict[str, tuple[Any, Any]] = {
    "StrEnum": (_Colour.RED, "red"),
    "IntEnum": (_Level.HIGH, 3),
    "bool": (True, True),
    "str": (_Text("one"), "one"),
    "int": (_Number(1), 1),
    "OrderedDict": (collections.OrderedDict(b=1, a=2), FrozenMap({"b": 1, "a": 2})),
    "defaultdict": (collections.defaultdict(int, a=1), FrozenMap({"a": 1})),
    "Counter": (collections.Counter("aab"), FrozenMap({"a": 2, "b": 1})),
    "namedtuple": (_Pair(1, 2), FrozenList([1, 2])),
}


@pytest.mark.parametrize("name", NORMALISED)
def test_v30_subclasses_are_normalised(name: str) -> None:
    """V-30 [R] StrEnum→str, IntEnum→int, bool stays bool, OrderedDict→frozen map."""
    value, plain = NORMALISED[name]
    kept = made(raw={"x": value}).raw["x"]
    assert type(kept) is type(plain)
    assert kept == plain


def test_v30_keys_are_normalised() -> None:
    """V-30 [R] subclasses normalised: StrEnum→str."""
    (key,) = made(raw={_Colour.RED: 1}).raw
    assert type(key) is str


def test_v31_tuples_are_arrays() -> None:
    """V-31 [R] tuples count as arrays and thaw to lists."""
    probe = made(raw={"t": (1, (2, ()))})
    assert type(probe.raw["t"]) is FrozenList
    assert probe.to_dict()["raw"] == {"t": [1, [2, []]]}
    assert type(probe.to_dict()["raw"]["t"][1]) is list


def test_v32_fingerprints_tell_what_equality_does_not() -> None:
    """V-32 [R] bool-as-int trap: {"a":1} == {"a":True} == {"a":1.0} in Python [M].

    Fingerprints must be taken over canonical JSON text, never over `==` or hash.
    """
    results = [made(raw={"a": one}) for one in (1, True, 1.0)]
    assert results[0] == results[1] == results[2]
    assert len({fingerprint(probe.raw) for probe in results}) == 3
    assert len({json.dumps(probe.to_dict()) for probe in results}) == 3


def test_refusals_are_one_type_that_never_shows_the_value() -> None:
    """Design 5.7: naming the field and the rule, never the value."""
    with pytest.raises(NotJson) as caught:
        made(raw={"token": "sk-secret-\ud800"})
    error: BaseException | None = caught.value
    while error is not None:
        assert "sk-secret" not in repr(error)
        error = error.__cause__ or error.__context__
