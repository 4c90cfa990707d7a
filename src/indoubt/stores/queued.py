"""What all durable stores share: one queue of writes, a few threads for reads, any caller.

Callers may be threads, or on any event loop; the engine behind is blocking and used by one thread
at a time. All that waits is committed together.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

from ..errors import ForkedHandle, StoreError, StoreUnavailable
from .checks import (
    check_batches,
    check_due,
    check_ids,
    check_journal,
    check_lease,
    check_scan,
    check_text,
    check_wait,
)
from .group_commit import GroupCommit, Leasing, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..store import Batch, DueQuery, Event, Lease, Page, ScanQuery, Snapshot
    from .group_commit import Answer, Result
    from .wakes import Wakes

READERS = 2
"""Threads that read for event loops: a long listing does not hold up a short read."""
T = TypeVar("T")


class Reads(Protocol):
    """The reading side of an engine; any thread may call it."""

    def read(self, ids: Sequence[str]) -> Snapshot: ...

    def due(self, query: DueQuery) -> Snapshot: ...

    def scan(self, query: ScanQuery) -> Page: ...

    def journal(self, record_id: str, after: int, limit: int) -> Sequence[Event]: ...

    def queues(self, prefix: str) -> Sequence[str]: ...

    def close(self) -> None: ...


class Writes(Protocol):
    """The writing side; whoever calls it holds the lead of the queue before it."""

    commits: int

    def commit(self, group: Sequence[Work]) -> list[Result]: ...

    def close(self) -> None: ...


E = TypeVar("E", bound=Writes)


class QueuedStore(Generic[E]):
    """The verbs of ``Store`` over an engine's two sides.

    Args:
        engine: what writes.
        reader: what reads.
        wakes: who waits.
        lost: makes the answer of a batch whose commit was cut short.
    """

    def __init__(
        self,
        engine: E,
        reader: Reads,
        wakes: Wakes,
        lost: Callable[[BaseException], Answer],
    ) -> None:
        self._pid = os.getpid()
        self._engine = engine
        self._reader = reader
        self._wakes = wakes
        self._queue = GroupCommit(engine.commit, lost)
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="indoubt-reader")
        self._closing = threading.Lock()
        self._closed = False

    @property
    def commits(self) -> int:
        """How many commits all writes so far took."""
        return self._engine.commits

    async def read(self, ids: Sequence[str]) -> Snapshot:
        check_ids(ids)
        return await self._off_loop(partial(self._reader.read, ids))

    def read_blocking(self, ids: Sequence[str]) -> Snapshot:
        check_ids(ids)
        self._usable()
        return self._reader.read(ids)

    async def write(self, batches: Sequence[Batch]) -> Sequence[Answer]:
        check_batches(batches)
        self._usable()
        answers = cast("list[Answer]", await self._handed_in(batches))
        self._wakes.announce(batches, answers)
        return answers

    def write_blocking(self, batches: Sequence[Batch]) -> Sequence[Answer]:
        check_batches(batches)
        self._usable()
        answers = cast("list[Answer] | None", self._queue.write(batches))
        if answers is None:
            raise _closed()
        self._wakes.announce(batches, answers)
        return answers

    async def due(self, query: DueQuery) -> Snapshot:
        check_due(query)
        return await self._off_loop(partial(self._reader.due, query))

    async def lease(self, query: DueQuery, lease: Lease) -> Snapshot:
        check_lease(query, lease)
        self._usable()
        (answer,) = await self._handed_in((Leasing(query, lease),))
        if isinstance(answer, StoreError):
            raise answer
        return cast("Snapshot", answer)

    async def queues(self, prefix: str = "") -> Sequence[str]:
        check_text(prefix, "prefix")
        return await self._off_loop(partial(self._reader.queues, prefix))

    async def wait(self, topics: Sequence[str], *, timeout: float) -> None:
        check_wait(topics, timeout)
        self._usable()
        await self._wakes.wait(topics, timeout=timeout)

    async def scan(self, query: ScanQuery) -> Page:
        check_scan(query)
        return await self._off_loop(partial(self._reader.scan, query))

    async def journal(self, record_id: str, *, after: int = 0, limit: int = 100) -> Sequence[Event]:
        check_journal(record_id, after, limit)
        return await self._off_loop(partial(self._reader.journal, record_id, after, limit))

    def hold_owner(self, owner: str) -> None:
        """Nothing, where no lock can tell: the lease alone tells of an owner on another machine."""
        self._usable()
        del owner

    def owner_dead(self, owner: str) -> bool | None:
        """It cannot be decided by a lease."""
        self._usable()
        del owner

    async def close(self) -> None:
        """Wait until all that was handed in is answered; again is no error."""
        self._own()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._closing:
            if not self._closed:
                self._closed = True
                self._queue.close()
                self._wakes.close()
                self._threads.shutdown()
                self._reader.close()
                self._engine.close()
                self._end()

    def _end(self) -> None:
        """What else a store has to close."""

    async def _handed_in(self, work: Sequence[Work]) -> list[Result]:
        future = self._queue.submit(work)
        if future is None:
            raise _closed()
        return await future

    async def _off_loop(self, ask: Callable[[], T]) -> T:
        self._usable()
        return await asyncio.get_running_loop().run_in_executor(self._threads, ask)

    def _usable(self) -> None:
        self._own()
        if self._closed:
            raise _closed()

    def _own(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedHandle("this store was opened before a fork: open it anew in the child")


def _closed() -> StoreUnavailable:
    return StoreUnavailable("the store is closed")
