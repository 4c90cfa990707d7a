"""What PostgreSQL's errors mean for a caller: call again, or call an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import errors

from ...errors import (
    AnswerLost,
    Contended,
    SchemaMissing,
    StoreBroken,
    StoreError,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from .place import Connection, Place

_FASTER: Final = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.LockNotAvailable,
)
_LATER: Final = (
    errors.QueryCanceled,
    errors.InsufficientResources,
    errors.OperatorIntervention,
    errors.ReadOnlySqlTransaction,
    errors.CannotConnectNow,
    errors.TooManyConnections,
)
_MISSING: Final = (errors.UndefinedTable, errors.UndefinedFunction, errors.InvalidSchemaName)
_NO_RIGHT: Final = (errors.InsufficientPrivilege, errors.InvalidPassword)
_WORDS: Final[dict[type[Exception], str]] = {
    errors.LockNotAvailable: "a transaction of somebody else holds one of these records",
    errors.QueryCanceled: "it took longer than the statement time-out",
    errors.DiskFull: "the server's disk is full",
    errors.ReadOnlySqlTransaction: "this server is a standby, or read-only",
    errors.TooManyConnections: "the server takes no more connections",
}


def trouble(error: BaseException, place: Place) -> StoreError:
    """The error for callers: certainly nothing was written."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, _MISSING):
        told: StoreError = SchemaMissing(
            f"{place.shown}: there is no ledger here: run `indoubt db upgrade`"
        )
    elif isinstance(error, _FASTER):
        told = Contended(f"{place.shown}: {words(error)}; nothing was written: call again")
    elif isinstance(error, _LATER) or _cut(error):
        told = StoreUnavailable(f"{place.shown}: {words(error)}")
    elif isinstance(error, _NO_RIGHT):
        told = StoreBroken(
            f"{place.shown}: this role may not do that (see docs/postgres.md): {words(error)}"
        )
    else:
        told = StoreBroken(f"{place.shown}: {words(error)}")
    told.__cause__ = error
    return told


def answer_lost(error: BaseException, place: Place) -> AnswerLost:
    """The error for callers whose connection ended: the write may have landed."""
    lost = AnswerLost(
        f"{place.shown}: no answer came ({words(error)}); the write may have landed: repeat it by"
        " its id"
    )
    lost.__cause__ = error
    return lost


def uncertain(error: BaseException, db: Connection | None) -> bool:
    """Whether the server may have committed although it did not say so.

    A connection that ended after the statement was sent proves nothing, whatever its last words:
    a server told to stop may say so to a client whose commit it has just made.
    """
    if not isinstance(error, psycopg.Error):
        return True
    return db is not None and db.closed


def concerns_one_batch(error: BaseException) -> bool:
    """May the other batches of a group succeed where this error met the whole group?"""
    if isinstance(error, (*_FASTER, errors.QueryCanceled)):
        return True
    return isinstance(error, psycopg.DataError | psycopg.IntegrityError)


def words(error: BaseException) -> str:
    """What happened, for people; the server's own first line behind ours, never its details."""
    said = str(error).partition("\n")[0]
    for kind, text in _WORDS.items():
        if isinstance(error, kind):
            return f"{text} [{said}]"
    return f"{type(error).__name__}: {said}"


def _cut(error: BaseException) -> bool:
    """The connection ended, or none was made: no error that the server has worded."""
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
