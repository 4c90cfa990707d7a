"""One dispatched attempt: call the function under a hold, and record what it came to.

The permit is checked on this process's own clock before the function is called. What the function
did is recorded once: as an outcome by the holder, or - where somebody took over meanwhile - as
evidence beside the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct

from indoubt.core.commands import Command, Doubt, Note, Settle
from indoubt.core.record import NO_RAW, Closed, Effect, Evidence, Record, State
from indoubt.core.refusals import Refused
from indoubt.core.situation import in_time
from indoubt.engine.engine import PATIENCE_S, Seen
from indoubt.engine.holds import Hold
from indoubt.engine.letting_go import let_go
from indoubt.engine.requests import CallerGone, Invoke, Raised, Request, Returned
from indoubt.errors import EffectFailed, LeaseLost, StoreError, StoreUnavailable
from indoubt.json_values import detach

from .context import EffectContext
from .outcomes import receipt_not_stored
from .receipts import encode_receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from .definition import Definition
    from .runtime import Runtime


class Done(Struct, frozen=True):
    """What a call came to: the receipt's text, and whether this very call performed it."""

    receipt: Raw
    replayed: bool
    record_id: str
    attempt: int


class Ours(Struct, frozen=True):
    """An attempt that this call has dispatched and must now send."""

    seen: Seen
    sent_at: float


class Doubted(Struct, frozen=True):
    """Its outcome is not known to the holder. ``held``: it still holds the record."""

    seen: Seen
    error: Exception
    held: bool


class Call(Struct, frozen=True):
    """What is to be done: the intent, how to do it, and how long its caller waits.

    ``wait_s``: at most so long for a doubt to clear or another holder to end.
    ``decision_s``: at most so long for a person; 0: not at all. ``former_ids``: the act's ids
    under the effect's older names.
    """

    definition: Definition
    intent: Record
    run: Callable[[EffectContext], Any]
    wait_s: float
    decision_s: float
    blocking: bool
    former_ids: tuple[str, ...] = ()


class Sending:
    """The flow of one attempt."""

    def __init__(self, runtime: Runtime, call: Call, ours: Ours) -> None:
        self._runtime = runtime
        self._engine = runtime.engine
        self._call = call
        self._known = call.definition
        self._seen = ours.seen
        self._record = record_in(ours.seen)
        self._hold = Hold(
            self._record,
            sent_at=ours.sent_at,
            lease_ms=runtime.lease_ms,
            permit_ms=self._known.permit_ms,
            fixed=self._known.timeout_ms is not None,
        )
        self._in_thread = self._known.plain and not call.blocking

    def run(self) -> Generator[Request, Any, Done | Doubted]:
        """Send it, unless its permit is over already, or it came too late to be sent."""
        left = self._hold.permit_until - self._engine.clock.now()
        if left <= 0 or not in_time(self._record):
            yield from let_go(self._engine, self._seen, self._record.fence)
            raise StoreUnavailable(
                f"{self._record.name} ({self._record.ref}): its time was over before the call;"
                " nothing was sent: call again"
            )
        context = EffectContext(
            self._runtime,
            self._seen,
            self._hold,
            idempotency_key=self._known.idempotency_key(self._record),
            blocking=self._known.plain,
        )
        answer = yield from self._invoke(context, left)
        if isinstance(answer, Returned):
            return (yield from self._succeeded(answer.value, context))
        return (yield from self._raised(answer, context))

    def _invoke(
        self, context: EffectContext, left: float
    ) -> Generator[Request, Any, Returned | Raised]:
        self._engine.heartbeat.hold(self._hold)
        try:
            return (
                yield Invoke(
                    lambda: self._call.run(context),
                    timeout=None if self._known.timeout_ms is None else left,
                    hold=self._hold,
                    thread=self._in_thread,
                )
            )
        except CallerGone as gone:
            context.end()
            note = "the caller was cancelled"
            # A thread cannot be cancelled: the function in it lives on, and may still send.
            returned = not (self._in_thread or self._hold.outlived)
            yield from self._doubt(context, gone, note=note, keep=False, returned=returned)
            raise
        finally:
            context.end()
            self._engine.heartbeat.drop(self._hold)

    def _succeeded(self, value: Any, context: EffectContext) -> Generator[Request, Any, Done]:
        """It happened. Whatever cannot be stored of it, that much is recorded."""
        receipt, lost = _encoded(value)
        settle = Settle(
            fence=context.fence,
            outcome=State.SUCCEEDED,
            attempt=context.attempt,
            receipt=receipt,
            receipt_lost=lost is not None,
        )
        done = yield from self._settle(context, settle)
        if isinstance(done, Refused):
            late = receipt if lost is None else Raw(b"null")
            evidence = self._evidence(context, "late_result", data=late)
            yield from self._beside(context, evidence, late=late, lost=lost is not None)
            raise _lease_lost(context, done.reason)
        if lost is not None:
            raise receipt_not_stored(self._record, lost) from lost
        return Done(receipt, replayed=False, record_id=context.record_id, attempt=context.attempt)

    def _raised(self, answer: Raised, context: EffectContext) -> Generator[Request, Any, Doubted]:
        error = answer.error
        clean = error is context.rejection or self._known.is_clean_failure(error)
        if answer.ours or not clean:
            note = type(error).__name__
            seen = yield from self._doubt(context, error, note=note, keep=True)
            return Doubted(seen, error, held=True)
        done = yield from self._clean(error, context)
        if record_in(done).closed:
            raise error
        return Doubted(done, error, held=False)  # an earlier attempt is still open

    def _clean(self, error: Exception, context: EffectContext) -> Generator[Request, Any, Seen]:
        """A definite "no": it closes this attempt, and the record unless an earlier one is open."""
        facts: dict[str, Any] = {"type": type(error).__name__}
        if isinstance(error, EffectFailed) and context.rejection is error:
            facts |= error.error  # the author's own words, meant to be kept
        settle = Settle(
            fence=context.fence,
            outcome=State.FAILED,
            effect=Effect.NONE,
            attempt=context.attempt,
            closes=Closed.CLEAN_FAILURE,
            error=Raw(detach(facts, where="error").text),
        )
        done = yield from self._settle(context, settle)
        if isinstance(done, Refused):
            yield from self._beside(context, self._evidence(context, "holder", note="refused"))
            raise _lease_lost(context, done.reason) from error
        return done

    def _doubt(
        self,
        context: EffectContext,
        error: Exception,
        *,
        note: str,
        keep: bool,
        returned: bool = True,
    ) -> Generator[Request, Any, Seen]:
        """The function has ended, and nobody here knows what it did."""
        evidence = self._evidence(context, "holder", note=note)
        doubt = Doubt(fence=context.fence, returned=returned, keep=keep, evidence=evidence)
        done = yield from self._settle(context, doubt)
        if isinstance(done, Refused):
            yield from self._beside(context, evidence)
            raise _lease_lost(context, done.reason) from error
        return done

    def _settle(
        self, context: EffectContext, command: Command
    ) -> Generator[Request, Any, Seen | Refused]:
        deadline = max(self._hold.lease_until, self._engine.clock.now() + PATIENCE_S)
        try:
            return (yield from self._engine.persist(context.seen, (command,), deadline=deadline))
        except StoreError as error:
            error.add_note(
                f"{context.execution_id}: the function had ended; what it did is not recorded yet,"
                " so it is in doubt: call again, or recover"
            )
            raise

    def _beside(
        self,
        context: EffectContext,
        evidence: Evidence,
        *,
        late: Raw = NO_RAW,
        lost: bool = False,
    ) -> Generator[Request, Any, None]:
        """What a replaced holder learned is kept as evidence, never as state."""
        seen = yield from self._engine.read(context.record_id)
        if seen.record is None:
            return
        note = Note(
            evidence=evidence, about=context.attempt, returned=True, late=late, late_lost=lost
        )
        deadline = self._engine.clock.now() + PATIENCE_S
        yield from self._engine.persist(seen, (note,), deadline=deadline)

    def _evidence(
        self, context: EffectContext, source: str, *, note: str | None = None, data: Raw = NO_RAW
    ) -> Evidence:
        at_ms, attempt = context.seen.now_ms, context.attempt
        return Evidence(source=source, at_ms=at_ms, attempt=attempt, note=note, data=data)


def record_in(seen: Seen) -> Record:
    """The record that was seen; it was there before, and nothing deletes it under a flow."""
    if seen.record is None:
        raise LookupError("the record is gone")
    return seen.record


def _encoded(value: Any) -> tuple[Raw, Exception | None]:
    try:
        return Raw(encode_receipt(value)), None
    except Exception as error:  # noqa: BLE001 - it runs the value's own code, after the effect
        return NO_RAW, error


def _lease_lost(context: EffectContext, why: str) -> LeaseLost:
    return LeaseLost(
        f"{context.name} ({context.execution_id}): somebody took over ({why}); what this call"
        " learned is kept beside the record",
        record_id=context.record_id,
        fence=context.fence,
    )
