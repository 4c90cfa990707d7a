"""FrozenMap, FrozenList, freeze and thaw: JSON that nobody can change."""

import copy
import dataclasses
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indoubt.json_values import FrozenList, FrozenMap, NotJson, canonical, freeze, thaw

floats = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
)


@dataclasses.dataclass(frozen=True)
class Holder:
    """Something that has frozen values in it."""

    data: Any


@given(json_values)
def test_frozen_is_equal_and_thaws_to_the_same_json(value: Any) -> None:
    """V-46, V-33: equal to what it was made from; thawed, the same JSON to the letter."""
    frozen = freeze(value)
    assert frozen == value
    assert value == frozen
    assert not frozen != value  # noqa: SIM202 - the other operator
    assert canonical(thaw(frozen)) == canonical(value) == canonical(frozen)


@given(json_values)
def test_frozen_is_a_value(value: Any) -> None:
    """V-44, V-45: hashable, picklable, copyable, deepcopy-able, asdict-able."""
    frozen = freeze(value)
    assert hash(frozen) == hash(freeze(value))
    for back in (
        pickle.loads(pickle.dumps(frozen)),  # noqa: S301 - our own bytes
        copy.copy(frozen),
        copy.deepcopy(frozen),
        dataclasses.asdict(Holder(frozen))["data"],
    ):
        assert type(back) is type(frozen)
        assert back == frozen


def test_thaw_gives_fresh_containers() -> None:
    """V-33: nested data thawed to fresh dict/list each call."""
    value: dict[str, Any] = {"a": [{"b": []}]}
    frozen = freeze(value)
    one: Any = thaw(frozen)
    one["a"][0]["b"].append(1)
    assert thaw(frozen) == value


def test_freezing_again_is_free() -> None:
    """A frozen value is returned as it is."""
    for frozen in (freeze({"a": [1]}), freeze([1])):
        assert freeze(frozen) is frozen
    entries, items = FrozenMap({"a": 1}), FrozenList([1])
    assert FrozenMap(entries) is entries
    assert FrozenList(items) is items


def test_constructors_freeze_too() -> None:
    """Whatever way one is made, nothing changeable is inside, and all of it is JSON."""
    inner = [1]
    made: Any = FrozenMap({"a": inner})
    items: Any = FrozenList([inner, (2,)])
    inner.append(2)
    assert made == {"a": [1]}
    assert items == [[1], [2]]
    assert type(made["a"]) is type(items[1]) is FrozenList
    assert FrozenMap() == {}
    assert FrozenList() == []
    assert FrozenMap([("a", 1)]) == {"a": 1}
    for wrong in ({"a": b""}, {1: 1}):
        with pytest.raises(NotJson):
            FrozenMap(wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(NotJson):
        FrozenList([b""])


def test_maps_are_mappings() -> None:
    """What a Mapping offers for reading."""
    frozen = FrozenMap({"b": 1, "a": None})
    assert list(frozen) == ["b", "a"]
    assert dict(frozen) == {"b": 1, "a": None}
    assert {**frozen} == {"b": 1, "a": None}
    assert (frozen["b"], frozen.get("a", 5), frozen.get("x", 5)) == (1, None, 5)
    assert len(frozen) == 2
    assert "a" in frozen
    assert "x" not in frozen
    with pytest.raises(KeyError):
        frozen["x"]


def test_lists_are_sequences() -> None:
    """What a tuple offers for reading; a slice is still equal to a list."""
    frozen = FrozenList([1, [2], 3])
    assert list(frozen) == [1, [2], 3]
    assert frozen[1] == [2]
    assert frozen[-1] == 3
    assert frozen[1:] == [[2], 3]
    assert type(frozen[:1]) is FrozenList
    assert [2] in frozen
    assert frozen.index(3) == 2


def test_equality_is_with_json_containers_only() -> None:
    """V-46: a frozen list equals lists and tuples, a frozen map equals dicts, and no more."""
    items, entries = FrozenList([1, [2]]), FrozenMap({"a": [1]})
    assert items == (1, (2,))
    assert items == [1, (2,)]
    assert items == FrozenList([1, [2]])
    for other in ([1], [1, [3]], (1,), {1}, "1", None, entries):
        assert items != other
        assert not items == other  # noqa: SIM201 - the other operator
    assert entries == FrozenMap({"a": (1,)})
    for other in ({"a": [2]}, {"b": [1]}, {}, [("a", [1])], None, items):
        assert entries != other
        assert not entries == other  # noqa: SIM201 - the other operator


def test_equal_ones_have_one_hash() -> None:
    """V-43, V-44: key order is irrelevant, and a tuple of equal content has the same hash."""
    assert hash(FrozenMap({"a": 1, "b": [2]})) == hash(FrozenMap({"b": [2], "a": 1}))
    assert hash(FrozenList([1, 2])) == hash((1, 2))
    assert {FrozenList([1]): "x"}[FrozenList([1])] == "x"


def test_reprs_read_as_what_they_hold() -> None:
    """A person sees plain JSON in its wrapping."""
    assert repr(freeze({"a": [1, {"b": None}]})) == "FrozenMap({'a': [1, {'b': None}]})"
    assert repr(freeze([1, {"b": ()}])) == "FrozenList([1, {'b': []}])"


def test_what_reduce_hands_out_is_a_copy() -> None:
    """V-22: the pickle protocol is no back door."""
    frozen = FrozenMap({"a": [1]})
    _, (plain,) = frozen.__reduce__()
    changed: Any = plain
    changed["a"].append(2)
    assert frozen == {"a": [1]}


def test_freeze_names_the_field() -> None:
    """Design 5.7: naming the field and the rule."""
    with pytest.raises(NotJson, match=r"^result\.a\[0\]: set is not JSON$"):
        freeze({"a": [{1}]}, where="result")
