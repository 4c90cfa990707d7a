"""Time that passes when a test says so: one clock for a store and for the ledger above it.

Sleeping on a `ManualClock` moves it on and returns at once, so a test that waits for a lease, a
permit or a settle time takes no time. `memory_ledger` is a ledger that lives by such a clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from indoubt.engine.holds import Heartbeat
from indoubt.ledger import LEASE, Ledger
from indoubt.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Generator

    from indoubt.engine.holds import Hold

START_MS = 1_750_000_000_000
NEVER = math.inf
MICRO = timedelta(microseconds=1)


class Alarm(Protocol):
    """Something that is to happen when a clock reaches a moment."""

    def due(self) -> float:
        """When, in the clock's seconds; `math.inf`: not for now."""
        ...

    def ring(self) -> None:
        """It is time: do it, and be due later than now."""
        ...


class ManualClock:
    """A host whose time stands still until `advance`, `step` or somebody's sleep.

    It is all three clocks of a host: the wall clock and the clock since boot that a store reads
    (`indoubt.stores.clock.Clock`), and the local clock of an engine (`LocalClock`). A second one
    is a second host, with its own time.
    """

    def __init__(self, *, wall_ms: int = START_MS) -> None:
        """Take the wall clock's first reading, milliseconds since 1970."""
        self._micros = 0
        self._wall_ms = wall_ms
        self._lock = threading.Lock()
        self._alarms: list[Alarm] = []

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as `step` and the passing time left them."""
        return self._wall_ms + self.boot_ms()

    def boot_ms(self) -> int:
        """Milliseconds since this clock was made; `step` does not move it."""
        return self._micros // 1000

    def now(self) -> float:
        """Seconds since this clock was made."""
        return self._micros / 1_000_000

    def advance(self, by: timedelta) -> None:
        """Let time pass; what was due meanwhile is done, in order, each at its moment.

        Raises:
            ValueError: time does not run backwards (a wall clock may: `step`).
        """
        if by < timedelta(0):
            raise ValueError("time does not run backwards; see step()")
        with self._lock:
            end = self._micros + by // MICRO
        # Unlocked while they ring: what they do may itself take time, or wait for a thread's.
        while (alarm := self._next_before(end)) is not None:
            alarm.ring()
        with self._lock:
            self._micros = max(self._micros, end)

    def step(self, by: timedelta) -> None:
        """Set the wall clock forwards or back; no time passes."""
        with self._lock:
            self._wall_ms += by // timedelta(milliseconds=1)

    def sleep(self, seconds: float) -> None:
        """Advance by so much."""
        self.advance(timedelta(microseconds=math.ceil(seconds * 1_000_000)))

    async def sleep_async(self, seconds: float) -> None:
        """Advance by so much, and let others run."""
        self.sleep(seconds)
        await asyncio.sleep(0)

    def add(self, alarm: Alarm) -> None:
        """Ring it whenever it is due."""
        with self._lock:
            self._alarms.append(alarm)

    def remove(self, alarm: Alarm) -> None:
        """Ring it no more."""
        with self._lock:
            if alarm in self._alarms:
                self._alarms.remove(alarm)

    def _next_before(self, end: int) -> Alarm | None:
        """Put the clock forward to the next alarm, if it is due by then."""
        with self._lock:
            alarm = min(self._alarms, key=lambda one: one.due(), default=None)
            due = NEVER if alarm is None else alarm.due() * 1_000_000
            if due > end:
                return None
            self._micros = max(self._micros, math.ceil(due))
            return alarm


class SteppedHeartbeat(Heartbeat):
    """Renewals without a thread: made when a `ManualClock` passes the moment they are due."""

    def hold(self, hold: Hold) -> None:
        """Renew this hold until it is dropped."""
        with self._lock:
            self._holds.add(hold)

    def due(self) -> float:
        """When the next renewal is due."""
        with self._lock:
            return min((hold.due for hold in self._holds), default=NEVER)

    def ring(self) -> None:
        """Renew what is due, on the calling thread."""
        with self._lock:
            # The clock counts whole microseconds; a due time may lie between two of them.
            now = self._clock.now() + MICRO.total_seconds()
            due = [hold for hold in self._holds if hold.due <= now]
        if due:
            self._renew(due)


def step_renewals(ledger: Ledger, clock: ManualClock) -> SteppedHeartbeat:
    """Open a ledger, and let its renewals be made by a manual clock in place of a thread."""
    engine = ledger.open().engine
    heartbeat = SteppedHeartbeat(engine.store, engine.clock)
    engine.heartbeat = heartbeat
    clock.add(heartbeat)
    return heartbeat


@contextlib.contextmanager
def memory_ledger(
    *, clock: ManualClock | None = None, lease: timedelta = LEASE, **options: Any
) -> Generator[Ledger]:
    """A ledger in memory that no test has to wait for, and that forgets when the block ends.

        clock = ManualClock()
        with memory_ledger(clock=clock) as ledger:
            ...
            clock.advance(timedelta(minutes=1))

    Args:
        clock: for the store and the ledger; default: one of its own.
        lease: as `Ledger` takes it.
        options: the other options of `Ledger`.
    """
    clock = clock or ManualClock()
    options = {"allow_ledger_loss": True, "clock": clock} | options
    ledger = Ledger(MemoryStore(clock=clock), lease=lease, **options)
    heartbeat = step_renewals(ledger, clock)
    try:
        yield ledger
    finally:
        clock.remove(heartbeat)


__all__ = ["Alarm", "ManualClock", "SteppedHeartbeat", "memory_ledger", "step_renewals"]
