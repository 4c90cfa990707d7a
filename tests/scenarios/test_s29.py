"""S29: "not found" right after creating it is no proof that it was not created."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pytest
from tests.scenarios.performing import SCRIPT, Payment, ms, told_by

from indoubt import Ledger, RecordView
from indoubt.testing import FakeProvider, ManualClock, Worker

LAG = ms(800)
NO_WAIT = timedelta(0)
UNDECIDED = {"in_doubt", "awaiting_decision"}


@pytest.fixture
def bank() -> Iterator[FakeProvider]:
    """A provider whose reads see a new object 800 ms later, by a clock that the test steers."""
    with FakeProvider(not_found_lag=LAG, manual_clock=True) as provider:
        yield provider


@pytest.fixture
def payment(bank: FakeProvider, tmp_path: Path) -> Payment:
    """An act that only the provider knows about, dead within a settle time of a second."""
    return Payment(
        store=str(tmp_path / "ledger.db"),
        bank=bank.url,
        safety="status_query_required",
        probe=True,
        settle_ms=1000,
        timeout_ms=100,
        steered=True,
    )


def die(bank: FakeProvider, payment: Payment, cut: Literal["F2", "F3"]) -> None:
    """A worker is killed; at F3 the provider has created, at F2 the request was lost."""
    with Worker(SCRIPT, payment.text(), cut=cut, provider=bank) as worker:
        worker.say("order-7")
        worker.wait_cut()
        assert worker.held is not None
        if cut == "F2":
            worker.held.drop()
        else:
            worker.held.release()


class Host:
    """The machine that recovers, on which time passes as it does at the provider."""

    def __init__(self, bank: FakeProvider, payment: Payment) -> None:
        self.bank, self.clock = bank, ManualClock()
        self.ledger: Ledger = payment.ledger(clock=self.clock)
        self.pay = payment.guard(self.ledger)

    def pass_time(self, milliseconds: int) -> None:
        self.clock.advance(ms(milliseconds))
        self.bank.clock.advance(ms(milliseconds))

    async def recovered(self) -> RecordView:
        """The record after a probe now."""
        recovery = await self.ledger.recover(wait=NO_WAIT)
        assert recovery.errors == ()
        found = await self.ledger.find("pay", "order-7")
        assert found is not None
        return found


async def test_not_found_in_the_lag_decides_nothing(bank: FakeProvider, payment: Payment) -> None:
    """At 1200 ms it is found and adopted.

    Early `not_found` != "did not happen": the row stays undecided until the provider's stated
    settle time has passed; at 1200 ms it is found and adopted; effects = 1.
    """
    payment = replace(payment, authoritative=True)
    await asyncio.to_thread(die, bank, payment, "F3")
    host = Host(bank, payment)
    seen: list[tuple[str, str | None]] = []
    for pause in (0, 400, 800):
        host.pass_time(pause)
        found = await host.recovered()
        seen.append((found.state, found.evidence[-1].get("status")))
    assert seen == [("in_doubt", "not_found")] * 2 + [("succeeded", "succeeded")]
    assert bank.counts() == {"order-7": 1}
    assert (await told_by(host.pay, "order-7"))[0] == "returned"
    assert bank.counts() == {"order-7": 1}
    await host.ledger.close()


@pytest.mark.parametrize("authoritative", [True, False], ids=["authoritative", "not"])
async def test_what_is_never_found(
    bank: FakeProvider, payment: Payment, *, authoritative: bool
) -> None:
    """Whether absence proves anything is the provider's to declare.

    If never found: only a provider that declares `not_found` authoritative allows a fresh send;
    otherwise a person decides.
    """
    payment = replace(payment, authoritative=authoritative)
    await asyncio.to_thread(die, bank, payment, "F2")
    host = Host(bank, payment)
    found = await host.recovered()
    assert (found.state, bank.counts()) == ("in_doubt", {})
    for _ in range(12):
        host.pass_time(1200)
        found = await host.recovered()
    assert found.state == ("succeeded" if authoritative else "awaiting_decision")
    assert bank.count("order-7") == int(authoritative)
    await host.ledger.close()


@pytest.mark.parametrize("status", ["unknown", "unavailable", "drop"])
async def test_no_answer_is_no_absence(
    bank: FakeProvider, payment: Payment, status: Literal["unknown", "unavailable", "drop"]
) -> None:
    """`unknown` and `unavailable` never allow a send, however often repeated."""
    payment = replace(payment, authoritative=True)
    await asyncio.to_thread(die, bank, payment, "F2")
    bank.fault("lookup", status=status)
    host = Host(bank, payment)
    for _ in range(30):
        host.pass_time(60_000)
        found = await host.recovered()
        assert found.state in UNDECIDED
        assert (await told_by(host.pay, "order-7"))[:2] == ["raised", "OutcomeUnknown"]
    assert (await host.recovered()).state == "awaiting_decision"
    assert sum(one["request"] == "act" for one in bank.log()) == 1
    assert bank.counts() == {}
    await host.ledger.close()
