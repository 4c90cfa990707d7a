"""S33: the provider forgets the idempotency key before the outage is over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.scenarios.performing import SCRIPT, Payment, told_by

from indoubt.testing import FakeProvider, ManualClock, Worker

WINDOW = timedelta(hours=24)
MINUTE_MS = 60_000


@pytest.fixture
def bank() -> Iterator[FakeProvider]:
    """A provider that honours a key for 24 hours, by a clock that the test steers."""
    with FakeProvider(key_retention=WINDOW, manual_clock=True) as provider:
        yield provider


@pytest.fixture
def payment(bank: FakeProvider, tmp_path: Path) -> Payment:
    """An act that is safe to repeat through its key; one attempt may take two minutes."""
    return Payment(
        store=str(tmp_path / "ledger.db"),
        bank=bank.url,
        safety="idempotent",
        keyed=True,
        key_retention_ms=24 * 60 * MINUTE_MS,
        timeout_ms=2 * MINUTE_MS,
        steered=True,
    )


def die_at_f3(bank: FakeProvider, payment: Payment) -> None:
    """Killed when the provider has paid, at t0."""
    with Worker(SCRIPT, payment.text(), cut="F3", provider=bank) as worker:
        worker.say("order-7")
        worker.wait_cut()
        assert worker.held is not None
        worker.held.release()


CASES = {
    "t0 + 1 h": (timedelta(hours=1), 24 * 60, False, "succeeded"),
    "t0 + 23 h 57 min": (timedelta(hours=23, minutes=57), 24 * 60, False, "succeeded"),
    "t0 + 23 h 59 min": (timedelta(hours=23, minutes=59), 24 * 60, False, "awaiting_decision"),
    "t0 + 25 h": (timedelta(hours=25), 24 * 60, False, "awaiting_decision"),
    "t0 + 25 h, it can be asked": (timedelta(hours=25), 24 * 60, True, "succeeded"),
    "undeclared": (timedelta(hours=1), 0, False, "awaiting_decision"),
    "undeclared, it can be asked": (timedelta(hours=1), 0, True, "succeeded"),
}


@pytest.mark.parametrize("case", CASES)
async def test_recovery_after_the_outage(bank: FakeProvider, payment: Payment, case: str) -> None:
    """The safety of sending it again ends with the window.

    1 h: resend with the *same* key, effects = 1; near the edge: not resent if the call could land
    outside the window; 25 h or undeclared: not treated as idempotent any more -> probe or person;
    a new key is never minted for an undecided operation. The time of first dispatch is in the
    ledger, by the store's clock.
    """
    outage, minutes, probe, expected = CASES[case]
    payment = replace(payment, key_retention_ms=minutes * MINUTE_MS, probe=probe)
    await asyncio.to_thread(die_at_f3, bank, payment)
    clock = ManualClock()
    began = clock.wall_ms()
    clock.advance(outage)
    bank.clock.advance(outage)
    async with payment.ledger(clock=clock) as ledger:
        pay = payment.guard(ledger)
        await ledger.recover(wait=timedelta(0))
        found = await ledger.find("pay", "order-7")
        assert found is not None
        assert found.state == expected
        told = await told_by(pay, "order-7")
        assert told[0] == ("returned" if expected == "succeeded" else "raised")
        resent = expected == "succeeded" and not probe
        sent = [one["idempotency_key"] for one in bank.log() if one["request"] == "act"]
        assert (len(sent), len(set(sent))) == (1 + resent, 1)
        first = datetime.fromisoformat(found.attempts[0]["dispatched_at"])
        assert first.timestamp() * 1000 == began
    assert bank.counts() == {"order-7": 1}
