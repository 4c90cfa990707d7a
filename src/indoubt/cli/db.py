"""``indoubt db``: a store's schema, looked at and brought up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from . import options
from .access import url_of
from .edge import command
from .exits import Exit, Told
from .output import Output

if TYPE_CHECKING:
    from indoubt import stores

db = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look at a ledger's schema, and bring it up to date.",
)


@db.command()
@command
def status(*, store: options.Store = None, as_json: options.AsJson = False) -> Exit:
    """Say which schema the ledger has, and whether this version can use it.

    It only reads. Exit code 0: it can be used as it is; 6: `indoubt db upgrade` is needed, or a
    newer indoubt; 3: there is no ledger.

    Example:
      indoubt db status --store sqlite:///app.db
    """
    from indoubt import stores  # noqa: PLC0415 - engines load when one is looked at

    output = Output(as_json=as_json)
    found = stores.schema_status(url_of(store))
    if found.found is None:
        raise Told(
            Exit.NOT_FOUND,
            "there is no ledger",
            next_step="check --store; a program makes its ledger when it first uses it",
        )
    output.document(_document(found))
    output.line(_words(found))
    return Exit.DONE if found.found == found.latest else Exit.UPGRADE


@db.command()
@command
def upgrade(*, store: options.Store = None, as_json: options.AsJson = False) -> None:
    """Bring the ledger's schema to this version's.

    All steps are one transaction: it is done, or nothing has changed. Records stay readable
    throughout, and none is changed or removed. Older versions of indoubt refuse the ledger
    afterwards.

    Example:
      indoubt db upgrade --store sqlite:///app.db
    """
    from indoubt import stores  # noqa: PLC0415

    output, url = Output(as_json=as_json), url_of(store)
    before = stores.schema_status(url)
    with output.progress("upgrading") as tell:
        after = stores.upgrade(url, lambda done, steps, name: tell(f"{done}/{steps} {name}"))
    output.document(_document(after) | {"before": before.found})
    output.line(f"schema {after.found}, before {before.found}")


def _document(status: stores.SchemaStatus) -> dict[str, Any]:
    return {"found": status.found, "latest": status.latest, "pending": list(status.pending)}


def _words(status: stores.SchemaStatus) -> str:
    found, latest, _ = status
    if found == latest:
        return f"schema {found}, as this version writes it"
    if found is not None and found > latest:
        return f"schema {found}, newer than the {latest} of this version: use a newer indoubt"
    steps = ", ".join(status.pending)
    return f"schema {found}, this version needs {latest} ({steps}): run indoubt db upgrade"
