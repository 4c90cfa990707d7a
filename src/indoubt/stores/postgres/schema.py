"""Is there a ledger in this database, and of which age? Creates and upgrades it.

All steps run in one transaction under an advisory lock: any number of processes may try at once,
and a crash leaves the database as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import psycopg
from psycopg import sql

from ...errors import SchemaMissing, SchemaTooNew, SchemaTooOld, StoreBroken
from ..schema import SchemaStatus
from ..sql import Migration, migrations
from .faults import trouble

if TYPE_CHECKING:
    from collections.abc import Callable

    from .place import Connection, Place

    Progress = Callable[[int, int, str], object]

FORMAT: Final = 2
SCHEME: Final = "v1"
PARTITIONS: Final = 1
SHIPPED: Final[tuple[Migration, ...]] = migrations("postgres")
LATEST: Final = SHIPPED[-1].number
_LOCK: Final = 0x1DB17
_HISTORY: Final = (
    b"CREATE TABLE IF NOT EXISTS indoubt_migration("
    b"number integer PRIMARY KEY, name text NOT NULL, sha256 text NOT NULL, at bigint NOT NULL)"
)


class Meta(NamedTuple):
    """What a store says of itself once and for all."""

    format: int
    incarnation: str
    scheme: str
    partitions: int


def prepare(place: Place, *, create: bool, upgrade: bool, progress: Progress | None = None) -> Meta:
    """Make sure that there is a ledger of this version's schema.

    Raises:
        SchemaMissing: there is none, and ``create`` is not given (or the role may not).
        SchemaTooOld: it is older, and ``upgrade`` is not given.
        SchemaTooNew: a newer version made it; nothing was written.
        StoreUnavailable, StoreBroken: the server cannot be reached or used.
    """
    try:
        with place.connect() as db:
            found = _look(db)
            _admit(found, place, create=create, upgrade=upgrade)
            if found != LATEST:
                _migrate(db, place, progress)
            return _meta(db, place)
    except psycopg.Error as error:
        raise trouble(error, place) from error


def schema_status(place: Place) -> SchemaStatus:
    """Look at a database without changing it.

    Raises:
        StoreUnavailable, StoreBroken: it cannot be reached or read.
    """
    try:
        with place.connect() as db:
            found = _look(db)
            return SchemaStatus(found, LATEST, _names(found))
    except psycopg.Error as error:
        raise trouble(error, place) from error


def upgrade(place: Place, progress: Progress | None = None) -> SchemaStatus:
    """Bring a database to this version's schema; makes the ledger where there is none.

    Raises:
        SchemaTooNew: a newer version made it; nothing was written.
        StoreUnavailable, StoreBroken: it cannot be reached, or this role may not.
    """
    prepare(place, create=True, upgrade=True, progress=progress)
    return schema_status(place)


def newer(found: int, place: Place) -> SchemaTooNew:
    """The refusal to work on what only a newer version understands."""
    return SchemaTooNew(
        f"{place.shown}: schema {found}, this version knows {LATEST}: use a newer indoubt"
    )


def _names(found: int | None) -> tuple[str, ...]:
    return tuple(f"{step.number:04}_{step.name}" for step in _steps_after(found))


def _steps_after(found: int | None) -> tuple[Migration, ...]:
    return tuple(step for step in SHIPPED if found is None or step.number > found)


def _look(db: Connection) -> int | None:
    """The schema's number; None if there is no ledger."""
    # Locking pg_class makes the server take note of a schema that another session has just made.
    there = db.execute(
        b"SELECT EXISTS (SELECT FROM pg_class WHERE oid = to_regclass('indoubt_migration'))"
    ).fetchone()
    if there is None or not there[0]:
        return None
    row = db.execute(b"SELECT max(number) FROM indoubt_migration").fetchone()
    return row[0] if row else None


def _admit(found: int | None, place: Place, *, create: bool, upgrade: bool) -> None:
    if found is None and not create:
        raise SchemaMissing(f"{place.shown}: there is no ledger: run `indoubt db upgrade`")
    if found is not None and found < LATEST and not upgrade:
        raise SchemaTooOld(
            f"{place.shown}: schema {found}, this version needs {LATEST}: run `indoubt db upgrade`"
        )
    if found is not None and found > LATEST:
        raise newer(found, place)


def _migrate(db: Connection, place: Place, progress: Progress | None) -> None:
    try:
        with db.transaction():
            steps = _take_steps(db, place, progress)
    except psycopg.errors.InsufficientPrivilege as error:
        raise SchemaMissing(
            f"{place.shown}: this role may not make the ledger's tables, or not use those that are"
            " there: let one that may run `indoubt db upgrade`, and grant this one their use (see"
            " docs/postgres.md)"
        ) from error
    if progress:
        progress(len(steps), len(steps), "")


def _take_steps(db: Connection, place: Place, progress: Progress | None) -> tuple[Migration, ...]:
    db.execute(b"SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    found = _look(db)  # another process may have been faster
    _admit(found, place, create=True, upgrade=True)
    if place.schema is not None and found is None:
        name = sql.Identifier(place.schema)
        db.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
    steps = _steps_after(found)
    for done, step in enumerate(steps):
        if progress:
            progress(done, len(steps), step.name)
        _apply(db, step)
    return steps


def _apply(db: Connection, step: Migration) -> None:
    db.execute(_HISTORY)
    db.execute(step.sql.encode(), prepare=False)
    db.execute(
        b"INSERT INTO indoubt_migration VALUES (%s, %s, %s, indoubt_wall())",
        (step.number, step.name, step.sha256),
    )
    db.execute(
        b"INSERT INTO indoubt_meta VALUES (1, %s, replace(gen_random_uuid()::text, '-', ''), 1, %s,"
        b" %s, 0) ON CONFLICT DO NOTHING",
        (FORMAT, SCHEME, PARTITIONS),
    )


def _meta(db: Connection, place: Place) -> Meta:
    row = db.execute(b"SELECT format, incarnation, scheme, partitions FROM indoubt_meta").fetchone()
    if row is None:
        raise StoreBroken(f"{place.shown}: a ledger without its meta row")
    meta = Meta._make(row)
    if (meta.scheme, meta.partitions) != (SCHEME, PARTITIONS):
        raise SchemaTooNew(
            f"{place.shown}: ids of scheme {meta.scheme} in {meta.partitions} partitions, this"
            f" version makes {SCHEME} in {PARTITIONS}: use a newer indoubt"
        )
    return meta
