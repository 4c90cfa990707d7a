"""``indoubt recover``: go through what is not settled, and go on where that is safe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .access import Reached, now_of, reach
from .edge import command
from .exits import Exit
from .output import Output
from .wording import comes_next, known, what

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from datetime import datetime

    from indoubt.recovery.items import RecordView
    from indoubt.recovery.recover import Recovery

LISTS = ("settled", "replayed", "waiting", "asked", "skipped")
HEADS = ("BECAME", "REF", "WHAT", "STATE", "WHAT WE KNOW", "NEXT")
LISTED_MAX = 1_000
"""Records of each list in one JSON document; ``counts`` counts all of them."""
NO_APP = (
    "no --app: no probe and no function of your program is called; this lists what is not settled"
    " and ends the leases of holders that are gone"
)
NO_EFFECTS = (
    "{app} has no effects registered: its ledger was found, but nothing was guarded with it when"
    " it was imported; name the module that defines your effects, or import them there"
)
All = Annotated[bool, typer.Option("--all", help="All pages, not only one.")]


@command
async def recover(
    *,
    app: options.App = None,
    wait: options.Wait = "30s",
    limit: options.Limit = 100,
    everything: All = False,
    cursor: options.Cursor = None,
    kinds: options.Kinds = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    as_json: options.AsJson = False,
) -> Exit:
    """Probe and settle what is in doubt, a page at a time.

    With --app your program's probes are asked, and a function is called again only where the
    verdict is that this is safe. Without it nothing of your program is called: it lists,
    ends the leases of holders that are gone, and puts to a person what nothing else can
    settle. It never sends what was never sent before.

    Example:
      indoubt recover --app shop.app:ledger --all
    """
    output, tally, patience = Output(as_json=as_json), Tally(), options.duration(wait)
    async with reach(store, tenant, app) as reached:
        if not app:
            output.note(NO_APP)
        elif not reached.ledger.effects:
            output.note(NO_EFFECTS.format(app=app))
        with output.progress("recovering") as tell:
            async for page in _pages(
                reached,
                everything=everything,
                wait=patience,
                limit=limit,
                cursor=cursor,
                kinds=kinds,
            ):
                tally.add(page)
                tell(tally.words())
        now = await now_of(reached)
    output.document({"app": app} | tally.document())
    if not as_json:
        _show(output, tally, now)
    return Exit.ERROR if tally.errors else Exit.DONE


async def _pages(
    reached: Reached, *, everything: bool, cursor: str | None, **asked: Any
) -> AsyncGenerator[Recovery]:
    """One page, or all from the cursor on."""
    while True:
        page = await reached.ledger.recover(
            tenant_id=reached.tenant, cursor=cursor, run=reached.app is not None, **asked
        )
        yield page
        cursor = page.cursor
        if cursor is None or not everything:
            return


class Tally:
    """What all pages together came to."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = dict.fromkeys(LISTS, 0)
        self.listed: dict[str, list[RecordView]] = {name: [] for name in LISTS}
        self.errors: list[tuple[str, str]] = []
        self.cursor: str | None = None

    def add(self, page: Recovery) -> None:
        """Count a page; of very many, only the first are kept to be shown."""
        for name, listed in self.listed.items():
            views: tuple[RecordView, ...] = getattr(page, name)
            self.counts[name] += len(views)
            listed.extend(views[: LISTED_MAX - len(listed)])
        self.errors += page.errors
        self.cursor = page.cursor

    def words(self) -> str:
        """The counts, in one line."""
        counts = {**self.counts, "errors": len(self.errors)}
        told = [f"{count} {name}" for name, count in counts.items() if count]
        return ", ".join(told) or "nothing to do"

    def document(self) -> dict[str, Any]:
        """Plain JSON."""
        lists = {name: [view.to_dict() for view in views] for name, views in self.listed.items()}
        errors = [{"ref": ref, "error": error} for ref, error in self.errors]
        return {"counts": self.counts, **lists, "errors": errors, "cursor": self.cursor}


def _next(became: str, item: RecordView) -> str:
    return f"a repeat of the call ({item.reason})" if became == "skipped" else comes_next(item)


def _show(output: Output, tally: Tally, now: datetime) -> None:
    output.title(tally.words())
    rows = [
        (name, item.ref, what(item), item.state, known(item, now), _next(name, item))
        for name, items in tally.listed.items()
        for item in items
    ]
    if rows:
        output.table(HEADS, rows)
    for ref, error in tally.errors:
        output.note(f"{ref}: {error}")
    if tally.cursor is not None:
        output.note(f"more: the same with --cursor {tally.cursor}, or --all")
