"""Everything in doubt, as one paged list: oldest first within each half.

First what was dispatched and has no holder any more (nobody has marked it yet), then what is
marked: in doubt, waiting for a person, permitted, or contradicted by evidence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from indoubt.core.codec import record_of
from indoubt.core.record import Record, State
from indoubt.core.situation import held
from indoubt.store import ScanQuery, Tenant

from .items import RecordView, view

if TYPE_CHECKING:
    from indoubt.engine.engine import Engine

UNMARKED, MARKED = "u.", "m."


class Inbox(msgspec.Struct, frozen=True):
    """One page; ``cursor`` None means that there is no more."""

    items: tuple[RecordView, ...]
    cursor: str | None = None


async def read_inbox(
    engine: Engine,
    *,
    tenant_id: Tenant,
    kinds: tuple[str, ...],
    limit: int,
    cursor: str | None,
) -> Inbox:
    """Read one page."""
    items: list[RecordView] = []
    query = ScanQuery(kinds=kinds, tenant_id=tenant_id)
    half, after = _position(cursor)
    if half == UNMARKED:
        unmarked = query._replace(view="ready", states=(State.DISPATCHED.value,))
        page = await engine.store.scan(unmarked._replace(after=after, limit=limit))
        records = [record_of(row) for row in page.records]
        items = [
            view(record, page.now_ms, dead=True)
            for record in records
            if _holderless(engine, record, page.now_ms)
        ]
        if page.cursor is not None:
            return Inbox(tuple(items), UNMARKED + page.cursor)
        after = None
    if len(items) >= limit:
        return Inbox(tuple(items), MARKED)
    marked = query._replace(view="doubt", after=after, limit=limit - len(items))
    page = await engine.store.scan(marked)
    items += [view(record_of(row), page.now_ms) for row in page.records]
    return Inbox(tuple(items), None if page.cursor is None else MARKED + page.cursor)


def _position(cursor: str | None) -> tuple[str, str | None]:
    if cursor is None:
        return UNMARKED, None
    if not isinstance(cursor, str) or cursor[:2] not in {UNMARKED, MARKED}:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError("cursor: not one of this listing")
    return cursor[:2], cursor[2:] or None


def show(engine: Engine, record: Record, now_ms: int) -> RecordView:
    """Show one record, as this process knows whether its holder lives."""
    gone = record.state is State.DISPATCHED and _holderless(engine, record, now_ms)
    return view(record, now_ms, dead=gone)


def _holderless(engine: Engine, record: Record, now_ms: int) -> bool:
    dead = record.owner is not None and engine.owner.dead(record.owner)
    return not held(record, now_ms=now_ms, dead=dead)
