"""A full, broken, locked or foreign file: what callers are told, and that nothing else is lost."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.contract.conftest import FaultyDisk, full, io_error, sync_error

from indoubt.errors import AnswerLost, StoreBroken, StoreUnavailable
from indoubt.store import Version, Written
from indoubt.stores.sqlite import SQLiteStore
from indoubt.stores.sqlite.connection import Place, use_wal
from indoubt.testing.store_contract import SteeredClock
from indoubt.testing.store_contract.examples import answered, batch, events, put, stored, written

FAULTS: dict[str, Callable[[], Exception]] = {
    "full": full,
    "write error": io_error,
    "sync error": sync_error,
}


async def check_whole(path: str, expected: dict[str, int]) -> None:
    """On a good disk the file is whole and holds these records at these versions."""
    db: Any = apsw.Connection(path)
    assert db.pragma("integrity_check") == "ok"
    db.close()
    store = SQLiteStore(path)
    found = (await store.read(list(expected))).records
    assert {record.id: record.version for record in found} == expected
    for name, version in expected.items():
        assert [n for n, _ in await events(store, name)] == list(range(1, version + 1))
    await store.close()


@pytest.mark.parametrize("fault", FAULTS)
async def test_wherever_the_disk_fails_the_answer_is_true_and_a_repeat_mends_it(
    store: SQLiteStore, disk: FaultyDisk, path: str, fault: str
) -> None:
    await written(store, put("before"))
    doubts = number = 0
    for number in itertools.count(1):
        name = f"r{number}"
        insert = batch(put(name))
        disk.fail_at(number, FAULTS[fault])
        answer = await answered(store, insert)
        reached = len(disk.calls) >= number
        disk.mend()
        if not reached:
            assert isinstance(answer, Written)
            break
        doubts += isinstance(answer, AnswerLost)
        assert isinstance(answer, AnswerLost | StoreBroken), answer
        assert path in str(answer)
        if not isinstance(answer, AnswerLost):
            assert (await store.read([name])).records == ()
        again = await written(store, insert)
        assert again.versions == (1,)
        assert [n for n, _ in await events(store, name)] == [1]
        assert (await stored(store, "before")).version == 1
    assert doubts > 0
    await store.close()
    await check_whole(path, {"before": 1} | {f"r{n}": 1 for n in range(1, number + 1)})


async def test_a_failed_commit_is_in_doubt_for_its_whole_group(
    store: SQLiteStore, disk: FaultyDisk
) -> None:
    await written(store, put("before"))
    group = [batch(put("x")), batch(put("before", expected=Version(1))), batch(put("before"))]
    disk.fail(sync_error, "xSync -wal")
    answers = await store.write(group)
    assert [type(answer) for answer in answers] == [AnswerLost] * 3
    assert all("repeat it by its id" in str(answer) for answer in answers)
    disk.mend()
    again = await store.write(group)
    assert [getattr(answer, "versions", None) for answer in again] == [(1,), (2,), None]


async def test_a_disk_that_stays_full_is_said_to_be_full(
    store: SQLiteStore, disk: FaultyDisk
) -> None:
    insert = batch(put())
    disk.fail(full, "xWrite -wal")
    first = await answered(store, insert)
    assert isinstance(first, AnswerLost)
    for _ in range(3):
        later = await answered(store, insert)
        assert isinstance(later, StoreBroken)
        assert "full" in str(later)
        assert isinstance(later.__cause__, apsw.FullError)
    disk.mend()
    assert (await written(store, insert)).versions == (1,)


async def test_what_is_too_big_for_the_disk_does_not_take_its_neighbours_along(
    store: SQLiteStore, disk: FaultyDisk
) -> None:
    big = b"x" * 8_000_000  # more than SQLite's cache: it is written before COMMIT
    most = 400
    disk.fault = lambda what, _file, count: full() if what == "xWrite" and count > most else None
    disk.calls.clear()
    group = [batch(put("a")), batch(put("big", body=big)), batch(put("b"))]
    answers = await store.write(group)
    kinds = [type(answer) for answer in answers]
    assert kinds[1] is StoreBroken
    disk.calls.clear()
    assert await store.write([group[0], group[2]])
    disk.mend()
    assert (await stored(store, "a")).version == 1
    assert (await stored(store, "b")).version == 1
    assert (await store.read(["big"])).records == ()


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (apsw.ReadOnlyError, StoreBroken, "read-only"),
        (apsw.CorruptError, StoreBroken, "corrupt"),
        (apsw.NotADBError, StoreBroken, "no SQLite database"),
        (apsw.CantOpenError, StoreBroken, "cannot be opened"),
        (apsw.PermissionsError, StoreBroken, "may not use"),
        (apsw.IOError, StoreBroken, "disk reported"),
        (apsw.NoMemError, StoreUnavailable, "NoMem"),
        (apsw.ProtocolError, StoreUnavailable, "Protocol"),
        (apsw.BusyError, StoreUnavailable, "lock"),
        (apsw.InterruptError, StoreUnavailable, "Interrupt"),
    ],
)
async def test_errors_before_commit_are_told_by_what_to_do_now(
    store: SQLiteStore, error: type[Exception], kind: type[Exception], words: str
) -> None:
    await written(store, put("before"))
    broken = Refusing(store, "INSERT", error)
    answers = await store.write([batch(put("x")), batch(put("y"))])
    assert [type(answer) for answer in answers] == [kind, kind]
    assert words in str(answers[0])
    broken.mend()
    assert (await written(store, put("x"))).versions == (1,)


class Refusing:
    """Stands before the write connection and raises at statements that begin so."""

    def __init__(self, store: SQLiteStore, starts: str, error: type[BaseException]) -> None:
        self._engine = store._engine
        self._db = self._engine._db
        self._starts = tuple(starts.split())
        self._error = error
        self._engine._db = self  # type: ignore[assignment]

    def execute(self, sql: str, values: object = None) -> object:
        if sql.startswith(self._starts):
            raise self._error("the test's refusal")
        return self._db.execute(sql, values)  # type: ignore[union-attr, arg-type]

    def __getattr__(self, name: str) -> object:
        return getattr(self._db, name)

    def mend(self) -> None:
        if self._engine._db is self:  # type: ignore[comparison-overlap]
            self._engine._db = self._db


@pytest.mark.parametrize("where", ["BEGIN", "INSERT", "UPDATE", "COMMIT"])
async def test_ctrl_c_inside_a_write_leaves_a_store_that_works(
    store: SQLiteStore, where: str
) -> None:
    await written(store, put("before"))
    insert = batch(put())
    Refusing(store, where, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        store.write_blocking([insert])
    assert (await written(store, insert)).versions == (1,)
    assert [n for n, _ in await events(store)] == [1]


async def test_a_connection_that_cannot_even_roll_back_is_replaced(store: SQLiteStore) -> None:
    await written(store, put("before"))
    Refusing(store, "INSERT ROLLBACK", apsw.IOError)
    assert isinstance(await answered(store, put()), StoreBroken)
    assert (await written(store, put())).versions == (1,)


class Unwilling:
    """A connection whose file is not in WAL mode yet, and busy for a while."""

    def __init__(self, busy: int, mode: str) -> None:
        self._busy = busy
        self._mode = mode

    def pragma(self, name: str) -> str:
        assert name == "journal_mode"
        return "delete"

    def execute(self, sql: str) -> Unwilling:
        assert sql == "PRAGMA journal_mode = WAL"
        self._busy -= 1
        if self._busy >= 0:
            raise apsw.BusyError
        return self

    def fetchall(self) -> list[tuple[str]]:
        return [(self._mode,)]


def test_switching_to_wal_waits_for_other_processes_and_needs_shared_memory() -> None:
    place = Place("x.db", patience_ms=2)

    def switch(busy: int, mode: str) -> None:
        use_wal(Unwilling(busy, mode), place)  # type: ignore[arg-type]

    switch(3, "wal")
    with pytest.raises(StoreBroken, match="shared memory"):
        switch(0, "delete")
    with pytest.raises(apsw.BusyError):
        switch(100, "wal")


async def test_a_failed_read_says_so_and_the_next_one_works(
    store: SQLiteStore, disk: FaultyDisk, path: str
) -> None:
    await written(store, put())
    disk.fail(io_error, "xOpen ")
    with pytest.raises(StoreBroken, match=path):
        await store.read(["a"])
    with pytest.raises(StoreBroken):
        store.read_blocking(["a"])
    disk.mend()
    assert (await stored(store)).version == 1


async def test_a_read_only_file_can_be_read_and_says_why_it_is_not_written(
    store: SQLiteStore, disk: FaultyDisk, path: str
) -> None:
    await written(store, put())
    disk.read_only = True
    guest = SQLiteStore(path, vfs=disk.name)
    assert (await stored(guest)).version == 1
    answers = await guest.write([batch(put("b")), batch(put("c"))])
    assert [type(answer) for answer in answers] == [StoreBroken] * 2
    assert "read-only" in str(answers[0])
    await guest.close()
    disk.read_only = False
    assert (await store.read(["a", "b", "c"])).records == (await stored(store),)


async def test_a_file_that_stays_locked_is_unavailable_and_nothing_is_lost(
    store: SQLiteStore, path: str
) -> None:
    await written(store, put("before"))
    other: Any = apsw.Connection(path)
    other.execute("BEGIN IMMEDIATE")
    insert = batch(put())
    answer = await answered(store, insert)
    assert type(answer) is StoreUnavailable
    assert "lock" in str(answer)
    assert (await store.read(["before", "a"])).records[0].id == "before"
    other.execute("ROLLBACK")
    other.close()
    assert (await written(store, insert)).repeated is False


async def test_a_locked_file_is_waited_for(path: str) -> None:
    store = SQLiteStore(path)
    other: Any = apsw.Connection(path)
    other.execute("BEGIN IMMEDIATE")
    waiting = store._engine._place.wait

    def let_go(tries: int) -> bool:
        if tries == 20:
            other.execute("ROLLBACK")
        return waiting(tries)

    store._turns.wait = let_go  # type: ignore[method-assign]
    assert (await written(store, put())).versions == (1,)
    await store.close()
    other.close()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"this is a letter, not a database. " * 100, "no SQLite database"),
        (b"SQLite format 3\0" + b"\xff" * 4096, "no SQLite database"),
    ],
)
def test_a_file_that_is_no_database_is_named_and_left_alone(
    path: str, content: bytes, words: str
) -> None:
    Path(path).write_bytes(content)
    with pytest.raises(StoreBroken, match=words) as caught:
        SQLiteStore(path)
    assert path in str(caught.value)
    assert Path(path).read_bytes() == content


def test_another_programs_database_is_left_alone(path: str) -> None:
    db: Any = apsw.Connection(path)
    db.execute("CREATE TABLE customer(name)")
    db.close()
    before = Path(path).read_bytes()
    with pytest.raises(StoreBroken, match="another program") as caught:
        SQLiteStore(path)
    assert path in str(caught.value)
    assert Path(path).read_bytes() == before


def scribble_over(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4096 * 2 : -4096] = b"\xa5" * (len(content) - 4096 * 3)
    file.write_bytes(content)


async def test_a_corrupt_ledger_is_said_to_be_corrupt(path: str) -> None:
    store = SQLiteStore(path)
    await store.write([batch(put(f"r{n}", body=b"x" * 3_000)) for n in range(50)])
    await store.close()
    scribble_over(Path(path))
    with pytest.raises(StoreBroken, match=r"corrupt|no SQLite") as caught:
        SQLiteStore(path).read_blocking([f"r{n}" for n in range(50)])
    assert path in str(caught.value)


@pytest.mark.parametrize("missing", ["no/such/folder/ledger.db", "."])
def test_a_place_that_cannot_hold_a_file_is_named(tmp_path: Path, missing: str) -> None:
    with pytest.raises(StoreBroken, match="cannot be opened"):
        SQLiteStore(tmp_path / missing)


async def test_a_full_disk_at_creation_leaves_nothing_half_made(
    path: str, disk: FaultyDisk, clock: SteeredClock
) -> None:
    made: list[int] = []
    for number in range(1, 200):
        disk.fail_at(number, full)
        try:
            store = SQLiteStore(path, vfs=disk.name, clock=clock)
        except StoreBroken as error:
            assert path in str(error)  # noqa: PT017
            continue
        finally:
            reached = len(disk.calls) >= number
            disk.mend()
        await written(store, put(f"r{number}"))
        await store.close()
        made.append(number)
        if not reached:
            break
    assert made[0] > 5
    assert made[-1] < 199
