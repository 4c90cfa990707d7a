"""A stepped clock is told, and a slow answer is none (P5)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import World

from indoubt.engine.clock_watch import STEP_MS, ClockWatch


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "clock_step" in r.getMessage()]


def test_a_step_of_either_clock_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    watch = ClockWatch()
    watch.compare(10_000, 1.0, 1.0)
    watch.compare(11_000 + STEP_MS, 2.0, 2.0)
    assert told(caplog) == []
    watch.compare(12_000 + STEP_MS + 1, 3.0, 3.0)
    assert told(caplog) == [f"clock_step: store and local clock part by {STEP_MS + 1} ms"]
    watch.compare(13_000 + STEP_MS + 1, 4.0, 4.0)
    assert len(told(caplog)) == 1
    watch.compare(14_000, 5.0, 5.0)
    assert told(caplog)[1:] == [f"clock_step: store and local clock part by -{STEP_MS + 1} ms"]


def test_a_slow_answer_is_no_step_and_hides_none(caplog: pytest.LogCaptureFixture) -> None:
    watch = ClockWatch()
    watch.compare(10_000, 1.0, 1.0)
    watch.compare(11_000, 2.0, 62.0)
    watch.compare(71_000, 2.0, 62.0)
    assert told(caplog) == []
    watch.compare(82_000 + STEP_MS, 63.0, 73.0)
    assert told(caplog) == []
    watch.compare(82_000 + STEP_MS + 1, 63.0, 73.0)
    assert len(told(caplog)) == 1


async def test_a_store_that_answers_slowly_is_no_clock_step(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = world.process()
    pay = world.payer(ledger)
    await pay("order-1")
    store = ledger.open().store
    write = store.write

    async def slow(batches: Any) -> Any:
        answers = await write(batches)
        world.pass_time(5)
        return answers

    store.write = slow  # type: ignore[method-assign]
    await pay("order-2")
    assert (world.bank.calls, told(caplog)) == (2, [])
