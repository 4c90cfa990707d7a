"""One guarded call, from its intent to what its caller gets.

Two commits where nothing goes wrong: *intent, claim and dispatch* before the function is called,
*outcome* after it. Whatever goes wrong between them leaves the record in doubt, and the call goes
on as a repeat would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from indoubt.core.bounds import REPLAYS_IN_ONE_CALL
from indoubt.core.commands import Claim, Command, Dispatch, Note, Prepare, Reopen
from indoubt.core.pointers import moved, target
from indoubt.core.record import Evidence, Record, State
from indoubt.core.refusals import Refused
from indoubt.core.situation import governing
from indoubt.core.verdicts import Repeat, repeat
from indoubt.engine.engine import PATIENCE_S, Seen
from indoubt.engine.letting_go import let_go
from indoubt.engine.requests import CallerGone, Request, Sleep, Wait
from indoubt.recovery.limits import Limits
from indoubt.recovery.pointers import follow, settle_id
from indoubt.recovery.resolve import Kind, Resolved
from indoubt.store import Conflict

from .outcomes import (
    busy,
    effect_failed,
    key_conflict,
    outcome_pruned,
    outcome_unknown,
    receipt_not_stored,
    too_late,
)
from .sending import Call, Done, Ours, Sending, record_in

if TYPE_CHECKING:
    from collections.abc import Generator

    from .runtime import Runtime

POLL_S = (0.01, 0.02, 0.05, 0.1, 0.25)
DECISION_POLL_S = 1.0


class Performance:
    """The flow of one call."""

    def __init__(self, runtime: Runtime, call: Call) -> None:
        self._runtime = runtime
        self._engine = runtime.engine
        self._call = call
        self._known = call.definition
        self._sent = 0
        self._cause: Exception | None = None
        self._until: float | None = None
        self._busy_until: float | None = None
        self._decision_until: float | None = None
        self._polls = 0

    def run(self) -> Generator[Request, Any, Done]:
        """Perform it, or find out what became of it."""
        return (yield from self.go_on((yield from self._begin())))

    def go_on(self, step: Ours | Seen | Done) -> Generator[Request, Any, Done]:
        """Send what is ours to send, repeat what is not, until it is done."""
        while not isinstance(step, Done):
            if isinstance(step, Ours):
                step = yield from self._send(step)
            else:
                step = yield from self._repeat(step)
        return step

    # -- the first write -----------------------------------------------------------------------

    def _begin(self) -> Generator[Request, Any, Ours | Seen]:
        """The first write, under the id to which this act's names lead."""
        intent, former = self._call.intent, self._call.former_ids
        if former:  # an act may be on record under an older name, or be made under it just now
            intent, seen = yield from settle_id(self._engine, intent, former)
            if seen.record is not None:
                return seen
        while True:
            step = yield from self._insert(intent)
            if not isinstance(step, Seen) or target(step.record) is None:
                return step
            to, seen = yield from follow(self._engine, intent.id, step)
            if seen.record is not None:
                return seen
            intent = moved(intent, to)

    def _insert(self, intent: Record) -> Generator[Request, Any, Ours | Seen]:
        """Intent, claim and dispatch in one blind commit; its conflict brings the record."""
        seen = Seen(None, 0, self._engine.epoch)
        if self._known.declared.no_use_after is not None:  # an instant needs the store's clock
            seen = yield from self._engine.read(intent.id)
            if seen.record is not None:
                return seen
            intent = self._known.limited(intent, seen.now_ms)
        return (yield from self._dispatch(seen, (Prepare(record=intent),)))

    def _dispatch(
        self, seen: Seen, before: tuple[Command, ...]
    ) -> Generator[Request, Any, Ours | Seen]:
        sent_at = self._engine.clock.now()
        fence = (seen.record.fence if seen.record else 0) + 1
        claim = Claim(
            owner=self._engine.owner.current(),
            lease_ms=self._runtime.lease_ms,
            store_epoch=seen.epoch,
        )
        policy = governing(seen.record.policy, self._known.policy) if seen.record else None
        dispatch = Dispatch(fence=fence, permit_ms=self._known.permit_ms, policy=policy)
        commands = (*before, claim, dispatch)
        deadline = sent_at + min(self._known.permit_ms / 1000, PATIENCE_S)
        try:
            done = yield from self._engine.apply(seen, commands, deadline=deadline)
        except CallerGone as gone:
            yield from let_go(self._engine, gone.seen, fence)
            raise
        if isinstance(done, Conflict):
            return self._engine.found(done, seen)
        if isinstance(done, Refused):
            return (yield from self._refused(done, seen))
        record = done.record
        ours = record is not None and (record.fence, record.owner) == (fence, claim.owner)
        return Ours(done, sent_at) if ours else done

    def _refused(self, done: Refused, seen: Seen) -> Generator[Request, Any, Seen]:
        if done.reason == "no_use_after":
            raise too_late(seen.record or self._call.intent) from self._cause
        record_id = seen.record.id if seen.record else self._call.intent.id
        now = yield from self._engine.read(record_id)
        if seen.record is not None and record_in(now).version == seen.record.version:
            raise AssertionError(f"{record_id}: a repeat was refused: {done.reason}")
        return now

    # -- sending ---------------------------------------------------------------------------------

    def _send(self, ours: Ours) -> Generator[Request, Any, Done | Ours | Seen]:
        """Send it once; if its outcome stays in doubt, go on as a repeat would."""
        self._sent += 1
        done = yield from Sending(self._runtime, self._call, ours).run()
        if isinstance(done, Done):
            return done
        self._cause = done.error
        if not done.held:
            return done.seen
        resolved = yield from self._runtime.resolver.resolve_held(
            done.seen, self._known, self._limits()
        )
        return (yield from self._follow(resolved))

    # -- repeating -------------------------------------------------------------------------------

    def _repeat(self, seen: Seen) -> Generator[Request, Any, Done | Ours | Seen]:
        """The record exists: answer from it, or find out what became of it."""
        record = record_in(seen)
        if record.pruned:
            raise outcome_pruned(record)
        if record.fingerprint != self._call.intent.fingerprint:
            raise key_conflict(record, self._call.intent)
        if record.closed:
            return (yield from self._from_record(seen))
        resolved = yield from self._runtime.resolver.resolve(seen, self._known, self._limits())
        return (yield from self._follow(resolved))

    def _from_record(self, seen: Seen) -> Generator[Request, Any, Done | Ours | Seen]:
        record = record_in(seen)
        against = record.contradicted is not None
        answer = repeat(
            record.state, record.effect, cancel=record.cancel_requested, contradicted=against
        )
        if answer is Repeat.ANEW:
            return (yield from self._dispatch(seen, (Reopen(store_epoch=seen.epoch),)))
        if answer is Repeat.FAILED:
            raise effect_failed(record) from self._cause
        if answer is Repeat.UNKNOWN:
            step = "ask_person" if against else "closed"
            raise outcome_unknown(record, next_step=step) from self._cause
        if record.receipt_lost:
            raise receipt_not_stored(record)
        if record.key is None and self._cause is None:
            yield from self._served(seen)
        return Done(record.receipt, replayed=True, record_id=record.id, attempt=record.attempt)

    def _served(self, seen: Seen) -> Generator[Request, Any, None]:
        """The same call twice in a scope is one act; the journal says that it was asked again."""
        evidence = Evidence(source="served_from_record", at_ms=seen.now_ms)
        note = Note(evidence=evidence, journal_only=True)
        yield from self._engine.persist(seen, (note,), deadline=self._patience())

    def _follow(self, resolved: Resolved) -> Generator[Request, Any, Ours | Seen]:
        seen, kind = resolved.seen, resolved.kind
        record = record_in(seen)
        if kind is Kind.GO:
            return Ours(seen, resolved.sent_at)
        if kind is Kind.SETTLED:
            return seen
        if kind is Kind.BUSY:
            return (yield from self._busy(record))
        if kind is Kind.ASKED:
            return (yield from self._ask_person(seen))
        step = "probe_again" if kind is Kind.WAITING else "call_again"
        raise outcome_unknown(record, next_step=step, retry_after_ms=resolved.retry_after_ms) from (
            self._cause
        )

    def _busy(self, record: Record) -> Generator[Request, Any, Seen]:
        """Another holder is at it: wait up to a lease, no longer than the caller waits."""
        now = self._engine.clock.now()
        if self._busy_until is None:
            self._busy_until = now + min(self._call.wait_s, self._runtime.lease_ms / 1000)
        if now >= self._busy_until:
            raise busy(record)
        pause = POLL_S[min(self._polls, len(POLL_S) - 1)]
        self._polls += 1
        yield Sleep(min(pause, self._busy_until - now))
        return (yield from self._engine.read(record.id))

    def _ask_person(self, seen: Seen) -> Generator[Request, Any, Seen]:
        record = record_in(seen)
        if self._decision_until is None:
            self._decision_until = self._engine.clock.now() + self._call.decision_s
        until = self._decision_until
        looks = 0
        while self._engine.clock.now() < until:
            yield Wait((record.id,), min(DECISION_POLL_S, until - self._engine.clock.now()))
            if looks:  # a store may wake for any write: many who wait must not read at each
                yield Sleep(POLL_S[min(looks, len(POLL_S)) - 1])
            looks += 1
            seen = yield from self._engine.read(record.id)
            if record_in(seen).state is not State.AWAITING_DECISION:
                self._sent = 0  # a person's word, not this call's own second try
                return seen
        raise outcome_unknown(record, next_step="ask_person") from self._cause

    # -- small -----------------------------------------------------------------------------------

    def _limits(self) -> Limits:
        if self._until is None:
            self._until = self._engine.clock.now() + self._call.wait_s
        return Limits(until=self._until, dispatch=self._sent <= REPLAYS_IN_ONE_CALL)

    def _patience(self) -> float:
        return self._engine.clock.now() + PATIENCE_S
