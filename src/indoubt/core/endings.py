"""How an attempt ends, and a record with it: settled, left in doubt, let go, asked about, closed.

The second half of the one state machine (``machine.py`` holds its rules and its table).
"""

from __future__ import annotations

from msgspec.structs import replace

from .attempts import close_open, edit
from .bounds import EVIDENCE_KEPT
from .commands import Abandon, Ask, Cancel, Clear, Doubt, Note, Release, Reopen, Settle
from .record import (
    NO_RAW,
    Attempt,
    Closed,
    Effect,
    Evidence,
    Late,
    Millis,
    Record,
    State,
)
from .refusals import Refused

S = State
SETTLEMENTS = frozenset({S.SUCCEEDED, S.FAILED, S.PARTIAL, S.CANCELLED})


def settle(record: Record, command: Settle, now_ms: Millis) -> Record | Refused:
    if command.outcome not in SETTLEMENTS:
        return Refused(f"not_a_settlement_{command.outcome}")
    if command.outcome is S.SUCCEEDED:
        attempts = edit(record.attempts, command.attempt, closed=Closed.SUCCEEDED)
        ended = _end(record, S.SUCCEEDED, attempts, None, command)
        others = [a.late.receipt for a in ended.open_attempts if a.late is not None]
        twice = any(receipt != command.receipt for receipt in others)
        return _happened_twice(ended, now_ms) if twice else ended
    if command.effect is None:
        return Refused("effect_missing")
    attempts = (
        close_open(record.attempts, command.closes)
        if command.attempt is None
        else edit(record.attempts, command.attempt, closed=command.closes)
    )
    if any(attempt.open for attempt in attempts):
        # "Failed" about one attempt does not close the others (P6).
        return _let_go(replace(record, attempts=attempts), now_ms)
    return _end(record, command.outcome, attempts, command.effect, command)


def _end(
    record: Record,
    state: State,
    attempts: tuple[Attempt, ...],
    effect: Effect | None,
    command: Settle | None = None,
) -> Record:
    return replace(
        record,
        state=state,
        attempts=attempts,
        effect=effect,
        owner=None,
        lease_until_ms=None,
        ready_at_ms=None,
        doubt_since_ms=None,
        asked=None,
        receipt=command.receipt if command else NO_RAW,
        receipt_lost=command.receipt_lost if command else False,
        error=command.error if command else NO_RAW,
    )


def _let_go(record: Record, now_ms: Millis, after_ms: Millis | None = None) -> Record:
    """Back to in doubt without a holder."""
    return replace(
        record,
        state=S.IN_DOUBT,
        owner=None,
        lease_until_ms=None,
        ready_at_ms=now_ms + (after_ms or 0),
        doubt_since_ms=record.doubt_since_ms or now_ms,
    )


def doubt(record: Record, command: Doubt, now_ms: Millis) -> Record:
    attempts = record.attempts
    if command.returned:
        # The holder knows that nothing is sent any more: the permit ends with its report.
        silent_at = None if record.policy.detached else now_ms
        last = replace(attempts[-1], permit_until_ms=now_ms, silent_at_ms=silent_at)
        attempts = (*attempts[:-1], last)
    record = replace(record, state=S.IN_DOUBT, doubt_since_ms=now_ms, attempts=attempts)
    if command.evidence is not None:
        record = add_evidence(record, command.evidence)
    return record if command.keep else _let_go(record, now_ms)


def release(record: Record, command: Release, now_ms: Millis) -> Record | Refused:
    if record.state is not S.DISPATCHED:
        ready = now_ms + (command.after_ms or 0)
        return replace(record, owner=None, lease_until_ms=None, ready_at_ms=ready)
    if not command.never_sent:
        return Refused("release_without_proof")
    return _unsent(record, now_ms)


def _unsent(record: Record, now_ms: Millis) -> Record:
    """The dispatch never left the process: close it, and give back what it had spent (P7)."""
    last = record.attempts[-1]
    attempts = (*record.attempts[:-1], replace(last, closed=Closed.NEVER_SENT))
    record = replace(record, attempts=attempts)
    if record.open_attempts:
        record = _let_go(record, now_ms)
    else:
        record = replace(
            record, state=S.PREPARED, owner=None, lease_until_ms=None, ready_at_ms=now_ms
        )
    if record.cancel_requested:
        return record if record.open_attempts else _end(record, S.CANCELLED, attempts, Effect.NONE)
    if last.permission is None:
        return record
    permission = replace(last.permission, attempt=record.attempt + 1)
    return replace(
        record,
        state=S.PERMITTED,
        permission=permission,
        ready_at_ms=now_ms,
        doubt_since_ms=record.doubt_since_ms or now_ms,
    )


def clear(record: Record, _command: Clear, _now_ms: Millis) -> Record:
    attempts = close_open(record.attempts, Closed.ABSENT)
    if record.cancel_requested:
        return _end(record, S.CANCELLED, attempts, Effect.NONE)
    return replace(
        record, state=S.PREPARED, attempts=attempts, folded_until_ms=None, doubt_since_ms=None
    )


def ask(record: Record, command: Ask, now_ms: Millis) -> Record:
    return replace(
        record,
        state=S.AWAITING_DECISION,
        owner=None,
        lease_until_ms=None,
        ready_at_ms=None,
        doubt_since_ms=record.doubt_since_ms or now_ms,
        asked=command.reason,
    )


def add_evidence(record: Record, evidence: Evidence) -> Record:
    """Append to the record's evidence; the journal keeps what falls off."""
    return replace(record, evidence=(*record.evidence, evidence)[-EVIDENCE_KEPT:])


def note(record: Record, command: Note, now_ms: Millis) -> Record:
    record = add_evidence(record, command.evidence)
    if command.counts:
        record = replace(
            record,
            probes=record.probes + 1,
            probing_since_ms=record.probing_since_ms or now_ms,
        )
    if command.about is not None:
        changes: dict[str, object] = {"active": command.active}
        if command.closes is not None:
            changes["closed"] = command.closes
        if command.returned and not record.policy.detached:
            changes["silent_at_ms"] = now_ms
        if command.late != NO_RAW:
            changes["late"] = Late(receipt=command.late, at_ms=now_ms)
        record = replace(record, attempts=edit(record.attempts, command.about, **changes))
    if command.late != NO_RAW and record.closed:
        return _contradict(record, command, now_ms)
    return record


def _contradict(record: Record, command: Note, now_ms: Millis) -> Record:
    """A late success beside a closed record: never overwritten, never overlooked (P12)."""
    if record.state is S.UNKNOWN:
        return record
    if record.state is not S.SUCCEEDED:
        why = "it happened although the record says otherwise"
    elif command.late != record.receipt:
        return _happened_twice(record, now_ms)
    else:
        return record
    return replace(record, contradicted=why, doubt_since_ms=record.doubt_since_ms or now_ms)


def _happened_twice(record: Record, now_ms: Millis) -> Record:
    return replace(record, contradicted="happened twice", doubt_since_ms=now_ms)


def cancel(record: Record, _command: Cancel, now_ms: Millis) -> Record:
    if record.state is S.PREPARED:
        return replace(
            _end(record, S.CANCELLED, record.attempts, Effect.NONE), cancel_requested=True
        )
    if record.state is S.PERMITTED:  # an unspent permission is void (P22)
        asked = record.asked or "cancelled before the permitted attempt"
        held = ask(record, Ask(fence=record.fence, reason=asked), now_ms)
        return replace(held, cancel_requested=True, permission=None)
    return replace(record, cancel_requested=True)


def reopen(record: Record, _command: Reopen, _now_ms: Millis) -> Record | Refused:
    if record.effect is not Effect.NONE or record.cancel_requested or record.contradicted:
        return Refused("outcome_stands")
    # Providers answer a repeated key with the stored refusal: only a definite one ends the series.
    last = record.attempts[-1].closed if record.attempts else None
    refused = last is Closed.CLEAN_FAILURE
    return replace(
        record,
        state=S.PREPARED,
        effect=None,
        error=NO_RAW,
        series=record.series + refused,
        first_dispatched_at_ms=None if refused else record.first_dispatched_at_ms,
    )


def abandon(record: Record, _command: Abandon, now_ms: Millis) -> Record | Refused:
    if record.owner is not None and (record.lease_until_ms or 0) > now_ms:
        return Refused("busy", until_ms=record.lease_until_ms)
    return _end(record, S.CANCELLED, record.attempts, Effect.NONE)
