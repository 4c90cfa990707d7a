"""The reference store: a dict. Every other store answers as this one does; it forgets all."""

from __future__ import annotations

import itertools
import os
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from ..errors import ForkedHandle, StoreUnavailable
from ..store import (
    ANY_TENANT,
    Absent,
    Capabilities,
    Conflict,
    Event,
    Page,
    Snapshot,
    Stored,
    Written,
)
from .checks import (
    check_batches,
    check_due,
    check_ids,
    check_journal,
    check_lease,
    check_scan,
    check_text,
    check_wait,
    lane_hash,
    stamp,
)
from .clock import Clock, StoreTime
from .cursor import position, read_cursor, write_cursor
from .judge import Held, refusal, repeated, versions
from .leasing import leased
from .wakes import Wakes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..store import Batch, DueQuery, Extend, Lane, Lease, Put, ScanQuery

_CAPABILITIES: Final = Capabilities(
    durable=False,
    durable_why="It lives in this process' memory and dies with it.",
    shared=False,
    decides_silence=True,
    blocking=True,
)
_EPOCH: Final = 1
_numbers = itertools.count()


class _Entry(NamedTuple):
    """An event, and the write it came with."""

    write_id: str
    event: Event


class _Row(NamedTuple):
    """A record, its place in the order of insertion, and its journal."""

    n: int
    record: Stored
    journal: tuple[_Entry, ...]

    def held(self) -> Held:
        r = self.record
        return Held(self.n, r.version, r.owner, r.fence, r.lease_until, r.cancel_requested)


class MemoryOwners:
    """Which owners live; tests declare them dead."""

    def __init__(self) -> None:
        self._dead: dict[str, bool] = {}

    def hold(self, owner: str) -> None:
        self._dead[owner] = False

    def dead(self, owner: str) -> bool | None:
        return self._dead.get(owner)

    def declare_dead(self, owner: str) -> None:
        """As if its process had been killed."""
        self._dead[owner] = True


class MemoryStore:
    """A ledger for tests and for what may be forgotten.

    Args:
        clock: the host's clocks; tests give one that they steer.

    Attributes:
        owners: tests declare an owner dead here.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.owners = MemoryOwners()
        self._time = StoreTime(clock)
        self._name = f"memory {os.getpid()}.{next(_numbers)}:{_EPOCH}"
        self._rows: dict[str, _Row] = {}
        self._wakes = Wakes()
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        return _CAPABILITIES

    async def read(self, ids: Sequence[str]) -> Snapshot:
        return self.read_blocking(ids)

    def read_blocking(self, ids: Sequence[str]) -> Snapshot:
        check_ids(ids)
        with self._usable():
            return self._snapshot(self._now(), ids)

    async def write(self, batches: Sequence[Batch]) -> Sequence[Written | Conflict]:
        return self.write_blocking(batches)

    def write_blocking(self, batches: Sequence[Batch]) -> Sequence[Written | Conflict]:
        check_batches(batches)
        with self._usable():
            now = self._now()
            answers = [self._apply(batch, now) for batch in batches]
        self._wakes.announce(batches, answers)
        return answers

    async def due(self, query: DueQuery) -> Snapshot:
        check_due(query)
        with self._usable():
            now = self._now()
            return Snapshot(now, _EPOCH, self._due(query, now))

    async def lease(self, query: DueQuery, lease: Lease) -> Snapshot:
        check_lease(query, lease)
        with self._usable():
            now = self._now()
            taken = tuple([leased(record, lease, now) for record in self._due(query, now)])
            for record in taken:
                row = self._rows[record.id]
                entry = _Entry(lease.write_id, Event(record.version, now, lease.event))
                self._rows[record.id] = _Row(row.n, record, (*row.journal, entry))
            return Snapshot(now, _EPOCH, taken)

    async def queues(self, prefix: str = "") -> Sequence[str]:
        check_text(prefix, "prefix")
        with self._usable():
            records = [row.record for row in self._rows.values()]
        return sorted(
            {r.queue for r in records if r.ready_at is not None and r.queue.startswith(prefix)}
        )

    async def wait(self, topics: Sequence[str], *, timeout: float) -> None:
        check_wait(topics, timeout)
        with self._usable():
            pass
        await self._wakes.wait(topics, timeout=timeout)

    async def scan(self, query: ScanQuery) -> Page:
        check_scan(query)
        with self._usable():
            after = read_cursor(query, self._name)
            found = sorted(
                (position(query, row.n, row.record), row.record)
                for row in self._rows.values()
                if _listed(query, row.record)
            )
            rest = [(at, record) for at, record in found if at > after]
            page = rest[: query.limit]
            more = len(rest) > len(page)
            cursor = write_cursor(query, self._name, page[-1][0]) if more else None
            return Page(self._now(), _EPOCH, tuple(record for _, record in page), cursor)

    async def journal(self, record_id: str, *, after: int = 0, limit: int = 100) -> Sequence[Event]:
        check_journal(record_id, after, limit)
        with self._usable():
            row = self._rows.get(record_id)
            events = [entry.event for entry in row.journal] if row else []
            return tuple(event for event in events if event.sequence > after)[:limit]

    def hold_owner(self, owner: str) -> None:
        with self._usable():
            self.owners.hold(owner)

    def owner_dead(self, owner: str) -> bool | None:
        with self._usable():
            return self.owners.dead(owner)

    async def close(self) -> None:
        self._own()
        self._closed = True

    def _usable(self) -> threading.Lock:
        self._own()
        if self._closed:
            raise StoreUnavailable("the store is closed")
        return self._lock

    def _own(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedHandle("this store was opened before a fork; the child has none of it")

    def _now(self) -> int:
        return self._time.now().now_ms

    def _snapshot(self, now: int, ids: Iterable[str]) -> Snapshot:
        rows = (self._rows.get(record_id) for record_id in dict.fromkeys(ids))
        return Snapshot(now, _EPOCH, tuple(row.record for row in rows if row))

    def _apply(self, batch: Batch, now: int) -> Written | Conflict:
        first = versions(batch)
        refused = refusal(batch, self._held)
        if refused is None:
            self._write(batch, first, now)
            return Written(now, _EPOCH, first)
        superseded = repeated(batch, first, self._held, self._wrote)
        if superseded is not None:
            return Written(now, _EPOCH, first, repeated=True, superseded=superseded)
        ids = [item.id for item in (*batch.puts, *batch.extends, *batch.guards)]
        return Conflict(*refused, self._snapshot(now, ids))

    def _write(self, batch: Batch, first: tuple[int, ...], now: int) -> None:
        for delete in batch.deletes:
            del self._rows[delete.id]
        for put, version in zip(batch.puts, first, strict=True):
            entry = _Entry(batch.write_id, Event(version, now, put.event))
            if isinstance(put.expected, Absent):
                row = _Row(self._next(), _inserted(put, version, now), (entry,))
            else:
                old = self._rows[put.id]
                row = _Row(old.n, _moved(old.record, put, version, now), (*old.journal, entry))
            self._rows[put.id] = row
        for extend in batch.extends:
            row = self._rows[extend.id]
            self._rows[extend.id] = row._replace(record=_extended(row.record, extend, now))

    def _next(self) -> int:
        """One above the greatest, which is the last: an update keeps its place in a dict."""
        last = next(reversed(self._rows.values()), None)
        return last.n + 1 if last else 1

    def _held(self, record_id: str) -> Held | None:
        row = self._rows.get(record_id)
        return row.held() if row else None

    def _wrote(self, record_id: str, _held: Held, version: int) -> str | None:
        journal = self._rows[record_id].journal
        return next((e.write_id for e in journal if e.event.sequence == version), None)

    def _due(self, query: DueQuery, now: int) -> tuple[Stored, ...]:
        found = [record for quota in query.quotas for record in self._queued(query, *quota, now)]
        return tuple(sorted(found, key=_by_ready))

    def _queued(self, query: DueQuery, queue: str, limit: int, now: int) -> list[Stored]:
        found = [
            row.record
            for row in self._rows.values()
            if row.record.queue == queue
            and row.record.ready_at is not None
            and row.record.ready_at <= now
            and (query.lane is None or _in_lane(row.record.id, query.lane))
        ]
        return sorted(found, key=_by_ready)[:limit]


def _by_ready(record: Stored) -> tuple[int, str]:
    return record.ready_at or 0, record.id


def _in_lane(record_id: str, lane: Lane) -> bool:
    return lane_hash(record_id) % lane.count == lane.index


def _listed(query: ScanQuery, record: Stored) -> bool:
    when = {"all": 0, "ready": record.ready_at, "doubt": record.doubt_since}[query.view]
    return (
        when is not None
        and (not query.kinds or record.kind in query.kinds)
        and (not query.queues or record.queue in query.queues)
        and (not query.states or record.state in query.states)
        and (query.tenant_id is ANY_TENANT or record.tenant_id == query.tenant_id)
        and (query.parent_id is None or record.parent_id == query.parent_id)
        and (query.id_prefix is None or record.id.startswith(query.id_prefix))
    )


def _inserted(put: Put, version: int, now: int) -> Stored:
    return Stored(
        id=put.id,
        root_id=put.root_id,
        tenant_id=put.tenant_id,
        parent_id=put.parent_id,
        kind=put.kind,
        version=version,
        state=put.state,
        owner=put.owner,
        fence=put.fence,
        claims=put.claims,
        attempt=put.attempt,
        cancel_requested=put.cancel_requested,
        store_epoch=put.store_epoch,
        lease_until=stamp(put.lease_until, now),
        permit_until=stamp(put.permit_until, now),
        ready_at=stamp(put.ready_at, now),
        dispatched_at=stamp(put.dispatched_at, now),
        doubt_since=stamp(put.doubt_since, now),
        created_at=now,
        updated_at=now,
        body=put.body or b"",
        fixed=put.fixed or b"",
        queue=put.queue or put.kind,
    )


def _moved(old: Stored, put: Put, version: int, now: int) -> Stored:
    """Identity (root, tenant, parent, kind, queue) and the fixed part are written once."""
    return old._replace(
        version=version,
        state=put.state,
        owner=put.owner,
        fence=put.fence,
        claims=put.claims,
        attempt=put.attempt,
        cancel_requested=put.cancel_requested,
        store_epoch=put.store_epoch,
        lease_until=stamp(put.lease_until, now, old.lease_until),
        permit_until=stamp(put.permit_until, now, old.permit_until),
        ready_at=stamp(put.ready_at, now, old.ready_at),
        dispatched_at=stamp(put.dispatched_at, now, old.dispatched_at),
        doubt_since=stamp(put.doubt_since, now, old.doubt_since),
        updated_at=now,
        body=old.body if put.body is None else put.body,
    )


def _extended(old: Stored, extend: Extend, now: int) -> Stored:
    return old._replace(
        lease_until=stamp(extend.lease_until, now, old.lease_until),
        permit_until=stamp(extend.permit_until, now, old.permit_until),
        ready_at=stamp(extend.ready_at, now, old.ready_at),
    )


__all__ = ["MemoryOwners", "MemoryStore"]
