"""The options that several commands share, declared once."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

import typer

from .exits import Exit, Told

Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="INDOUBT_URL",
        metavar="URL",
        help="The ledger, e.g. sqlite:///app.db (relative to this directory).",
    ),
]
Tenant = Annotated[
    str | None,
    typer.Option(
        "--tenant",
        envvar="INDOUBT_TENANT",
        metavar="ID",
        help="Only this tenant's records. Default: those of all.",
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document on stdout, and nothing else there."),
]
App = Annotated[
    str | None,
    typer.Option(
        "--app",
        envvar="INDOUBT_APP",
        metavar="PKG.MOD:LEDGER",
        help="Your program's ledger, whose probes and functions are used.",
    ),
]


class Kind(StrEnum):
    """The kinds of records that these commands can list."""

    EFFECT = "effect"
    DELAYED_EFFECT = "delayed_effect"


Kinds = Annotated[
    list[Kind] | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="Only records of this kind, effect or delayed_effect; may be repeated.",
    ),
]
Limit = Annotated[
    int, typer.Option("--limit", min=1, max=1000, metavar="N", help="At most so many on a page.")
]
Cursor = Annotated[
    str | None,
    typer.Option("--cursor", metavar="CURSOR", help="Go on where an earlier page ended."),
]
Ref = Annotated[
    str,
    typer.Argument(
        metavar="REF", help="A record's id, its ref, or any beginning that names only one."
    ),
]

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(text: str) -> timedelta:
    """Read ``30s``, ``5m``, ``1h``, ``250ms``; a bare number is seconds.

    Raises:
        Told: it is none of these.
    """
    read = _DURATION.fullmatch(text.strip())
    try:
        return timedelta(seconds=float(read[1]) * _UNITS[read[2] or "s"]) if read else _refuse(text)
    except OverflowError:
        return _refuse(text)


def _refuse(text: str) -> timedelta:
    raise Told(Exit.USAGE, f"{text!r} is no duration", next_step="write 30s, 5m, 1h or 250ms")


Wait = Annotated[
    str,
    typer.Option(
        "--wait",
        metavar="DURATION",
        help="Wait at most so long where a provider's `not found` needs time to be a proof.",
    ),
]
