"""A call that waits for a person goes on when the person has answered, without looking for it.

Here time is the machine's, and a look in passing comes after an hour: what ends the call is the
announcement, or nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import World, first

import indoubt.guard.call
from indoubt import DidNotHappen, GiveUp, Happened, Ledger, OutcomeUnknown, RecordView
from indoubt.engine.clock import SystemClock
from indoubt.engine.requests import Wait
from indoubt.engine.waiting import wait
from indoubt.errors import StoreUnavailable
from indoubt.store import Batch, Store
from indoubt.stores.memory import MemoryStore
from indoubt.stores.sqlite import SQLiteStore

BY = {"actor": "ana", "reason": "seen"}
HOUR = timedelta(hours=1)
SOON_S = 20.0


class Listened(MemoryStore):
    """A store that says who waits for what, and what was announced."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.awaited: asyncio.Queue[tuple[str, ...]] = asyncio.Queue()
        self.announced: list[tuple[str, ...]] = []
        self.reads = 0

    def read_blocking(self, ids: Sequence[str]) -> Any:
        self.reads += 1
        return super().read_blocking(ids)

    def write_blocking(self, batches: Sequence[Batch]) -> Any:
        self.announced += [batch.wakes for batch in batches]
        return super().write_blocking(batches)

    async def wait(self, topics: Sequence[str], *, timeout: float) -> None:
        self.awaited.put_nowait(tuple(topics))
        await super().wait(topics, timeout=timeout)


class Deaf(Listened):
    """A store whose announcements never come."""

    async def wait(self, topics: Sequence[str], *, timeout: float) -> None:
        raise StoreUnavailable(f"nobody is called: {topics}, {timeout}")


class Naps(SystemClock):
    """The machine's clock, and every sleep on it."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep_async(self, seconds: float) -> None:
        self.slept.append(seconds)
        await super().sleep_async(seconds)


@pytest.fixture(autouse=True)
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indoubt.guard.call, "DECISION_POLL_S", 3600.0)


@pytest.fixture(params=["memory", "sqlite"])
async def processes(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Callable[[], Ledger]]:
    """Ledgers on one store: on one file, each with a store of its own."""
    shared, opened = MemoryStore(), list[Ledger]()

    def process() -> Ledger:
        file = request.param == "sqlite"
        store: Store = SQLiteStore(tmp_path / "ledger.db") if file else shared
        opened.append(Ledger(store, allow_ledger_loss=True))
        return opened[-1]

    yield process
    for ledger in opened:
        await ledger.close()


def payer(ledger: Ledger, *, plain: bool = False) -> Any:
    """Its request is lost, always."""
    how: dict[str, Any] = {"name": "pay", "safety": "non_idempotent", "key": first}
    if plain:

        @ledger.effect(**how)
        def pay(_order: str) -> None:
            raise ConnectionResetError("no answer")

        return pay.using(wait_for_decision=HOUR)

    @ledger.effect(**how)
    async def paid(_order: str) -> None:
        raise ConnectionResetError("no answer")

    return paid.using(wait_for_decision=HOUR)


async def question(ledger: Ledger) -> RecordView:
    while True:
        for item in (await ledger.in_doubt()).items:
            if item.state == "awaiting_decision":
                return item
        await asyncio.sleep(0)


async def again(ledger: Ledger, topic: str, running: asyncio.Future[Any]) -> None:
    """Go on until it has ended: what came before somebody listened is not heard."""

    @ledger.effect(name="other", safety="pure", key=first)
    async def other(_n: str) -> None:
        await asyncio.sleep(0)

    for n in range(100_000):
        if (await asyncio.wait({running}, timeout=0.05))[0]:
            return
        await other(str(n))  # another process's write to the file says that there is news
        await ledger.open().store.write([Batch(f"again {n}", wakes=(topic,))])


@pytest.mark.parametrize("plain", [False, True], ids=["coroutine", "thread"])
async def test_u12_a_waiting_call_is_woken_by_the_decision(
    processes: Callable[[], Ledger], *, plain: bool
) -> None:
    ledger, other = processes(), processes()
    call = payer(ledger, plain=plain)
    running = asyncio.ensure_future(asyncio.to_thread(call, "o7") if plain else call("o7"))
    async with asyncio.timeout(SOON_S):
        item = await question(other)
        await other.decide(item.ref, Happened({"id": "seen"}), **BY)
        await again(other, item.record_id, running)
        assert await running == {"id": "seen"}


@pytest.mark.parametrize("decision", [Happened(None), DidNotHappen(), GiveUp()])
async def test_u12_what_ends_the_question_is_announced_and_nothing_else(decision: Any) -> None:
    store = Listened()
    ledger = Ledger(store, allow_ledger_loss=True)
    running = asyncio.ensure_future(payer(ledger)("o7"))
    async with asyncio.timeout(SOON_S):
        topics = await store.awaited.get()
        item = await question(ledger)
        assert (topics, set(store.announced)) == ((item.record_id,), {()})
        await ledger.decide(item.ref, decision, **BY)
        running.cancel()
        await asyncio.wait({running})
    assert store.announced.count(topics) == 1
    assert set(store.announced) == {(), topics}


async def test_u12_a_waiting_call_that_is_woken_for_nothing_reads_ever_less() -> None:
    store, clock = Listened(), Naps()
    ledger = Ledger(store, allow_ledger_loss=True, clock=clock)
    running = asyncio.ensure_future(payer(ledger)("o7"))
    async with asyncio.timeout(SOON_S):
        (topic,) = await store.awaited.get()
        item = await question(ledger)
        before = store.reads
        for _ in range(4):
            await store.write([Batch("w", wakes=(topic,))])
            await store.awaited.get()
        assert store.reads - before == 4
        assert [nap for nap in clock.slept if nap < 1] == [0.01, 0.02, 0.05]
        await ledger.decide(item.ref, GiveUp(), **BY)
        with pytest.raises(OutcomeUnknown):
            await running


async def test_u12_a_store_that_calls_nobody_is_looked_at_each_second(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indoubt.guard.call, "DECISION_POLL_S", 1.0)
    store = Deaf(clock=world.clock)
    ledger = Ledger(store, allow_ledger_loss=True, clock=world.clock)
    with pytest.raises(OutcomeUnknown):
        await payer(ledger).using(wait_for_decision=timedelta(seconds=60))("o7")
    assert 45 < store.reads < 75
    running = asyncio.ensure_future(payer(ledger)("o7"))
    async with asyncio.timeout(SOON_S):
        item = await question(ledger)
        began = world.clock.now()
        await ledger.decide(item.ref, Happened({"id": "seen"}), **BY)
        assert await running == {"id": "seen"}
    assert world.clock.now() - began < 10


@pytest.mark.parametrize("store", [Deaf(), MemoryStore()], ids=["deaf", "silent"])
async def test_u12_who_is_not_woken_sleeps_its_time(store: Store) -> None:
    over = asyncio.Event()

    class Nap(SystemClock):
        async def sleep_async(self, seconds: float) -> None:
            assert seconds == 600
            await over.wait()

    waiting = asyncio.ensure_future(wait(Wait(("t",), 600), store, Nap()))
    assert not (await asyncio.wait({waiting}, timeout=0.02))[0]
    over.set()
    async with asyncio.timeout(SOON_S):
        await waiting


async def test_u12_a_cancelled_call_waits_no_longer() -> None:
    store = Listened()
    ledger = Ledger(store, allow_ledger_loss=True)
    running = asyncio.ensure_future(payer(ledger)("o7"))
    async with asyncio.timeout(SOON_S):
        await store.awaited.get()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert len(asyncio.all_tasks()) <= 2  # this test's, and what the cancelled call left
        assert (await question(ledger)).state == "awaiting_decision"
