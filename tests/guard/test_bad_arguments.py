"""Bad input to a guarded call itself (design 5.7, S21): refused before anything is written or sent.

Whatever can be given either comes back exactly as it was, or is refused by one kind of error.
"""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conftest import World, first

from indoubt import KeyConflict, Ledger, ReceiptNotStored
from indoubt.store import ScanQuery
from indoubt.testing.clock import ManualClock, memory_ledger

NAN, INFINITY = float("nan"), float("inf")


def cyclic() -> Any:
    value: list[Any] = []
    value.append({"itself": value})
    return value


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def acting(ledger: Ledger, seen: list[Any]) -> Any:
    """An effect that takes anything."""

    @ledger.effect(safety="non_idempotent", name="act", key=first)
    def act(key: str, value: Any = None) -> Any:
        seen.append(value)
        return key

    return act


BAD: dict[str, Any] = {
    "nan": NAN,
    "infinity": INFINITY,
    "nan inside": {"a": [1, {"b": NAN}]},
    "lone surrogate": "s3cr3t\ud800",
    "lone surrogate in a key": {"k\udfff": "s3cr3t"},
    "bytes": b"s3cr3t",
    "set": {"s3cr3t"},
    "object": object(),
    "generator": (one for one in "s3cr3t"),
    "function": print,
    "class": int,
    "int keys": {1: "s3cr3t"},
    "none keys": {None: 1},
    "mixed keys": {"1": 1, 1: 2},
    "cyclic": cyclic(),
    "65 levels": deep(65),
    "10,000 levels": deep(10_000),
    "2**4096": 2**4096,
    "-2**4096": -(2**4096),
    "naive datetime": datetime(2026, 1, 1),  # noqa: DTZ001 - what it is about
    "naive inside": [{"at": datetime(2026, 1, 1)}],  # noqa: DTZ001
    "decimal nan": Decimal("NaN"),
    "more than a MiB": "s3cr3t" * 200_000,
    "complex": 1j,
    "exception": ValueError("s3cr3t"),
}


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
async def test_bad_arguments_are_refused_untouched(any_world: World, value: Any) -> None:
    ledger, seen = any_world.process(), list[Any]()
    act = acting(ledger, seen)
    with pytest.raises((TypeError, ValueError)) as caught:
        act("order-7", value)
    said = str(caught.value)
    assert "act()" in said
    assert "s3cr3t" not in said
    assert len(said) < 500
    assert (await any_world.records(), seen) == ([], [])
    assert act("order-7", 1) == "order-7"  # nothing half-done stood in the way


GOOD: dict[str, Any] = {
    "2**63 - 1": 2**63 - 1,
    "-2**53 - 1": -(2**53) - 1,
    "2**4096 - 1": 2**4096 - 1,
    "1e400 text": "1e400",
    "0.1": 0.1,
    "-0.0": -0.0,
    "5e-324": 5e-324,
    "empty list": [],
    "empty dict": {},
    "nested empty": [[], {}, [[]]],
    "empty text": "",
    "nul": "a\0b",
    "emoji key": {"🙂": 1, "é": 2, "e\u0301": 3},
    "a MiB": "x" * 1_048_000,
    "64 levels": deep(60),
    "true and one": [True, 1, 1.0],
    "huge float": 1.7976931348623157e308,
}


@pytest.mark.parametrize("value", GOOD.values(), ids=GOOD)
async def test_good_arguments_come_back_as_they_were(any_world: World, value: Any) -> None:
    ledger, seen = any_world.process(), list[Any]()
    act = acting(ledger, seen)
    outcome = act.outcome("order-7", value)
    assert act.outcome("order-7", value).replayed
    record = await ledger.get(outcome.record_id)
    assert text(record.arguments["value"]) == text(value) == text(seen[0])


async def test_values_that_python_calls_equal_are_other_arguments(world: World) -> None:
    for number, (one, two) in enumerate(
        [(1, True), (1, 1.0), (0.0, -0.0), ("é", "e\u0301"), ([1], [True]), ({"a": 1}, {"a": 1.0})]
    ):
        act = acting(world.process(), [])
        act(f"order-{number}", one)
        with pytest.raises(KeyConflict):
            act(f"order-{number}", two)


async def test_the_order_of_keys_makes_no_other_act(world: World) -> None:
    seen: list[Any] = []
    act = acting(world.process(), seen)
    act("order-7", {"a": 1, "b": [1, 2]})
    assert act.outcome("order-7", {"b": [1, 2], "a": 1}).replayed
    with pytest.raises(KeyConflict):
        act("order-7", {"a": 1, "b": [2, 1]})
    assert len(seen) == 1


# -- the call's shape ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        (("order-7", 1, 2), {}),
        (("order-7",), {"values": 1}),
        (("order-7", 1), {"value": 1}),
        (("order-7",), {"effect": None}),
        (("order-7",), {"key": "other"}),
    ],
)
async def test_a_call_of_the_wrong_shape_is_pythons_own_type_error(
    world: World, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    seen: list[Any] = []
    act = acting(world.process(), seen)
    with pytest.raises(TypeError, match="act"):
        act(*args, **kwargs)
    assert (await world.records(), seen) == ([], [])


@pytest.mark.parametrize(
    "key", [None, 5, True, b"k", ["k"], "", " ", "\u200b", "x" * 1025, "a\0", "a\ud800"]
)
async def test_a_key_function_that_gives_no_key_is_told_before_anything(
    world: World, key: Any
) -> None:
    ledger, seen = world.process(), list[Any]()

    @ledger.effect(safety="non_idempotent", name="act", key=lambda: key)
    def act() -> None:
        seen.append(1)

    with pytest.raises((TypeError, ValueError), match="key"):
        act()
    assert (await world.records(), seen) == ([], [])


async def test_a_key_function_that_raises_raises_unchanged(world: World) -> None:
    ledger, seen = world.process(), list[Any]()

    def key(order: str) -> str:
        raise LookupError(order)

    @ledger.effect(safety="non_idempotent", name="act", key=key)
    def act(order: str) -> None:
        seen.append(order)

    with pytest.raises(LookupError, match="order-7"):
        act("order-7")
    assert (await world.records(), seen) == ([], [])


async def test_arguments_changed_by_the_function_change_no_record(world: World) -> None:
    ledger = world.process()

    @ledger.effect(safety="non_idempotent", name="act", key=first)
    async def act(_key: str, value: list[int]) -> int:
        value.append(9)
        return len(value)

    given = [1, 2]
    outcome = await act.outcome("order-7", given)
    record = await ledger.get(outcome.record_id)
    assert record.arguments["value"] == [1, 2]
    assert (await act.outcome("order-7", [1, 2])).replayed


# -- anything at all -------------------------------------------------------------------------------

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=8)
    | st.binary(max_size=4)
    | st.decimals()
    | st.datetimes()
    | st.uuids()
    | st.just(object)
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=3)
        | st.sets(st.integers(), max_size=2)
    ),
    max_leaves=10,
)


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(value=ANYTHING)
def test_anything_is_either_kept_exactly_or_refused_untouched(value: Any) -> None:
    seen: list[Any] = []
    with memory_ledger(clock=ManualClock()) as ledger:
        act = acting(ledger, seen)
        try:
            outcome = act.outcome("order-7", value)
        except (TypeError, ValueError):
            assert (rows(ledger), seen) == ([], [])
            return
        assert (outcome.replayed, len(seen)) == (False, 1)
        assert act.outcome("order-7", value).replayed  # the same arguments are the same act
        assert len(seen) == 1
        record = ledger.look_up_blocking(outcome.record_id)
        assert record is not None
        if plain(value):
            recorded = record.arguments.get("value")  # None is the default, and left out
            assert text(recorded) == text(value)


@settings(max_examples=150, deadline=None)
@given(value=ANYTHING)
def test_any_receipt_is_given_back_or_recorded_as_lost(value: Any) -> None:
    with memory_ledger(clock=ManualClock()) as ledger:

        @ledger.effect(safety="non_idempotent", name="give", key=first)
        def give(_key: str) -> Any:
            return value

        try:
            receipt = give("order-7")
        except ReceiptNotStored:
            (row,) = rows(ledger)
            assert row.state == "succeeded"
            return
        assert text(give("order-7")) == text(receipt)
        if plain(value):
            assert text(receipt) == text(value)


@settings(max_examples=150, deadline=None)
@given(
    key=st.text(st.characters(exclude_categories=()), max_size=20),
    tenant=st.none() | st.text(st.characters(exclude_categories=()), max_size=8),
)
def test_any_key_and_tenant_is_an_act_of_its_own_or_refused(key: str, tenant: str | None) -> None:
    with memory_ledger(clock=ManualClock()) as ledger:
        act = acting(ledger, [])
        try:
            outcome = act.using(key=key, tenant_id=tenant).outcome("order-7")
        except (TypeError, ValueError):
            assert rows(ledger) == []
            return
        record = ledger.look_up_blocking(outcome.record_id)
        assert record is not None
        assert (record.key, record.tenant_id) == (key, tenant)
        for other in (f"{key}x", f" {key}"):
            again = act.using(key=other, tenant_id=tenant).outcome("order-7")
            assert not again.replayed


def rows(ledger: Ledger) -> list[Any]:
    """What is in the store."""
    import asyncio  # noqa: PLC0415

    return list(asyncio.run(ledger.open().store.scan(ScanQuery())).records)


def plain(value: Any) -> bool:
    """Whether a value is JSON as it stands."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False


def text(value: Any) -> str:
    """JSON text, which tells 1 from True and 0.0 from -0.0 as == does not."""
    return json.dumps(value, sort_keys=True)
