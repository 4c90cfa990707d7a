"""A disk that fails when told to, for the tests of the SQLite store.

It is a file system of SQLite's own kind, so the engine above it is the real one and only the calls
that would reach the kernel are refused. Shared memory and locks are passed through.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from indoubt.stores.sqlite import SQLiteStore
from indoubt.testing.store_contract import SteeredClock

Fault = Callable[[str, str, int], Exception | None]
"""From the call (``xWrite`` …), the file's suffix and the calls so far, what to raise."""

_numbers = itertools.count(1)


class FaultyDisk:
    """Counts the calls that change files, and asks ``fault`` before each."""

    def __init__(self) -> None:
        self.name = f"faulty-{next(_numbers)}"
        self.fault: Fault | None = None
        self.read_only = False
        self.calls: list[str] = []
        self._vfs = _vfs(self)

    def call(self, what: str, file: str) -> None:
        self.calls.append(f"{what} {file}")
        if self.fault and (error := self.fault(what, file, len(self.calls))):
            raise error

    def fail_at(self, number: int, error: Callable[[], Exception]) -> None:
        """The ``number``-th call from now fails, and no other."""
        self.calls.clear()
        self.fault = lambda _what, _file, count: error() if count == number else None

    def fail(self, error: Callable[[], Exception], *calls: str) -> None:
        """Every such call fails from now on, like ``xSync -wal``; all calls if none is named."""
        self.calls.clear()
        wanted = calls
        self.fault = lambda what, file, _count: (
            error() if not wanted or f"{what} {file}" in wanted else None
        )

    def mend(self) -> None:
        self.fault = None


def _vfs(disk: FaultyDisk) -> object:
    class File(apsw.VFSFile):
        def __init__(self, name: Any, flags: list[int]) -> None:
            path = name if isinstance(name, str | None) else name.filename()
            self._file = Path(path or "").suffix.removeprefix(".db") or "db"
            if disk.read_only and flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
                flags[0] &= ~(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
                flags[0] |= apsw.SQLITE_OPEN_READONLY
            super().__init__("", name, flags)

        def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
            disk.call("xWrite", self._file)
            super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType]

        def xSync(self, flags: int) -> None:  # noqa: N802
            disk.call("xSync", self._file)
            super().xSync(flags)

        def xTruncate(self, newsize: int) -> None:  # noqa: N802
            disk.call("xTruncate", self._file)
            super().xTruncate(newsize)

    class Disk(apsw.VFS):
        def __init__(self) -> None:
            super().__init__(disk.name, "")

        def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802
            disk.call("xOpen", "")
            return File(name, flags)

    return cast("object", Disk())


def full() -> Exception:
    return apsw.FullError("the test's disk is full")


def io_error(extended: int = apsw.SQLITE_IOERR_WRITE) -> Exception:
    error: Any = apsw.IOError("the test's disk is broken")
    error.extendedresult = extended
    return error


def sync_error() -> Exception:
    return io_error(apsw.SQLITE_IOERR_FSYNC)


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def clock() -> SteeredClock:
    return SteeredClock()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "ledger.db")


@pytest.fixture
async def store(path: str, disk: FaultyDisk, clock: SteeredClock) -> AsyncIterator[SQLiteStore]:
    """A store on the faulty disk, which works until told otherwise."""
    store = SQLiteStore(path, vfs=disk.name, clock=clock, patience_ms=200)
    yield store
    disk.mend()
    await store.close()
