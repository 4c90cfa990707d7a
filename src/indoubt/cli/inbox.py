"""``indoubt inbox``: everything that may have happened and is not settled."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .access import Reached, now_of, reach
from .edge import command
from .exits import Exit
from .output import Output
from .wording import ago, comes_next, known, short_refs, what

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from indoubt.recovery.inbox import Inbox
    from indoubt.recovery.items import RecordView

HEADS = ("REF", "SINCE", "KIND", "WHAT", "ATTEMPT", "WHAT WE KNOW", "NEXT")
Check = Annotated[
    bool, typer.Option("--check", help="Exit with 4 if anything is in doubt, for monitors.")
]


@command
async def inbox(
    *,
    kinds: options.Kinds = None,
    limit: options.Limit = 100,
    cursor: options.Cursor = None,
    check: Check = False,
    store: options.Store = None,
    tenant: options.Tenant = None,
    as_json: options.AsJson = False,
) -> Exit:
    """List everything that is in doubt: what is marked, then what nobody has marked yet.

    What was sent and has no recorded answer, what waits for a person, and what evidence
    contradicts. It only reads: nothing is probed, sent or changed.

    Example:
      indoubt inbox --store sqlite:///app.db
      indoubt inbox --json --tenant acme | jq -r '.items[].ref'
    """
    output = Output(as_json=as_json)
    async with reach(store, tenant) as reached:
        page = await first_page(reached, kinds=kinds, limit=limit, cursor=cursor)
        now = await now_of(reached)
    output.document(
        {"items": [item.to_dict() for item in page.items], "cursor": page.cursor},
    )
    if not as_json:
        _show(output, page, now, tenant)
    return Exit.IN_DOUBT if check and page.items else Exit.DONE


async def first_page(
    reached: Reached,
    *,
    kinds: Sequence[str] | None = None,
    limit: int = 100,
    cursor: str | None = None,
) -> Inbox:
    """The first page with something on it: records that live holders have make empty ones."""
    while True:
        page = await reached.ledger.in_doubt(
            tenant_id=reached.tenant, kinds=kinds, limit=limit, cursor=cursor
        )
        if page.items or page.cursor is None:
            return page
        cursor = page.cursor


def _show(output: Output, page: Inbox, now: datetime, tenant: str | None) -> None:
    if not page.items:
        whose = "" if tenant is None else f" of tenant {tenant}"
        output.note(f"nothing{whose} is in doubt")
        return
    output.table(HEADS, _rows(page.items, now))
    if page.cursor is not None:
        output.note(f"more: the same with --cursor {page.cursor}")


def _rows(items: Sequence[RecordView], now: datetime) -> list[tuple[str, ...]]:
    """A terminal gets refs that fit, a pipe whole ones."""
    refs = short_refs(items) if sys.stdout.isatty() else [item.ref for item in items]
    return [
        (
            ref,
            ago(now - item.since),
            item.kind,
            what(item),
            str(item.attempt),
            known(item, now),
            comes_next(item),
        )
        for ref, item in zip(refs, items, strict=True)
    ]
