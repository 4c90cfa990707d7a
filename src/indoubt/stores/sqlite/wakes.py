"""Wakes waiters of this process at once, and those of other processes on the file soon after.

Another process's commit shows in ``PRAGMA data_version``, which reads no page. It says that
something was written, not what: then everybody who waits is woken, at most so often as it is asked.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import apsw

from ...errors import StoreError
from ..wakes import WatchedWakes
from .connection import close

if TYPE_CHECKING:
    from .connection import Connection, Place

LOOK_S: Final = 0.1
"""Between two looks at the file while somebody waits."""


class FileWakes(WatchedWakes):
    """Looks whether another process has committed."""

    idle_looks = 10  # one second, as looks are more frequent here

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._place = place

    def _watch(self) -> None:
        db: Connection | None = None
        try:
            with suppress(apsw.Error, StoreError):
                db = self._place.connect()
                self._look(db)
        finally:
            if db is not None:
                close(db)

    def _look(self, db: Connection) -> None:
        seen = db.pragma("data_version")
        while self._wanted() and self._again():
            found = db.pragma("data_version")
            if found != seen:
                seen = found
                self.wake()

    def _again(self) -> bool:
        """Sleep until the next look; False: the store is closed."""
        with self._count:
            return not self._count.wait_for(lambda: self._closed, LOOK_S)
