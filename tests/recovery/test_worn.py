"""An act that fails whoever performs it does not occupy recovery for ever (S23)."""

from __future__ import annotations

import contextlib

from indoubt import Ledger, OutcomeUnknown
from indoubt.core.bounds import SENDS_BEFORE_RECOVERY_STOPS
from indoubt.testing import memory_ledger


async def test_s23_recovery_stops_sending_what_was_sent_too_often() -> None:
    with memory_ledger() as ledger:
        calls = await calls_until_recovery_stops(ledger)
        assert calls == SENDS_BEFORE_RECOVERY_STOPS + SENDS_BEFORE_RECOVERY_STOPS % 2
        again = await ledger.recover()
        assert [view.key for view in again.skipped] == ["k1"]
        assert (await ledger.in_doubt()).items[0].attempt == calls


async def calls_until_recovery_stops(ledger: Ledger) -> int:
    calls = 0

    @ledger.effect(safety="idempotent", name="poison", key=str)
    async def poison(key: str) -> None:
        nonlocal calls
        calls += 1
        raise ConnectionError(key)

    with contextlib.suppress(OutcomeUnknown):
        await poison("k1")
    for _ in range(2 * SENDS_BEFORE_RECOVERY_STOPS):
        await ledger.recover()
    return calls
