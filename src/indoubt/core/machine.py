"""What may follow what: the one state machine.

Rule 1: every rule about what may follow what is in this file.
Rule 2: no I/O, no clock, no randomness; ``now_ms`` is the store's time, an argument.
Rule 3: a record in ``prepared`` has no open attempt; ``failed`` or ``cancelled`` with effect none
needs every attempt closed without effect.
Rule 4: whoever is not the holder of the record's fence changes nothing but evidence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .attempts import close_open, edit, fold, is_full, silence
from .bounds import EVIDENCE_KEPT
from .commands import (
    Abandon,
    Acknowledge,
    Ask,
    Cancel,
    Checkpoint,
    Claim,
    Clear,
    Command,
    Decide,
    Dispatch,
    Doubt,
    Note,
    Prepare,
    Release,
    Renew,
    Reopen,
    Settle,
)
from .decisions import decide_person
from .record import (
    CLOSED,
    NO_RAW,
    Attempt,
    Closed,
    Effect,
    Evidence,
    Late,
    Millis,
    Record,
    Safety,
    Stage,
    State,
)
from .refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

S = State
LIVE = frozenset({S.PREPARED, S.DISPATCHED, S.IN_DOUBT, S.PERMITTED})
ALL = frozenset(State)

# (command, states in which it may ever be allowed); everything else is refused.
ALLOWED: dict[type[Command], frozenset[State]] = {
    Prepare: frozenset(),
    Claim: LIVE,
    Dispatch: frozenset({S.PREPARED, S.IN_DOUBT, S.PERMITTED}),
    Acknowledge: frozenset({S.DISPATCHED}),
    Checkpoint: frozenset({S.DISPATCHED}),
    Renew: LIVE,
    Settle: frozenset({S.DISPATCHED, S.IN_DOUBT}),
    Doubt: frozenset({S.DISPATCHED}),
    Release: LIVE,
    Clear: frozenset({S.IN_DOUBT}),
    Ask: frozenset({S.IN_DOUBT}),
    Note: ALL,
    Decide: ALL - {S.PREPARED},
    Cancel: ALL - CLOSED,
    Reopen: frozenset({S.FAILED, S.CANCELLED}),
    Abandon: frozenset({S.PREPARED}),
}
# What only a permission or a proof may send again: never a replay.
NEVER_REPLAYED = frozenset({Safety.NON_IDEMPOTENT, Safety.HUMAN_CONFIRMATION_REQUIRED})
REPLAYABLE = frozenset({Safety.PURE, Safety.IDEMPOTENT, Safety.RETRY_SAFE})
SETTLEMENTS = frozenset({S.SUCCEEDED, S.FAILED, S.PARTIAL, S.CANCELLED})


def decide(record: Record | None, commands: Sequence[Command], now_ms: Millis) -> Record | Refused:
    """Apply commands in order to one image of the record: all of them, or the first refusal."""
    dispatched = False
    for command in commands:
        if type(command) is Dispatch and dispatched:
            return Refused("two_dispatches")
        dispatched = dispatched or type(command) is Dispatch
        after = _one(record, command, now_ms)
        if isinstance(after, Refused):
            return after
        record = after
    return record if record is not None else Refused("missing")


def _one(record: Record | None, command: Command, now_ms: Millis) -> Record | Refused:
    if isinstance(command, Prepare):
        return command.record if record is None else Refused("exists")
    if record is None:
        return Refused("missing")
    if record.pruned:
        return Refused("pruned")
    kind = type(command)
    if record.state not in ALLOWED[kind]:
        return Refused(f"{kind.__name__.lower()}_from_{record.state}")
    fence = getattr(command, "fence", None)
    if fence is not None and (record.owner is None or fence != record.fence):
        return Refused("stale_fence")
    return _RULES[kind](record, command, now_ms)


def _claim(record: Record, command: Claim, now_ms: Millis) -> Record | Refused:
    lease_over = record.lease_until_ms is None or record.lease_until_ms <= now_ms
    if record.owner is not None and not lease_over and record.owner not in command.dead_owners:
        return Refused("busy", until_ms=record.lease_until_ms)
    state, since = record.state, record.doubt_since_ms
    # A dispatched record whose holder is gone may have happened; so may what an older epoch of
    # the store calls prepared: that store forgot writes (P19).
    forgot = state is S.PREPARED and record.store_epoch < command.store_epoch
    if state is S.DISPATCHED or forgot:
        state, since = S.IN_DOUBT, now_ms
    return replace(
        record,
        state=state,
        doubt_since_ms=since,
        fence=record.fence + 1,
        owner=command.owner,
        lease_until_ms=now_ms + command.lease_ms,
        ready_at_ms=now_ms + command.lease_ms,
        claims=record.claims + 1,
        store_epoch=max(record.store_epoch, command.store_epoch),
        attempts=silence(record.attempts, command.dead_owners, now_ms),
    )


def _dispatch(record: Record, command: Dispatch, now_ms: Millis) -> Record | Refused:
    policy = command.policy or record.policy
    if record.cancel_requested:
        return Refused("cancel_requested")
    if policy.no_use_after_ms is not None and now_ms >= policy.no_use_after_ms:
        return Refused("no_use_after")
    if record.state is S.IN_DOUBT and policy.safety in NEVER_REPLAYED:
        return Refused("replay_of_non_idempotent")
    if is_full(record.attempts, replayable=policy.safety in REPLAYABLE):
        return Refused("attempts_exhausted")
    number = record.attempt + 1
    if record.state is S.PERMITTED and (
        record.permission is None or record.permission.attempt != number
    ):
        return Refused("no_permission")
    attempt = Attempt(
        number=number,
        fence=record.fence,
        owner=record.owner or "",
        dispatched_at_ms=now_ms,
        permit_until_ms=now_ms + command.permit_ms,
        permission=record.permission,
    )
    kept, folded_until = fold(record)
    return replace(
        record,
        state=S.DISPATCHED,
        doubt_since_ms=None,
        policy=policy,
        attempt=number,
        attempts=(*kept, attempt),
        folded_until_ms=folded_until,
        first_dispatched_at_ms=now_ms
        if record.first_dispatched_at_ms is None
        else record.first_dispatched_at_ms,
        permission=None,
        asked=None,
        probes=0,
        probing_since_ms=None,
    )


def _acknowledge(record: Record, command: Acknowledge, _now_ms: Millis) -> Record:
    last = record.attempts[-1]
    attempt = replace(
        last,
        stage=Stage.ACKNOWLEDGED,
        token=command.token if command.token != NO_RAW else last.token,
        external_ref=command.external_ref or last.external_ref,
    )
    return replace(record, attempts=(*record.attempts[:-1], attempt))


def _checkpoint(record: Record, command: Checkpoint, _now_ms: Millis) -> Record:
    attempt = replace(record.attempts[-1], token=command.token)
    return replace(record, attempts=(*record.attempts[:-1], attempt))


def _renew(record: Record, command: Renew, now_ms: Millis) -> Record:
    lease = now_ms + command.lease_ms
    attempts = record.attempts
    if command.permit_ms is not None and record.state is S.DISPATCHED:
        last = replace(attempts[-1], permit_until_ms=now_ms + command.permit_ms)
        attempts = (*attempts[:-1], last)
    return replace(record, lease_until_ms=lease, ready_at_ms=lease, attempts=attempts)


def _settle(record: Record, command: Settle, now_ms: Millis) -> Record | Refused:
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


def _doubt(record: Record, command: Doubt, now_ms: Millis) -> Record:
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


def _release(record: Record, command: Release, now_ms: Millis) -> Record | Refused:
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


def _clear(record: Record, _command: Clear, _now_ms: Millis) -> Record:
    attempts = close_open(record.attempts, Closed.ABSENT)
    if record.cancel_requested:
        return _end(record, S.CANCELLED, attempts, Effect.NONE)
    return replace(
        record, state=S.PREPARED, attempts=attempts, folded_until_ms=None, doubt_since_ms=None
    )


def _ask(record: Record, command: Ask, now_ms: Millis) -> Record:
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


def _note(record: Record, command: Note, now_ms: Millis) -> Record:
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


def _cancel(record: Record, _command: Cancel, now_ms: Millis) -> Record:
    if record.state is S.PREPARED:
        return replace(
            _end(record, S.CANCELLED, record.attempts, Effect.NONE), cancel_requested=True
        )
    if record.state is S.PERMITTED:  # an unspent permission is void (P22)
        asked = record.asked or "cancelled before the permitted attempt"
        held = _ask(record, Ask(fence=record.fence, reason=asked), now_ms)
        return replace(held, cancel_requested=True, permission=None)
    return replace(record, cancel_requested=True)


def _reopen(record: Record, _command: Reopen, _now_ms: Millis) -> Record | Refused:
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


def _abandon(record: Record, _command: Abandon, now_ms: Millis) -> Record | Refused:
    if record.owner is not None and (record.lease_until_ms or 0) > now_ms:
        return Refused("busy", until_ms=record.lease_until_ms)
    return _end(record, S.CANCELLED, record.attempts, Effect.NONE)


# No type ties a key to its rule's parameter; the core's tests apply every pair.
_RULES: dict[type[Command], Callable[[Record, Any, Millis], Record | Refused]] = {
    Claim: _claim,
    Dispatch: _dispatch,
    Acknowledge: _acknowledge,
    Checkpoint: _checkpoint,
    Renew: _renew,
    Settle: _settle,
    Doubt: _doubt,
    Release: _release,
    Clear: _clear,
    Ask: _ask,
    Note: _note,
    Decide: decide_person,
    Cancel: _cancel,
    Reopen: _reopen,
    Abandon: _abandon,
}
