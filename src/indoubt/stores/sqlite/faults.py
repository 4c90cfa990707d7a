"""What SQLite's errors mean for a caller: call again, or call an operator."""

from __future__ import annotations

from typing import Final

import apsw

from ...errors import AnswerLost, StoreBroken, StoreError, StoreUnavailable

_CALL_AGAIN: Final = (
    apsw.BusyError,
    apsw.LockedError,
    apsw.ProtocolError,  # lost a race for the WAL's index too often
    apsw.InterruptError,
    apsw.SchemaChangeError,
    apsw.NoMemError,
)
_WORDS: Final[dict[type[Exception], str]] = {
    apsw.BusyError: "another process held its write lock all the time",
    apsw.FullError: "the disk, or this user's share of it, is full",
    apsw.ReadOnlyError: "the file or its file system is read-only",
    apsw.CorruptError: "the file is corrupt: restore a backup, then run `indoubt db restored`",
    apsw.NotADBError: "the file is no SQLite database",
    apsw.IOError: "the disk reported an error",
    apsw.CantOpenError: "the file, or its -wal beside it, cannot be opened: does its directory"
    " exist, and may this user write there?",
    apsw.PermissionsError: "this user may not use the file",
    apsw.AuthError: "this user may not use the file",
}
_ONE_BATCH: Final = (apsw.FullError, apsw.TooBigError, apsw.ConstraintError, apsw.MismatchError)


def trouble(error: Exception, path: str) -> StoreError:
    """The error for callers: certainly nothing was written."""
    if isinstance(error, StoreError):
        return error
    kind = StoreUnavailable if isinstance(error, _CALL_AGAIN) else StoreBroken
    return _told(kind, error, path)


def answer_lost(error: BaseException, path: str) -> AnswerLost:
    """The error for callers whose COMMIT failed: the write may yet turn out to be there."""
    lost = AnswerLost(
        f"{path}: COMMIT failed ({words(error)}); the write may have landed: repeat it by its id"
    )
    lost.__cause__ = error
    return lost


def concerns_one_batch(error: Exception) -> bool:
    """May the other batches of a group succeed where this error met the whole group?"""
    return isinstance(error, _ONE_BATCH) or not isinstance(error, apsw.Error | StoreError)


def words(error: BaseException) -> str:
    """What happened, for people; SQLite's own words behind ours."""
    for kind, text in _WORDS.items():
        if isinstance(error, kind):
            return f"{text} [{error}]"
    return f"{type(error).__name__}: {error}"


def _told(kind: type[StoreError], error: Exception, path: str) -> StoreError:
    told = kind(f"{path}: {words(error)}")
    told.__cause__ = error
    return told
