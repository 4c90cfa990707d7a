"""Who holds an intent, how a holder ends it, and what everybody else is told (table 4.1)."""

from __future__ import annotations

from typing import Final

from indoubt.core.commands import Abandon, Ask, Cancel, Command, Doubt, Release, Settle
from indoubt.core.record import Closed, Effect, Record, State

from .values import DelayedEffectAction, DelayedEffectIntent, DelayedEffectState
from .words import PARKED, told_state

A = DelayedEffectAction
P, E, C = DelayedEffectState.PENDING, DelayedEffectState.EXECUTING, DelayedEffectState.COMPLETED
ACTOR: Final = "delayed_effects"


def ending(record: Record, fence: int) -> tuple[Command, ...]:
    """How a holder ends what was cancelled or is too late: with no effect where nothing was sent.

    ``record``: as it is, or was before the claim.
    """
    if record.state is State.PREPARED:
        release = Release(fence=fence)
        if record.cancel_requested:
            cancel = Cancel(actor=ACTOR, reason="cancelled", store_epoch=record.store_epoch)
            return (release, cancel)
        return (release, Abandon(reason="no_use_after", store_epoch=record.store_epoch))
    if record.state is State.DISPATCHED and record.claims == 1 and record.fence == fence:
        unsent = Release(fence=fence, never_sent=True)
        too_late = Abandon(reason="no_use_after", store_epoch=record.store_epoch)
        return (unsent,) if record.cancel_requested else (unsent, too_late)
    settle = Settle(
        fence=fence, outcome=State.CANCELLED, effect=Effect.POSSIBLE, closes=Closed.FAILED
    )
    return (settle,)


def parking(fence: int) -> tuple[Command, ...]:
    """How a holder leaves to a person what nobody completes."""
    return (Doubt(fence=fence, returned=True, keep=True), Ask(fence=fence, reason=PARKED))


def mine(record: Record | None, intent: DelayedEffectIntent) -> bool:
    """Owner, fence and generation are those of the intent (D-38, P25)."""
    return (
        record is not None
        and record.owner == intent.owner_token
        and record.fence == intent.fence
        and record.created_at_ms == intent.created_at_ms
    )


def why_not(record: Record, intent: DelayedEffectIntent, verb: str) -> DelayedEffectAction:
    """The cell of table 4.1 for a verb of whoever does not hold the intent (any more)."""
    state = told_state(record)
    was_mine = _was_mine(record, intent)
    if state is E:
        return A.STALE_OWNER
    if state is C and verb == "complete":
        done = record.state is State.SUCCEEDED and was_mine
        return A.COMPLETED if done else A.STALE_OWNER
    if verb == "requeue" and was_mine and state is P:  # its repeat gets the first answer (D-7)
        return A.DEFERRED if record.claims < intent.attempts else A.RETRY_SCHEDULED
    if was_mine or (intent.fence >= record.fence and not (state is C and verb == "requeue")):
        return A.INVALID_STATE
    return A.STALE_OWNER


def _was_mine(record: Record, intent: DelayedEffectIntent) -> bool:
    """The last attempt was this holder's."""
    last = record.attempts[-1] if record.attempts else None
    return (
        last is not None
        and last.owner == intent.owner_token
        and last.fence == intent.fence == record.fence
        and record.created_at_ms == intent.created_at_ms
    )
