"""The writing side: every batch is one call of a script, and all that waits goes out together."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from ...errors import StoreError
from ...store import Batch, Conflict, Snapshot, Written
from ..group_commit import Leasing
from ..judge import versions
from .keys import queue_digest
from .rows import Encoded, stored
from .scripts import COUNT, LEASE, WRITE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...store import Stored
    from ..group_commit import Result, Work
    from .partitions import Partitions
    from .wire import Call

MEMORY_MS: Final = 300_000
"""How long a partition remembers a page that it leased, for a client that sends a call again."""


class Engine:
    """Not thread-safe: whoever calls it holds the lead of the queue before it."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self.commits = 0

    def commit(self, group: Sequence[Work]) -> list[Result]:
        """Apply every batch by itself; then what is to be leased."""
        batches = [work for work in group if isinstance(work, Batch)]
        answers = iter(self._write(batches) if batches else ())
        return [self._lease(work) if isinstance(work, Leasing) else next(answers) for work in group]

    def close(self) -> None:
        """Nothing: the connections are the store's."""

    def _write(self, batches: Sequence[Batch]) -> list[Result]:
        self.commits += 1
        told = self._partitions.write([self._call(batch) for batch in batches])
        return [_answer(batch, answer) for batch, answer in zip(batches, told, strict=True)]

    def _call(self, batch: Batch) -> tuple[int, Call]:
        keys = self._partitions.keys
        partition = keys.partition(_root(batch))
        made = Encoded(batch, keys, partition)
        call = self._partitions.call(WRITE, partition, made.keys, made.strings, **made.head)
        return partition, call

    def _lease(self, work: Leasing) -> Result:
        try:
            return _Page(self._partitions, work).taken()
        except StoreError as error:
            return error


class _Page:
    """One page of a lease, put together from the partitions.

    Each partition gives its share, from one on that the write id names; what is missing then is
    taken where something is left.
    """

    def __init__(self, partitions: Partitions, work: Leasing) -> None:
        self._partitions = partitions
        self._query, self._lease = work
        count = partitions.keys.partitions
        digest = hashlib.blake2b(work.lease.write_id.encode(), digest_size=4).digest()
        first = int.from_bytes(digest, "big") % count
        self._order = [(first + n) % count for n in range(count)]
        self._left = dict(work.query.quotas)
        self._found: list[Stored] = []
        self._now: list[int] = []
        self._epoch = 1

    def taken(self) -> Snapshot:
        """Raises: StoreError, where nothing was taken as far as is known."""
        shares = self._shares()
        for turn in range(3):
            self._take(shares, turn)
            if len(self._order) == 1 or not any(self._left.values()):
                break
            shares = self._rest_or_none()
            if not shares:
                break
        found = sorted(self._found, key=lambda record: (record.ready_at or 0, record.id))
        return Snapshot(min(self._now, default=0), self._epoch, tuple(found))

    def _shares(self) -> dict[int, dict[str, int]]:
        """The same for all, as far as it goes round."""
        count = len(self._order)
        shares: dict[int, dict[str, int]] = {}
        for place, partition in enumerate(self._order):
            for queue, limit in self._query.quotas:
                share = limit // count + (place < limit % count)
                if share:
                    shares.setdefault(partition, {})[queue] = share
        return shares or {self._order[0]: {}}

    def _rest_or_none(self) -> dict[int, dict[str, int]]:
        """Where there is more; what was taken already is given out, whoever else is down."""
        try:
            return self._rest()
        except StoreError:
            if not self._found:
                raise
            return {}

    def _rest(self) -> dict[int, dict[str, int]]:
        """Where what is still missing is to be had."""
        queues = [queue for queue, left in self._left.items() if left]
        asked = [[queue_digest(queue)] for queue in queues]
        calls = [(p, self._partitions.call(COUNT, p, quotas=asked)) for p in self._order]
        counts = self._partitions.read(calls)
        left = dict(self._left)
        shares: dict[int, dict[str, int]] = {}
        for partition, answer in zip(self._order, counts, strict=True):
            for queue, there in zip(queues, answer[4:], strict=True):
                share = min(left[queue], there)
                if share:
                    shares.setdefault(partition, {})[queue] = share
                    if self._query.lane is None:
                        left[queue] -= share
        return shares

    def _take(self, shares: dict[int, dict[str, int]], turn: int) -> None:
        calls = [(p, self._call(p, share, turn)) for p, share in shares.items()]
        told = self._partitions.write(calls)
        errors = [answer for answer in told if not isinstance(answer, list)]
        for answer in told:
            if isinstance(answer, list):
                self._now.append(answer[1])
                self._epoch = answer[2]
                for record in [stored(row) for row in answer[4] if row]:
                    self._found.append(record)
                    self._left[record.queue] = max(0, self._left.get(record.queue, 0) - 1)
        # What others gave is used; a partition that is down holds none of them up.
        if errors and not self._found:
            raise errors[0]

    def _call(self, partition: int, share: dict[str, int], turn: int) -> Call:
        lease, lane = self._lease, self._query.lane
        write_id = f"{lease.write_id}:{turn}" if turn else lease.write_id
        head: dict[str, Any] = {"index": lane.index, "count": lane.count} if lane else {}
        return self._partitions.call(
            LEASE,
            partition,
            [self._partitions.keys.part(partition, "m", write_id)],
            [lease.event],
            quotas=[[queue_digest(queue), limit] for queue, limit in share.items()],
            owner=lease.owner,
            lease_ms=lease.lease_ms,
            permit_ms=lease.permit_ms,
            becomes={b.before: [b.after, b.sent] for b in reversed(lease.becomes)},
            write_id=write_id,
            memory_ms=MEMORY_MS,
            **head,
        )


def _root(batch: Batch) -> str:
    for item in (*batch.puts, *batch.extends, *batch.deletes):
        return item.root_id
    return batch.guards[0].id if batch.guards else ""


def _answer(batch: Batch, told: list[Any] | StoreError) -> Result:
    if not isinstance(told, list):
        return told
    now_ms, epoch, what = told[1], told[2], told[4]
    if what == b"conflict":
        try:
            records = {record.id: record for record in [stored(row) for row in told[7]]}
        except StoreError as error:
            return error
        ids = dict.fromkeys([item.id for item in (*batch.puts, *batch.extends, *batch.guards)])
        found = tuple([records[name] for name in ids if name in records])
        return Conflict(told[5].decode(), told[6].decode(), Snapshot(now_ms, epoch, found))
    again = what == b"repeated"
    return Written(now_ms, epoch, versions(batch), again, again and bool(told[5]))
