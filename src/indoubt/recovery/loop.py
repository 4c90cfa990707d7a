"""The one poll loop: a pass, then the next at once if there is more, else when it is time.

Nothing runs before ``start`` or ``run``. A pass that fails is logged and tried again, ever more
slowly; only a cancellation ends the loop from outside.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger("indoubt.loop")
SLOWEST_S: Final = 30.0
"""Between two tries of a pass that fails each time."""


class Loop:
    """Runs passes in one task.

    Args:
        one_pass: does some work; True: there is more.
        until: waits until there may be work, at most so many seconds.
        interval_s: the longest wait between two passes.
        name: of the task.
    """

    def __init__(
        self,
        one_pass: Callable[[], Awaitable[bool]],
        until: Callable[[float], Awaitable[None]],
        *,
        interval_s: float,
        name: str,
    ) -> None:
        self._one_pass = one_pass
        self._until = until
        self._interval_s = interval_s
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    @property
    def running(self) -> bool:
        """Whether its task lives."""
        return self._task is not None and not self._task.done()

    @property
    def stopping(self) -> bool:
        """Whether it was asked to end."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Begin; started already is no error, and starts no second one (D-55)."""
        if not self.running:
            self._stopping.clear()
            self._task = asyncio.create_task(self._run(), name=self._name)

    def ask_to_stop(self) -> None:
        """End after the pass under way; not started is no error."""
        self._stopping.set()

    async def ended(self) -> None:
        """Wait for its end."""
        task = self._task
        if task is not None:
            await asyncio.wait({task})

    async def _run(self) -> None:
        failures = 0
        while not self.stopping:
            try:
                more = await self._one_pass()
                failures = 0
            except Exception:
                log.exception("%s: a pass failed; it is tried again", self._name)
                failures, more = failures + 1, False
            if not more and not self.stopping:
                await self._idle(failures)

    async def _idle(self, failures: int) -> None:
        """Wait for work, or for the end."""
        seconds = self._interval_s
        if failures:
            seconds = min(seconds * 2 ** min(failures, 16), SLOWEST_S)
            await self._sleep(seconds)
            return
        work = asyncio.ensure_future(self._until(seconds))
        end = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((work, end), return_when=asyncio.FIRST_COMPLETED)
            if work.done() and work.exception() is not None:
                await self._sleep(seconds)  # to look for work failed: the next pass says why
        finally:
            work.cancel()
            end.cancel()
            await asyncio.wait((work, end))

    async def _sleep(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return
