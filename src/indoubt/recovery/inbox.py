"""Everything in doubt, as one paged list: oldest first within each half.

First what is marked: in doubt, waiting for a person, permitted, or contradicted by evidence. Then
what was dispatched and has no holder any more (nobody has marked it yet); no index leads to these
alone, so that a full page is never kept waiting for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from indoubt.core.codec import record_of
from indoubt.core.record import Record, State
from indoubt.core.situation import held
from indoubt.store import ScanQuery, Tenant

from .items import RecordView, view
from .recover import KINDS

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
    query = ScanQuery(kinds=kinds, tenant_id=tenant_id)
    half, after = _position(cursor)
    found: dict[str, RecordView] = {}
    if half == MARKED:
        more = await _marked(engine, query, after, limit, found)
        if more is not None or len(found) >= limit:
            return Inbox(tuple(found.values()), UNMARKED if more is None else MARKED + more)
        after = None
    more = await _unmarked(engine, query, after, limit - len(found), found)
    if more is None and cursor is None:
        # What was marked between the two readings must not be missed by whoever reads only once.
        await _marked(engine, query, None, limit, found)
    return Inbox(tuple(found.values()), None if more is None else UNMARKED + more)


async def _marked(
    engine: Engine, query: ScanQuery, after: str | None, limit: int, found: dict[str, RecordView]
) -> str | None:
    page = await engine.store.scan(query._replace(view="doubt", after=after, limit=limit))
    for row in page.records:
        found[row.id] = view(record_of(row), page.now_ms)
    return page.cursor


async def _unmarked(
    engine: Engine, query: ScanQuery, after: str | None, limit: int, found: dict[str, RecordView]
) -> str | None:
    states = (State.DISPATCHED.value,)
    kinds = tuple([kind for kind in query.kinds or KINDS if kind in KINDS])
    if not kinds:  # what goes on by itself when its holder is gone is in nobody's inbox
        return None
    page = await engine.store.scan(
        query._replace(view="ready", kinds=kinds, states=states, after=after, limit=limit)
    )
    for record in [record_of(row) for row in page.records]:
        if _holderless(engine, record, page.now_ms):
            found[record.id] = view(record, page.now_ms, dead=True)
    return page.cursor


def _position(cursor: str | None) -> tuple[str, str | None]:
    if cursor is None:
        return MARKED, None
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
