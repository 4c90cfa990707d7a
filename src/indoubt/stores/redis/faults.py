"""What Redis' errors mean for a caller: call again, or call an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from redis import exceptions as said

from ...errors import AnswerLost, StoreBroken, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from .place import Place

ELSEWHERE: Final = ("MOVED", "ASK")
LATER: Final = {
    "READONLY": "this server is a replica: a fail-over is going on, or the URL names no master",
    "LOADING": "the server is still loading its data",
    "BUSY": "a script of somebody holds the server up",
    "MASTERDOWN": "the replica's master is down",
    "CLUSTERDOWN": "the Cluster cannot serve this partition now",
    "TRYAGAIN": "this partition's slot is on its way to another node",
    "MOVED": "this partition's slot has moved on",
    "ASK": "this partition's slot is on its way to another node",
    "NOREPLICAS": "fewer replicas are connected than min-replicas-to-write asks for",
}
_WORDS: Final = {
    "OOM": "the server's memory is full (maxmemory); nothing was written",
    "MISCONF": "the server cannot write its file, so it takes no writes",
    "WRONGTYPE": "a key of the ledger belongs to another program",
    "NOPERM": "this user may not do that",
    "NOAUTH": "the server asks for a user and a password",
    "WRONGPASS": "the server knows no such user and password",
}


def code_of(error: BaseException) -> str:
    """The server's own first word, where redis-py keeps it or makes a class of it."""
    for kind, code in _CLASSES:
        if isinstance(error, kind):
            return code
    return str(error).partition(" ")[0]


def trouble(error: BaseException, place: Place) -> StoreError:
    """The error for callers: certainly nothing was written."""
    if isinstance(error, StoreError):
        return error
    code = code_of(error)
    if code in LATER:
        told: StoreError = StoreUnavailable(f"{place.shown}: {LATER[code]}; call again")
    elif code in _WORDS:
        told = StoreBroken(f"{place.shown}: {_WORDS[code]}")
    elif isinstance(error, (said.ConnectionError, said.TimeoutError, OSError)):
        told = StoreUnavailable(f"{place.shown}: it cannot be reached ({type(error).__name__})")
    else:
        told = StoreBroken(f"{place.shown}: {type(error).__name__}: {_first_line(error)}")
    told.__cause__ = error
    return told


def answer_lost(error: BaseException, place: Place) -> AnswerLost:
    """The error for callers whose connection ended: the write may have landed."""
    lost = AnswerLost(
        f"{place.shown}: no answer came ({type(error).__name__}); the write may have landed: repeat"
        " it by its id"
    )
    lost.__cause__ = error
    return lost


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200]


_CLASSES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (said.ReadOnlyError, "READONLY"),
    (said.BusyLoadingError, "LOADING"),
    (said.NoScriptError, "NOSCRIPT"),
    (said.NoPermissionError, "NOPERM"),
    (said.AuthenticationError, "WRONGPASS"),
    (said.OutOfMemoryError, "OOM"),
    (said.AskError, "ASK"),
    (said.MovedError, "MOVED"),
    (said.TryAgainError, "TRYAGAIN"),
    (said.ClusterDownError, "CLUSTERDOWN"),
    (said.MasterDownError, "MASTERDOWN"),
)
