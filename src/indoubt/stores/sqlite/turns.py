"""Lets processes take turns at the write lock, which SQLite itself gives to whoever asks luckiest.

One that waits says so by a shared ``flock`` on a file beside the database; one that has committed
looks whether anybody does, and if so leaves a gap. Without such a file all goes on, less fairly.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from .connection import Place

_GAP_S: Final = 0.0005
"""Longer than a waiting process sleeps between two tries, so that one of them finds the gap."""


class Turns:
    """One write connection's part in it."""

    def __init__(self, place: Place, file: Path) -> None:
        self._place = place
        self._waits = False
        self._fd: int | None = None
        with suppress(OSError):
            self._fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)

    def give_way(self) -> None:
        """Before taking the write lock: let one who waits be first."""
        if self._fd is not None:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            except OSError:
                time.sleep(_GAP_S)

    def wait(self, tries: int) -> bool:
        """SQLite's busy handler: False gives up."""
        if not self._waits and self._fd is not None:
            with suppress(OSError):  # somebody looks just now: say it at the next try
                fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                self._waits = True
        return self._place.wait(tries)

    def taken(self) -> None:
        """The write lock is ours, or given up: nothing is waited for any more."""
        if self._waits and self._fd is not None:
            self._waits = False
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
