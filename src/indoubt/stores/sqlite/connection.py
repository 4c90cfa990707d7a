"""Connections to one file: durable, patient with other processes, and never closed by a fork."""

from __future__ import annotations

import ctypes
import itertools
import os
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

import apsw

from ...errors import StoreBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PATIENCE_MS: Final = 10_000
"""How long a writer waits for other processes before ``StoreUnavailable``."""
_QUICK: Final = 1_000
_QUICK_MS: Final = 0.2
_SLOW_MS: Final = 2.0
_WAL_MAX_BYTES: Final = 64 * 2**20

# synchronous=FULL: a lost dispatch mark is the one loss nobody can repair. fullfsync: macOS' fsync
# stops at the drive's cache. A long reader lets the WAL grow; the limit gives the space back.
_PRAGMAS: Final = (
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA trusted_schema = OFF",
    f"PRAGMA journal_size_limit = {_WAL_MAX_BYTES}",
)


class Rows(Protocol):
    """What a statement answers."""

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...

    def close(self, force: bool = False) -> None: ...  # noqa: FBT001, FBT002


class Connection(Protocol):
    """The part of ``apsw.Connection`` that is used here (its own types need Python 3.12)."""

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, statements: str, bindings: Sequence[Any] | None = None) -> Rows: ...

    def pragma(self, name: str, value: Any = None) -> Any: ...

    def cache_flush(self) -> None: ...

    def set_busy_handler(self, callable: Callable[[int], bool] | None) -> None: ...  # noqa: A002

    def close(self, force: bool = False) -> None: ...  # noqa: FBT001, FBT002


class Place(NamedTuple):
    """Which file, through which of SQLite's file systems, and how long to wait for others."""

    path: str
    vfs: str | None = None
    patience_ms: int = PATIENCE_MS

    def connect(self, flags: int = apsw.SQLITE_OPEN_READWRITE) -> Connection:
        """A connection as all of ours are; it may still belong to a foreign or empty file."""
        made = apsw.Connection(self.path, flags=flags, vfs=self.vfs, statementcachesize=64)
        db = cast("Connection", made)
        try:
            _open.add(db)
            db.set_busy_handler(self.wait)
            for pragma in _PRAGMAS:
                db.execute(pragma).fetchall()
        except BaseException:
            close(db)
            raise
        return db

    def wait(self, tries: int) -> bool:
        """SQLite's own handler backs off to 100 ms and starves one of two busy processes."""
        time.sleep((_QUICK_MS if tries < _QUICK else _SLOW_MS) / 1000)
        slow = max(0, tries - _QUICK)
        return (tries - slow) * _QUICK_MS + slow * _SLOW_MS < self.patience_ms


def close(db: Connection) -> None:
    """Close, whatever the disk says: the log is still there and is read at the next opening."""
    with suppress(apsw.Error):
        db.close(force=True)


def use_wal(db: Connection, place: Place) -> None:
    """Switch the file to write-ahead logging, which it then keeps.

    Raises:
        StoreBroken: this file system cannot have one.
    """
    mode = db.pragma("journal_mode")
    for tries in itertools.count() if mode != "wal" else ():
        try:
            mode = db.execute("PRAGMA journal_mode = WAL").fetchall()[0][0]
            break
        except apsw.BusyError:  # here SQLite does not ask the busy handler
            if not place.wait(tries):
                raise
    if mode != "wal":
        raise StoreBroken(f"{place.path}: its file system has no shared memory for SQLite's WAL")


_open: weakref.WeakSet[Connection] = weakref.WeakSet()


def _keep_for_ever() -> None:
    """In a forked child: never close what the parent uses, not even at the child's exit.

    Closing would take a lock that some thread of the parent may have held at the fork.
    """
    for db in list(_open):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))


os.register_at_fork(after_in_child=_keep_for_ever)
