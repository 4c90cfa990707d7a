"""The list of attempts: editing one, closing the open ones, folding the old ones, summing up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .bounds import ATTEMPTS_KEPT
from .record import Closed, Effect, State

if TYPE_CHECKING:
    from .record import Attempt, Millis, Record

WITHOUT_EFFECT = frozenset(
    {Closed.CLEAN_FAILURE, Closed.NEVER_SENT, Closed.ABSENT, Closed.DECIDED},
)
"""What somebody who may say so called "no effect" (a probe's "failed" does not, G1)."""


def edit(attempts: tuple[Attempt, ...], number: int | None, **changes: Any) -> tuple[Attempt, ...]:
    """Change one attempt (None: the newest); a number that was folded away changes nothing."""
    if number is None and attempts:
        number = attempts[-1].number
    return tuple([replace(a, **changes) if a.number == number else a for a in attempts])


def close_open(attempts: tuple[Attempt, ...], why: Closed) -> tuple[Attempt, ...]:
    """Close every open attempt for one reason."""
    return tuple([replace(a, closed=why) if a.closed is None else a for a in attempts])


def rule_out(attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
    """A person says that none of them had an effect."""
    return tuple([a if none(a) else replace(a, closed=Closed.DECIDED) for a in attempts])


def none(attempt: Attempt) -> bool:
    """Whether the attempt is closed without effect."""
    return attempt.closed in WITHOUT_EFFECT


def doubtful(record: Record) -> bool:
    """Whether an attempt is open, be it one that was folded away."""
    return record.folded_until_ms is not None or any(a.closed is None for a in record.attempts)


def marred(record: Record) -> bool:
    """Whether an attempt ended with a possible effect, and nobody has settled that since."""
    return any(a.closed is not None and not none(a) for a in record.attempts)


def effect_of(record: Record) -> Effect:
    """What is certain once no attempt is open: nothing, unless each was closed without effect.

    An attempt that was folded away while it was open stays possible.
    """
    certain = record.folded_until_ms is None and all(none(a) for a in record.attempts)
    return Effect.NONE if certain else Effect.POSSIBLE


def silence(
    attempts: tuple[Attempt, ...], dead_owners: tuple[str, ...], now_ms: Millis
) -> tuple[Attempt, ...]:
    """Attempts of owners proven dead can be sent by nobody any more ("": nobody knows whose)."""
    if not dead_owners:
        return attempts
    return tuple(
        [
            replace(a, silent_at_ms=now_ms)
            if a.owner and a.owner in dead_owners and a.silent_at_ms is None
            else a
            for a in attempts
        ]
    )


def is_full(attempts: tuple[Attempt, ...], *, replayable: bool) -> bool:
    """Whether no attempt can be folded away to make room for one more.

    Doubtful attempts of a class that may be replayed can go: nobody will ask about each of them.
    """
    if len(attempts) < ATTEMPTS_KEPT or replayable:
        return False
    return not any(none(attempt) for attempt in attempts)


def one_more(record: Record, attempt: Attempt) -> Record:
    """The record as its next dispatch leaves it."""
    kept, folded_until = fold(record)
    first = record.first_dispatched_at_ms
    return replace(
        record,
        state=State.DISPATCHED,
        doubt_since_ms=None,
        attempt=attempt.number,
        attempts=(*kept, attempt),
        folded_until_ms=folded_until,
        first_dispatched_at_ms=attempt.dispatched_at_ms if first is None else first,
        permission=None,
        asked=None,
        probes=0,
        probing_since_ms=None,
    )


def fold(record: Record) -> tuple[tuple[Attempt, ...], Millis | None]:
    """Make room for one more: drop the oldest that had no effect, else the oldest doubtful one."""
    attempts = record.attempts
    if len(attempts) < ATTEMPTS_KEPT:
        return attempts, record.folded_until_ms
    gone = next((a for a in attempts if none(a)), attempts[0])
    kept = tuple([a for a in attempts if a is not gone])
    if none(gone):
        return kept, record.folded_until_ms
    return kept, max(gone.permit_until_ms, record.folded_until_ms or 0)
