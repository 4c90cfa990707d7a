"""What one SQLite file on this host really promises: read, and measured, for ``indoubt doctor``.

It changes nothing but a small file of its own beside the ledger, which it removes.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

import apsw

from ..clock import SystemClock, took_ms
from ..facts import Fact
from ..owners import Owners
from ..sql import statements
from .connection import Place
from .faults import trouble
from .schema import schema_status

if TYPE_CHECKING:
    from .connection import Connection

_SQL: Final = statements()
_SYNCHRONOUS: Final = ("off", "normal", "full", "extra")
_DURABLE: Final = frozenset({"full", "extra"})
_VOLATILE: Final = frozenset({"tmpfs", "ramfs"})
_COUNTED_MAX: Final = 1_000_000
_SYNCS: Final = 7
_PAGE: Final = bytes(4_096)
_NO_WAIT_MS: Final = 0.02
"""No disk answers so quickly: something does not wait for it."""
_STEP_MS: Final = 2_000
"""Clocks that part by more than this are worth a word (protocol P5)."""


class About(NamedTuple):
    """The row in which the file says what it is."""

    incarnation: str
    epoch: int
    scheme: str
    partitions: int
    now_ms: int


def examine(path: str) -> tuple[Fact, ...]:
    """Everything about one ledger's file.

    Raises:
        StoreBroken, StoreUnavailable: it cannot be read.
    """
    try:
        db = Place(path).connect()
        try:
            owners = Owners(Path(path))
            about = About._make(db.execute(_SQL["about"].text).fetchall()[0])
            return (
                _engine(),
                _file(path),
                _file_system(path, owners),
                _journal(db),
                _schema(path),
                _identity(about),
                _clock(about.now_ms),
                _owners(owners),
                _records(db),
                _sync(path),
            )
        finally:
            db.close()
    except apsw.Error as error:
        raise trouble(error, path) from error


def _engine() -> Fact:
    value = {"name": "SQLite", "version": apsw.sqlite_lib_version(), "driver": apsw.apsw_version()}
    return Fact("engine", value, f"SQLite {value['version']} through apsw {value['driver']}")


def _file(path: str) -> Fact:
    size, wal = (_size(Path(f"{path}{tail}")) for tail in ("", "-wal"))
    value = {"path": path, "bytes": size, "wal_bytes": wal}
    return Fact("file", value, f"{path}, {size:,} bytes and {wal:,} in its write-ahead log")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _file_system(path: str, owners: Owners) -> Fact:
    kind = _kind_of_file_system(path)
    value = {"type": kind, "local": owners.decides}
    if kind in _VOLATILE:
        return Fact("file_system", value, f"{kind}: gone when the power is", "bad")
    if not owners.decides:
        words = f"{kind}: not known to be of this machine alone, so only a lease ends a hold"
        return Fact("file_system", value, words, "note")
    return Fact("file_system", value, f"{kind}, of this machine alone")


def _kind_of_file_system(path: str) -> str:
    """As the kernel names it; 'unknown' where it does not tell (only Linux does)."""
    try:
        lines = Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return "unknown"
    best, kind = "", "unknown"
    for line in lines:
        mount, _, source = line.partition(" - ")
        point = mount.split()[4].replace("\\040", " ")
        inside = os.path.commonpath([point, path]) == point
        if inside and len(point) >= len(best):  # a later mount covers an earlier one
            best, kind = point, source.split()[0]
    return kind


def _journal(db: Connection) -> Fact:
    mode: str = db.pragma("journal_mode")
    synchronous = _SYNCHRONOUS[int(db.pragma("synchronous"))]
    good = mode == "wal" and synchronous in _DURABLE
    return Fact(
        "journal",
        {"mode": mode, "synchronous": synchronous},
        f"journal_mode={mode}, synchronous={synchronous}",
        "fine" if good else "bad",
    )


def _schema(path: str) -> Fact:
    found, latest, _ = schema_status(path)
    words = f"schema {found}, this version writes {latest}"
    return Fact(
        "schema",
        {"found": found, "latest": latest},
        words,
        "fine" if found == latest else "bad",
    )


def _identity(about: About) -> Fact:
    value = about._asdict()
    del value["now_ms"]
    return Fact("identity", value, f"incarnation {about.incarnation}, epoch {about.epoch}")


def _clock(store_ms: int) -> Fact:
    """What was persisted last cannot lie ahead of a host whose clock was never wrong."""
    host_ms = SystemClock().wall_ms()
    ahead = store_ms - host_ms
    value = {"last_write_at": _iso(store_ms), "host_now": _iso(host_ms), "ahead_ms": max(0, ahead)}
    if ahead <= _STEP_MS:
        return Fact("clock", value, "the host's clock is not behind what it wrote before")
    words = (
        f"{ahead / 1000:,.0f} s ahead of this host's clock: that was set back, or another's is fast"
    )
    return Fact("clock", value, words, "bad")


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


def _owners(owners: Owners) -> Fact:
    files = owners.folder.iterdir() if owners.folder.is_dir() else ()
    names = [file.name for file in files if not file.name.startswith(".")]
    states = Counter(owners.dead(name) for name in names)
    value = {"alive": states[False], "dead": states[True], "undecided": states[None]}
    words = ", ".join([f"{count} {state}" for state, count in value.items() if count])
    return Fact("owner_locks", value, words or "none")


def _records(db: Connection) -> Fact:
    rows = db.execute(_SQL["states"].text, (_COUNTED_MAX,)).fetchall()
    states: dict[str, int] = dict(rows)
    counted = sum(states.values())
    value = {"counted": counted, "all": counted < _COUNTED_MAX, "states": states}
    words = ", ".join([f"{count:,} {state}" for state, count in states.items()]) or "none"
    return Fact("records", value, words if value["all"] else f"of the newest {counted:,}: {words}")


def _sync(path: str) -> Fact:
    """How long this disk takes to say that a page is safe: what every commit waits for."""
    try:
        with tempfile.TemporaryFile(dir=Path(path).parent) as file:
            tries = [took_ms(partial(_write_and_sync, file.fileno())) for _ in range(_SYNCS)]
    except OSError as error:
        return Fact("disk_sync", None, f"not measured: {error.strerror}", "note")
    value = {"median_ms": round(median(tries), 3), "tries": _SYNCS}
    words = f"{value['median_ms']:.2f} ms for a page to be safe"
    if median(tries) >= _NO_WAIT_MS:
        return Fact("disk_sync", value, words)
    return Fact("disk_sync", value, f"{words}: too quick for a disk, is it waited for?", "note")


def _write_and_sync(fd: int) -> None:
    os.pwrite(fd, _PAGE, 0)
    os.fsync(fd)
