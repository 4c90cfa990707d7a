"""One refund, what may befall its worker, and what is known of it: never two, never a false claim.

Each cell is a worker process on a SQLite file and a provider in a process of its own, whose count
is the judge. ``-s`` prints the matrix.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from tests.scenarios.performing import SCRIPT, Payment, ms, reached, told_by

from indoubt import Ledger, RecordView
from indoubt.testing import FakeProvider, Worker

LEASE_MS = 2000
WAIT_MS = 8000
CLIENT_S = 0.5
LANDS = ms(1000)
ABSENCE: dict[str, Any] = {"probe": True, "settle_ms": 1500, "authoritative": True}
KNOWN: dict[str, dict[str, Any]] = {
    "no probe": {},
    "probe": {"probe": True},
    "probe, may resend": {**ABSENCE, "resend": True},
    "status query": {**ABSENCE, "safety": "status_query_required"},
    "idempotent by key": {"safety": "idempotent", "keyed": True},
}


class Fate(NamedTuple):
    """What befalls the first worker: a signal at a cut, or a fault of the provider.

    ``held``: the provider holds the request at that cut. ``applied``: the first request has its
    effect before anybody recovers.
    """

    cut: Literal["F2", "F3"] | None = None
    by: Literal["kill", "stop"] = "kill"
    held: bool = True
    fault: str = ""
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed
    applied: bool = True


FATES = {
    "kill -9, not applied": Fate("F2", applied=False),
    "kill -9, applied": Fate("F3"),
    "time-out, applied": Fate(fault="hang"),
    "time-out, lands late": Fate(fault="apply_late", options={"delay": LANDS, "then": "hang"}),
    "reset after applying": Fate(fault="apply_then_drop"),
    "reset before applying": Fate(fault="drop_before_apply", applied=False),
    "paused, sends late": Fate("F2", "stop", held=False, applied=False),
    "paused, applied": Fate("F3", "stop"),
}

ASKED, ADOPTED, RESENT = ("asks",), ("adopted",), ("sent again",)
RESENDING = {
    fate: ADOPTED if one.applied or one.by == "stop" else RESENT for fate, one in FATES.items()
}
EXPECTED: dict[str, dict[str, tuple[str, ...]]] = {
    "no probe": dict.fromkeys(FATES, ASKED),
    "probe": {fate: ADOPTED if one.applied else ASKED for fate, one in FATES.items()}
    # Nothing says how late it may land: found if it was in time, else a person looks.
    | {"time-out, lands late": ("asks", "adopted")},
    # A stopped holder may still send, and its lock says so: nobody else does.
    "probe, may resend": RESENDING,
    "status query": RESENDING,
    "idempotent by key": dict.fromkeys(FATES, RESENT),
}
"""What the ledger may do about each fate."""

_matrix: dict[str, dict[str, tuple[str, int]]] = {}


@pytest.fixture(scope="module", autouse=True)
def _print_matrix() -> Iterator[None]:
    """Print what was measured."""
    yield
    width = max(map(len, FATES)) + 2
    lines = ["", " " * width + "".join(f"{known:<20}" for known in _matrix)]
    lines += [
        f"{fate:<{width}}"
        + "".join(f"{' '.join(map(str, _matrix[known][fate])):<20}" for known in _matrix)
        for fate in FATES
    ]
    sys.stdout.write("\n".join(lines) + "\n")


class Cell:
    """One refund."""

    def __init__(self, bank: FakeProvider, ledger: Ledger, pay: Any, payment: Payment) -> None:
        self.bank, self.ledger, self.pay, self.payment = bank, ledger, pay, payment
        self.told: list[list[Any]] = []

    async def play(self, order: str, fate: Fate) -> tuple[str, int]:
        """Let it happen, recover, and say what was done."""
        worker = self.worker(order, fate)
        if fate.fault:
            self.bank.next(fate.fault, key=order, **fate.options)  # type: ignore[arg-type]
        with worker:
            worker.say(order)
            if fate.cut is None:
                self.told.append(await asyncio.to_thread(worker.hear))
            else:
                await asyncio.to_thread(worker.wait_cut)
            await self.recover(order, worker, fate)
        return await self.judged(order, fate)

    def worker(self, order: str, fate: Fate) -> Worker:
        """The first worker; a stopped one is no coroutine, so that it goes on where it stood."""
        quick = fate.fault in {"hang", "apply_late"}
        payment = replace(
            self.payment, plain=fate.by == "stop", client_s=CLIENT_S if quick else 10.0
        )
        held = self.bank if fate.held else None
        return Worker(SCRIPT, payment.text(), cut=fate.cut, by=fate.by, provider=held, key=order)

    async def recover(self, order: str, worker: Worker, fate: Fate) -> None:
        """Another worker takes over; a stopped one wakes up then."""
        if worker.held is not None and fate.by == "kill":
            worker.held.release() if fate.applied else worker.held.drop()
        if fate.by == "stop":

            async def lapsed() -> bool:
                return (await self.found(order)).state != "dispatched"

            await reached(lapsed)
            # While it stands still its silence cannot be proven, however long one waits.
            self.told.append(await told_by(self.pay.using(wait=ms(500)), order))
            if worker.held is not None:
                worker.held.release()
            worker.go_on()
            late = await asyncio.to_thread(worker.hear)
            assert late[:2] == ["raised", "LeaseLost"], late
        self.told.append(await told_by(self.pay, order))

    async def found(self, order: str) -> RecordView:
        found = await self.ledger.find("pay", order)
        assert found is not None
        return found

    async def judged(self, order: str, fate: Fate) -> tuple[str, int]:
        """What was done; whatever anybody was told is true, and nothing says "failed"."""
        if fate.applied:
            self.bank.count(order, at_least=1)
        count, found = self.bank.count(order), await self.found(order)
        states = {entry.state for entry in await self.ledger.journal(found.record_id)}
        assert states <= {"dispatched", "in_doubt", "awaiting_decision", "succeeded"}
        assert count <= 1
        for told in self.told:
            assert told[0] == "returned" or told[1] == "OutcomeUnknown", told
        if found.state != "succeeded":
            assert self.told[-1][:2] == ["raised", "OutcomeUnknown"]
            assert order in [item.key for item in (await self.ledger.in_doubt()).items]
            return "asks", count
        assert self.told[-1][0] == "returned"
        assert count == 1
        return ("sent again" if found.attempt > 1 else "adopted"), count


@pytest.mark.parametrize("known", KNOWN)
async def test_one_refund(tmp_path: Path, known: str) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4 * len(FATES)))
    with FakeProvider() as bank:
        payment = Payment(
            store=str(tmp_path / "ledger.db"),
            bank=bank.url,
            lease_ms=LEASE_MS,
            wait_ms=WAIT_MS,
            **KNOWN[known],
        )
        async with payment.ledger() as ledger:
            pay = payment.guard(ledger)
            cells = {
                f"order-{n}": (Cell(bank, ledger, pay, payment), fate)
                for n, fate in enumerate(FATES.values())
            }
            done = await asyncio.gather(
                *(cell.play(order, fate) for order, (cell, fate) in cells.items())
            )
    found = dict(zip(FATES, done, strict=True))
    _matrix[known] = found
    wrong = {fate: cell for fate, cell in found.items() if cell[0] not in EXPECTED[known][fate]}
    assert wrong == {}
    for fate, (did, count) in found.items():  # exactly one, or not yet known to anybody
        sends = FATES[fate].applied or FATES[fate].by == "stop" or did == "sent again"
        assert count == int(sends), fate
