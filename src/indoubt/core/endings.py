"""How an attempt ends, and a record with it: settled, left in doubt, let go, asked about, closed.

The second half of the one state machine (``machine.py`` holds its rules and its table).
"""

from __future__ import annotations

from msgspec.structs import replace

from .attempts import close_open, doubtful, edit, effect_of, marred
from .bounds import EVIDENCE_KEPT
from .commands import Abandon, Ask, Cancel, Clear, Doubt, Note, Postpone, Release, Reopen, Settle
from .record import (
    NO_RAW,
    REPLAYABLE,
    Attempt,
    Closed,
    Effect,
    Evidence,
    Late,
    Millis,
    Record,
    State,
    stored,
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
        return _contradicted(ended, "happened twice", now_ms) if twice else ended
    if command.effect is None:
        return Refused("effect_missing")
    closes = command.closes or _closes(command.effect)
    if command.attempt is None:
        attempts = close_open(record.attempts, closes)
        record = replace(record, attempts=attempts, folded_until_ms=None)
    else:
        attempts = edit(record.attempts, command.attempt, closed=closes)
        record = replace(record, attempts=attempts)
    if doubtful(record):  # about the others it says nothing; of its own it is evidence (P6)
        return _let_go(add_evidence(record, _settled(command, now_ms)), now_ms)
    return _end(record, command.outcome, attempts, command.effect, command)


def _settled(command: Settle, now_ms: Millis) -> Evidence:
    return Evidence(
        source="holder",
        at_ms=now_ms,
        attempt=command.attempt or 0,
        status=command.outcome.value,
        data=command.error,
    )


def _closes(effect: Effect) -> Closed:
    return Closed.CLEAN_FAILURE if effect is Effect.NONE else Closed.FAILED


def _end(
    record: Record,
    state: State,
    attempts: tuple[Attempt, ...],
    effect: Effect | None,
    command: Settle | None = None,
) -> Record:
    """Close the record; "no effect" only where no attempt has left one possible (P6)."""
    record = replace(record, attempts=attempts)
    return replace(
        record,
        state=state,
        effect=effect_of(record) if effect is Effect.NONE else effect,
        owner=None,
        lease_until_ms=None,
        ready_at_ms=None,
        doubt_since_ms=None,
        asked=None,
        receipt=stored(command.receipt) if command else NO_RAW,
        receipt_lost=command.receipt_lost if command else False,
        error=stored(command.error) if command else NO_RAW,
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
    if command.returned and not record.policy.detached:
        # The holder knows that nothing is sent any more: the permit ends with its report.
        last = replace(attempts[-1], permit_until_ms=now_ms, silent_at_ms=now_ms)
        attempts = (*attempts[:-1], last)
    record = replace(record, state=S.IN_DOUBT, doubt_since_ms=now_ms, attempts=attempts)
    if command.evidence is not None:
        record = add_evidence(record, command.evidence)
    return record if command.keep else _let_go(record, now_ms)


def release(record: Record, command: Release, now_ms: Millis) -> Record | Refused:
    after_ms = command.after_ms or 0
    if record.state is not S.DISPATCHED:
        let_go = replace(record, owner=None, lease_until_ms=None, ready_at_ms=now_ms + after_ms)
    elif command.never_sent:
        let_go = _unsent(record, now_ms, after_ms)
    elif record.policy.safety in REPLAYABLE:
        # It is sent again by itself, so there is nothing in it for a person to look at.
        let_go = replace(_let_go(record, now_ms, after_ms), doubt_since_ms=None)
    else:
        return Refused("release_without_proof")
    return replace(
        let_go,
        due_at_ms=now_ms + after_ms,
        claims=let_go.claims - command.give_back,
        error=let_go.error if command.error == NO_RAW else command.error,
    )


def postpone(record: Record, command: Postpone, now_ms: Millis) -> Record | Refused:
    if record.owner is not None:
        return Refused("busy", until_ms=record.lease_until_ms)
    due = now_ms + command.after_ms
    return replace(record, ready_at_ms=due, due_at_ms=due)


def _unsent(record: Record, now_ms: Millis, after_ms: Millis) -> Record:
    """The dispatch never left the process: close it, and give back what it had spent (P7)."""
    last = record.attempts[-1]
    attempts = (*record.attempts[:-1], replace(last, closed=Closed.NEVER_SENT))
    record = _resting(replace(record, attempts=attempts), now_ms)
    if last.permission is not None and not record.cancel_requested:
        record = replace(
            record,
            state=S.PERMITTED,
            effect=None,
            permission=replace(last.permission, attempt=record.attempt + 1),
            doubt_since_ms=record.doubt_since_ms or now_ms,
        )
    ready_at = None if record.closed else now_ms + after_ms
    return replace(record, owner=None, lease_until_ms=None, ready_at_ms=ready_at)


def _resting(record: Record, now_ms: Millis) -> Record:
    """What a record is once attempts of it are known to have had no effect."""
    if doubtful(record):
        since = record.doubt_since_ms or now_ms
        return replace(record, state=S.IN_DOUBT, doubt_since_ms=since)
    if record.cancel_requested:
        return _end(record, S.CANCELLED, record.attempts, Effect.NONE)
    if marred(record):
        return _end(record, S.FAILED, record.attempts, Effect.NONE)
    return replace(record, state=S.PREPARED, doubt_since_ms=None)


def clear(record: Record, _command: Clear, now_ms: Millis) -> Record:
    attempts = close_open(record.attempts, Closed.ABSENT)
    return _resting(replace(record, attempts=attempts, folded_until_ms=None), now_ms)


def ask(record: Record, command: Ask, now_ms: Millis) -> Record:
    return replace(
        record,
        state=S.AWAITING_DECISION,
        permission=None,
        owner=None,
        lease_until_ms=None,
        ready_at_ms=None,
        doubt_since_ms=record.doubt_since_ms or now_ms,
        asked=command.reason,
    )


def add_evidence(record: Record, evidence: Evidence) -> Record:
    """Append to the record's evidence; the journal keeps what falls off."""
    evidence = replace(evidence, data=stored(evidence.data))
    return replace(record, evidence=(*record.evidence, evidence)[-EVIDENCE_KEPT:])


def note(record: Record, command: Note, now_ms: Millis) -> Record:
    if command.journal_only:
        return record
    record = add_evidence(record, command.evidence)
    if command.counts:
        record = replace(
            record,
            probes=record.probes + 1,
            probing_since_ms=record.probing_since_ms or now_ms,
        )
    about = [a for a in record.attempts if a.number == command.about]
    if about:
        changes = _learned(record, about[0], command, now_ms)
        record = replace(record, attempts=edit(record.attempts, command.about, **changes))
    if command.late == NO_RAW:
        return record
    if record.closed:
        return _contradict(record, command, now_ms)
    if record.state in {S.PREPARED, S.PERMITTED} and doubtful(record):
        # Who allowed another attempt did not know of this: the permission is void.
        return replace(
            record,
            state=S.IN_DOUBT,
            permission=None,
            ready_at_ms=record.ready_at_ms or now_ms,
            doubt_since_ms=record.doubt_since_ms or now_ms,
        )
    return record


def _learned(record: Record, about: Attempt, command: Note, now_ms: Millis) -> dict[str, object]:
    """What a note changes of its attempt."""
    changes: dict[str, object] = {"active": command.active}
    if command.closes is not None and about.open:
        changes["closed"] = command.closes
    if command.returned and not record.policy.detached:
        changes["silent_at_ms"] = now_ms
    if command.late != NO_RAW:
        changes["late"] = Late(receipt=command.late, at_ms=now_ms, lost=command.late_lost)
        if not record.closed:
            changes["closed"] = None  # whoever said "no effect" was wrong
    return changes


def _contradict(record: Record, command: Note, now_ms: Millis) -> Record:
    """A late success beside a closed record: never overwritten, never overlooked (P12)."""
    if record.state is S.UNKNOWN:
        return _contradicted(record, "its result came in after it was given up", now_ms)
    if record.state is not S.SUCCEEDED:
        return _contradicted(record, "it happened although the record says otherwise", now_ms)
    others = [a for a in record.attempts if a.number != command.about]
    alone = not any(a.closed is Closed.SUCCEEDED or a.late is not None for a in others)
    unread = record.receipt_lost or command.late_lost
    if command.late == record.receipt or (unread and alone):
        return record
    return _contradicted(record, "happened twice", now_ms)


def _contradicted(record: Record, why: str, now_ms: Millis) -> Record:
    return replace(record, contradicted=why, doubt_since_ms=record.doubt_since_ms or now_ms)


def cancel(record: Record, command: Cancel, now_ms: Millis) -> Record:
    record = replace(record, cancel_requested=True)
    if record.store_epoch < command.store_epoch:
        return record  # it may have been dispatched since: whoever claims it finds out
    if record.state is S.PREPARED:
        return _end(record, S.CANCELLED, record.attempts, Effect.NONE)
    if record.state is S.PERMITTED:  # an unspent permission is void (P22)
        asked = record.asked or "cancelled before the permitted attempt"
        return ask(record, Ask(fence=record.fence, reason=asked), now_ms)
    return record


def reopen(record: Record, command: Reopen, _now_ms: Millis) -> Record | Refused:
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
        store_epoch=max(record.store_epoch, command.store_epoch),
        series=record.series + refused,
        first_dispatched_at_ms=None if refused else record.first_dispatched_at_ms,
    )


def abandon(record: Record, command: Abandon, now_ms: Millis) -> Record | Refused:
    if record.store_epoch < command.store_epoch:
        return Refused("store_rewound")
    if record.owner is not None and (record.lease_until_ms or 0) > now_ms:
        return Refused("busy", until_ms=record.lease_until_ms)
    return _end(record, S.CANCELLED, record.attempts, Effect.NONE)
