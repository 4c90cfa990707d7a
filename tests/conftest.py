"""A small world for tests of guarded effects: one clock, one store, one bank, several processes.

The bank is the truth: what it counts has happened. Its processes are ledgers on the same store,
each with an owner of its own, and each can be killed. Time passes when a test says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from indoubt import (
    BaseCapabilityProvider,
    DoubtfulAttempt,
    ExecutionSafetyClass,
    Ledger,
    ProviderProbeResult,
    ProviderProbeStatus,
    RecordView,
)
from indoubt.core.codec import event as decode_event
from indoubt.store import ScanQuery, Store
from indoubt.stores import open_store
from indoubt.stores.memory import MemoryStore
from indoubt.stores.sqlite import SQLiteStore
from indoubt.testing.clock import ManualClock, SteppedHeartbeat, step_renewals

SETTLE = timedelta(seconds=5)
LEASE = timedelta(seconds=30)
ABSENCE: dict[str, Any] = {"settle_time": SETTLE, "not_found_is_authoritative": True}


def first(one: Any, *_: Any, **__: Any) -> Any:
    """A key function: the first argument names the act."""
    return one


class Crash(BaseException):
    """The process is gone: nothing below it may catch this."""


class Declined(Exception):
    """The bank said no, so nothing moved."""


class Bank:
    """What really happened, and how the next calls behave.

    Attributes:
        acts: every payment that happened, as (order, cents, idempotency key).
        next: what the next calls do, first one first: ``lost`` (pays, the answer is lost),
            ``dropped`` (nothing happens, no answer), ``declined``, ``crash_before``,
            ``crash_after``, ``late`` (no answer; happens at `land`), or a function to call
            instead. Empty: it pays.
        says: what look-ups answer: ``truth``, a probe status, ``raise``, ``nothing`` (None) or
            ``foreign`` (another execution's).
        asked: every attempt that a probe was asked about.
    """

    def __init__(self) -> None:
        self.acts: list[tuple[str, int, str | None]] = []
        self.next: list[Any] = []
        self.says = "truth"
        self.asked: list[DoubtfulAttempt] = []
        self.calls = 0
        self._late: list[tuple[str, int, str | None]] = []

    def pay(self, order: str, cents: int = 1, key: str | None = None) -> dict[str, Any]:
        self.calls += 1
        how: Any = self.next.pop(0) if self.next else "ok"
        if callable(how):
            return cast("dict[str, Any]", how())
        if how == "crash_before":
            raise Crash
        if how == "declined":
            raise Declined("insufficient funds")
        if how == "late":
            self._late.append((order, cents, key))
            raise TimeoutError("no answer")
        if how != "dropped":
            self.acts.append((order, cents, key))
        if how == "crash_after":
            raise Crash
        if how != "ok":
            raise ConnectionResetError("no answer")
        return {"id": f"pay_{len(self.acts)}", "cents": cents}

    def land(self) -> None:
        """What was under way arrives."""
        self.acts += self._late
        self._late.clear()

    def count(self, order: str) -> int:
        return sum(one[0] == order for one in self.acts)

    def status(self, order: str | None) -> str:
        if self.says != "truth":
            return self.says
        return "succeeded" if any(one[0] == order for one in self.acts) else "not_found"

    def probe(self, attempt: DoubtfulAttempt) -> ProviderProbeResult:
        """A probe function: looks the act up by its key."""
        self.asked.append(attempt)
        says = self.status(attempt.key)
        if says == "raise":
            raise ConnectionRefusedError("the bank is closed")
        if says == "nothing":
            return None  # type: ignore[return-value]
        if says == "foreign":
            return ProviderProbeResult(ProviderProbeStatus.NOT_FOUND, "rec_other.1")
        if says == "succeeded":
            number = [one[0] for one in self.acts].index(attempt.key or "") + 1
            return attempt.succeeded({"id": f"pay_{number}"}, f"ref_{number}")
        if says == "failed":
            return attempt.failed({"code": "declined"})
        return getattr(attempt, says)()

    async def probe_async(self, attempt: DoubtfulAttempt) -> ProviderProbeResult:
        await asyncio.sleep(0)
        return self.probe(attempt)


class Provider(BaseCapabilityProvider):
    """A provider that answers by execution id from a script; what is missing is not found."""

    supports_status_query = True  # type: ignore[assignment]
    supports_reattach = False  # type: ignore[assignment]
    supports_resume = False  # type: ignore[assignment]
    supports_cancel_after_restart = False  # type: ignore[assignment]
    execution_safety_class = ExecutionSafetyClass.NON_IDEMPOTENT  # type: ignore[assignment]

    def __init__(self, **declared: Any) -> None:
        for name, value in declared.items():
            setattr(self, name, value)
        self.answers: dict[int, Mapping[str, Any]] = {}
        self.asked: list[tuple[int, str | None]] = []

    async def probe_execution(
        self, execution_id: str, external_ref: str | None
    ) -> ProviderProbeResult:
        attempt = int(execution_id.rpartition(".")[2])
        self.asked.append((attempt, external_ref))
        answer: dict[str, Any] = {"status": "not_found", **self.answers.get(attempt, {})}
        return ProviderProbeResult(execution_id=execution_id, **answer)


class World:
    """One store under one clock, and whoever works on it."""

    def __init__(self, path: Path | None = None, *, url: str | None = None) -> None:
        """On a SQLite file, on a server (whose time nobody steers), or in memory."""
        self.clock = ManualClock()
        self.bank = Bank()
        self._path = path
        self._url = url
        self._memory = MemoryStore(clock=self.clock)
        self._stores: list[Store] = []
        self._beats: dict[int, SteppedHeartbeat] = {}

    @property
    def store(self) -> Store:
        """The store, as a process of its own sees it."""
        if self._path is None and self._url is None:
            return self._memory
        store = (
            SQLiteStore(self._path, clock=self.clock)
            if self._path is not None
            else open_store(str(self._url))
        )
        self._stores.append(store)
        return store

    def process(self, **options: Any) -> Ledger:
        """A process that works on the store, with renewals that follow the clock."""
        given: dict[str, Any] = {"lease": LEASE, "allow_ledger_loss": True, "clock": self.clock}
        ledger = Ledger(self.store, **(given | options))
        self._beats[id(ledger)] = step_renewals(ledger, self.clock)
        return ledger

    def kill(self, ledger: Ledger, *, proven: bool = True) -> None:
        """The process is gone: it renews nothing; ``proven``: its lock is free, too."""
        self.clock.remove(self._beats[id(ledger)])
        engine = ledger.open().engine
        owner = engine.owner.current()
        if not proven:
            return
        if isinstance(engine.store, MemoryStore):
            engine.store.owners.declare_dead(owner)
        elif isinstance(engine.store, SQLiteStore):
            engine.store.release_owner(owner)

    def payer(self, ledger: Ledger, **policy: Any) -> Any:
        """``pay(order, cents)`` of the bank, guarded as one keyed act."""
        bank = self.bank
        given: dict[str, Any] = {"name": "pay", "safety": "non_idempotent", "key": first}
        given |= {"clean_failures": (Declined,)}

        @ledger.effect(**(given | policy))
        async def pay(order: str, cents: int = 1, *, effect: Any) -> Any:
            await asyncio.sleep(0)
            return bank.pay(order, cents, effect.idempotency_key)

        return pay

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    async def records(self) -> list[Any]:
        """Everything in the store."""
        store = self.store
        found: list[Any] = []
        after: str | None = None
        while True:
            page = await store.scan(ScanQuery(after=after, limit=1000))
            found += page.records
            if (after := page.cursor) is None:
                return found

    async def check(self) -> None:
        """Every journal is gap-free with one event a write, and no fence ever falls."""
        store = self.store
        for row in await self.records():
            events = await store.journal(row.id, after=0, limit=1000)
            assert [one.sequence for one in events] == list(range(1, row.version + 1))
            fences = [decode_event(one.body).fence for one in events]
            assert fences == sorted(fences)

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


async def only(ledger: Ledger) -> RecordView:
    """The one item of the inbox."""
    box = await ledger.in_doubt()
    assert len(box.items) == 1
    return box.items[0]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A world in memory."""
    made = World()
    yield made
    await made.check()


@pytest.fixture(params=["memory", "sqlite"])
async def any_world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A world in memory, and one on a SQLite file."""
    made = World(tmp_path / "ledger.db" if request.param == "sqlite" else None)
    yield made
    await made.check()
    await made.close()
