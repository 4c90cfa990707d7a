"""The store's time: the host's wall clock, made monotone.

It never runs backwards and never stands still, also when the wall clock is set back: then it goes
on with the clock that counts since boot. Both clocks can be injected, so tests steer them.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

_NANOSECONDS_PER_MS = 1_000_000
# Counts while the machine sleeps, as CLOCK_MONOTONIC on Linux does not; elsewhere it is the best.
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """What a store that runs on this host reads: two clocks, both in milliseconds."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may be set forwards or backwards at any time."""
        ...

    def boot_ms(self) -> int:
        """Milliseconds since some start; never set, also counts while the machine sleeps."""
        ...


class SystemClock:
    """The host's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // _NANOSECONDS_PER_MS

    def boot_ms(self) -> int:
        return time.clock_gettime_ns(_SINCE_BOOT) // _NANOSECONDS_PER_MS


def took_ms(work: Callable[[], object]) -> float:
    """How long some work took, on a clock that nobody sets."""
    began = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - began) / _NANOSECONDS_PER_MS


class Moment(NamedTuple):
    """One reading, as it is persisted; ``boot`` names the start that ``boot_ms`` counts from.

    Readings of different boots (or of a clock without a name, "") cannot be compared.
    """

    now_ms: int
    boot_ms: int
    boot: str


NEVER = Moment(0, 0, "")


class StoreTime:
    """Combines the clocks, what this process saw last and what is persisted; thread-safe."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._boot = _boot_id() if isinstance(self._clock, SystemClock) else ""
        self._lock = threading.Lock()
        self._last = Moment(0, self._clock.boot_ms(), self._boot)

    def now(self, persisted: Moment = NEVER) -> Moment:
        """The time now: not below ``persisted``, nor below any earlier answer."""
        with self._lock:
            boot_ms = self._clock.boot_ms()
            now_ms = max(
                self._clock.wall_ms(),
                persisted.now_ms,
                self._last.now_ms + max(0, boot_ms - self._last.boot_ms),
            )
            if self._boot and persisted.boot == self._boot:
                # Another process of this boot wrote it: time went on since, whoever watched.
                now_ms = max(now_ms, persisted.now_ms + max(0, boot_ms - persisted.boot_ms))
            self._last = Moment(now_ms, boot_ms, self._boot)
            return self._last


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:  # not Linux: time still goes on within each process
        return ""
