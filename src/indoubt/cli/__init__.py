"""The command line: what an operator asks of a ledger, and what scripts read from it.

Importing this package loads neither typer nor a store; ``main`` does, when a command needs it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import NoReturn

EXTRA = ("typer", "rich")


def main() -> NoReturn:
    """Run ``indoubt`` on the arguments of this process."""
    for name in EXTRA:
        try:
            import_module(name)
        except ModuleNotFoundError as missing:
            if missing.name != name:
                raise
            sys.exit(f"indoubt: the command line needs {name}: pip install 'indoubt[cli]'")
    from .app import app  # noqa: PLC0415 - it needs the extra

    app(prog_name="indoubt")
    sys.exit(0)


__all__ = ["main"]
