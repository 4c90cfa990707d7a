"""The one place where records are told in the words of seed 002 (decisions D-1, D-8)."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from indoubt.core.record import NO_RAW, State

from .values import DelayedEffectAction, DelayedEffectIntent, DelayedEffectState, told_from

if TYPE_CHECKING:
    from msgspec import Raw

    from indoubt.core.record import Millis, Record
    from indoubt.engine.engine import Seen

KIND: Final = "delayed_effect"
PARKED: Final = "parked"
"""What a poisonous intent is asked about: claimed too often, and never completed."""
P, E, C = DelayedEffectState.PENDING, DelayedEffectState.EXECUTING, DelayedEffectState.COMPLETED
A = DelayedEffectAction

# What we record and what the seed calls it; AWAITING_DECISION is told apart by what is asked.
TOLD: Final[dict[State, DelayedEffectState]] = {
    State.PREPARED: P,
    State.PERMITTED: P,
    State.DISPATCHED: E,
    State.IN_DOUBT: P,
    State.AWAITING_DECISION: E,
    State.SUCCEEDED: C,
    State.FAILED: C,
    State.PARTIAL: C,
    State.CANCELLED: C,
    State.UNKNOWN: C,
}


def told_state(record: Record) -> DelayedEffectState:
    """The seed's state of a record."""
    if record.state is State.AWAITING_DECISION and record.asked == PARKED:
        return P
    if record.state is State.IN_DOUBT and record.owner is not None:
        return E  # between a claim and its dispatch
    return TOLD[record.state]


def due_at(record: Record) -> Millis:
    """When it is, or was, due; while it is pending the listing's own time."""
    if record.owner is None and record.ready_at_ms is not None:
        return record.ready_at_ms
    if record.due_at_ms is not None:
        return record.due_at_ms
    return record.created_at_ms + (record.delay_ms or 0)


def error_of(record: Record) -> Any:
    """The stored error, or the code of an end that has none of its own."""
    if record.state is State.AWAITING_DECISION:
        return {"code": PARKED if record.asked == PARKED else "awaiting_decision"}
    if record.error != NO_RAW:
        return _plain(record.error)
    if record.state is State.CANCELLED and not record.cancel_requested:
        return {"code": "expired"}
    if record.closed and record.state is not State.SUCCEEDED:
        return {"code": record.state.value}
    return None


def intent_of(
    seen: Seen, action: DelayedEffectAction, intent_id: str, *, mine: str | None = None
) -> DelayedEffectIntent:
    """Decode a record; ``mine``: whose owner token may be told as it is (D-39)."""
    record = seen.record
    if record is None:
        return missing(intent_id)
    owner = record.owner or ""
    told = DelayedEffectIntent(
        action=action,
        state=told_state(record),
        intent_id=intent_id,
        operation_id=record.key or "",
        effect_type=record.name,
        payload_fingerprint=record.fingerprint,
        payload=_plain(record.payload),
        due_at_ms=due_at(record),
        created_at_ms=record.created_at_ms,
        owner_token=owner if owner in {"", mine} else digest_of(owner),
        fence=record.fence,
        attempts=record.claims,
        receipt=None if record.receipt == NO_RAW else _plain(record.receipt),
        error=error_of(record),
    )
    return told_from(told, seen)


def missing(intent_id: str) -> DelayedEffectIntent:
    """There is no such intent (any more)."""
    return DelayedEffectIntent(
        action=A.MISSING,
        state=None,
        intent_id=intent_id,
        operation_id="",
        effect_type="",
        payload_fingerprint="",
        payload={},
        due_at_ms=0,
        created_at_ms=0,
        owner_token="",
        fence=0,
        attempts=0,
    )


def digest_of(owner_token: str) -> str:
    """Another owner's token, as it is shown (D-8)."""
    return "sha256:" + hashlib.sha256(owner_token.encode()).hexdigest()[:12]


def _plain(text: Raw) -> Any:
    """A fresh value; Python's own decoder, so that integers of any size stay exact."""
    return json.loads(bytes(text))
