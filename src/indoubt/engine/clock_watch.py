"""Noticing that the store's clock and this process's own part: one of them was stepped (P5)."""

from __future__ import annotations

import logging

log = logging.getLogger("indoubt.clock")
STEP_MS = 2_000


class ClockWatch:
    """Compares how far both clocks came since they were first seen together."""

    def __init__(self) -> None:
        self._offset_ms: float | None = None

    def compare(self, store_ms: int, local_s: float) -> None:
        """Report a step; leases may end early or late by it, permits and absence do not."""
        offset = store_ms - local_s * 1000
        if self._offset_ms is None:
            self._offset_ms = offset
        elif abs(offset - self._offset_ms) > STEP_MS:
            log.warning("clock_step: store and local clock part by %d ms", offset - self._offset_ms)
            self._offset_ms = offset
