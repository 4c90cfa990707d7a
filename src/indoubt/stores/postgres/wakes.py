"""Wakes waiters through LISTEN: a connection and a thread of their own, while somebody waits."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import psycopg

from ..wakes import Wakes
from .rows import topic_of
from .text import told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .place import Place

LOOK_S: Final = 0.5
"""How soon the thread notices that nobody waits any more, or that the store is closed."""
IDLE_LOOKS: Final = 4


class ServerWakes(Wakes):
    """A hint: while the connection is broken, waiters go on after their time-outs."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._place = place
        self._count = threading.Condition()
        self._waiting = 0
        self._listening = False
        self._closed = False

    async def wait(self, topics: Sequence[str], *, timeout: float) -> bool:
        with self._count:
            self._waiting += 1
            if not self._listening and not self._closed:
                self._listening = True
                threading.Thread(target=self._run, name="indoubt-wakes", daemon=True).start()
        try:
            return await super().wait(topics, timeout=timeout)
        finally:
            with self._count:
                self._waiting -= 1

    def close(self) -> None:
        """Wake all who wait, and end the thread."""
        with self._count:
            self._closed = True
            self._count.wait_for(lambda: not self._listening)
        self.wake()

    def _run(self) -> None:
        try:
            with suppress(psycopg.Error), self._place.connect() as db:
                db.execute(b"LISTEN indoubt")
                idle = 0
                while idle < IDLE_LOOKS and not self._closed:
                    for notice in db.notifies(timeout=LOOK_S, stop_after=1):
                        self._noticed(notice.payload)
                    idle = 0 if self._waiting else idle + 1
        finally:
            with self._count:
                self._listening = False
                self._count.notify_all()

    def _noticed(self, payload: str) -> None:
        # What was too long for a notification, or waits under such a name, is woken by any.
        self.wake([told(payload)] if payload and topic_of(told(payload)) else None)
