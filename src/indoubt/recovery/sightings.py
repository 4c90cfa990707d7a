"""How long this process has itself seen a record in doubt, on its own clock (protocol P1, P5).

The store's clock may step; a second clock that must agree makes a step harmless. Bounded: what
falls off is measured anew, which only delays.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from indoubt.core.absence import silent

if TYPE_CHECKING:
    from indoubt.core.record import Record
    from indoubt.engine.clock import LocalClock

KEPT = 10_000


class Sightings:
    """First sight of each doubtful attempt, and of its silence: that is when settle time begins."""

    def __init__(self, clock: LocalClock) -> None:
        self._clock = clock
        self._first: OrderedDict[tuple[str, int, bool], float] = OrderedDict()

    def note(self, record: Record) -> None:
        """Remember that this attempt is seen in doubt now, unless it was seen before."""
        self._first.setdefault(_seen_as(record), self._clock.now())
        while len(self._first) > KEPT:
            self._first.popitem(last=False)

    def measured_ms(self, record: Record) -> int:
        """Milliseconds since the first sight (0 at the first); read it before a probe is sent."""
        self.note(record)
        return int((self._clock.now() - self._first[_seen_as(record)]) * 1000)


def _seen_as(record: Record) -> tuple[str, int, bool]:
    return record.id, record.attempt, silent(record)
