"""The demo: seven workers die by ``kill -9`` in the middle of payments; see what is done about it.

A provider in a process of its own, with its own durable count, is the judge. Needs no account, no
network but loopback, and leaves nothing behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def run(
    *,
    store: str | None = None,
    keep: str | None = None,
    ask: bool = True,
    console: Console | None = None,
) -> int:
    """Play it; 0 if the provider's own count is right in every cell.

    Args:
        store: where to make the ledger, which stays there; else it is a file that does not.
        keep: a directory to leave the ledger and the provider's memory in, to look around.
        ask: let the person at the terminal decide; else a stand-in does.
        console: where to print.

    Raises:
        ValueError: there is a ledger at ``store``, or something at ``keep``, already.
        StoreError: a ledger cannot be made there.
    """
    from .play import play  # noqa: PLC0415 - the workers, who start seven times, need none of it

    return play(store=store, keep=keep, ask=ask, console=console)
