"""``Worker``: an ordinary process that calls the library, for all that goes on by itself.

It fires delayed effects and, if asked, goes through what is in doubt every so often. Nothing runs
before ``run``, ``run_once`` or ``async with``.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import msgspec

from indoubt.delayed_effects import DelayedEffectStore, DelayedEffectWorker
from indoubt.guard.policy import milliseconds
from indoubt.ledger import Ledger
from indoubt.recovery.loop import Loop
from indoubt.recovery.recover import Recovery

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger("indoubt.worker")


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass did.

    Attributes:
        claimed: delayed effects that were claimed.
        results: what they came to, counted by action.
        recovery: what ``Ledger.recover`` did; None where it was not asked for.
    """

    claimed: int = 0
    results: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    recovery: Recovery | None = None


class Worker:
    """Everything of one ledger that a process may do in the background, with bounded concurrency.

    Args:
        ledger: whose store it works on, and whose effects it may replay.
        delayed_effects: handlers by effect type, as ``DelayedEffectWorker`` takes them.
        store: of the delayed effects; default: one on the ledger.
        concurrency: how many handlers run at once.
        recover_every: how often to go through what is in doubt; None: never.
        options: further arguments of ``DelayedEffectWorker``.

    Raises:
        TypeError, ValueError: a wrong argument; nothing was opened.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        delayed_effects: Mapping[str, Any] | None = None,
        store: DelayedEffectStore | None = None,
        concurrency: int = 8,
        recover_every: timedelta | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(ledger, Ledger):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"ledger: a Ledger, not {type(ledger).__name__}")
        self.ledger = ledger
        self._effects = DelayedEffectWorker(
            DelayedEffectStore(ledger) if store is None else store,
            delayed_effects or {},
            concurrency=concurrency,
            **options,
        )
        self._recovers = recover_every is not None
        every = timedelta(minutes=1) if recover_every is None else recover_every
        self._recovery = Loop(
            self._recover_page,
            self._idle,
            interval_s=milliseconds(every, "recover_every") / 1000,
            name="indoubt-recover",
        )
        self._cursor: str | None = None

    async def run_once(self) -> WorkerReport:
        """One batch of delayed effects, and one page of recovery if that is asked for."""
        report = await self._effects.run_once()
        recovery = await self.ledger.recover() if self._recovers else None
        return WorkerReport(claimed=report.claimed, results=report.results, recovery=recovery)

    async def run(self) -> None:
        """Work until cancelled or stopped; then finish what runs, and hand over the rest."""
        await self.start()
        try:
            await self._effects.ended()
        finally:
            await self.stop()

    async def start(self) -> None:
        """Begin to work in the background; again is no error."""
        await self._effects.start()
        if self._recovers:
            self._recovery.start()

    async def stop(self) -> None:
        """Take on nothing more, and end gracefully; not started is no error."""
        self._recovery.ask_to_stop()
        await asyncio.gather(self._effects.stop(), self._recovery.ended())

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()

    async def _recover_page(self) -> bool:
        done = await self.ledger.recover(cursor=self._cursor, wait=timedelta(0))
        self._cursor = done.cursor
        for ref, error in done.errors:
            log.warning("%s could not be looked at: %s", ref, error)
        return done.cursor is not None

    async def _idle(self, seconds: float) -> None:
        await self.ledger.open().store.wait((), timeout=seconds)
