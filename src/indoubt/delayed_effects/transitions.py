"""One transition of one intent each: read where nothing is in hand, decide, write, say what it is.

The rules are the core's. What a verb was decided on is checked by the store in the very write;
losing that check decides again on what it brought, and never overwrites (D-05, G12).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from indoubt.core.bounds import TRIES_MAX
from indoubt.core.commands import (
    Cancel,
    Claim,
    Command,
    Decide,
    Dispatch,
    Postpone,
    Prepare,
    Release,
    Settle,
)
from indoubt.core.record import (
    NO_RAW,
    DecisionKind,
    Record,
    State,
)
from indoubt.core.refusals import Refused
from indoubt.engine.engine import PATIENCE_S, Engine, Seen
from indoubt.engine.ids import decision_id, write_id
from indoubt.engine.puts import extend_of
from indoubt.engine.requests import Write
from indoubt.errors import Contended, DelayedEffectConflict, StoreError
from indoubt.store import Batch, Conflict

from .holding import ACTOR, ending, mine, parking, why_not
from .values import DelayedEffectAction, DelayedEffectIntent, DelayedEffectState, seen_in
from .words import KIND, intent_of, missing, told_state

if TYPE_CHECKING:
    from collections.abc import Generator

    from msgspec import Raw

    from indoubt.engine.requests import Request

    from .names import Names

    Flow = Generator[Request, Any, DelayedEffectIntent]

A = DelayedEffectAction
P, E, C = DelayedEffectState.PENDING, DelayedEffectState.EXECUTING, DelayedEffectState.COMPLETED


class Transitions:
    """The verbs of one namespace, as flows.

    Args:
        engine: of the store.
        names: of records and queues.
        lease_ms: how long a claim lasts.
        ttl_ms: how long what has ended is told of.
        tombstone_ms: how long after that its operation id is still known.
    """

    def __init__(
        self, engine: Engine, names: Names, *, lease_ms: int, ttl_ms: int, tombstone_ms: int
    ) -> None:
        self._engine = engine
        self._names = names
        self._lease_ms = lease_ms
        self._ttl_ms = ttl_ms
        self._tombstone_ms = tombstone_ms

    # -- registering -----------------------------------------------------------------------------

    def register(self, intent_id: str, record: Record) -> Flow:
        """One blind write; its conflict brings what is registered."""
        wakes = (record.queue or KIND,) if not record.delay_ms else ()
        seen = Seen(None, 0, self._engine.epoch)
        for _ in range(TRIES_MAX):
            if seen.record is None:
                done = yield from self._engine.apply(
                    Seen(None, 0, seen.epoch),
                    (Prepare(record=record),),
                    deadline=self._patience(),
                    wakes=wakes,
                )
            else:
                done = yield from self._engine.supplant(seen, record, deadline=self._patience())
            if isinstance(done, Seen):
                return intent_of(done, A.REGISTERED, intent_id)
            if isinstance(done, Conflict):
                seen = self._engine.found(done, seen)
            if seen.record is not None and not self._forgotten(seen):
                return self._registered(seen, record, intent_id)
        raise Contended(f"{record.id}: others were faster each time")

    def _registered(self, seen: Seen, wanted: Record, intent_id: str) -> DelayedEffectIntent:
        record = seen.record
        if record is None or record.fingerprint != wanted.fingerprint:
            raise DelayedEffectConflict(
                f"{wanted.id}: this operation id has another delayed effect already; nothing was"
                " changed",
                intent=intent_of(seen, A.CONFLICT, intent_id),
            )
        if self._over(seen):  # known by its tombstone only
            bare = replace(record, receipt=NO_RAW, error=NO_RAW)
            return intent_of(Seen(bare, seen.now_ms, seen.epoch), A.CACHED, intent_id)
        return intent_of(seen, A.CACHED, intent_id)

    # -- holding ---------------------------------------------------------------------------------

    def claim(self, intent_id: str, owner_token: str) -> Flow:
        """Take it and dispatch it, if it is due and nobody holds it."""
        seen = yield from self._read(intent_id)
        for _ in range(TRIES_MAX):
            record = seen.record
            answer = self._unclaimable(seen)
            if record is None or answer is A.MISSING:
                return missing(intent_id)
            if answer is not None:
                return intent_of(seen, answer, intent_id)
            commands = (*self._claiming(seen, owner_token), *self._sending(seen))
            done = yield from self._engine.apply(seen, commands, deadline=self._patience())
            if isinstance(done, Refused):
                return intent_of(seen, A.BUSY, intent_id)
            if isinstance(done, Seen):
                if told_state(done.record or record) is C:
                    return intent_of(done, A.CACHED, intent_id)
                again = record.state is State.DISPATCHED
                action = A.RECLAIMED if again else A.ACQUIRED
                return intent_of(done, action, intent_id, mine=owner_token)
            seen = self._engine.found(done, seen)
        raise Contended(f"{intent_id}: others were faster each time")

    def _unclaimable(self, seen: Seen) -> DelayedEffectAction | None:
        record = seen.record
        if record is None or self._over(seen):
            return A.MISSING
        state = told_state(record)
        if state is C:
            return A.CACHED
        if record.state is State.AWAITING_DECISION:
            return A.NOT_DUE if state is P else A.BUSY
        if record.owner is not None:
            return A.BUSY if (record.lease_until_ms or 0) > seen.now_ms else None
        return A.NOT_DUE if (record.ready_at_ms or 0) > seen.now_ms else None

    def _claiming(self, seen: Seen, owner_token: str) -> tuple[Command, ...]:
        return (Claim(owner=owner_token, lease_ms=self._lease_ms, store_epoch=seen.epoch),)

    def _sending(self, seen: Seen) -> tuple[Command, ...]:
        """Dispatch; or end what was cancelled, or is of no use any more."""
        record = seen.record
        if record is None:
            return ()
        fence = record.fence + 1
        late = record.policy.no_use_after_ms
        if record.cancel_requested or (late is not None and late <= seen.now_ms):
            return ending(record, fence)
        return (Dispatch(fence=fence, permit_ms=self._lease_ms),)

    def renew(self, intent: DelayedEffectIntent) -> Flow:
        """Hold on: one write, and nothing read first."""
        key = self._names.key(intent.intent_id)
        held = Record(
            id=key,
            root_id=key,
            kind=KIND,
            name="",
            fingerprint="",
            owner=intent.owner_token,
            fence=intent.fence,
        )
        extend = extend_of(held, lease_ms=self._lease_ms, permit_ms=self._lease_ms)
        answer = yield Write(Batch(write_id(), extends=(extend,)))
        if isinstance(answer, StoreError):
            raise answer
        if isinstance(answer, Conflict):
            seen = self._engine.found(answer, Seen(held, 0, self._engine.epoch))
            return self._refused(seen, intent, "renew")
        seen = seen_in(intent)
        if seen is None:
            seen = yield from self._read(intent.intent_id)
        return intent_of(seen, A.RENEWED, intent.intent_id, mine=intent.owner_token)

    def complete(self, intent: DelayedEffectIntent, receipt: Raw, error: Raw) -> Flow:
        """It happened: the receipt is final."""
        settle = Settle(fence=intent.fence, outcome=State.SUCCEEDED, receipt=receipt, error=error)
        return (yield from self._held(intent, (settle,), "complete", A.COMPLETED))

    def requeue(
        self, intent: DelayedEffectIntent, *, after_ms: int, error: Raw, deferred: bool
    ) -> Flow:
        """Let go until later; ``deferred``: without an attempt being counted."""
        release = Release(fence=intent.fence, after_ms=after_ms, give_back=deferred, error=error)
        action = A.DEFERRED if deferred else A.RETRY_SCHEDULED
        return (yield from self._held(intent, (release,), "requeue", action))

    def park(self, intent: DelayedEffectIntent) -> Flow:
        """Claimed too often: a person looks at it, and nothing fires it meanwhile."""
        seen = seen_in(intent)
        if seen is None or seen.record is None:
            seen = yield from self._read(intent.intent_id)
        commands = parking(intent.fence)
        return (yield from self._held(intent, commands, "requeue", A.INVALID_STATE))

    def taken(self, seen: Seen, intent_id: str, owner_token: str) -> Flow:
        """What a lease has given us: fire it, or end what was cancelled or is too late.

        A lease sends nothing again that may have happened; that takes a write that knows the rules.
        """
        record = seen.record
        if record is None:
            return missing(intent_id)
        again = record.claims > 1
        intent = intent_of(seen, A.RECLAIMED if again else A.ACQUIRED, intent_id, mine=owner_token)
        late = record.policy.no_use_after_ms
        if record.cancel_requested or (late is not None and late <= seen.now_ms):
            return (
                yield from self._held(intent, ending(record, record.fence), "complete", A.CACHED)
            )
        if record.state is State.DISPATCHED:
            return intent
        dispatch = Dispatch(fence=record.fence, permit_ms=self._lease_ms)
        done = yield from self._engine.apply(seen, (dispatch,), deadline=self._patience())
        if isinstance(done, Seen):
            return intent_of(done, intent.action, intent_id, mine=owner_token)
        found = self._engine.found(done, seen) if isinstance(done, Conflict) else seen
        return intent_of(found, A.BUSY, intent_id)

    def _held(
        self,
        intent: DelayedEffectIntent,
        commands: tuple[Command, ...],
        verb: str,
        action: DelayedEffectAction,
    ) -> Flow:
        """What only the holder may do."""
        seen = seen_in(intent)
        if seen is None:
            seen = yield from self._read(intent.intent_id)
        for _ in range(TRIES_MAX):
            if not mine(seen.record, intent):
                break
            done = yield from self._engine.apply(seen, commands, deadline=self._patience())
            if isinstance(done, Seen):
                return intent_of(done, action, intent.intent_id)
            if isinstance(done, Refused):
                break
            seen = self._engine.found(done, seen)
        return self._refused(seen, intent, verb)

    def _refused(self, seen: Seen, intent: DelayedEffectIntent, verb: str) -> DelayedEffectIntent:
        record = seen.record
        if record is None or self._over(seen):
            return missing(intent.intent_id)
        return intent_of(seen, why_not(record, intent, verb), intent.intent_id)

    # -- steering --------------------------------------------------------------------------------

    def cancel(self, intent_id: str) -> Flow:
        """Nothing more is fired; what is running is asked to be the last."""
        seen = yield from self._read(intent_id)
        for _ in range(TRIES_MAX):
            record = seen.record
            if record is None or self._over(seen):
                return missing(intent_id)
            if record.closed:
                return intent_of(seen, A.CACHED, intent_id)
            held = record.owner is not None and (record.lease_until_ms or 0) > seen.now_ms
            if held and record.cancel_requested:
                return intent_of(seen, A.BUSY, intent_id)
            commands = self._cancelling(seen, record, held=held)
            done = yield from self._engine.apply(seen, commands, deadline=self._patience())
            if isinstance(done, Refused):
                return intent_of(seen, A.BUSY, intent_id)
            if isinstance(done, Seen):
                after = done.record
                if after is None or after.closed or held:
                    return intent_of(done, A.BUSY if held else A.COMPLETED, intent_id)
                seen = done  # a permission was voided first
            else:
                seen = self._engine.found(done, seen)
        raise Contended(f"{intent_id}: others were faster each time")

    def _cancelling(self, seen: Seen, record: Record, *, held: bool) -> tuple[Command, ...]:
        cancel = Cancel(actor=ACTOR, reason="cancelled", store_epoch=seen.epoch)
        if held or record.state in {State.PREPARED, State.PERMITTED}:
            return (cancel,)
        if record.state is State.AWAITING_DECISION:
            return (
                Decide(
                    kind=DecisionKind.GIVE_UP,
                    attempt=record.attempt,
                    decision_id=decision_id(),
                    actor=ACTOR,
                    reason="cancelled",
                    store_epoch=seen.epoch,
                ),
            )
        # It may have happened, and nobody is at it: that is how it ends.
        return (cancel, *self._claiming(seen, ACTOR), *ending(record, record.fence + 1))

    def reschedule(self, intent_id: str, after_ms: int) -> Flow:
        """Have it wait for so long from now."""
        seen = yield from self._read(intent_id)
        for _ in range(TRIES_MAX):
            record = seen.record
            if record is None or self._over(seen):
                return missing(intent_id)
            if record.closed:
                return intent_of(seen, A.CACHED, intent_id)
            wakes = () if after_ms else (record.queue or KIND,)
            done = yield from self._engine.apply(
                seen, (Postpone(after_ms=after_ms),), deadline=self._patience(), wakes=wakes
            )
            if isinstance(done, Refused):
                return intent_of(seen, A.BUSY, intent_id)
            if isinstance(done, Seen):
                return intent_of(done, A.DEFERRED, intent_id)
            seen = self._engine.found(done, seen)
        raise Contended(f"{intent_id}: others were faster each time")

    def get(self, intent_id: str) -> Flow:
        """As it stands."""
        seen = yield from self._read(intent_id)
        if self._over(seen):
            return missing(intent_id)
        return intent_of(seen, A.CACHED, intent_id)

    # -- small -----------------------------------------------------------------------------------

    def _read(self, intent_id: str) -> Generator[Request, Any, Seen]:
        return (yield from self._engine.read(self._names.key(intent_id)))

    def _over(self, seen: Seen) -> bool:
        """It has ended, and the time for which that is told is over."""
        record = seen.record
        if record is None or not record.closed:
            return False
        return record.pruned or record.updated_at_ms + self._ttl_ms <= seen.now_ms

    def _forgotten(self, seen: Seen) -> bool:
        """Its operation id may be registered anew (and then it runs again: D-17)."""
        record = seen.record
        if record is None or not self._over(seen) or record.pruned:
            return False
        return record.updated_at_ms + self._ttl_ms + self._tombstone_ms <= seen.now_ms

    def _patience(self) -> float:
        return self._engine.clock.now() + PATIENCE_S


__all__ = ["Transitions"]
