"""The list of attempts: editing one, closing the open ones, folding the old ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .bounds import ATTEMPTS_KEPT

if TYPE_CHECKING:
    from .record import Attempt, Closed, Millis, Record


def edit(attempts: tuple[Attempt, ...], number: int | None, **changes: Any) -> tuple[Attempt, ...]:
    """Change one attempt (None: the newest); a number that was folded away changes nothing."""
    if number is None and attempts:
        number = attempts[-1].number
    return tuple([replace(a, **changes) if a.number == number else a for a in attempts])


def close_open(attempts: tuple[Attempt, ...], why: Closed) -> tuple[Attempt, ...]:
    """Close every open attempt for one reason."""
    return tuple([replace(a, closed=why) if a.closed is None else a for a in attempts])


def silence(
    attempts: tuple[Attempt, ...], dead_owners: tuple[str, ...], now_ms: Millis
) -> tuple[Attempt, ...]:
    """Attempts of owners proven dead can be sent by nobody any more."""
    if not dead_owners:
        return attempts
    return tuple(
        [
            replace(a, silent_at_ms=now_ms)
            if a.owner in dead_owners and a.silent_at_ms is None
            else a
            for a in attempts
        ]
    )


def is_full(attempts: tuple[Attempt, ...], *, replayable: bool) -> bool:
    """Whether no attempt can be folded away to make room for one more.

    Open attempts of a class that may be replayed can go: nobody will ask about each of them.
    """
    if len(attempts) < ATTEMPTS_KEPT or replayable:
        return False
    return all(attempt.open for attempt in attempts)


def fold(record: Record) -> tuple[tuple[Attempt, ...], Millis | None]:
    """Make room for one more: drop the oldest closed attempt, else the oldest open one."""
    attempts = record.attempts
    if len(attempts) < ATTEMPTS_KEPT:
        return attempts, record.folded_until_ms
    closed = [a for a in attempts if not a.open]
    gone = closed[0] if closed else attempts[0]
    kept = tuple([a for a in attempts if a is not gone])
    if not gone.open:
        return kept, record.folded_until_ms
    return kept, max(gone.permit_until_ms, record.folded_until_ms or 0)
