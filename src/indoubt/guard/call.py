"""One guarded call, from its intent to what its caller gets.

Two commits where nothing goes wrong: *intent, claim and dispatch* before the function is called,
*outcome* after it. Whatever goes wrong between them leaves the record in doubt, and the call goes
on as a repeat would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Raw

from indoubt.core.bounds import REPLAYS_IN_ONE_CALL
from indoubt.core.commands import (
    Claim,
    Command,
    Dispatch,
    Doubt,
    Note,
    Prepare,
    Release,
    Reopen,
    Settle,
)
from indoubt.core.record import NO_RAW, Closed, Effect, Evidence, Record, State
from indoubt.core.refusals import Refused
from indoubt.core.situation import governing
from indoubt.core.verdicts import Repeat, repeat
from indoubt.engine.engine import Seen
from indoubt.engine.holds import Hold
from indoubt.engine.requests import CallerGone, Invoke, Raised, Request, Returned, Sleep
from indoubt.errors import (
    EffectBusy,
    KeyConflict,
    LeaseLost,
    OutcomePruned,
    ReceiptNotStored,
    StoreUnavailable,
)
from indoubt.json_values import detach
from indoubt.recovery.resolve import STORE_PATIENCE_S, Kind, Limits, Resolved
from indoubt.store import Conflict

from .context import EffectContext
from .outcomes import busy, effect_failed, outcome_unknown
from .receipts import encode_receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from .definition import Definition
    from .runtime import Runtime

POLL_S = (0.01, 0.02, 0.05, 0.1, 0.25)
DECISION_POLL_S = 1.0


class Done(NamedTuple):
    """What a call came to: the receipt's text, and whether this very call performed it."""

    receipt: Raw
    replayed: bool
    record_id: str
    attempt: int


class Ours(NamedTuple):
    """An attempt that this call has dispatched and must now send."""

    seen: Seen
    sent_at: float


class Call(NamedTuple):
    """What is to be done: the intent, how to do it, and how long its caller waits.

    ``wait_s``: at most so long for a doubt to clear or another holder to end.
    ``decision_s``: at most so long for a person; 0: not at all.
    """

    definition: Definition
    intent: Record
    run: Callable[[EffectContext], Any]
    wait_s: float
    decision_s: float
    blocking: bool


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
        self._polls = 0

    def run(self) -> Generator[Request, Any, Done]:
        """Perform it, or find out what became of it."""
        return (yield from self.go_on((yield from self._begin())))

    def go_on(self, step: Ours | Seen | Done) -> Generator[Request, Any, Done]:
        """Send what is ours to send, repeat what is not, until it is done."""
        while not isinstance(step, Done):
            if isinstance(step, Ours):
                step = yield from self._attempt(step)
            else:
                step = yield from self._repeat(step)
        return step

    # -- the first write -----------------------------------------------------------------------

    def _begin(self) -> Generator[Request, Any, Ours | Seen]:
        """Intent, claim and dispatch in one blind commit; its conflict brings the record."""
        seen, intent = Seen(None, 0, self._engine.epoch), self._call.intent
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
        deadline = sent_at + min(self._known.permit_ms / 1000, STORE_PATIENCE_S)
        try:
            done = yield from self._engine.apply(seen, commands, deadline=deadline)
        except CallerGone as gone:
            yield from self._release(gone.seen, fence)
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
            raise ValueError(f"{self._call.intent.name}: no_use_after is over; nothing was sent")
        record_id = seen.record.id if seen.record else self._call.intent.id
        return (yield from self._engine.read(record_id))

    def _release(self, seen: Seen | None, fence: int) -> Generator[Request, Any, None]:
        """The dispatch never left this process: say so."""
        if seen is None or seen.record is None or seen.record.fence != fence:
            return
        release = (Release(fence=fence, never_sent=True),)
        yield from self._engine.persist(seen, release, deadline=self._patience())

    # -- sending ---------------------------------------------------------------------------------

    def _attempt(self, ours: Ours) -> Generator[Request, Any, Done | Ours | Seen]:
        record = _record(ours.seen)
        hold = Hold(
            record,
            sent_at=ours.sent_at,
            lease_ms=self._runtime.lease_ms,
            permit_ms=self._known.permit_ms,
            fixed=self._known.timeout_ms is not None,
        )
        left = hold.permit_until - self._engine.clock.now()
        if left <= 0:
            yield from self._release(ours.seen, record.fence)
            raise StoreUnavailable(
                f"{record.id}: the permit ended before the call; nothing was sent"
            )
        context = EffectContext(
            self._runtime,
            ours.seen,
            hold,
            idempotency_key=self._known.idempotency_key(record),
            blocking=self._call.blocking,
        )
        self._engine.heartbeat.hold(hold)
        self._sent += 1
        try:
            answer = yield Invoke(
                lambda: self._call.run(context),
                timeout=None if self._known.timeout_ms is None else left,
                hold=hold,
                thread=self._call.definition.plain and not self._call.blocking,
            )
        except CallerGone:
            context.end()
            yield from self._doubt(context, hold, None, keep=False)
            raise
        finally:
            self._engine.heartbeat.drop(hold)
        context.end()
        if isinstance(answer, Returned):
            return (yield from self._succeeded(answer.value, context, hold))
        return (yield from self._raised(answer, context, hold))

    def _succeeded(
        self, value: Any, context: EffectContext, hold: Hold
    ) -> Generator[Request, Any, Done]:
        """It happened. Whatever cannot be stored of it, that much is recorded."""
        lost: Exception | None = None
        receipt = NO_RAW
        try:
            receipt = Raw(encode_receipt(value))
        except (TypeError, ValueError) as error:
            lost = error
        settle = Settle(
            fence=context.fence,
            outcome=State.SUCCEEDED,
            attempt=context.attempt,
            receipt=receipt,
            receipt_lost=lost is not None,
        )
        done = yield from self._engine.persist(
            context.seen, (settle,), deadline=self._settling(hold)
        )
        if isinstance(done, Refused):
            yield from self._late(context, receipt)
            raise _lease_lost(context, done.reason)
        if lost is not None:
            raise ReceiptNotStored(
                f"{context.record_id}: it happened; its result could not be stored: {lost}",
                record_id=context.record_id,
            ) from lost
        return Done(receipt, replayed=False, record_id=context.record_id, attempt=context.attempt)

    def _raised(
        self, answer: Raised, context: EffectContext, hold: Hold
    ) -> Generator[Request, Any, Ours | Seen | Done]:
        error = answer.error
        if not answer.ours and (error is context.rejection or self._known.is_clean_failure(error)):
            done = yield from self._clean(error, context, hold)
            if _record(done).closed:
                raise error
            self._cause = error
            return done
        self._cause = error
        seen = yield from self._doubt(context, hold, error, keep=True)
        limits = self._limits()
        resolved = yield from self._runtime.resolver.resolve_held(seen, self._known, limits)
        return (yield from self._follow(resolved))

    def _clean(
        self, error: Exception, context: EffectContext, hold: Hold
    ) -> Generator[Request, Any, Seen]:
        """A definite "no": it closes this attempt, and the record unless an earlier one is open."""
        facts = {"type": type(error).__name__, "code": getattr(error, "code", None)}
        if error is context.rejection:
            facts["message"] = str(error)
        settle = Settle(
            fence=context.fence,
            outcome=State.FAILED,
            effect=Effect.NONE,
            attempt=context.attempt,
            closes=Closed.CLEAN_FAILURE,
            error=_json(facts),
        )
        done = yield from self._engine.persist(
            context.seen, (settle,), deadline=self._settling(hold)
        )
        if isinstance(done, Refused):
            raise _lease_lost(context, done.reason) from error
        return done

    def _doubt(
        self, context: EffectContext, hold: Hold, error: Exception | None, *, keep: bool
    ) -> Generator[Request, Any, Seen]:
        """The function has ended and nobody here knows what it did."""
        note = type(error).__name__ if error is not None else "the caller was cancelled"
        evidence = Evidence(
            source="holder", at_ms=context.seen.now_ms, attempt=context.attempt, note=note
        )
        doubt = Doubt(fence=context.fence, returned=True, keep=keep, evidence=evidence)
        done = yield from self._engine.persist(
            context.seen, (doubt,), deadline=self._settling(hold)
        )
        if isinstance(done, Refused):
            raise _lease_lost(context, done.reason) from error
        return done

    def _late(self, context: EffectContext, receipt: Raw) -> Generator[Request, Any, None]:
        """Keep the result of a holder that was replaced: as evidence, never as state."""
        seen = yield from self._engine.read(context.record_id)
        if seen.record is None:
            return
        note = Note(
            evidence=Evidence(
                source="late_result", at_ms=seen.now_ms, attempt=context.attempt, data=receipt
            ),
            about=context.attempt,
            late=receipt if receipt != NO_RAW else _json(None),
        )
        yield from self._engine.persist(seen, (note,), deadline=self._patience())

    # -- repeating -------------------------------------------------------------------------------

    def _repeat(self, seen: Seen) -> Generator[Request, Any, Done | Ours | Seen]:
        """The record exists: answer from it, or find out what became of it."""
        record = _record(seen)
        if record.pruned:
            raise OutcomePruned(
                f"{record.id} was pruned; its outcome was {record.state}",
                record_id=record.id,
                outcome=record.state.value,
            )
        if record.fingerprint != self._call.intent.fingerprint:
            raise KeyConflict(
                f"{record.id}: the key of {record.name} was used with other arguments",
                record_id=record.id,
                recorded=record.fingerprint,
                given=self._call.intent.fingerprint,
            )
        if record.closed:
            return (yield from self._from_record(seen))
        resolved = yield from self._runtime.resolver.resolve(seen, self._known, self._limits())
        return (yield from self._follow(resolved))

    def _from_record(self, seen: Seen) -> Generator[Request, Any, Done | Ours | Seen]:
        record = _record(seen)
        answer = repeat(record.state, record.effect, cancel=record.cancel_requested)
        if answer is Repeat.ANEW:
            return (yield from self._dispatch(seen, (Reopen(),)))
        if answer is Repeat.FAILED:
            raise effect_failed(record) from self._cause
        if answer is Repeat.UNKNOWN:
            raise outcome_unknown(record, next_step="closed") from self._cause
        if record.receipt_lost:
            raise ReceiptNotStored(
                f"{record.id}: it happened; its result could not be stored", record_id=record.id
            )
        if record.key is None and self._cause is None:
            yield from self._served(seen)
        return Done(record.receipt, replayed=True, record_id=record.id, attempt=record.attempt)

    def _served(self, seen: Seen) -> Generator[Request, Any, None]:
        """The same call twice in a scope is one act; the journal says that it was asked again."""
        evidence = Evidence(source="served_from_record", at_ms=seen.now_ms)
        note = Note(evidence=evidence)
        yield from self._engine.persist(seen, (note,), deadline=self._patience())

    def _follow(self, resolved: Resolved) -> Generator[Request, Any, Ours | Seen]:
        seen, kind = resolved.seen, resolved.kind
        record = _record(seen)
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
        record = _record(seen)
        until = self._engine.clock.now() + self._call.decision_s
        while self._engine.clock.now() < until:
            yield Sleep(min(DECISION_POLL_S, until - self._engine.clock.now()))
            seen = yield from self._engine.read(record.id)
            if _record(seen).state is not State.AWAITING_DECISION:
                self._sent = 0  # a person's word, not this call's own second try
                return seen
        raise outcome_unknown(record, next_step="ask_person") from self._cause

    # -- small -----------------------------------------------------------------------------------

    def _limits(self) -> Limits:
        if self._until is None:
            self._until = self._engine.clock.now() + self._call.wait_s
        return Limits(until=self._until, dispatch=self._sent <= REPLAYS_IN_ONE_CALL)

    def _settling(self, hold: Hold) -> float:
        return max(hold.lease_until, self._patience())

    def _patience(self) -> float:
        return self._engine.clock.now() + STORE_PATIENCE_S


def _record(seen: Seen) -> Record:
    if seen.record is None:
        raise LookupError("the record is gone")
    return seen.record


def _json(value: Any) -> Raw:
    return Raw(detach(value, where="error").text)


def _lease_lost(context: EffectContext, why: str) -> LeaseLost:
    return LeaseLost(
        f"{context.execution_id}: somebody took over ({why}); what this call learned is kept beside"
        " the record",
        record_id=context.record_id,
        fence=context.fence,
    )


__all__ = ["Call", "Done", "EffectBusy", "Ours", "Performance"]
