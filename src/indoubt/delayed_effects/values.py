"""The words of seed 002, exactly: states, actions, intents, and the conflict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from indoubt.errors import DelayedEffectConflict

if TYPE_CHECKING:
    from indoubt.engine.engine import Seen


class DelayedEffectState(str, Enum):  # noqa: UP042 - as the seed has it (D-01)
    """Where an intent stands."""

    PENDING = "PENDING"
    EXECUTING = "EXECUTING"
    COMPLETED = "COMPLETED"


class DelayedEffectAction(str, Enum):  # noqa: UP042
    """What a call came to; none of them but CONFLICT is an exception (D-39)."""

    REGISTERED = "REGISTERED"
    CACHED = "CACHED"
    CONFLICT = "CONFLICT"
    ACQUIRED = "ACQUIRED"
    RECLAIMED = "RECLAIMED"
    BUSY = "BUSY"
    NOT_DUE = "NOT_DUE"
    RENEWED = "RENEWED"
    COMPLETED = "COMPLETED"
    DEFERRED = "DEFERRED"
    RETRY_SCHEDULED = "RETRY_SCHEDULED"
    STALE_OWNER = "STALE_OWNER"
    INVALID_STATE = "INVALID_STATE"
    MISSING = "MISSING"


@dataclass(frozen=True)
class DelayedEffectIntent:
    """A decoded intent, and the result of its latest transition (D-02).

    ``payload``, ``receipt`` and ``error`` are fresh, plain values: changing them reaches nothing.
    Times are milliseconds of the store's clock. ``attempts`` counts claims that were not given
    back; ``state`` is None only where there is no such intent (D-04).
    """

    action: DelayedEffectAction
    state: DelayedEffectState | None
    intent_id: str
    operation_id: str
    effect_type: str
    payload_fingerprint: str
    payload: dict[str, Any]
    due_at_ms: int
    created_at_ms: int
    owner_token: str
    fence: int
    attempts: int
    receipt: Any = None
    error: Any = None

    @property
    def terminal(self) -> bool:
        """Nothing more will happen by itself (D-03)."""
        return self.state is DelayedEffectState.COMPLETED

    @property
    def should_execute(self) -> bool:
        """The caller holds it now, and is the one to run it (D-03)."""
        return self.action in {DelayedEffectAction.ACQUIRED, DelayedEffectAction.RECLAIMED}


def told_from(intent: DelayedEffectIntent, seen: Seen) -> DelayedEffectIntent:
    """Remember what it was decoded from, so that its next verb need not read; no part of it."""
    intent.__dict__["_seen"] = seen
    return intent


def seen_in(intent: DelayedEffectIntent) -> Seen | None:
    """What it was decoded from; None for one that was copied or came from elsewhere."""
    return intent.__dict__.get("_seen")


__all__ = [
    "DelayedEffectAction",
    "DelayedEffectConflict",
    "DelayedEffectIntent",
    "DelayedEffectState",
    "seen_in",
    "told_from",
]
