"""The ``indoubt`` program: its commands, in the order in which a person meets them."""

from __future__ import annotations

from typing import Annotated

import typer

from indoubt import __version__

from .db import db
from .decide import decide
from .demo import demo
from .doctor import doctor
from .effects import effects
from .exits import EXITS
from .inbox import inbox
from .probe import probe
from .recover import recover
from .show import show
from .worker import worker

_EXITS = "\n".join([f"  {code.value:>3}  {meaning}" for code, meaning in EXITS.items()])
HELP = """It may have happened: look into a ledger, find out, decide, recover.

indoubt keeps a durable record of what your program did to the world. These commands show what is
in doubt, ask providers about it, record what people decided, and go on where that is safe. None of
them ever sends an effect again unless its verdict is that this is safe, or a person allowed it.
"""
EPILOG = f"""\b
Exit codes:
{_EXITS}

\b
INDOUBT_URL, INDOUBT_TENANT and INDOUBT_APP stand for --store, --tenant and --app.
INDOUBT_DEBUG=1 shows the traceback of an error. NO_COLOR turns colours off.
"""

app = typer.Typer(
    name="indoubt",
    help=HELP,
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:  # noqa: FBT001 - as the framework calls it
    if asked:
        typer.echo(f"indoubt {__version__}")
        raise typer.Exit


@app.callback()
def indoubt(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Replaced by HELP."""


for one in (demo, inbox, show, probe, decide, recover, worker, doctor):
    app.command()(one)
app.add_typer(effects, name="effects")
app.add_typer(db, name="db")
