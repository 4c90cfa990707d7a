"""The read side: a few connections; every answer is one statement, with the store's time in it.

Texts of statements are put together from constants by which filters are given, so that each has
its own plan and none has to serve all cases; values are parameters always.
"""

from __future__ import annotations

import queue
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import psycopg

from ...errors import StoreUnavailable
from ...store import ANY_TENANT, Event, Page, Snapshot
from ..checks import above_prefix
from ..cursor import position, read_cursor, write_cursor
from ..queued import READERS
from .faults import trouble
from .rows import COLUMNS, stored
from .schema import LATEST, newer
from .text import held, told

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from ...store import DueQuery, ScanQuery, Stored
    from ..cursor import Position
    from .place import Connection, Place

_HEAD: Final = "indoubt_now(false), m.epoch, indoubt_schema()"
_READ: Final = (
    f"SELECT {_HEAD}, r.n, {COLUMNS} FROM indoubt_meta m"  # noqa: S608
    " LEFT JOIN indoubt_record r ON r.id = ANY (%(ids)s)"
)
_QUEUES: Final = """
WITH RECURSIVE hop(queue) AS (
  (SELECT queue FROM indoubt_record WHERE ready_at IS NOT NULL AND queue >= %(prefix)s
   ORDER BY queue LIMIT 1)
  UNION ALL
  SELECT (SELECT r.queue FROM indoubt_record r WHERE r.ready_at IS NOT NULL AND r.queue > hop.queue
    ORDER BY r.queue LIMIT 1)
  FROM hop WHERE hop.queue < %(above)s)
SELECT queue FROM hop WHERE queue < %(above)s"""
_JOURNAL: Final = """
SELECT indoubt_schema(), j.version, j.at, j.event FROM indoubt_meta
LEFT JOIN indoubt_journal j ON j.n = (SELECT n FROM indoubt_record WHERE id = %(id)s)
  AND j.version > %(after)s
ORDER BY j.version LIMIT %(limit)s"""
# One page per queue: asked for several at once, the whole backlog would be sorted.
_DUE: Final = f"""
SELECT {_HEAD}, r.n, {COLUMNS} FROM indoubt_meta m LEFT JOIN (
  SELECT p.* FROM unnest(%(queues)s::text[], %(limits)s::bigint[]) AS q(queue, most), LATERAL (
    SELECT * FROM indoubt_record r
    WHERE r.queue = q.queue AND r.ready_at IS NOT NULL AND r.ready_at <= indoubt_now(false)
      AND r.hash %% %(count)s = %(index)s
    ORDER BY r.ready_at, r.id LIMIT q.most) p) r ON true
ORDER BY r.ready_at, r.id"""  # noqa: S608
_READY: Final = """
SELECT p.* FROM unnest(%(queues)s::text[]) AS q(queue), LATERAL (
  SELECT * FROM indoubt_record r
  WHERE r.queue = q.queue AND r.ready_at IS NOT NULL AND (r.ready_at, r.id) > (%(at)s, %(at_id)s)
    {filters} ORDER BY r.ready_at, r.id LIMIT %(limit)s) p
ORDER BY p.ready_at, p.id LIMIT %(limit)s"""
_DOUBT: Final = """
SELECT * FROM indoubt_record r
WHERE r.doubt_since IS NOT NULL AND (r.doubt_since, r.id) > (%(at)s, %(at_id)s) {filters}
ORDER BY r.doubt_since, r.id LIMIT %(limit)s"""
_PREFIX: Final = """
SELECT * FROM indoubt_record r WHERE r.id >= %(least)s AND r.id < %(above)s AND r.id > %(at_id)s
  {filters} ORDER BY r.id LIMIT %(limit)s"""
_ALL: Final = """
SELECT * FROM indoubt_record r WHERE r.n > %(at)s {filters} ORDER BY r.n LIMIT %(limit)s"""
_CHILDREN: Final = """
SELECT * FROM indoubt_record r WHERE r.parent_id = %(parent)s AND r.parent_id IS NOT NULL
  AND r.n > %(at)s {filters} ORDER BY r.n LIMIT %(limit)s"""
_ORDERS: Final = {"ready": "r.ready_at, r.id", "doubt": "r.doubt_since, r.id"}


class Reader:
    """Opened when needed; any thread may call."""

    def __init__(self, place: Place, incarnation: str) -> None:
        self._place = place
        self._incarnation = incarnation
        self._idle: queue.LifoQueue[Connection | None] = queue.LifoQueue()
        for _ in range(READERS):
            self._idle.put(None)
        self._closed = False

    def read(self, ids: Sequence[str]) -> Snapshot:
        asked = list(dict.fromkeys(ids))
        found = self._page(_READ, {"ids": [held(name) for name in asked]})
        records = {record.id: record for _, record in found.rows}
        ordered = [records[name] for name in asked if name in records]
        return Snapshot(found.now_ms, found.epoch, tuple(ordered))

    def due(self, query: DueQuery) -> Snapshot:
        lane = query.lane
        given = {
            "queues": [held(name) for name, _ in query.quotas],
            "limits": [limit for _, limit in query.quotas],
            "count": lane.count if lane else 1,
            "index": lane.index if lane else 0,
        }
        found = self._page(_DUE, given)
        return Snapshot(found.now_ms, found.epoch, tuple([record for _, record in found.rows]))

    def scan(self, query: ScanQuery) -> Page:
        epoch = self._page(_READ, {"ids": []}).epoch if query.after else None
        while True:
            after = read_cursor(query, f"{self._incarnation}:{epoch}")
            found = self._page(*self._listing(query, after))
            if epoch in {None, found.epoch}:
                break
            epoch = found.epoch  # a backup was put back between the two
        page, more = found.rows[: query.limit], len(found.rows) > query.limit
        store = f"{self._incarnation}:{found.epoch}"
        cursor = write_cursor(query, store, position(query, *page[-1])) if more else None
        return Page(found.now_ms, found.epoch, tuple([record for _, record in page]), cursor)

    def journal(self, record_id: str, after: int, limit: int) -> tuple[Event, ...]:
        given = {"id": held(record_id), "after": after, "limit": limit}
        rows = self._rows(_JOURNAL, given)
        if rows and rows[0][0] > LATEST:
            raise newer(rows[0][0], self._place)
        return tuple([Event(*row[1:]) for row in rows if row[1] is not None])

    def queues(self, prefix: str) -> tuple[str, ...]:
        given = {"prefix": held(prefix), "above": held(above_prefix(prefix))}
        return tuple([told(name) for (name,) in self._rows(_QUEUES, given)])

    def close(self) -> None:
        """Wait for the reads that are under way, and close."""
        self._closed = True
        for _ in range(READERS):
            if db := self._idle.get():
                db.close()
        for _ in range(READERS):
            self._idle.put(None)

    def _listing(self, query: ScanQuery, after: Position) -> tuple[str, dict[str, Any]]:
        """The statement for one page and its end, and its values."""
        given: dict[str, Any] = {
            "at": after[0],
            "at_id": held(after[1]),
            "limit": query.limit + 1,
            "kinds": [held(kind) for kind in query.kinds],
            "states": [held(state) for state in query.states],
        }
        filters = ""
        if query.kinds:
            filters += " AND r.kind = ANY (%(kinds)s)"
        if query.states:
            filters += " AND r.state = ANY (%(states)s)"
        if query.tenant_id is None:
            filters += " AND r.tenant_id IS NULL"
        elif query.tenant_id is not ANY_TENANT:
            filters += " AND r.tenant_id = %(tenant)s"
            given["tenant"] = held(str(query.tenant_id))
        if query.parent_id is not None:
            filters += " AND r.parent_id = %(parent)s"
            given["parent"] = held(query.parent_id)
        inner = self._inner(query, given)
        order = "r.id" if query.id_prefix is not None else _ORDERS.get(query.view, "r.n")
        text = (
            f"SELECT {_HEAD}, r.n, {COLUMNS} FROM indoubt_meta m"  # noqa: S608
            f" LEFT JOIN ({inner.format(filters=filters)}) r ON true ORDER BY {order}"
        )
        return text, given

    def _inner(self, query: ScanQuery, given: dict[str, Any]) -> str:
        if query.id_prefix is not None:
            above = above_prefix(query.id_prefix)
            given |= {"least": held(query.id_prefix), "above": held(above)}
            return _PREFIX
        if query.view == "ready":
            queues = sorted(set(query.queues)) or self._queues_of(query.kinds)
            given["queues"] = [held(name) for name in queues]
            return _READY
        if query.view == "doubt":
            return _DOUBT
        return _ALL if query.parent_id is None else _CHILDREN

    def _queues_of(self, kinds: Sequence[str]) -> list[str]:
        """The queues that may hold records of these kinds; of none: all."""
        if not kinds:
            return list(self.queues(""))
        return [name for kind in sorted(set(kinds)) for name in (kind, *self.queues(f"{kind}:"))]

    def _page(self, statement: str, given: dict[str, Any]) -> _Found:
        rows = self._rows(statement, given)
        now_ms, epoch, schema = rows[0][:3]
        if schema > LATEST:
            raise newer(schema, self._place)
        found = [(row[3], stored(row[4:])) for row in rows if row[3] is not None]
        return _Found(now_ms, epoch, found)

    def _rows(self, statement: str, given: dict[str, Any]) -> list[tuple[Any, ...]]:
        with self._connection() as db:
            return db.execute(statement.encode(), given).fetchall()

    @contextmanager
    def _connection(self) -> Generator[Connection]:
        db = self._idle.get()
        try:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            if db is None or db.closed:
                db = self._place.connect()
            yield db
        except psycopg.Error as error:
            if db is not None and isinstance(error, psycopg.OperationalError):
                db.close()
                db = None
            raise trouble(error, self._place) from error
        finally:
            self._idle.put(db)


class _Found:
    """Rows of one statement, with the store's time and epoch."""

    def __init__(self, now_ms: int, epoch: int, rows: list[tuple[int, Stored]]) -> None:
        self.now_ms = now_ms
        self.epoch = epoch
        self.rows = rows
