"""What a person may decide, when, and what it does (protocol P9, head line 1; part of the machine).

A decision answers one question: the record and the number of its newest attempt. A repeat with
the same decision id gets the first answer. Deciding raises the fence, so that whoever was probing
meanwhile loses. Once the success of an attempt has come in, nobody says "no" or "again" any more:
whoever does has not seen it (P8), and the next send would be the second effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from .absence import quiet_at
from .attempts import rule_out
from .bounds import DECISIONS_KEPT
from .record import (
    NO_RAW,
    Decided,
    DecisionKind,
    Effect,
    Millis,
    Permission,
    Record,
    Stage,
    State,
    stored,
)
from .refusals import Refused

if TYPE_CHECKING:
    from .commands import Decide

K = DecisionKind
ALL_KINDS = frozenset(DecisionKind)
CORRECTIONS = frozenset({K.HAPPENED, K.DID_NOT_HAPPEN})
ALLOW = frozenset({K.ALLOW_ONE_ATTEMPT})
NO_AND_AGAIN = frozenset({K.DID_NOT_HAPPEN, K.ALLOW_ONE_ATTEMPT})
"""After these another attempt may be sent."""


def choices(record: Record, now_ms: Millis = 0) -> frozenset[DecisionKind]:
    """The decisions that the record's state admits (not yet whether it is too early for them)."""
    if record.state in {State.AWAITING_DECISION, State.IN_DOUBT}:
        kinds = ALL_KINDS
    elif record.state is State.UNKNOWN:
        kinds = CORRECTIONS | ALLOW
    elif record.closed and record.contradicted:
        kinds = frozenset({K.HAPPENED})
    elif record.closed and record.effect in {Effect.POSSIBLE, Effect.PARTIAL}:
        kinds = ALLOW
    else:
        kinds = frozenset[DecisionKind]()
    if came_in(record):
        kinds -= NO_AND_AGAIN
    unsendable = record.cancel_requested or _expired(record, now_ms)
    return kinds - ALLOW if unsendable else kinds


def _expired(record: Record, now_ms: Millis) -> bool:
    end = record.policy.no_use_after_ms
    return end is not None and now_ms >= end


def came_in(record: Record) -> bool:
    """Whether the success of an attempt is on file that the record itself does not tell."""
    return bool(record.contradicted) or any(a.late is not None for a in record.attempts)


def decide_person(record: Record, command: Decide, now_ms: Millis) -> Record | Refused:
    """Apply a decision, or say why not."""
    known = [d for d in record.decisions if d.decision_id == command.decision_id]
    if known:
        return Refused("repeated", decided=known[0], again=True)
    if command.attempt != record.attempt:
        return Refused("stale_question")
    if not record.closed and record.store_epoch < command.store_epoch:
        return Refused("store_rewound")  # another attempt may have been sent since (P19)
    if command.kind not in choices(record, now_ms):
        return _why_not(record, command.kind, now_ms)
    early = _too_early(record, command.kind, now_ms)
    if early is not None:
        return early
    decided = Decided(
        decision_id=command.decision_id,
        kind=command.kind,
        attempt=command.attempt,
        actor=command.actor,
        reason=command.reason,
        at_ms=now_ms,
    )
    record = replace(
        record,
        fence=record.fence + 1,
        owner=None,
        lease_until_ms=None,
        ready_at_ms=None,
        contradicted=None,
        asked=None,
        decisions=(*record.decisions, decided)[-DECISIONS_KEPT:],
    )
    return _EFFECTS[command.kind](record, command, now_ms)


def _why_not(record: Record, kind: DecisionKind, now_ms: Millis) -> Refused:
    if kind in ALLOW and record.cancel_requested:
        return Refused("cancel_requested")
    if kind in NO_AND_AGAIN and K.HAPPENED in choices(record) and came_in(record):
        return Refused("late_success")
    if kind in choices(record) and _expired(record, now_ms):
        return Refused("no_use_after")
    asked = [d for d in record.decisions if d.attempt == record.attempt]
    if asked:
        return Refused("already_decided", decided=asked[-1])
    return Refused("nothing_to_decide")


def _too_early(record: Record, kind: DecisionKind, now_ms: Millis) -> Refused | None:
    """A request under way may still land: "no" and "again" wait for it (P9)."""
    if kind not in NO_AND_AGAIN:
        return None
    if now_ms < quiet_at(record):
        return Refused("too_early", until_ms=quiet_at(record))
    if kind is K.ALLOW_ONE_ATTEMPT:
        for attempt in record.open_attempts:
            if attempt.stage is Stage.ACKNOWLEDGED or attempt.active:
                return Refused("too_early")
    return None


def _happened(record: Record, command: Decide, _now_ms: Millis) -> Record:
    return replace(
        record,
        state=State.SUCCEEDED,
        effect=None,
        error=NO_RAW,
        receipt=stored(command.receipt),
        receipt_lost=command.receipt == NO_RAW,
        doubt_since_ms=None,
    )


def _did_not_happen(record: Record, _command: Decide, _now_ms: Millis) -> Record:
    return replace(
        record,
        state=State.FAILED,
        effect=Effect.NONE,
        attempts=rule_out(record.attempts),
        folded_until_ms=None,
        doubt_since_ms=None,
    )


def _allow(record: Record, command: Decide, now_ms: Millis) -> Record:
    permission = Permission(
        attempt=record.attempt + 1,
        decision_id=command.decision_id,
        actor=command.actor,
        at_ms=now_ms,
    )
    return replace(
        record,
        state=State.PERMITTED,
        effect=None,
        permission=permission,
        ready_at_ms=now_ms,
        doubt_since_ms=record.doubt_since_ms or now_ms,
    )


def _give_up(record: Record, _command: Decide, _now_ms: Millis) -> Record:
    return replace(record, state=State.UNKNOWN, effect=Effect.POSSIBLE, doubt_since_ms=None)


_EFFECTS = {
    K.HAPPENED: _happened,
    K.DID_NOT_HAPPEN: _did_not_happen,
    K.ALLOW_ONE_ATTEMPT: _allow,
    K.GIVE_UP: _give_up,
}
