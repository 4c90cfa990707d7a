"""S16: COMMIT failed; did it commit? Here on SQLite: the disk fails at the completion's COMMIT."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import apsw
import pytest
from tests.contract.conftest import FaultyDisk, full, sync_error
from tests.scenarios.performing import SCRIPT, Payment, told_by

from indoubt import Ledger, StoreUnavailable
from indoubt.errors import AnswerLost
from indoubt.store import Batch
from indoubt.stores.sqlite import SQLiteStore
from indoubt.testing import Blow, Crash, CrashStore, FakeProvider, Fate, ManualClock, Worker
from indoubt.testing.provider import act_async

FAULTS: dict[str, tuple[str, Callable[[], Exception]]] = {
    "(i) the disk is full": ("xWrite -wal", full),
    "(i) it is not synced": ("xSync -wal", sync_error),
    "(ii) committed": ("COMMIT", sync_error),
}


class Answerless:
    """Stands before the write connection: the next COMMIT does its work, and then fails."""

    def __init__(self, store: SQLiteStore) -> None:
        self._engine: Any = store._engine
        self._db: Any = self._engine._db
        self._engine._db = self

    def execute(self, sql: str, values: object = None) -> Any:
        rows = self._db.execute(sql, values)
        if sql == "COMMIT":
            rows.fetchall()
            raise sync_error()
        return rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


class Watched(CrashStore):
    """Keeps the completions that were handed in, and what the store answered."""

    def __init__(self, inner: Any, fate: Fate) -> None:
        super().__init__(inner, fate)
        self.handed_in: list[Batch] = []
        self.answers: list[object] = []

    async def write(self, batches: Sequence[Batch]) -> Any:
        completing = any(put.state == "succeeded" for batch in batches for put in batch.puts)
        if completing:
            self.handed_in += batches
        answers = await super().write(batches)
        if completing:
            self.answers += answers
        return answers


class Host:
    """A worker on a disk that fails once, at the first COMMIT after the provider has paid."""

    def __init__(self, payment: Payment, disk: FaultyDisk, fate: Fate | None = None) -> None:
        self.clock = ManualClock()
        self.inner = SQLiteStore(payment.store, vfs=disk.name, clock=self.clock, patience_ms=5)
        self.store = Watched(self.inner, fate or Fate())
        self.ledger: Ledger = payment.ledger(self.store, self.clock)
        self.disk = disk
        self.fails: Callable[[], None] = lambda: None
        self.pay = payment.guard(self.ledger, send=self.send)

    async def send(self, **request: Any) -> Any:
        answer = await act_async(**request)
        self.fails()
        return answer

    def fail(self, fault: str) -> None:
        """Fail once; then the disk is good again."""
        call, error = FAULTS[fault]
        if call == "COMMIT":
            Answerless(self.inner)
            return

        def once(what: str, file: str, _count: int) -> Exception | None:
            if f"{what} {file}" != call:
                return None
            self.disk.mend()
            return error()

        self.disk.fault = once


@pytest.fixture
def disk() -> FaultyDisk:
    """The disk below the worker's store."""
    return FaultyDisk()


@pytest.fixture
async def host(payment: Payment, disk: FaultyDisk) -> AsyncIterator[Host]:
    """A worker that lives."""
    host = Host(payment, disk)
    yield host
    await host.ledger.close()


@pytest.mark.parametrize("fault", FAULTS)
async def test_the_completion_is_written_again(
    bank: FakeProvider, host: Host, order: str, fault: str
) -> None:
    """The repeat is recognisable as the same write.

    The write is retried with the same fence and write id and ends COMPLETED in both; exactly one
    completion event; the handler is not called again.
    """
    host.fails = lambda: host.fail(fault)
    assert (await told_by(host.pay, order))[0] == "returned"
    assert [type(answer) is AnswerLost for answer in host.store.answers] == [True, False]
    first, again = host.store.handed_in
    assert (first.write_id, first.puts[0].fence) == (again.write_id, again.puts[0].fence)
    found = await host.ledger.find("pay", order)
    assert found is not None
    assert found.state == "succeeded"
    states = [entry.state for entry in await host.ledger.journal(found.record_id)]
    assert states == ["dispatched", "succeeded"]
    assert bank.count(order) == 1
    assert sum(one["key"] == order for one in bank.log()) == 1


@pytest.mark.parametrize("fault", FAULTS)
async def test_then_the_worker_dies(
    bank: FakeProvider, payment: Payment, disk: FaultyDisk, order: str, fault: str
) -> None:
    """If the worker died, (ii) is found complete and (i) goes the normal uncertain path."""
    dying = Host(payment, disk, Fate(Blow(at=2, name="write succeeded", how="before")))
    dying.fails = lambda: dying.fail(fault)
    with pytest.raises(Crash):
        await dying.pay(order)
    dying.store.declare_owners_dead()
    await dying.store.close()
    async with payment.ledger() as ledger:
        told = await told_by(payment.guard(ledger), order)
        in_doubt = [item.key for item in (await ledger.in_doubt()).items]
    if fault == "(ii) committed":
        assert (told[0], in_doubt) == ("returned", [])
    else:
        assert (told, in_doubt) == (["raised", "OutcomeUnknown", "ask_person"], [order])
    assert bank.count(order) == 1


@pytest.mark.parametrize("cut", ["F4", "F5"])
async def test_killed_around_the_commit(
    bank: FakeProvider, payment: Payment, order: str, cut: Literal["F4", "F5"]
) -> None:
    """If the worker died, (ii) is found complete and (i) goes the normal uncertain path."""

    def die() -> None:
        with Worker(SCRIPT, payment.text(), cut=cut) as worker:
            worker.say(order)
            worker.wait_cut()

    await asyncio.to_thread(die)
    async with payment.ledger() as ledger:
        told = await told_by(payment.guard(ledger), order)
    assert told[0] == ("returned" if cut == "F5" else "raised")
    assert bank.count(order) == 1


async def test_an_error_before_commit_is_certain(
    bank: FakeProvider, payment: Payment, disk: FaultyDisk, order: str
) -> None:
    """Errors before COMMIT are never reported as "unknown commit"."""
    host = Host(replace(payment, lease_ms=10_000), disk)
    other: Any = apsw.Connection(payment.store)
    host.fails = lambda: other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable) as caught:
        await host.pay(order)
    assert {type(answer) for answer in host.store.answers} == {StoreUnavailable}
    assert type(caught.value) is StoreUnavailable
    other.execute("ROLLBACK")
    other.close()
    assert (await told_by(host.pay, order))[1] in {"OutcomeUnknown", "EffectBusy"}
    assert bank.count(order) == 1
    await host.ledger.close()
