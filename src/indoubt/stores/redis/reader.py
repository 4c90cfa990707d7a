"""The reading side: answers of one or of all partitions, merged in order with bounded memory."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, Final

from ...errors import StoreUnavailable
from ...store import ANY_TENANT, Event, Page, Snapshot, root_of
from ..cursor import START, position, read_cursor, write_cursor
from .keys import queue_digest
from .rows import fixed_of, records_of, stored
from .scripts import DUE, FIND, JOURNAL, LIST, QUEUES, READ

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...store import DueQuery, ScanQuery, Stored
    from ..cursor import Position
    from .partitions import Partitions
    from .wire import Call

CHUNK_MIN: Final = 8
FIND_CHUNK: Final = 2_000
"""Ids that one call of the search looks at: a millisecond or two of the server's time."""


class Reader:
    """Any thread may call."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._keys = partitions.keys
        self._closed = False

    def read(self, ids: Sequence[str]) -> Snapshot:
        self._open()
        asked = list(dict.fromkeys(ids))
        calls = [
            (p, self._partitions.call(READ, p, [self._keys.record(p, n) for n in names], ids=names))
            for p, names in (self._keys.by_partition(asked) or {0: []}).items()
        ]
        answers = self._partitions.read(calls)
        records = {record.id: record for answer in answers for record in records_of(answer[4])}
        return _snapshot(answers, [records[name] for name in asked if name in records])

    def due(self, query: DueQuery) -> Snapshot:
        """Each partition gives as much as may be asked for, so that the oldest of all are found."""
        self._open()
        lane = query.lane
        head: dict[str, Any] = {"index": lane.index, "count": lane.count} if lane else {}
        quotas = [[queue_digest(queue), limit] for queue, limit in query.quotas]
        calls = [
            (p, self._partitions.call(DUE, p, quotas=quotas, **head)) for p in self._partitions
        ]
        answers = self._partitions.read(calls)
        found = sorted(
            [record for answer in answers for record in records_of(answer[4])], key=_by_ready
        )
        left = dict(query.quotas)
        kept: list[Stored] = []
        for record in found:
            if left.get(record.queue, 0) > 0:
                left[record.queue] -= 1
                kept.append(record)
        return _snapshot(answers, kept)

    def scan(self, query: ScanQuery) -> Page:
        self._open()
        here = self._partitions.read([(p, self._partitions.call(READ, p, ids=())) for p in (0,)])
        now_ms, epoch = here[0][1], here[0][2]
        store = f"{self._partitions.meta.incarnation}:{epoch}"
        after = read_cursor(query, store)
        find = self._listed if query.id_prefix is None else self._found
        rows = find(query, after)
        page: list[tuple[int, Stored]] = []
        for n, record in rows:
            if _wanted(query, record):
                page.append((n, record))
                if len(page) > query.limit:
                    break
        more = len(page) > query.limit
        page = page[: query.limit]
        cursor = write_cursor(query, store, position(query, *page[-1])) if more else None
        return Page(now_ms, epoch, tuple([record for _, record in page]), cursor)

    def journal(self, record_id: str, after: int, limit: int) -> tuple[Event, ...]:
        self._open()
        partition = self._keys.partition(root_of(record_id))
        keys = [self._keys.record(partition, record_id)]
        keys += [self._keys.part(partition, part, record_id) for part in "jp"]
        call = self._partitions.call(JOURNAL, partition, keys, after=after, limit=limit)
        (answer,) = self._partitions.read([(partition, call)])
        if len(answer) == 4:  # noqa: PLR2004 - no such record
            return ()
        base, created, fixed, rest = answer[4:]
        events: list[Event] = []
        if after < base:
            events.append(Event(base, int(created), fixed_of(fixed, record_id).event))
        first = base + 1 + max(0, after - base)
        for sequence, entry in enumerate(rest, first):
            at, _, event = entry.partition(b" ")
            events.append(Event(sequence, int(at), event))
        return tuple(events[:limit])

    def queues(self, prefix: str) -> tuple[str, ...]:
        self._open()
        calls = [(p, self._partitions.call(QUEUES, p, begins=prefix)) for p in self._partitions]
        answers = self._partitions.read(calls)
        return tuple(sorted({name.decode() for answer in answers for name in answer[4]}))

    def close(self) -> None:
        self._closed = True

    def _open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")

    def _listed(self, query: ScanQuery, after: Position) -> Iterator[tuple[int, Stored]]:
        """The records of a listing in its order, over all partitions."""
        limit = max(CHUNK_MIN, 2 * query.limit // self._keys.partitions + 1)
        streams = [
            _Stream(self._partitions, p, name, after, limit=limit, numbered=query.view == "all")
            for p in self._partitions
            for name in self._listings(query, p)
        ]
        answers = self._partitions.read([stream.ask() for stream in streams])
        for stream, answer in zip(streams, answers, strict=True):
            stream.take(answer)
        for score, _, record in heapq.merge(*[stream.rows() for stream in streams]):
            yield int(score), record

    def _listings(self, query: ScanQuery, partition: int) -> Sequence[str]:
        """The sorted sets of one partition in which the query's records are."""
        if query.view == "doubt":
            return [f"{self._keys.prefix(partition)}doubt"]
        if query.view == "ready":
            queues = sorted(set(query.queues)) or self._queues_of(query.kinds)
            return [self._keys.part(partition, "q", queue_digest(queue)) for queue in queues]
        if query.parent_id is not None:
            return [self._keys.part(partition, "c", query.parent_id)]
        return [f"{self._keys.prefix(partition)}all"]

    def _queues_of(self, kinds: Sequence[str]) -> Sequence[str]:
        """The queues that may hold records of these kinds; of none: all."""
        everything = self.queues("")
        if not kinds:
            return everything
        return [q for q in everything if any(q == k or q.startswith(f"{k}:") for k in kinds)]

    def _found(self, query: ScanQuery, after: Position) -> Iterator[tuple[int, Stored]]:
        """Records by the beginning of their ids: no listing is kept for it, so all ids are seen."""
        above = after[1]
        while True:
            beginning = self._beginning(query.id_prefix or "")
            ids = heapq.nsmallest(query.limit + 1, (name for name in beginning if name > above))
            for record in self.read(ids).records:
                yield 0, record
            if len(ids) <= query.limit:
                return
            above = ids[-1]

    def _beginning(self, prefix: str) -> Iterator[str]:
        for p in self._partitions:
            key = f"{self._keys.prefix(p)}all"
            start = 0
            while True:
                call = self._partitions.call(
                    FIND, p, [key], begins=prefix, limit=FIND_CHUNK, start=start
                )
                (answer,) = self._partitions.read([(p, call)])
                yield from [name.decode() for name in answer[5]]
                start += answer[4]
                if answer[4] < FIND_CHUNK:
                    break


class _Stream:
    """One sorted set, read in chunks as they are needed; ``numbered``: by place, not by time."""

    def __init__(
        self,
        partitions: Partitions,
        partition: int,
        key: str,
        after: Position,
        *,
        limit: int,
        numbered: bool,
    ) -> None:
        self._partitions = partitions
        self._partition = partition
        self._key = key
        self._limit = limit
        self._numbered = numbered
        self._at = None if after == START else (str(after[0]), after[1])
        self._rows: list[Any] = []
        self._last = False

    def ask(self) -> tuple[int, Call]:
        """The call for the next chunk."""
        head: dict[str, Any] = {"limit": self._limit}
        if self._at is not None:
            head["score"] = self._at[0]
            if not self._numbered:
                head["id"] = self._at[1]
        return self._partition, self._partitions.call(LIST, self._partition, [self._key], **head)

    def take(self, answer: Sequence[Any]) -> None:
        """The chunk that was asked for."""
        self._rows = answer[4]
        self._last = len(self._rows) < self._limit
        if self._rows:
            self._at = self._rows[-1][1].decode(), self._rows[-1][0].decode()

    def rows(self) -> Iterator[tuple[float, bytes, Stored]]:
        """All that is left, in order."""
        while True:
            for member, score, row in self._rows:
                if row:
                    yield float(score), member, stored(row)
            if self._last:
                return
            (answer,) = self._partitions.read([self.ask()])
            self.take(answer)


def _snapshot(answers: Sequence[Sequence[Any]], records: Sequence[Stored]) -> Snapshot:
    # Partitions may keep different times: by the earliest of them no lease ends too soon.
    now_ms = min(answer[1] for answer in answers)
    return Snapshot(now_ms, max(answer[2] for answer in answers), tuple(records))


def _by_ready(record: Stored) -> tuple[int, str]:
    return record.ready_at or 0, record.id


def _wanted(query: ScanQuery, record: Stored) -> bool:
    return (
        (not query.kinds or record.kind in query.kinds)
        and (not query.states or record.state in query.states)
        and (query.tenant_id is ANY_TENANT or record.tenant_id == query.tenant_id)
        and (query.parent_id is None or record.parent_id == query.parent_id)
    )
