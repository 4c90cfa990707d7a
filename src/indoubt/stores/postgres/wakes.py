"""Wakes waiters through LISTEN: a connection and a thread of their own, while somebody waits."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import psycopg

from ..wakes import WatchedWakes
from .rows import topic_of
from .text import told

if TYPE_CHECKING:
    from .place import Place

LOOK_S: Final = 0.5
"""How soon the thread notices that nobody waits any more, or that the store is closed."""


class ServerWakes(WatchedWakes):
    """Hears what is announced with NOTIFY."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._place = place

    def _watch(self) -> None:
        with suppress(psycopg.Error), self._place.connect() as db:
            db.execute(b"LISTEN indoubt")
            while self._wanted():
                for notice in db.notifies(timeout=LOOK_S, stop_after=1):
                    self._noticed(notice.payload)

    def _noticed(self, payload: str) -> None:
        # What was too long for a notification, or waits under such a name, is woken by any.
        self.wake([told(payload)] if payload and topic_of(told(payload)) else None)
