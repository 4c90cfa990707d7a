"""The ledger's verbs without ``await``: ``from indoubt.sync import Ledger``.

The same ledger behind another face: every verb has the signature, the answer and the errors of
``indoubt.Ledger``'s, and waits on the calling thread, also where that thread runs an event loop
(which then stands still meanwhile). A guarded ``def`` runs on the calling thread, an ``async def``
stays awaitable.
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from indoubt.engine.background import background_loop, run_in_background
from indoubt.ledger import LEASE
from indoubt.ledger import Ledger as AsyncLedger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import timedelta

    from indoubt.engine.clock import LocalClock
    from indoubt.guard.opened import Opened
    from indoubt.store import Store

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    verb: Callable[Concatenate[AsyncLedger, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Ledger, P], T]:
    """The same verb for callers that cannot await; its signature cannot come to differ."""

    @functools.wraps(verb)
    def call(self: Ledger, /, *args: P.args, **kwargs: P.kwargs) -> T:
        _refuse_own_loop(verb.__name__)
        return run_in_background(verb(self.aio, *args, **kwargs))

    return call


def _refuse_own_loop(verb: str) -> None:
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return
    if running is background_loop():  # it would wait for itself, for ever
        raise RuntimeError(
            f"{verb}: this coroutine runs on indoubt's own loop (an async probe does);"
            " await the verb of the async ledger here: ledger.aio"
        )


class Ledger:
    """``indoubt.Ledger`` for code that does not await; a context manager that closes it.

    Args:
        store: a URL (``sqlite:///path``, ``memory:``), an open store, another ledger, or None for
            the URL in ``INDOUBT_URL``; ``close`` closes what a URL opened.
            A program that forks gives a URL: a child then opens its own.
        lease: how long a holder that does not renew keeps its records.
        allow_ledger_loss: accept a store that may forget.
        abandon_after: ``recover`` closes what was never sent and nobody repeated for so long.

    Attributes:
        aio: the async ledger behind this one; both may be used in one program.
        effect: guards a function, as ``indoubt.Ledger.effect`` does.
        scope: names a place and a tenant, as ``indoubt.Ledger.scope`` does.
    """

    def __init__(
        self,
        store: str | Store | Opened | None = None,
        *,
        lease: timedelta = LEASE,
        allow_ledger_loss: bool = False,
        abandon_after: timedelta | None = None,
        clock: LocalClock | None = None,
    ) -> None:
        self.aio = AsyncLedger(
            store,
            lease=lease,
            allow_ledger_loss=allow_ledger_loss,
            abandon_after=abandon_after,
            clock=clock,
        )
        self.effect = self.aio.effect
        self.scope = self.aio.scope

    in_doubt = _blocking(AsyncLedger.in_doubt)
    decide = _blocking(AsyncLedger.decide)
    recover = _blocking(AsyncLedger.recover)
    get = _blocking(AsyncLedger.get)
    find = _blocking(AsyncLedger.find)
    journal = _blocking(AsyncLedger.journal)
    probe = _blocking(AsyncLedger.probe)
    cancel = _blocking(AsyncLedger.cancel)
    prune = _blocking(AsyncLedger.prune)
    close = _blocking(AsyncLedger.close)

    def __enter__(self) -> Self:
        """Open the store now instead of at the first call."""
        self.aio.open()
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


__all__ = ["Ledger"]
