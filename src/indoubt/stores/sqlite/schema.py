"""Is this file a ledger, and of which age? Creates and upgrades; writes to no other file.

All steps run in one transaction, looked at again inside it: any number of processes may try at
once, and a crash leaves the file as it was.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import apsw

from ...errors import SchemaMissing, SchemaTooNew, SchemaTooOld, StoreBroken
from ..clock import Clock, StoreTime
from ..schema import SchemaStatus
from ..sql import Migration, migrations
from .connection import Connection, Place, close, use_wal
from .faults import trouble

if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[int, int, str], object]
    """Steps done, steps in all, and the name of the next one."""

_APPLICATION: Final = 0x1DB17  # "idbt": marks the file as ours
FORMAT: Final = 2
SCHEME: Final = "v1"
PARTITIONS: Final = 1
_HISTORY: Final = (
    "CREATE TABLE IF NOT EXISTS migration("
    "number INTEGER PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL, at INTEGER NOT NULL"
    ") STRICT"
)
_META: Final = (
    "INSERT INTO meta(one, format, incarnation, epoch, scheme, partitions, now_ms, boot_ms, boot)"
    " VALUES (1, ?, ?, 1, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
SHIPPED: tuple[Migration, ...] = migrations("sqlite")


class Meta(NamedTuple):
    """What a store says of itself once and for all."""

    format: int
    incarnation: str
    scheme: str
    partitions: int


def prepare(
    place: Place,
    time: StoreTime,
    *,
    create: bool,
    upgrade: bool,
    progress: Progress | None = None,
) -> Meta:
    """Make sure that the file holds a ledger of this version's schema.

    Raises:
        SchemaMissing: there is none, and ``create`` is not given.
        SchemaTooOld: it is older, and ``upgrade`` is not given.
        SchemaTooNew: a newer version wrote it; nothing was written.
        StoreBroken: no database, another program's, or unusable.
        StoreUnavailable: other processes kept it locked.
    """
    if not create and not Path(place.path).exists():
        raise SchemaMissing(f"{place.path}: there is no such file")
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    try:
        db = place.connect(flags)
        try:
            _admit(_look(db, place.path), place.path, create=create, upgrade=upgrade)
            use_wal(db, place)
            if _look(db, place.path) != SHIPPED[-1].number:
                _migrate(db, place.path, time, progress)
            return _meta(db, place.path)
        finally:
            close(db)
    except apsw.Error as error:
        raise trouble(error, place.path) from error


def schema_status(path: str) -> SchemaStatus:
    """Look at a file without changing it.

    Raises:
        StoreBroken: no database, another program's, or unusable.
        StoreUnavailable: other processes kept it locked.
    """
    if not Path(path).exists():
        return _status(None)
    try:
        db = Place(path).connect()
        try:
            return _status(_look(db, path))
        finally:
            close(db)
    except apsw.Error as error:
        raise trouble(error, path) from error


def upgrade(
    path: str, progress: Progress | None = None, *, clock: Clock | None = None
) -> SchemaStatus:
    """Bring an existing ledger to this version's schema; its records stay readable throughout.

    Raises:
        SchemaMissing: there is no ledger.
        SchemaTooNew: a newer version wrote it; nothing was written.
        StoreError: as ``schema_status``.
    """
    prepare(Place(path), StoreTime(clock), create=False, upgrade=True, progress=progress)
    return schema_status(path)


def _status(found: int | None) -> SchemaStatus:
    pending = tuple(f"{step.number:04}_{step.name}" for step in _steps_after(found))
    return SchemaStatus(found, SHIPPED[-1].number, pending)


def _steps_after(found: int | None) -> tuple[Migration, ...]:
    return tuple(step for step in SHIPPED if found is None or step.number > found)


def _look(db: Connection, path: str) -> int | None:
    """The file's schema number; None if it is empty."""
    used = _one(db, "SELECT count(*) FROM sqlite_schema")
    # Asked last: another process may create the ledger between the two questions.
    if db.pragma("application_id") == _APPLICATION:
        return _one(db, "SELECT max(number) FROM migration")
    if used:
        raise StoreBroken(
            f"{path}: this database belongs to another program: give the ledger a file of its own"
        )
    return None


def _one(db: Connection, sql: str) -> int:
    value: int | None = db.execute(sql).fetchall()[0][0]
    if value is None:
        raise apsw.CorruptError("a ledger without its history of migrations")
    return value


def _admit(found: int | None, path: str, *, create: bool, upgrade: bool) -> None:
    latest = SHIPPED[-1].number
    if found is None and not create:
        raise SchemaMissing(f"{path}: the file is empty")
    if found is not None and found < latest and not upgrade:
        raise SchemaTooOld(
            f"{path}: schema {found}, this version needs {latest}: run `indoubt db upgrade`"
        )
    if found is not None:
        check_not_newer(found, path)


def check_not_newer(found: int, path: str) -> None:
    """Refuse to work on what only a newer version understands.

    Raises:
        SchemaTooNew: naming both numbers.
    """
    latest = SHIPPED[-1].number
    if found > latest:
        raise SchemaTooNew(
            f"{path}: schema {found}, this version knows {latest}: use a newer indoubt"
        )


def _migrate(db: Connection, path: str, time: StoreTime, progress: Progress | None) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        found = _look(db, path)  # another process may have been faster
        _admit(found, path, create=True, upgrade=True)
        steps = _steps_after(found)
        for done, step in enumerate(steps):
            if progress:
                progress(done, len(steps), step.name)
            _apply(db, step, time)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    if progress:
        progress(len(steps), len(steps), "")


def _apply(db: Connection, step: Migration, time: StoreTime) -> None:
    now = time.now()
    db.execute(step.sql).fetchall()  # without fetching, apsw stops at the first row
    db.pragma("application_id", _APPLICATION)
    db.execute(_HISTORY)
    db.execute(
        "INSERT INTO migration VALUES (?, ?, ?, ?)",
        (step.number, step.name, step.sha256, now.now_ms),
    )
    db.execute(_META, (FORMAT, secrets.token_hex(16), SCHEME, PARTITIONS, *now))


def _meta(db: Connection, path: str) -> Meta:
    rows = db.execute("SELECT format, incarnation, scheme, partitions FROM meta").fetchall()
    if len(rows) != 1:
        raise apsw.CorruptError("a ledger without its meta row")
    meta = Meta._make(rows[0])
    if (meta.scheme, meta.partitions) != (SCHEME, PARTITIONS):
        # Ids made another way would not be found here, and their effects run again.
        raise SchemaTooNew(
            f"{path}: ids of scheme {meta.scheme} in {meta.partitions} partitions,"
            f" this version makes {SCHEME} in {PARTITIONS}: use a newer indoubt"
        )
    return meta
