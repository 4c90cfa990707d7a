"""This process's own clock. It only sleeps and stops a holder early; it never permits anything.

It counts through system suspend (``CLOCK_BOOTTIME``), so a laptop that slept does not believe that
its permit still runs.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class LocalClock(Protocol):
    """What the engine needs of a clock; tests steer one by hand."""

    def now(self) -> float:
        """Seconds since some fixed instant, counted through suspend."""
        ...

    def sleep(self, seconds: float) -> None: ...

    async def sleep_async(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since boot, counted through suspend where the system can."""
        return time.clock_gettime(_BOOT)

    def sleep(self, seconds: float) -> None:
        """Sleep on the calling thread."""
        time.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        """Sleep on the running loop."""
        await asyncio.sleep(seconds)
