"""Applies batches inside an open write transaction, each judged by itself before it is written.

The write lock is ours: what was looked at cannot change before it is written, so no batch ever
needs to be undone for a conflict.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, Final

from ...store import KEEP, Absent, Conflict, Free, In, Snapshot, Stored, Written
from ..checks import lane_hash, stamp
from ..group_commit import Leasing
from ..judge import Held, refusal, repeated, versions
from ..leasing import leased
from ..sql import statements

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...store import Batch, Delete, DueQuery, Extend, Put, Time
    from ..group_commit import Work
    from .connection import Connection

_SQL: Final = statements()
_INSERT: Final = _SQL["insert"].text
_UPDATE: Final = _SQL["update"].text
_UPDATE_FREE: Final = _SQL["update_free"].text
_EXTEND: Final = _SQL["extend"].text
_APPEND: Final = _SQL["append"].text
_TAKE: Final = _SQL["take"]
_HELD: Final = _SQL["held"].text
_WROTE: Final = _SQL["wrote"].text
_READ: Final = _SQL["read"].text
_CANCEL_REQUESTED: Final = Stored._fields.index("cancel_requested")


class Applier:
    """One group's transaction: its time, its epoch, and whether it must be committed."""

    __slots__ = ("_db", "_epoch", "_now", "dirty")

    def __init__(self, db: Connection, now_ms: int, epoch: int) -> None:
        self._db = db
        self._now = now_ms
        self._epoch = epoch
        self.dirty = False

    def apply(self, work: Work) -> Written | Conflict | Snapshot:
        return self._lease(work) if isinstance(work, Leasing) else self._batch(work)

    def _batch(self, batch: Batch) -> Written | Conflict:
        first = versions(batch)
        if len(batch.puts) == 1 and not (batch.guards or batch.extends or batch.deletes):
            # The blind first write: its own WHERE is the check, so nothing is read before it.
            if not self._put(batch.puts[0], first[0], batch.write_id):
                return self._refuse(batch, first)
        elif refusal(batch, self._held):
            return self._refuse(batch, first)
        else:
            self._write(batch, first)
        self.dirty = True
        return Written(self._now, self._epoch, first)

    def _lease(self, work: Leasing) -> Snapshot:
        """Take what is due. The write lock is ours, so what was read is still so."""
        lease, now = work.lease, self._now
        taken: list[Stored] = []
        for n, old in due(self._db, work.query, now):
            new = leased(old, lease, now)
            sent = new.attempt - old.attempt
            given = {
                "owner": lease.owner,
                "lease_until": new.lease_until,
                "state": new.state,
                "sent": sent,
                "now": now,
                "permit_until": new.permit_until,
                "doubt_since": new.doubt_since,
                "n": n,
            }
            self._rows(_TAKE.text, _TAKE.values(given))
            self._rows(_APPEND, (n, new.version, now, lease.write_id, lease.event))
            taken.append(new)
        self.dirty = self.dirty or bool(taken)
        return Snapshot(now, self._epoch, tuple(taken))

    def _write(self, batch: Batch, first: tuple[int, ...]) -> None:
        for delete in batch.deletes:
            self._delete(delete)
        for put, version in zip(batch.puts, first, strict=True):
            _expect(self._put(put, version, batch.write_id))
        for extend in batch.extends:
            _expect(self._extend(extend))

    def _put(self, put: Put, version: int, write_id: str) -> bool:
        """Write one record and its event, if it is as expected."""
        expected, now = put.expected, self._now
        if isinstance(expected, Absent):
            done = self._rows(_INSERT, _insert_values(put, version, now))
        elif isinstance(expected, Free):
            lease = stamp(expected.lease_until, now)
            done = self._rows(_UPDATE_FREE, (*_update_values(put, expected.n, now), lease))
        else:
            done = self._rows(_UPDATE, _update_values(put, expected.n, now))
        if not done:
            return False
        self._rows(_APPEND, (done[0][0], version, now, write_id, put.event))
        return True

    def _extend(self, extend: Extend) -> bool:
        now = self._now
        times = (extend.lease_until, extend.permit_until, extend.ready_at)
        values = (*_kept(times, now), extend.id, extend.owner, extend.fence)
        return bool(self._rows(_EXTEND, values))

    def _delete(self, delete: Delete) -> None:
        if held := self._held(delete.id):
            self._rows(_SQL["delete_journal"].text, (held.n,))
            self._rows(_SQL["delete_record"].text, (held.n,))

    def _refuse(self, batch: Batch, first: tuple[int, ...]) -> Written | Conflict:
        superseded = repeated(batch, first, self._held, self._wrote)
        if superseded is not None:
            # Committed again, so that what a killed process left unsynced is synced first.
            self.dirty = True
            return Written(self._now, self._epoch, first, repeated=True, superseded=superseded)
        refused = refusal(batch, self._held)
        if refused is None:
            raise RuntimeError("a write was refused although all its conditions hold")
        ids = [item.id for item in (*batch.puts, *batch.extends, *batch.guards)]
        return Conflict(*refused, Snapshot(self._now, self._epoch, tuple(self._read(ids))))

    def _read(self, ids: Iterable[str]) -> Iterable[Stored]:
        for record_id in dict.fromkeys(ids):
            yield from map(stored, self._rows(_READ, (record_id,)))

    def _held(self, record_id: str) -> Held | None:
        rows = self._rows(_HELD, (record_id,))
        if not rows:
            return None
        *known, cancel_requested = rows[0]
        return Held._make((*known, bool(cancel_requested)))

    def _wrote(self, _id: str, held: Held, version: int) -> str | None:
        rows = self._rows(_WROTE, (held.n, version))
        return rows[0][0] if rows else None

    def _rows(self, sql: str, values: tuple[Any, ...]) -> list[Any]:
        """All rows at once: a statement that is not run to its end must not meet COMMIT."""
        return self._db.execute(sql, values).fetchall()


def due(db: Connection, query: DueQuery, now_ms: int) -> list[tuple[int, Stored]]:
    """Row numbers and records that are due, oldest first."""
    statement, lane = _SQL["due_lane" if query.lane else "due"], query.lane
    given = {"index": lane.index, "count": lane.count} if lane else {}
    pages = [
        select(db, statement.text, statement.values(values))
        for queue, limit in query.quotas
        for values in [{**given, "queue": queue, "now": now_ms, "limit": limit}]
    ]
    return list(heapq.merge(*pages, key=lambda found: (found[1].ready_at, found[1].id)))


def select(db: Connection, sql: str, values: tuple[Any, ...]) -> list[tuple[int, Stored]]:
    """Row numbers and records of a statement that reads the block ``columns``."""
    return [(row[0], stored(row)) for row in db.execute(sql, values).fetchall()]


def stored(row: Any) -> Stored:
    """A record from a row of the block ``columns``."""
    values = list(row[1:])
    values[_CANCEL_REQUESTED] = bool(values[_CANCEL_REQUESTED])
    return Stored._make(values)


def _insert_values(put: Put, version: int, now: int) -> tuple[Any, ...]:
    times = (put.lease_until, put.permit_until, put.ready_at, put.dispatched_at, put.doubt_since)
    return (
        put.id,
        put.root_id,
        put.tenant_id,
        put.parent_id,
        put.kind,
        version,
        put.state,
        put.owner,
        put.fence,
        put.claims,
        put.attempt,
        put.cancel_requested,
        put.store_epoch,
        *_stamped(times, now),
        now,
        put.body or b"",
        put.fixed or b"",
        lane_hash(put.id),
        put.queue or put.kind,
    )


def _update_values(put: Put, version: int, now: int) -> tuple[Any, ...]:
    times = (put.lease_until, put.permit_until, put.ready_at, put.dispatched_at, put.doubt_since)
    return (
        put.state,
        put.owner,
        put.fence,
        put.claims,
        put.attempt,
        put.cancel_requested,
        put.store_epoch,
        *_kept(times, now),
        now,
        put.body,
        put.id,
        version,
    )


def _stamped(times: tuple[Time, ...], now: int) -> list[Any]:
    return [now + when.ms if isinstance(when, In) else when for when in times]


def _kept(times: tuple[Time, ...], now: int) -> list[Any]:
    """The bits of the times to keep, then the times."""
    if KEEP not in times:
        return [0, *_stamped(times, now)]
    keep = sum(1 << bit for bit, when in enumerate(times) if when is KEEP)
    return [keep, *(None if when is KEEP else when for when in _stamped(times, now))]


def _expect(done: bool) -> None:  # noqa: FBT001
    if not done:
        raise RuntimeError("a write failed although all its conditions held")
