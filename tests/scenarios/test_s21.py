"""S21, JSON that does not survive the trip: each value through every door of a guarded effect.

On every store either the same value and type comes back, bit for bit, or one kind of error is
raised before anything is written; where the effect has happened already, it is never repeated.
"""

from __future__ import annotations

import json
from collections import UserDict
from contextlib import ExitStack
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import World, first, only
from tests.scenarios.conftest import world_on
from tests.servers.places import ALL

from indoubt import EffectContext, Happened, OutcomeUnknown, ReceiptNotStored

BY = {"actor": "ana", "reason": "seen"}


def nested(levels: int) -> Any:
    value: Any = "deep"
    for _ in range(levels):
        value = [value]
    return value


KEPT: dict[str, Any] = {
    "2**63 - 1": 2**63 - 1,
    "-2**53 - 1": -(2**53) - 1,
    "2**64": 2**64,
    "1e400 as text": "1e400",
    "0.1": 0.1,
    "-0.0": -0.0,
    "1e16": 1e16,
    "5e-324": 5e-324,
    "empty list": [],
    "empty dict": {},
    "list of empty list": [[]],
    "empty text": "",
    "NUL": "a\0b",
    "emoji keys": {"🙂": {"é": 1, "e\u0301": 2}},
    "true, 1 and 1.0": [True, 1, 1.0],
    "null": [None],
    "60 levels": nested(60),
}
REFUSED: dict[str, Any] = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "bytes": b"x",
    "lone surrogate": "\ud800",
    "10,000 levels": nested(10_000),
    "int keys": {1: 2},
    "2**4096": 2**4096,
    "set": {1},
    "mapping that is no dict": UserDict({1: 2}),
}
SPECIAL: dict[str, Any] = {  # of arguments and receipts only, where annotations bring them back
    "Decimal": Decimal("0.10"),
    "naive datetime": datetime(2026, 1, 1),  # noqa: DTZ001
}


def text(value: Any) -> str:
    return json.dumps(value, sort_keys=False)


def doubting(world: World, receipt: Any = None) -> Any:
    """An effect that checkpoints a note, and is in doubt then."""
    ledger = world.process()

    @ledger.effect(safety="non_idempotent", name="doubt", key=first)
    async def doubt(_order: str, note: Any, *, effect: EffectContext) -> Any:
        await effect.checkpoint(note)
        world.bank.acts.append(("done", 1, None))
        raise ConnectionResetError(receipt)

    return ledger, doubt


@pytest.mark.parametrize("value", KEPT.values(), ids=KEPT)
async def test_s21_what_is_kept_comes_back_bit_for_bit(any_world: World, value: Any) -> None:
    ledger = any_world.process()

    @ledger.effect(safety="non_idempotent", name="echo", key=first)
    async def echo(_order: str, value: Any) -> Any:
        return value

    outcome = await echo.outcome("order-7", value)
    again = await echo.outcome("order-7", value)
    record = await ledger.get(outcome.record_id)
    for came_back in (outcome.receipt, again.receipt, record.receipt, record.arguments["value"]):
        assert text(came_back) == text(value)
    assert again.replayed
    other, doubt = doubting(any_world)
    with pytest.raises(OutcomeUnknown):
        await doubt("order-8", value)
    item = await only(other)
    assert text(item.attempts[0]["token"]) == text(value)
    decided = await other.decide(item, Happened(value), **BY)
    assert text(decided.receipt) == text(value)
    assert text(await doubt("order-8", value)) == text(value)


@pytest.mark.parametrize("value", KEPT.values(), ids=KEPT)
async def test_s21_a_probes_result_comes_back_bit_for_bit(any_world: World, value: Any) -> None:
    ledger = any_world.process()

    def probe(attempt: Any) -> Any:
        return attempt.succeeded({"value": value})

    @ledger.effect(safety="non_idempotent", name="ask", key=first, probe=probe)
    async def ask(_order: str) -> Any:
        raise ConnectionResetError

    assert text(await ask("order-7")) == text({"value": value})
    assert text(await ask("order-7")) == text({"value": value})


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
async def test_s21_what_is_refused_is_refused_before_anything_is_dispatched(
    any_world: World, value: Any
) -> None:
    calls: list[Any] = []
    ledger = any_world.process()

    @ledger.effect(safety="non_idempotent", name="echo", key=first)
    async def echo(_order: str, value: Any) -> Any:
        calls.append(value)

    with pytest.raises(TypeError):  # one kind of error
        await echo("order-7", value)
    assert (await any_world.records(), calls) == ([], [])


@pytest.mark.parametrize("value", (REFUSED | {"object": object()}).values())
async def test_s21_a_result_that_is_refused_has_happened_and_is_not_repeated(
    any_world: World, value: Any
) -> None:
    calls: list[Any] = []
    ledger = any_world.process()

    @ledger.effect(safety="non_idempotent", name="echo", key=first)
    async def echo(_order: str) -> Any:
        calls.append(1)
        return value

    for _ in range(3):
        with pytest.raises(ReceiptNotStored):
            await echo("order-7")
    assert calls == [1]


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
async def test_s21_what_is_refused_changes_no_record(any_world: World, value: Any) -> None:
    ledger, doubt = doubting(any_world)
    with pytest.raises(OutcomeUnknown):
        await doubt("order-7", {"a": "note"})
    before = await any_world.records()
    item = await only(ledger)
    with pytest.raises(TypeError):
        await ledger.decide(item, Happened(value), **BY)
    assert await any_world.records() == before


async def test_s21_a_mebibyte_passes_and_more_is_refused(any_world: World) -> None:
    ledger = any_world.process()

    @ledger.effect(safety="non_idempotent", name="echo", key=first)
    async def echo(_order: str, value: Any) -> Any:
        return value

    most = "x" * (1_048_576 - len('{"_order":"order-7","value":""}'))
    assert await echo("order-7", most) == most
    with pytest.raises(ValueError, match="1,048,576"):
        await echo("order-8", most + "x")
    assert await ledger.find("echo", "order-8") is None


async def test_s21_every_store_accepts_and_refuses_the_same(tmp_path: Path) -> None:
    told: list[dict[str, str]] = []
    for kind in ALL:
        with ExitStack() as stack:
            told.append(await answers_on(world_on(kind, tmp_path, stack)))
    assert told == [told[0]] * len(ALL)
    assert told[0]["Decimal"] == '"0.10"'
    assert "time zone" in told[0]["naive datetime"]


async def answers_on(world: World) -> dict[str, str]:
    """What each value comes back as, or how it is refused; and the fingerprints."""
    ledger = world.process()

    @ledger.effect(safety="non_idempotent", name="echo", key=first)
    async def echo(_order: str, value: Any) -> Any:
        return value

    answers: dict[str, str] = {}
    for name, value in (KEPT | REFUSED | SPECIAL).items():
        try:
            answers[name] = text(await echo(name, value))
        except (TypeError, ValueError) as error:
            answers[name] = f"{type(error).__name__}: {error}"
    fingerprints = sorted(str(row.fixed) for row in await world.records())
    await world.close()
    return answers | {"fingerprints": str(fingerprints)}
