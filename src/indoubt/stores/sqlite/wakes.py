"""Wakes waiters of this process at once, and those of other processes on the file soon after.

Another process's commit shows in ``PRAGMA data_version``, which reads no page. It says that
something was written, not what: then everybody who waits is woken, at most so often as it is asked.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import apsw

from ...errors import StoreError
from ..wakes import Wakes
from .connection import close

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .connection import Connection, Place

LOOK_S: Final = 0.1
"""Between two looks at the file while somebody waits."""
IDLE_LOOKS: Final = 10
"""Looks for nobody before the thread ends: whoever waits in a loop is soon back."""


class FileWakes(Wakes):
    """A thread looks at the file while somebody waits, and ends when nobody does."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._place = place
        self._count = threading.Condition()
        self._waiting = 0
        self._watching = False
        self._closed = False

    async def wait(self, topics: Sequence[str], *, timeout: float) -> bool:
        with self._count:
            self._waiting += 1
            if not self._watching:
                self._watching = True
                threading.Thread(target=self._watch, name="indoubt-wakes", daemon=True).start()
        try:
            return await super().wait(topics, timeout=timeout)
        finally:
            with self._count:
                self._waiting -= 1

    def close(self) -> None:
        """Wake all who wait, and end the thread."""
        with self._count:
            self._closed = True
            self._count.notify_all()
            self._count.wait_for(lambda: not self._watching)
        self.wake()

    def _watch(self) -> None:
        db: Connection | None = None
        try:
            with suppress(apsw.Error, StoreError):  # a hint: who waits goes on after its time-out
                db = self._place.connect()
                self._look(db)
        finally:
            if db is not None:
                close(db)
            with self._count:
                self._watching = False
                self._count.notify_all()

    def _look(self, db: Connection) -> None:
        seen, idle = db.pragma("data_version"), 0
        while idle < IDLE_LOOKS and self._again():
            found = db.pragma("data_version")
            if found != seen:
                seen = found
                self.wake()
            idle = 0 if self._waiting else idle + 1

    def _again(self) -> bool:
        """Sleep until the next look; False: the store is closed."""
        with self._count:
            return not self._count.wait_for(lambda: self._closed, LOOK_S)
