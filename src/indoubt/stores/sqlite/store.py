"""One SQLite file as a store: durable at every answer, for any number of threads and processes."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, cast

from ...errors import ForkedHandle, StoreError, StoreUnavailable
from ...store import Capabilities
from ..checks import (
    check_batches,
    check_due,
    check_ids,
    check_journal,
    check_lease,
    check_scan,
    check_text,
    check_wait,
)
from ..clock import Clock, StoreTime
from ..group_commit import GroupCommit, Leasing, Work
from ..owners import Owners
from .connection import PATIENCE_MS, Place
from .engine import Engine
from .faults import answer_lost
from .reader import Reader
from .schema import prepare
from .turns import Turns
from .wakes import FileWakes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...store import Batch, DueQuery, Event, Lease, Page, ScanQuery, Snapshot
    from ..group_commit import Answer, Result

_DURABLE_WHY: Final = "SQLite syncs its write-ahead log (synchronous=FULL) before it answers."
T = TypeVar("T")


class SQLiteStore:
    """Opens, and if need be creates, the ledger in one file of its own.

    Args:
        path: the file; ``<path>-owners/`` beside it holds the locks of living owners.
        create: make the file if it is missing or empty.
        upgrade: bring an older schema to this version's.
        clock: the host's clocks; tests give one that they steer.
        patience_ms: how long to wait for other processes' writes.
        vfs: name of a registered SQLite file system.

    Raises:
        SchemaMissing, SchemaTooOld, SchemaTooNew: the file does not hold this version's schema.
        StoreBroken: no database, another program's, or unusable.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        upgrade: bool = False,
        clock: Clock | None = None,
        patience_ms: int = PATIENCE_MS,
        vfs: str | None = None,
    ) -> None:
        # Two names of one file must find the same owners, also after a chdir.
        self.path = os.path.realpath(path)
        place = Place(self.path, vfs, patience_ms)
        time = StoreTime(clock)
        self.meta = prepare(place, time, create=create, upgrade=upgrade)
        self._pid = os.getpid()
        self._owners = Owners(Path(self.path))
        self._turns = Turns(place, self._owners.folder / ".turn")
        self._engine = Engine(place, time, self._turns)
        self._queue = GroupCommit(self._engine.commit, partial(answer_lost, path=self.path))
        self._wakes = FileWakes(place)
        self._reader = Reader(place, time, self.meta.incarnation)
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="indoubt-reader")
        self._closing = threading.Lock()
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            durable=True,
            durable_why=_DURABLE_WHY,
            shared=True,
            decides_silence=self._owners.decides,
            blocking=True,
        )

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
        answers = self._queue.write(batches)
        if answers is None:
            raise _closed()
        self._wakes.announce(batches, answers)
        return cast("list[Answer]", answers)

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
        self._usable()
        self._owners.hold(owner)

    def owner_dead(self, owner: str) -> bool | None:
        self._usable()
        return self._owners.dead(owner)

    def release_owner(self, owner: str) -> None:
        """Let the owner count as dead before the process ends; ``close`` does not.

        Only for a caller who knows that nothing of this owner's is still running.
        """
        self._usable()
        self._owners.release(owner)

    async def close(self) -> None:
        """Wait until all that was handed in is answered; again is no error."""
        self._own()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._closing:
            if not self._closed:
                self._closed = True
                self._queue.close()
                self._threads.shutdown()
                self._reader.close()
                self._wakes.close()
                self._engine.close()
                self._turns.close()

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
