"""The read side: every answer is one snapshot, and begins with the store's time in it."""

from __future__ import annotations

import heapq
import itertools
import queue
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import apsw
import msgspec

from ...errors import StoreUnavailable
from ...store import ANY_TENANT, Event, Page, ScanQuery, Snapshot, Stored
from ..checks import above_prefix
from ..clock import StoreTime
from ..cursor import Position, position, read_cursor, write_cursor
from ..sql import statements
from .apply import due, select, stored
from .connection import close
from .engine import read_clock
from .faults import trouble

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from ...store import DueQuery
    from .connection import Connection, Place

_SQL: Final = statements()
_READERS: Final = 2
"""Read connections: a long listing does not hold up a short read."""


class Reader:
    """A few read connections, opened when needed; any thread may call."""

    def __init__(self, place: Place, time: StoreTime, incarnation: str) -> None:
        self._place = place
        self._time = time
        self._incarnation = incarnation
        self._idle: queue.LifoQueue[Connection | None] = queue.LifoQueue()
        for _ in range(_READERS):
            self._idle.put(None)
        self._closed = False

    def read(self, ids: Sequence[str]) -> Snapshot:
        with self._snapshot() as (db, now_ms, epoch):
            records = [
                stored(row)
                for record_id in dict.fromkeys(ids)
                for row in db.execute(_SQL["read"].text, (record_id,))
            ]
        return Snapshot(now_ms, epoch, tuple(records))

    def due(self, query: DueQuery) -> Snapshot:
        with self._snapshot() as (db, now_ms, epoch):
            found = due(db, query, now_ms)
        return Snapshot(now_ms, epoch, tuple([record for _, record in found]))

    def queues(self, prefix: str) -> tuple[str, ...]:
        with self._snapshot() as (db, _, _):
            return tuple(_queues(db, prefix))

    def scan(self, query: ScanQuery) -> Page:
        with self._snapshot() as (db, now_ms, epoch):
            store = f"{self._incarnation}:{epoch}"
            found = list(_scan(db, query, read_cursor(query, store)))
        page, more = found[: query.limit], len(found) > query.limit
        cursor = write_cursor(query, store, position(query, *page[-1])) if more else None
        return Page(now_ms, epoch, tuple(record for _, record in page), cursor)

    def journal(self, record_id: str, after: int, limit: int) -> tuple[Event, ...]:
        values = {"id": record_id, "after": after, "limit": limit}
        statement = _SQL["journal"]
        with self._snapshot() as (db, _, _):
            rows = db.execute(statement.text, statement.values(values)).fetchall()
        return tuple(Event(*row) for row in rows)

    def close(self) -> None:
        """Wait for the reads that are under way, and close."""
        self._closed = True
        for _ in range(_READERS):
            if db := self._idle.get():
                close(db)
        for _ in range(_READERS):
            self._idle.put(None)

    @contextmanager
    def _snapshot(self) -> Generator[tuple[Connection, int, int]]:
        """One read transaction, its time and its epoch."""
        db = self._idle.get()
        try:
            if db is None:
                if self._closed:
                    raise StoreUnavailable("the store is closed")
                db = self._place.connect()
            with _transaction(db):
                persisted, epoch = read_clock(db, self._place.path)
                yield db, self._time.now(persisted).now_ms, epoch
        except apsw.Error as error:
            if db is not None:
                close(db)
            db = None
            raise trouble(error, self._place.path) from error
        finally:
            self._idle.put(db)


@contextmanager
def _transaction(db: Connection) -> Generator[None]:
    db.execute("BEGIN").fetchall()
    try:
        yield
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK").fetchall()


def _scan(db: Connection, query: ScanQuery, after: Position) -> Iterable[tuple[int, Stored]]:
    """Up to one record more than the page holds, so that its end is known."""
    given: dict[str, Any] = {
        "after": after[0],
        "after_id": after[1],
        "kinds": _listed(query.kinds),
        "states": _listed(query.states),
        "any_tenant": query.tenant_id is ANY_TENANT,
        "tenant": None if query.tenant_id is ANY_TENANT else query.tenant_id,
        "parent": query.parent_id,
        "limit": query.limit + 1,
    }
    if query.id_prefix is not None:
        above = above_prefix(query.id_prefix)
        given |= {"least": max(query.id_prefix, after[1]), "above": above}
    if query.view != "ready":
        statement = _SQL[_statement(query)]
        return select(db, statement.text, statement.values(given))
    statement = _SQL["scan_ready"]
    # One statement per queue: asked for several at once, the whole backlog would be sorted.
    rows = [
        db.execute(statement.text, statement.values({**given, "queue": queue}))
        for queue in sorted(set(query.queues)) or _queues_of(db, query.kinds)
    ]
    try:
        pages = (((row[0], stored(row)) for row in page) for page in rows)
        merged = heapq.merge(*pages, key=lambda found: position(query, *found))
        return list(itertools.islice(merged, query.limit + 1))
    finally:
        for page in rows:  # one left open would hold the snapshot
            page.close(force=True)


def _queues(db: Connection, prefix: str) -> list[str]:
    statement = _SQL["queues"]
    given = {"prefix": prefix, "above": above_prefix(prefix)}
    return [queue for (queue,) in db.execute(statement.text, statement.values(given)).fetchall()]


def _queues_of(db: Connection, kinds: Sequence[str]) -> list[str]:
    """The queues that may hold records of these kinds; of none: all."""
    if not kinds:
        return _queues(db, "")
    return [queue for kind in sorted(set(kinds)) for queue in (kind, *_queues(db, f"{kind}:"))]


def _statement(query: ScanQuery) -> str:
    if query.id_prefix is not None:
        return "scan_prefix"
    if query.view == "doubt":
        return "scan_doubt" if query.tenant_id is ANY_TENANT else "scan_doubt_tenant"
    return "scan_all" if query.parent_id is None else "scan_all_parent"


def _listed(values: Sequence[str]) -> str | None:
    return msgspec.json.encode(values).decode() if values else None
