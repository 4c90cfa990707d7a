"""``indoubt demo``: a crash, and what the ledger makes of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from .edge import command
from .exits import Exit

Keep = Annotated[
    Path | None,
    typer.Option("--keep", metavar="DIR", help="Leave the ledger and the provider's memory there."),
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Play it in a new ledger there, which stays: postgresql://..., redis://...",
    ),
]
NoInput = Annotated[
    bool,
    typer.Option("--yes", "-y", "--no-input", help="Let a stand-in decide, instead of asking you."),
]


@command
def demo(*, store: Store = None, keep: Keep = None, no_input: NoInput = False) -> Exit:
    """See seven workers killed in the middle of payments, and what is then done about it.

    It starts processes of its own and really kills them. The bank is pretended, and counts; the
    ledger is in a temporary folder. It never touches another ledger, and leaves nothing behind
    unless you say --keep or --store.

    Example:
      indoubt demo --keep demo-files
      indoubt demo --store 'postgresql://me@localhost/db?schema=demo'
    """
    from indoubt.demo import run  # noqa: PLC0415 - nobody else needs it

    ask = not no_input and sys.stdin.isatty()
    return Exit(run(store=store, keep=None if keep is None else str(keep), ask=ask))
