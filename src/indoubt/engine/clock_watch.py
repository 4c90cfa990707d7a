"""Noticing that the store's clock and this process's own part: one of them was stepped (P5)."""

from __future__ import annotations

import logging
import math

log = logging.getLogger("indoubt.clock")
STEP_MS = 2_000


class ClockWatch:
    """Compares how far both clocks came since they were first seen together.

    The store reads its clock somewhere between our request and its answer, so each reading bounds
    the offset of the clocks from both sides. A slow answer bounds it loosely and is no step.
    """

    def __init__(self) -> None:
        self._least_ms = -math.inf
        self._most_ms = math.inf

    def compare(self, store_ms: int, asked_s: float, answered_s: float) -> None:
        """Report a step; leases may end early or late by it, permits and absence do not."""
        least, most = store_ms - answered_s * 1000, store_ms - asked_s * 1000
        parted = max(least - self._most_ms, 0) + min(most - self._least_ms, 0)
        if abs(parted) > STEP_MS:
            log.warning("clock_step: store and local clock part by %d ms", parted)
            self._least_ms, self._most_ms = least, most
        elif not parted:
            self._least_ms, self._most_ms = max(least, self._least_ms), min(most, self._most_ms)
