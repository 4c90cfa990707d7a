"""What may follow what: the one state machine.

Rule 1: every rule about what may follow what is here, in ``endings.py`` or in ``decisions.py``.
Rule 2: no I/O, no clock, no randomness; ``now_ms`` is the store's time, an argument.
Rule 3: a record in ``prepared`` has no open attempt; ``failed`` or ``cancelled`` with effect none
needs every attempt closed without effect.
Rule 4: whoever is not the holder of the record's fence changes nothing but evidence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .attempts import fold, is_full, one_more, silence
from .bounds import FENCE_LEAP
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
    Postpone,
    Prepare,
    Release,
    Renew,
    Reopen,
    Settle,
)
from .decisions import decide_person
from .endings import abandon, ask, cancel, clear, doubt, note, postpone, release, reopen, settle
from .record import (
    CLOSED,
    NO_RAW,
    REPLAYABLE,
    Attempt,
    Millis,
    Record,
    Safety,
    Stage,
    State,
    stored,
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
    Claim: LIVE | {S.AWAITING_DECISION},  # awaiting: only where the store was put back
    Dispatch: frozenset({S.PREPARED, S.IN_DOUBT, S.PERMITTED}),
    Acknowledge: frozenset({S.DISPATCHED}),
    Checkpoint: frozenset({S.DISPATCHED}),
    Renew: LIVE,
    Settle: frozenset({S.DISPATCHED, S.IN_DOUBT}),
    Doubt: frozenset({S.DISPATCHED}),
    Release: LIVE,
    Postpone: frozenset({S.PREPARED, S.IN_DOUBT, S.PERMITTED}),
    Clear: frozenset({S.IN_DOUBT}),
    Ask: frozenset({S.IN_DOUBT, S.PERMITTED}),  # permitted: what it allows can be sent no more
    Note: ALL,
    Decide: ALL,  # a repeat of a decision gets its first answer everywhere
    Cancel: ALL - CLOSED,
    Reopen: frozenset({S.FAILED, S.CANCELLED}),
    Abandon: frozenset({S.PREPARED}),
}
# What only a permission or a proof may send again: never a replay.
NEVER_REPLAYED = frozenset({Safety.NON_IDEMPOTENT, Safety.HUMAN_CONFIRMATION_REQUIRED})

# (state before, state after, whether the claim is the dispatch), for `Store.lease`: what Claim and
# Dispatch lead to where nothing but ownership is written. It never sends again what may have
# happened: whether that is safe is in the body (key window, permits, a cancel), which no store
# reads. It names `dispatched`, so that whoever takes such a record over leaves the doubt on it.
LEASED: tuple[tuple[State, State, bool], ...] = (
    (S.PREPARED, S.DISPATCHED, True),
    (S.DISPATCHED, S.IN_DOUBT, False),
)


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
    # What is being inserted by this very write was not forgotten.
    forgot = record.version > 0 and record.store_epoch < command.store_epoch
    if record.state is S.AWAITING_DECISION and not forgot:
        return Refused("claim_from_awaiting_decision")
    lease_over = record.lease_until_ms is None or record.lease_until_ms <= now_ms
    if record.owner is not None and not lease_over and record.owner not in command.dead_owners:
        return Refused("busy", until_ms=record.lease_until_ms)
    fence, lease_until = record.fence + 1, now_ms + command.lease_ms
    if forgot:
        fence = record.fence + FENCE_LEAP
        record = _presume(record, now_ms, permit_until_ms=lease_until)
    if record.state is S.DISPATCHED:  # its holder is gone: it may have happened
        record = replace(record, state=S.IN_DOUBT, doubt_since_ms=now_ms)
    return replace(
        record,
        fence=fence,
        owner=command.owner,
        lease_until_ms=lease_until,
        ready_at_ms=lease_until,
        claims=record.claims + 1,
        store_epoch=max(record.store_epoch, command.store_epoch),
        attempts=silence(record.attempts, command.dead_owners, now_ms),
    )


def _presume(record: Record, now_ms: Millis, *, permit_until_ms: Millis) -> Record:
    """The next attempt may have been dispatched, by a holder whom the store has forgotten (P19).

    Nobody knows that holder, so it is never proven silent. A permission may be spent already.
    """
    number = record.attempt + 1
    forgotten = Attempt(
        number=number,
        fence=record.fence,
        owner="",
        dispatched_at_ms=now_ms,
        permit_until_ms=permit_until_ms,
    )
    kept, folded_until = fold(record)
    first = record.first_dispatched_at_ms
    return replace(
        record,
        state=S.IN_DOUBT,
        doubt_since_ms=record.doubt_since_ms or now_ms,
        attempt=number,
        attempts=(*kept, forgotten),
        folded_until_ms=folded_until,
        first_dispatched_at_ms=record.created_at_ms if first is None else first,
        permission=None,
        asked=None,
    )


def _dispatch(record: Record, command: Dispatch, now_ms: Millis) -> Record | Refused:
    policy = command.policy or record.policy
    if record.cancel_requested:
        return Refused("cancel_requested")
    if policy.no_use_after_ms is not None and now_ms >= policy.no_use_after_ms:
        return Refused("no_use_after")
    if record.state is S.IN_DOUBT and {policy.safety, record.policy.safety} & NEVER_REPLAYED:
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
    governed = record if command.policy is None else replace(record, policy=policy)
    return one_more(governed, attempt)


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
    attempt = replace(record.attempts[-1], token=stored(command.token))
    return replace(record, attempts=(*record.attempts[:-1], attempt))


def _renew(record: Record, command: Renew, now_ms: Millis) -> Record:
    lease = now_ms + command.lease_ms
    attempts = record.attempts
    if command.permit_ms is not None and record.state is S.DISPATCHED:
        last = replace(attempts[-1], permit_until_ms=now_ms + command.permit_ms)
        attempts = (*attempts[:-1], last)
    return replace(record, lease_until_ms=lease, ready_at_ms=lease, attempts=attempts)


# No type ties a key to its rule's parameter; the core's tests apply every pair.
_RULES: dict[type[Command], Callable[[Record, Any, Millis], Record | Refused]] = {
    Claim: _claim,
    Dispatch: _dispatch,
    Acknowledge: _acknowledge,
    Checkpoint: _checkpoint,
    Renew: _renew,
    Settle: settle,
    Doubt: doubt,
    Release: release,
    Postpone: postpone,
    Clear: clear,
    Ask: ask,
    Note: note,
    Decide: decide_person,
    Cancel: cancel,
    Reopen: reopen,
    Abandon: abandon,
}
