"""Pruning: what has ended long ago makes room, and its repeat is still known.

A keyed act leaves a tombstone of a few bytes in its place (in one write, on the version that was
judged), because without it a repeat of the call would be sent again: the model needs 13 steps for
that (key succeeds, is pruned, is repeated). Killed half-way, it has done some records and not the
others; called again, it goes on. The rules are those of ``core/retention.py``.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from indoubt.core.bounds import DURATION_MS_MAX
from indoubt.core.codec import record_of
from indoubt.core.record import CLOSED, Record
from indoubt.core.retention import Ages, Fate, fate, tombstone
from indoubt.engine.engine import PATIENCE_S, Seen
from indoubt.store import ScanQuery, Tenant

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from indoubt.engine.drivers import AsyncDriver
    from indoubt.engine.engine import Engine
    from indoubt.engine.requests import Request
    from indoubt.store import Page, Stored

PAGE = 200
CONCURRENCY = 32
"""Writes under way at once: they share commits."""
FORGET_MIN = timedelta(days=7)
CHILDLESS = frozenset({"effect"})
"""Kinds whose records are never another's root, so that nobody need look for children."""


class Retention(msgspec.Struct, frozen=True):
    """How long a ledger keeps what has ended, counted from the record's last change.

    Attributes:
        after: records that ended, and are certain, go after this; those with a key leave a
            tombstone. A repeat of the call then raises ``OutcomePruned``.
        unknown: records that a person gave up on go after this; None: never. They may still be
            corrected until then.
        forget_after: tombstones go after this, at least seven days; None: never. After that the
            effect of a repeated call may happen again.
    """

    after: timedelta
    unknown: timedelta | None = None
    forget_after: timedelta | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            TypeError: no timedelta. ValueError: not above zero, or too short to forget.
        """
        self.ages()
        if self.forget_after is not None and self.forget_after < FORGET_MIN:
            raise ValueError("forget_after: at least seven days: after it the effect may repeat")

    def ages(self) -> Ages:
        """The same, as the rules read it."""
        return Ages(
            after_ms=_ms(self.after, "after"),
            unknown_ms=None if self.unknown is None else _ms(self.unknown, "unknown"),
            forget_ms=None if self.forget_after is None else _ms(self.forget_after, "forget_after"),
        )


def _ms(value: object, where: str) -> int:
    if not isinstance(value, timedelta):
        raise TypeError(f"{where}: a timedelta, not {type(value).__name__}")
    ms = -(-value // timedelta(milliseconds=1))
    if not 0 < ms <= DURATION_MS_MAX:
        raise ValueError(f"{where}: above zero, at most ten years")
    return ms


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """What pruning came to so far.

    Attributes:
        looked_at: records that had ended and were old enough to be judged.
        tombstones: keyed records that were replaced.
        deleted: records without a key that went.
        forgotten: tombstones that went.
    """

    looked_at: int = 0
    tombstones: int = 0
    deleted: int = 0
    forgotten: int = 0


class Pruning:
    """One ``Ledger.prune``."""

    def __init__(self, engine: Engine, driver: AsyncDriver, retention: Retention) -> None:
        self._engine = engine
        self._driver = driver
        self._ages = retention.ages()
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._done = dict.fromkeys(Fate, 0)

    async def go(
        self,
        *,
        tenant_id: Tenant,
        kinds: Sequence[str],
        progress: Callable[[Pruned], object] | None,
    ) -> Pruned:
        """Judge everything that has ended, oldest first, a page at a time."""
        states = tuple(sorted(state.value for state in CLOSED))
        query = ScanQuery(kinds=tuple(kinds), states=states, tenant_id=tenant_id, limit=PAGE)
        while True:
            page = await self._engine.store.scan(query)
            await self._prune(page)
            if progress is not None:
                progress(self._counts())
            # Records are listed by insertion: those that follow are younger than this page's last.
            if page.cursor is None or self._young(page.records[-1], page.now_ms):
                return self._counts()
            query = query._replace(after=page.cursor)

    def _young(self, row: Stored, now_ms: int) -> bool:
        """Too young to go, whatever it is; so are the tombstones that this very pass made."""
        return row.created_at + self._ages.least_ms > now_ms

    async def _prune(self, page: Page) -> None:
        old = [row for row in page.records if not self._young(row, page.now_ms)]
        seen = [Seen(record_of(row), page.now_ms, page.epoch) for row in old]
        for became in await asyncio.gather(*map(self._one, seen)):
            self._done[became] += 1

    async def _one(self, seen: Seen) -> Fate:
        record = seen.record
        if record is None:
            return Fate.KEEP
        judged = fate(record, seen.now_ms, self._ages, alive=self._alive(record))
        if judged is Fate.KEEP:
            return judged
        async with self._slots:
            if await self._needed(record):
                return Fate.KEEP
            return await self._driver.drive(self._bury(seen, record, judged))

    def _alive(self, record: Record) -> bool:
        """Whether a process that may still send an open attempt is known to live."""
        loud = {attempt.owner for attempt in record.open_attempts if attempt.silent_at_ms is None}
        return any(self._engine.store.owner_dead(owner) is False for owner in loud if owner)

    async def _needed(self, record: Record) -> bool:
        """A child stays while its root is open, a root while it has children."""
        store = self._engine.store
        if record.root_id != record.id:
            rows = (await store.read((record.root_id,))).records
            if rows and not record_of(rows[0]).closed:
                return True
        if record.kind in CHILDLESS:
            return False
        return bool((await store.scan(ScanQuery(parent_id=record.id, limit=1))).records)

    def _bury(self, seen: Seen, record: Record, judged: Fate) -> Generator[Request, Any, Fate]:
        """Write it; a record that has changed since it was judged is kept for another time."""
        left = tombstone(record) if judged is Fate.TOMBSTONE else None
        deadline = self._engine.clock.now() + PATIENCE_S
        done = yield from self._engine.bury(seen, left, deadline=deadline)
        return judged if done else Fate.KEEP

    def _counts(self) -> Pruned:
        done = self._done
        return Pruned(
            looked_at=sum(done.values()),
            tombstones=done[Fate.TOMBSTONE],
            deleted=done[Fate.DELETE],
            forgotten=done[Fate.FORGET],
        )
