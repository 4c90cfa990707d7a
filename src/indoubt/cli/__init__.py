"""The command line: what an operator asks of a ledger, and what scripts read from it.

Importing this package loads neither typer nor a store; ``main`` does, when a command needs it.
"""

from __future__ import annotations

import sys
from typing import NoReturn

OPTIONAL = {"rich", "typer"}


def main() -> NoReturn:
    """Run ``indoubt`` on the arguments of this process."""
    try:
        from .app import app  # noqa: PLC0415 - the extra may be missing
    except ModuleNotFoundError as missing:
        if missing.name not in OPTIONAL:
            raise
        sys.exit(f"indoubt: the command line needs {missing.name}: pip install 'indoubt[cli]'")
    app()
    sys.exit(0)


__all__ = ["main"]
