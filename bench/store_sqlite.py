"""The SQLite store against bare SQLite: what its checks, queue and clock cost (budgets B2 to B4).

A guarded call is two durable commits: the intent before the effect, the outcome after it. "Bare"
writes the same rows with the same statements and keeps no promise; "floor" writes as many bytes
into one small table, which is what a program without a ledger's questions would do.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import Any

import apsw
from benchlib import Budget, Options, closed_loop, in_turns, parser, repeated, versions

from indoubt.store import Absent, Batch, In, Put, Version
from indoubt.stores.sql import migrations, statements
from indoubt.stores.sqlite import SQLiteStore

FIXED = b'{"amount":1299,"currency":"usd","customer":"cus_0123456789abcdef"}'.ljust(300, b" ")
BODY = b'{"attempts":[{"number":1,"stage":"sent"}],"receipt":{"id":"re_1"}}'.ljust(250, b" ")
EVENT = b'{"commands":["prepare","claim","dispatch"],"actor":"worker-1"}'.ljust(120, b" ")
COLUMNS = b"x" * 180  # what our promoted columns, ids and write ids take

FLOOR = """
CREATE TABLE intent(id TEXT PRIMARY KEY, state TEXT NOT NULL, fence INT NOT NULL, owner TEXT,
 lease_until INT, payload BLOB, outcome BLOB) WITHOUT ROWID;
CREATE INDEX due ON intent(lease_until, id) WHERE state='executing';
"""
FLOOR_INSERT = "INSERT INTO intent VALUES(?, 'executing', 1, 'w1', ?, ?, NULL)"
FLOOR_UPDATE = (
    "UPDATE intent SET state='completed', outcome=?, fence=fence+1"
    " WHERE id=? AND state='executing' AND fence=1 RETURNING fence"
)
FLOOR_FIRST = FIXED + BODY + EVENT + COLUMNS
FLOOR_SECOND = BODY + EVENT + COLUMNS
SQL = statements()
SLICE_S = 0.03

Write = Callable[[Any], object]
"""Statements of one write; the transaction is the caller's."""


def connect(path: str, schema: str) -> Any:
    db: Any = apsw.Connection(path)
    for pragma in ("journal_mode=WAL", "synchronous=FULL"):
        db.execute(f"PRAGMA {pragma}").fetchall()
    db.execute(schema).fetchall()
    return db


def floor_calls(name: str, n: int) -> tuple[Write, Write]:
    """The two writes of a guarded call into one small table."""
    return (
        lambda db: db.execute(FLOOR_INSERT, (name, n, FLOOR_FIRST)).fetchall(),
        lambda db: db.execute(FLOOR_UPDATE, (FLOOR_SECOND, name)).fetchall(),
    )


def bare_calls(name: str, n: int) -> tuple[Write, Write]:
    """The two writes of a guarded call as the store's own statements."""
    insert, update, append = (SQL[which] for which in ("insert", "update", "append"))
    record = prepared(name).puts[0]._asdict() | {"now": n, "version": 1, "keep": 0, "hash": n}
    record |= {"write_id": name.ljust(32, "0"), "lease_until": n, "permit_until": n}
    record |= {"ready_at": n, "dispatched_at": n, "cancel_requested": 0}

    def first(db: Any) -> None:
        row = db.execute(insert.text, insert.values(record)).fetchall()[0]
        db.execute(append.text, append.values(record | {"n": row[0], "at": n})).fetchall()

    def second(db: Any) -> None:
        changed = {**record, "state": "succeeded", "ready_at": None}
        row = db.execute(update.text, update.values(changed)).fetchall()[0]
        more = record | {"n": row[0], "version": 2, "at": n}
        db.execute(append.text, append.values(more)).fetchall()

    return first, second


BARE = (migrations("sqlite")[0].sql, bare_calls)
SMALL = (FLOOR, floor_calls)
Way = tuple[str, Callable[[str, int], tuple[Write, Write]]]


class BareWriter:
    """One thread owns the connection; what is queued while a commit runs shares the next one."""

    def __init__(self, path: str, schema: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[tuple[Write, asyncio.Future[None]] | None] = (
            queue.SimpleQueue()
        )
        self._db = connect(path, schema)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def do(self, write: Write) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((write, future))
        return future

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        self._db.close()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            group = [first]
            while not self._queue.empty() and (more := self._queue.get()) is not None:
                group.append(more)
            self._db.execute("BEGIN IMMEDIATE").fetchall()
            for write, _ in group:
                write(self._db)
            self._db.execute("COMMIT").fetchall()
            self._loop.call_soon_threadsafe(_wake, [future for _, future in group])


def _wake(futures: Sequence[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


def prepared(name: str) -> Batch:
    """The first write of a guarded call: blind."""
    put = Put(
        id=name,
        root_id=name,
        tenant_id="acme",
        parent_id=None,
        kind="effect",
        expected=Absent(),
        state="dispatched",
        owner="owner-0123456789",
        fence=1,
        claims=1,
        attempt=1,
        cancel_requested=False,
        store_epoch=1,
        lease_until=In(30_000),
        permit_until=In(30_000),
        ready_at=In(30_000),
        dispatched_at=In(0),
        doubt_since=None,
        body=BODY,
        fixed=FIXED,
        event=EVENT,
    )
    return Batch(f"{name}.1".ljust(32, "0"), (put,))


def settled(first: Batch) -> Batch:
    """The second write: the outcome."""
    put = first.puts[0]._replace(
        expected=Version(1),
        state="succeeded",
        owner=None,
        lease_until=None,
        permit_until=None,
        ready_at=None,
        fixed=None,
    )
    return Batch(first.write_id[:-1] + "2", (put,))


class Cases:
    """Each method measures one way once, on a new file."""

    def __init__(self, folder: str, seconds: float) -> None:
        self._folder = folder
        self._seconds = seconds
        self._files = itertools.count()

    def file(self) -> str:
        return f"{self._folder}/{next(self._files)}.db"

    def bare(self, way: Way) -> Callable[[], float]:
        """A short slice of calls on a file that stays open from round to round."""
        db = connect(self.file(), way[0])
        numbers = itertools.count()

        def call(_: int) -> None:
            n = next(numbers)
            for write in way[1](f"op-{n:09}", n):
                db.execute("BEGIN IMMEDIATE").fetchall()
                write(db)
                db.execute("COMMIT").fetchall()

        return lambda: repeated(call, SLICE_S)

    def blocking(self) -> Callable[[], float]:
        store = SQLiteStore(self.file())
        numbers = itertools.count()

        def call(_: int) -> None:
            first = prepared(f"op-{next(numbers):09}")
            store.write_blocking([first])
            store.write_blocking([settled(first)])

        return lambda: repeated(call, SLICE_S)

    async def bare_writer(self, callers: int, way: Way) -> float:
        writer = BareWriter(self.file(), way[0])

        async def call(caller: int, n: int) -> None:
            for write in way[1](f"op-{caller}-{n:09}", n):
                await writer.do(write)

        rate = await closed_loop(call, callers, self._seconds)
        writer.close()
        return rate

    async def store(self, callers: int, *, per_commit: bool = False) -> float:
        store = SQLiteStore(self.file())

        async def call(caller: int, n: int) -> None:
            first = prepared(f"op-{caller}-{n:09}")
            await store.write([first])
            await store.write([settled(first)])

        rate = await closed_loop(call, callers, self._seconds)
        commits = store.commits
        await store.close()
        return commits / (rate * self._seconds) if per_commit else rate

    async def threads(self, callers: int) -> float:
        store = SQLiteStore(self.file())
        rates: list[float] = []

        def run(caller: int) -> None:
            def call(n: int) -> None:
                first = prepared(f"op-{caller}-{n:09}")
                store.write_blocking([first])
                store.write_blocking([settled(first)])

            rates.append(repeated(call, self._seconds))

        threads = [threading.Thread(target=run, args=(n,)) for n in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        await store.close()
        return sum(rates)


async def measure(args: Options, folder: str) -> None:
    cases = Cases(folder, args.seconds)
    print(versions("apsw") | {"sqlite": apsw.sqlite_lib_version()})
    # Slices so short that the disk and the neighbours are the same within a round.
    many = Options(**vars(args) | {"reps": args.reps * 20})
    await in_turns(
        "guarded calls on the calling thread",
        many,
        {
            "floor, calling thread": cases.bare(SMALL),
            "bare, calling thread": cases.bare(BARE),
            "store, blocking": cases.blocking(),
        },
        "calls/s",
        {"store, blocking": Budget("bare, calling thread", least=round(1 / 1.5, 2))},
    )
    await in_turns(
        "guarded calls",
        args,
        {
            "floor, writer thread, c=1": lambda: cases.bare_writer(1, SMALL),
            "bare, writer thread, c=1": lambda: cases.bare_writer(1, BARE),
            "store, async, c=1": lambda: cases.store(1),
            "floor, writer thread, c=32": lambda: cases.bare_writer(32, SMALL),
            "bare, writer thread, c=32": lambda: cases.bare_writer(32, BARE),
            "store, async, c=32": lambda: cases.store(32),
            "store, 8 threads": lambda: cases.threads(8),
            "store, 32 threads": lambda: cases.threads(32),
        },
        "calls/s",
        {
            "store, async, c=1": Budget("bare, writer thread, c=1", least=round(1 / 1.3, 2)),
            "store, async, c=32": Budget("floor, writer thread, c=32", least=0.55),
        },
    )
    await in_turns(
        "commits per guarded call (goal at c=32: <= 0.1)",
        args,
        {
            "c=1": lambda: cases.store(1, per_commit=True),
            "c=32": lambda: cases.store(32, per_commit=True),
        },
        "commits",
    )


def main() -> None:
    args = parser(__doc__).parse_args(namespace=Options())
    folder = tempfile.mkdtemp(dir=args.dir)
    try:
        asyncio.run(measure(args, folder))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
