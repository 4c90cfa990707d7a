"""When a provider's "not found" proves that nothing happened, and when it proves nothing (P1-P5).

Absence needs a proof: the old permits over, the declared settle time over on both clocks, and -
where the store can decide it - every holder that might still send silent.
"""

from __future__ import annotations

from enum import StrEnum

from .record import Attempt, Millis, Record


class Absence(StrEnum):
    """What "not found" is worth, from nothing to a proof."""

    EARLY = "early"
    """The probe began before every sent request had landed or was lost: it proves nothing yet."""
    UNPROVABLE = "unprovable"
    """The look-up is not authoritative, or no settle time is declared: it never proves anything."""
    LOUD = "loud"
    """A holder may still be about to send, and this store could prove that none is."""
    ASSUMED = "assumed"
    """True, if no holder stands still between its permit check and its send."""
    PROVEN = "proven"
    """Every holder is dead or done, and the settle time is counted from that proof."""


def permits_end(record: Record) -> Millis:
    """The instant from which no open attempt has a permit."""
    ends = [attempt.permit_until_ms for attempt in record.open_attempts]
    return max([*ends, record.folded_until_ms or 0])


def quiet_at(record: Record) -> Millis:
    """The instant from which a person may say that it did not happen.

    The last permit's end plus ``settle_time`` where one is declared.
    """
    return permits_end(record) + (record.policy.settle_ms or 0)


def silent(record: Record) -> bool:
    """Whether nobody can send any open attempt any more (of one folded away, nobody knows)."""
    if record.policy.detached or record.folded_until_ms is not None:
        return False
    return all(attempt.silent_at_ms is not None for attempt in record.open_attempts)


def proof_at(record: Record) -> Millis:
    """``quiet_at``, but counted from the proof of silence where that came later."""
    settle = record.policy.settle_ms or 0
    return max([quiet_at(record), *(_silence(a) + settle for a in record.open_attempts)])


def _silence(attempt: Attempt) -> Millis:
    return attempt.silent_at_ms or 0


def absence(
    record: Record, *, began_ms: Millis, measured_ms: Millis, decides_silence: bool
) -> Absence:
    """Judge a "not found" whose probe was sent at ``began_ms`` (store time read before that).

    Args:
        record: as it stood when the probe was sent.
        began_ms: store time, read before the probe was sent.
        measured_ms: how long this process has itself seen the record in doubt, on its own clock.
        decides_silence: whether the store can prove an owner dead.
    """
    settle = record.policy.settle_ms
    if settle is None or not record.policy.authoritative:
        return Absence.EARLY if began_ms < quiet_at(record) else Absence.UNPROVABLE
    if began_ms < quiet_at(record) or measured_ms < settle:
        return Absence.EARLY
    if silent(record):
        return Absence.PROVEN if began_ms >= proof_at(record) else Absence.EARLY
    return Absence.LOUD if decides_silence else Absence.ASSUMED


def wait_ms(record: Record, *, now_ms: Millis, measured_ms: Millis) -> Millis:
    """How long until a probe could count, on both clocks."""
    settle = record.policy.settle_ms or 0
    end = proof_at(record) if silent(record) else quiet_at(record)
    return max(end - now_ms, settle - measured_ms, 0)
