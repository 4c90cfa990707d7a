"""Getting at the ledger a command is about, and at the record a person means.

A command never makes a ledger: one that is not there is an error. With ``--app`` the program's own
ledger is used, with its functions and probes; without it, no code of the program is loaded.
"""

from __future__ import annotations

import os
import sys
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from .escape import visible
from .exits import Exit, Told

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from datetime import datetime

    from indoubt.ledger import Ledger
    from indoubt.recovery.items import RecordView
    from indoubt.store import Store, Stored, Tenant

CANDIDATES = 5
"""How many ids an ambiguous beginning is answered with."""


class Reached(NamedTuple):
    """An open ledger, and whose records of it are asked for."""

    ledger: Ledger
    tenant: Tenant
    app: str | None = None


@asynccontextmanager
async def reach(
    store: str | None, tenant: str | None, app: str | None = None
) -> AsyncGenerator[Reached]:
    """Open the ledger for the time of a command."""
    from indoubt.ledger import Ledger  # noqa: PLC0415
    from indoubt.store import ANY_TENANT  # noqa: PLC0415 - `--help` needs none of this

    opened = None if app else _existing(store)
    ledger = _of_app(app, store) if app else Ledger(opened)
    try:
        yield Reached(ledger, ANY_TENANT if tenant is None else tenant, app)
    finally:
        await ledger.close()
        if opened is not None:
            await opened.close()


def url_of(store: str | None) -> str:
    """The URL that was given.

    Raises:
        Told: none was.
    """
    if store:
        return store
    raise Told(
        Exit.USAGE, "no ledger given", next_step="--store sqlite:///app.db, or set INDOUBT_URL"
    )


def _existing(store: str | None) -> Store:
    from indoubt import stores  # noqa: PLC0415

    return stores.open_existing(url_of(store))


def _of_app(app: str, store: str | None) -> Ledger:
    if store and store != os.environ.get("INDOUBT_URL"):
        raise Told(Exit.USAGE, "--app brings its own ledger: give it, or --store, not both")
    from indoubt.ledger import Ledger  # noqa: PLC0415

    found = loaded(app)
    ledger = getattr(found, "aio", found)  # a blocking ledger has its async one inside
    if not isinstance(ledger, Ledger):
        raise Told(Exit.USAGE, f"{visible(app)}: a {type(found).__name__}, not a Ledger")
    return ledger


def loaded(app: str) -> Any:
    """What ``pkg.mod:name`` names, from this directory or wherever Python finds it."""
    module, colon, path = app.partition(":")
    if not (module and colon and path):
        raise Told(Exit.USAGE, f"{visible(app)}: --app is pkg.mod:ledger")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _broken(app, error) from error
        raise Told(Exit.USAGE, f"{visible(app)}: no module named {error.name}") from error
    except Exception as error:
        raise _broken(app, error) from error
    for name in path.split("."):
        found = getattr(found, name, None)
        if found is None:
            raise Told(Exit.USAGE, f"{visible(app)}: {module} has no {visible(path)}")
    return found


def _broken(app: str, error: Exception) -> Told:
    return Told(
        Exit.ERROR,
        f"{visible(app)} does not load: {type(error).__name__}: {error}",
        next_step="INDOUBT_DEBUG=1 shows where",
    )


async def now_of(reached: Reached) -> datetime:
    """The ledger's own clock."""
    from indoubt.recovery.items import when  # noqa: PLC0415 - `--help` needs none of this

    return when((await reached.ledger.open().store.read(())).now_ms)


async def look_up(reached: Reached, text: str) -> RecordView:
    """The one record whose id begins so; an attempt behind a dot is left out.

    Raises:
        Told: there is none for this tenant, or more than one.
    """
    from indoubt.store import ScanQuery  # noqa: PLC0415

    prefix = text.partition(".")[0]
    if not prefix:
        raise Told(Exit.USAGE, "REF: a record's id or the beginning of one, like rec_7f3a")
    page = await reached.ledger.open().store.scan(
        ScanQuery(id_prefix=prefix, tenant_id=reached.tenant, limit=CANDIDATES + 1)
    )
    found = _only(page.records, prefix)
    return await reached.ledger.get(found.id, tenant_id=reached.tenant)


def _only(rows: Sequence[Stored], prefix: str) -> Stored:
    if not rows:
        raise Told(
            Exit.NOT_FOUND,
            f"{visible(prefix)}: no such record",
            next_step="list what there is: indoubt inbox",
        )
    if len(rows) > 1 and rows[0].id != prefix:
        more = ", …" if len(rows) > CANDIDATES else ""
        several = ", ".join([visible(row.id) for row in rows[:CANDIDATES]])
        raise Told(
            Exit.USAGE,
            f"{visible(prefix)} names more than one record: {several}{more}",
            next_step="give more of the id",
        )
    return rows[0]
