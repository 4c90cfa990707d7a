"""S17, a retryable database conflict is no outcome: guarded calls on SQLite.

Each of the ledger's own statements fails once, for every statement; a real lock is held for as
long as it takes. The act is done once, and no store error is ever its recorded result.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.conftest import World

from indoubt import AnswerLost, Contended, Ledger, StoreUnavailable
from indoubt.errors import StoreError
from indoubt.stores.sqlite import SQLiteStore

ERRORS = [StoreUnavailable, AnswerLost, Contended]
REASONS = ["BUSY", "LOCKED", "BUSY_SNAPSHOT", "40001 serialization failure", "40P01 deadlock"]


class Failing:
    """A store whose k-th statement fails once; ``landed``: although it was carried out."""

    def __init__(self, store: Any, at: int, error: StoreError, *, landed: bool) -> None:
        self._store = store
        self._at = at
        self._error = error
        self._landed = landed
        self.statements = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _fails(self) -> bool:
        self.statements += 1
        return self.statements == self._at

    async def read(self, ids: Sequence[str]) -> Any:
        if self._fails():
            raise self._error
        return await self._store.read(ids)

    async def write(self, batches: Sequence[Any]) -> Any:
        if not self._fails():
            return await self._store.write(batches)
        if self._landed:
            await self._store.write(batches)
        return [self._error for _ in batches]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "ledger.db")


def failing(
    world: World, at: int, error: StoreError, *, landed: bool = False
) -> tuple[Ledger, Failing]:
    """A process whose store fails at one statement."""
    store = Failing(world.store, at, error, landed=landed)
    return Ledger(store, clock=world.clock), store  # type: ignore[arg-type]


async def statements(world: World, how: list[str]) -> int:
    """How many statements the call takes when none fails."""
    ledger, store = failing(world, 0, StoreUnavailable("never"))
    world.bank.next = how.copy()
    await world.payer(ledger, probe=world.bank.probe)("order-0")
    return store.statements


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("how", [[], ["lost"]], ids=["plain", "doubted"])
async def test_s17_each_statement_fails_once(
    world: World, kind: type[StoreError], how: list[str], *, landed: bool
) -> None:
    many = await statements(world, how)
    assert many >= 2
    for at in range(1, many + 1):
        order = f"order-{at}"
        error = kind(f"{REASONS[at % len(REASONS)]}: call again")
        ledger, store = failing(world, at, error, landed=landed)
        pay = world.payer(ledger, probe=world.bank.probe)
        world.bank.next = how.copy()
        calls = world.bank.calls
        receipt = await pay(order)  # the caller is told nothing of it
        assert store.statements > at
        assert world.bank.calls == calls + 1  # never inside a retried transaction
        record = await ledger.find("pay", order)
        assert record is not None
        assert (record.state, record.receipt, record.error) == ("succeeded", receipt, None)
        assert world.bank.count(order) == 1
        assert "BUSY" not in str(record.to_dict())
        assert (await ledger.in_doubt()).items == ()
    await world.check()
    await world.close()


async def test_s17_the_retry_is_bounded_and_nothing_was_sent(world: World) -> None:
    ledger = world.process()
    store: Any = ledger.open().store

    async def unavailable(batches: Sequence[Any]) -> Any:
        return [StoreUnavailable("BUSY: call again") for _ in batches]

    write, store.write = store.write, unavailable
    pay = world.payer(ledger)
    before = world.clock.now()
    with pytest.raises(StoreUnavailable):
        await pay("order-7")
    assert 5 <= world.clock.now() - before <= 30
    assert world.bank.calls == 0
    store.write = write
    assert (await pay("order-7"))["id"] == "pay_1"
    await world.close()


async def test_s17_exhaustion_after_the_effect_leaves_it_recoverable(world: World) -> None:
    ledger = world.process()
    store: Any = ledger.open().store
    write = store.write

    async def dies(batches: Sequence[Any]) -> Any:
        if world.bank.calls:
            return [StoreUnavailable("BUSY: call again") for _ in batches]
        return await write(batches)

    store.write = dies
    pay = world.payer(ledger, probe=world.bank.probe)
    with pytest.raises(StoreUnavailable) as caught:
        await pay("order-7")
    assert "in doubt" in "".join(caught.value.__notes__)
    store.write = write
    world.pass_time(60)
    recovery = await ledger.recover()
    assert [view.receipt for view in recovery.settled] == [{"id": "pay_1"}]
    assert world.bank.count("order-7") == 1
    await world.close()


# -- a real lock -----------------------------------------------------------------------------------


class Lock:
    """Another connection's write transaction on the file.

    Of the same library: the locks of two in one process do not see each other.
    """

    def __init__(self, path: Path) -> None:
        self._db: Any = apsw.Connection(str(path))

    def take(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def release(self) -> None:
        self._db.execute("ROLLBACK")

    def close(self) -> None:
        self._db.close()


async def test_s17_a_lock_that_is_held_too_long_is_a_store_problem(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    world = World(path)
    store = SQLiteStore(path, patience_ms=20)
    ledger = Ledger(store, clock=world.clock)
    pay = world.payer(ledger)
    lock = Lock(path)
    lock.take()
    with pytest.raises(StoreUnavailable, match="lock"):
        await pay("order-7")
    assert world.bank.calls == 0
    lock.release()
    assert (await pay("order-7"))["id"] == "pay_1"
    lock.close()
    await ledger.close()


async def test_s17_a_lock_during_the_effect_delays_its_record(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    world = World(path)
    ledger = Ledger(SQLiteStore(path, patience_ms=20), lease=timedelta(seconds=30))
    lock = Lock(path)

    def paying() -> Any:
        lock.take()  # the outcome cannot be committed while it is held
        world.bank.acts.append(("order-7", 1, None))
        return {"id": "pay_1"}

    world.bank.next = [paying]
    released: list[bool] = []
    engine = ledger.open().engine

    class Patience:
        """The engine's own clock, which lets go of the lock when the engine has waited."""

        now = staticmethod(engine.clock.now)
        sleep = staticmethod(engine.clock.sleep)

        @staticmethod
        async def sleep_async(seconds: float) -> None:
            if not released:
                released.append(True)
                lock.release()
            await engine.clock.sleep_async(seconds)

    ledger.open().driver._clock = Patience()  # pyright: ignore[reportPrivateUsage]
    assert await world.payer(ledger)("order-7") == {"id": "pay_1"}
    assert (released, world.bank.calls) == ([True], 1)
    lock.close()
    await ledger.close()
