"""Canonical text v1 and its fingerprint, held by golden vectors (decisions J1).

If these fail under a new msgspec, it writes JSON otherwise than before: fingerprints that are
stored would no longer be found. That needs a v2 beside v1, never new vectors.
"""

import json
import math
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indoubt.json_values import canonical, detach, fingerprint

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("canonical.json").read_text("utf-8"))
DOCUMENTS = {doc["name"]: doc for doc in GOLDEN["documents"]}
FLOATS: list[tuple[str, str]] = [(number, text) for number, text in GOLDEN["floats"]]

scalars_but_floats = st.none() | st.booleans() | st.integers() | st.text()
without_floats = st.recursive(
    scalars_but_floats, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_golden_documents(name: str) -> None:
    """J1: UTF-8, no spaces, keys by code point, ints in full, -0.0 kept."""
    doc = DOCUMENTS[name]
    value = json.loads(doc["text"])
    assert canonical(value) == doc["canonical"].encode()
    assert fingerprint(value) == doc["fingerprint"]
    assert doc["fingerprint"] == "v1:" + sha256(doc["canonical"].encode()).hexdigest()


def test_golden_documents_differ() -> None:
    """V-32: what is not the same JSON has not the same fingerprint."""
    assert len({doc["fingerprint"] for doc in DOCUMENTS.values()}) == len(DOCUMENTS) > 30


def test_golden_floats() -> None:
    """J1: floats as msgspec 0.23 prints them, of every exponent."""
    values = [float.fromhex(number) for number, _ in FLOATS]
    assert [canonical(value).decode() for value in values] == [text for _, text in FLOATS]


def test_golden_floats_are_exact_and_of_every_exponent() -> None:
    """J1: the vectors themselves: every text reads back as its float, no exponent is missing."""
    values = [float.fromhex(number) for number, _ in FLOATS]
    assert [float(text).hex() for _, text in FLOATS] == [value.hex() for value in values]
    assert {math.frexp(value)[1] for value in values if value} == set(range(-1073, 1025))


@given(without_floats)
def test_canonical_text_is_what_the_standard_library_writes_but_for_floats(value: Any) -> None:
    """J1: an independent writer agrees: sorted by code point, nothing escaped that need not be."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    assert canonical(value).decode() == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_read_back_exactly(value: float) -> None:
    """J1: no float is rounded, and none becomes an integer."""
    back = json.loads(canonical(value))
    assert type(back) is float
    assert back.hex() == value.hex()


def _turned(value: Any) -> Any:
    """The same JSON with every map's keys in reverse order."""
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {key: _turned(entries[key]) for key in reversed(entries)}
    if isinstance(value, list):
        return [_turned(item) for item in cast("list[Any]", value)]
    return value


@given(without_floats)
def test_key_order_counts_in_the_text_and_not_in_the_fingerprint(value: Any) -> None:
    """J1: stored text keeps the caller's key order; only the fingerprint sorts."""
    turned = _turned(value)
    assert detach(turned).text.decode() == json.dumps(
        turned, ensure_ascii=False, separators=(",", ":")
    )
    assert fingerprint(turned) == fingerprint(value)


def test_what_equality_cannot_tell_apart() -> None:
    """V-32, V-30: 1, 1.0, true, "1" and -0.0, 0.0, 0 are seven values."""
    alike: list[Any] = [1, 1.0, True, "1", -0.0, 0.0, 0]
    assert len({fingerprint([value]) for value in alike}) == len(alike)
    assert len({fingerprint({"k": value}) for value in alike}) == len(alike)


def test_encoded_and_plain_functions_agree() -> None:
    """The two ways to the canonical text are one."""
    value = {"b": (1, 2), "a": [{"d": 1, "c": "{"}]}
    encoded = detach(value)
    assert encoded.canonical() == canonical(value) == b'{"a":[{"c":"{","d":1}],"b":[1,2]}'
    assert encoded.fingerprint() == fingerprint(value)
    assert detach([1, "x"]).canonical() is not None
    assert detach(["{", 1]).canonical() == b'["{",1]'
