"""What may befall the processes that work on one act, one after the other, and what must hold then.

A history is played on a fresh store; the bank counts. After every process, and at the end, what
the ledger says is held against what the bank knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

from tests.crash.bank import ORDER, Bank, receipt
from tests.crash.processes import LEASE, Case, Process, fate_of

from indoubt import (
    AllowOneAttempt,
    DidNotHappen,
    EffectContext,
    Happened,
    IndoubtError,
    Ledger,
    OutcomeUnknown,
    RecordView,
    TooEarly,
)
from indoubt.recovery.decisions import Decision
from indoubt.store import BlockingStore, Store
from indoubt.stores.memory import MemoryStore
from indoubt.stores.sqlite import SQLiteStore
from indoubt.testing import Blow, Crash, Fate, ManualClock

LONG = timedelta(hours=1)
A_SECOND = timedelta(seconds=1)
MENDING = 20

Deed = Literal["call", "block", "recover", "permit"]
Death = Literal["proven", "lapsed"]
Opener = Callable[[ManualClock], Store]


class Sequel(NamedTuple):
    """What follows a first crash: how deaths become known, and what the next two processes do."""

    death: Death
    second: Deed
    third: Deed


class Life(NamedTuple):
    """One process: what it does, and what hits it."""

    deed: Deed = "call"
    blows: tuple[Blow, ...] = ()


class History(NamedTuple):
    """Lives one after the other; how their deaths become known; whether a request lands late."""

    lives: tuple[Life, ...]
    death: Death = "proven"
    late: bool = False
    step: timedelta = timedelta(0)
    """How far the store's wall clock is set after each life."""


@dataclass
class World:
    """One play: a case, a clock, a bank, a store."""

    case: Case
    opener: Opener
    late: bool = False
    name: str = "pay"
    stepped: bool = False
    clock: ManualClock = field(default_factory=ManualClock)
    permissions: int = 0
    processes: list[Process] = field(default_factory=list[Process])
    opened: list[Store] = field(default_factory=list[Store])

    def __post_init__(self) -> None:
        self.bank = Bank(self.clock, honours_keys=not self.case.once)
        self.view = self.open()

    @property
    def calls(self) -> list[list[str]]:
        """The outside calls of each process so far."""
        return [process.fate.calls for process in self.processes]

    def open(self) -> Store:
        """The store, as one more process opens it."""
        store = self.opener(self.clock)
        self.opened.append(store)
        return store

    def process(self, fate: Fate) -> Process:
        """One more process."""
        # Where a clock is set, nobody can know when a permit really ended: only that nothing
        # leaves a dead process.
        lingers = not self.stepped
        made = Process(
            self.case,
            self.bank,
            self.open(),
            fate,
            late=self.late,
            lingers=lingers,
            witness=self.saw_mark,
        )
        self.processes.append(made)
        return made

    async def close(self) -> None:
        """The end of the play."""
        for process in self.processes:
            process.freeze()
            process.free_locks()
        for store in self.opened:
            if not isinstance(store, MemoryStore):
                await store.close()

    def saw_mark(self, effect: EffectContext) -> None:
        """O5: no dispatch without a durable mark."""
        assert isinstance(self.view, BlockingStore)
        seen = self.view.read_blocking([effect.record_id])
        assert [(row.state, row.attempt, row.fence) for row in seen.records] == [
            ("dispatched", effect.attempt, effect.fence)
        ], "sent without a mark"

    # -- what processes do -------------------------------------------------------------------

    async def live(self, process: Process, deed: Deed) -> None:
        """One deed of one process; whatever a caller is told must be true."""
        if deed == "recover":
            recovery = await process.ledger.recover(wait=LONG)
            assert recovery.errors == ()
            return
        if deed == "permit":
            await self.permit(process)
        try:
            told = process.pay_blocking(ORDER) if deed == "block" else await process.pay(ORDER)
        except IndoubtError:
            return
        assert told == receipt(self.bank.effects[0]), "a caller was told of what did not happen"

    async def end(self, process: Process, death: Death) -> None:
        """It is gone: its lock is free, or merely its lease over."""
        process.freeze()
        if death == "proven":
            process.free_locks()
        else:
            self.clock.advance(LEASE + A_SECOND)

    async def permit(self, process: Process) -> None:
        """A person allows one more attempt, whatever happened."""
        for item in (await process.ledger.in_doubt()).items:
            if "allow_one_attempt" in [choice.decision for choice in item.choices]:
                self.permissions += 1
                await self.decide(process, item, AllowOneAttempt())

    async def decide(
        self, process: Process, ref: RecordView | OutcomeUnknown, decision: Decision
    ) -> None:
        """A person decides, as early as it may be."""
        try:
            await process.ledger.decide(ref, decision, actor="ana", reason="looked it up")
        except TooEarly as early:
            store_s = (await self.view.read(())).now_ms / 1000
            until_s = early.until.timestamp() if early.until else store_s
            self.clock.sleep(max(0.0, until_s - store_s))
            await process.ledger.decide(ref, decision, actor="ana", reason="looked it up")

    # -- the oracle --------------------------------------------------------------------------

    async def check(self) -> None:
        """What the ledger says now is true, and what it does not know it shows."""
        reader = Ledger(self.view, lease=LEASE, allow_ledger_loss=True, clock=self.clock)
        found = await reader.find(self.name, ORDER)
        sent = self.bank.count() + self.bank.under_way()
        if found is None:
            assert not sent, "nothing on record"
            return
        if self.case.once:
            assert sent <= 1 + self.permissions, "sent twice"
        self.compare(found, sent)
        shown = [item.record_id for item in (await reader.in_doubt()).items]
        at_rest = found.state in {"succeeded", "failed", "cancelled", "prepared"}
        assert at_rest or shown == [found.record_id], f"{found.state} and not listed"

    def compare(self, found: RecordView, sent: int) -> None:
        """No record says what is not so."""
        if found.state == "succeeded":
            assert self.bank.count(), "succeeded without effect"
        denied = found.state in {"failed", "cancelled"} and found.effect == "none"
        if denied or found.state == "prepared":
            assert not sent, f"{found.state} with effect"
        assert found.contradicted is None or self.permissions, "contradicted"

    async def mend(self, *, proven: bool = True) -> None:
        """A last process, to which nothing happens: nothing is stuck for ever."""
        process = self.process(fate_of(clock=self.clock))
        pay = process.pay_blocking.aio if self.name == "pay_blocking" else process.pay
        persons = 0
        for _ in range(MENDING):
            try:
                told = await pay(ORDER)
                break
            except OutcomeUnknown as unknown:
                persons += unknown.next == "ask_person"
                await self.answer(process, unknown)
        else:
            raise AssertionError(f"stuck: {await process.ledger.find(self.name, ORDER)}")
        assert told == receipt(self.bank.effects[0])
        await self.check()
        if self.case.once and not self.permissions:
            assert not self.bank.under_way(), "settled while a request is under way"
        self.bank.land_all()
        assert 1 <= self.bank.count() <= 1 + self.permissions, "not exactly once"
        if self.case.needs_nobody and proven and not self.permissions and not self.stepped:
            assert persons == 0, "a person was asked for nothing"
        assert (await process.ledger.in_doubt()).items == ()

    async def answer(self, process: Process, unknown: OutcomeUnknown) -> None:
        """A person looks at the bank and says what is true; a program waits as it is told."""
        if unknown.next == "ask_person":
            self.bank.land_all()
            happened = Happened(receipt(self.bank.effects[0])) if self.bank.count() else None
            await self.decide(process, unknown, happened or DidNotHappen())
        elif unknown.retry_after is not None:
            self.clock.advance(unknown.retry_after)


async def check_history(case: Case, history: History, opener: Opener) -> World:
    """Play one history to its end; a failure tells which."""
    blocks = any(life.deed == "block" for life in history.lives)
    world = World(
        case,
        opener,
        late=history.late,
        name="pay_blocking" if blocks else "pay",
        stepped=bool(history.step),
    )
    try:
        for life in history.lives:
            process = world.process(fate_of(*life.blows, clock=world.clock))
            try:
                await world.live(process, life.deed)
            except Crash:
                assert process.fate.dead
            await world.end(process, history.death)
            world.clock.step(history.step)
            await world.check()
        await world.mend(proven=history.death == "proven")
    except BaseException as error:
        error.add_note(f"{case}\n{history}\n{world.calls}")
        raise
    finally:
        await world.close()
    return world


# -- enumerating -----------------------------------------------------------------------------------


def sides(calls: list[str]) -> Iterator[tuple[Blow, bool]]:
    """A crash before and after every call, and whether a request may be under way after it."""
    for at, name in enumerate(calls, 1):
        yield Blow(at, "before"), name == "send"
        yield Blow(at, "after"), False


def lates(*under_way: bool) -> tuple[bool, ...]:
    """A request that was under way never lands, or lands late; else there is no difference."""
    return (False, True) if any(under_way) else (False,)


async def play_pairs(case: Case, opener: Opener, sequels: Sequence[Sequel]) -> int:
    """A first call crashes at each point, what comes second at each of its own; then a third."""
    plays = 1
    whole = await check_history(case, History((Life(),)), opener)
    for (one, flying), (death, second, third) in product(sides(whole.calls[0]), sequels):
        for late in lates(flying):
            lives = (Life("call", (one,)), Life(second))
            single = await check_history(case, History(lives, death, late), opener)
            plays += 1
            for two, also in sides(single.calls[1]):
                lives = (Life("call", (one,)), Life(second, (two,)), Life(third))
                for again in (True,) if late else lates(also):
                    await check_history(case, History(lives, death, again), opener)
                    plays += 1
    return plays


def in_memory() -> Opener:
    """One memory store for all processes of a play."""
    stores: list[tuple[ManualClock, MemoryStore]] = []

    def opener(clock: ManualClock) -> Store:
        if not stores or stores[-1][0] is not clock:
            stores[:] = [(clock, MemoryStore(clock=clock))]
        return stores[-1][1]

    return opener


def on_sqlite(folder: Path) -> Opener:
    """One file for all processes of a play; each opens it for itself."""
    clocks: list[ManualClock] = []

    def opener(clock: ManualClock) -> Store:
        if not clocks or clocks[-1] is not clock:
            clocks.append(clock)
        return SQLiteStore(folder / f"{len(clocks)}.db", clock=clock)

    return opener
