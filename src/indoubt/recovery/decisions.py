"""The four decisions of a person as values, and the flow that records one.

A decision answers a question: the ref of an inbox item, or of the ``OutcomeUnknown`` that asked.
A bare record id is not a question, because another attempt may have replaced what was read.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from indoubt.core.bounds import MESSAGE_CHARS, NAME_CHARS, RECEIPT_BYTES
from indoubt.core.commands import Command, Decide
from indoubt.core.record import NO_RAW, DecisionKind, Record, State
from indoubt.core.refusals import Refused
from indoubt.engine.engine import PATIENCE_S
from indoubt.engine.ids import decision_id as new_decision_id
from indoubt.errors import (
    AlreadyDecided,
    EffectBusy,
    OutcomeUnknown,
    RecordNotFound,
    StaleDecision,
    TooEarly,
)
from indoubt.json_values import detach
from indoubt.store import Conflict

from .items import RecordView, when

if TYPE_CHECKING:
    from collections.abc import Generator

    from indoubt.engine.engine import Seen
    from indoubt.engine.requests import Request

    from .resolve import Resolver


class _Decision(msgspec.Struct, frozen=True):
    kind: ClassVar[DecisionKind]

    def to_dict(self) -> dict[str, Any]:
        """The decision as plain JSON, as the CLI and other programs send it."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {"decision": self.kind.value} | fields


class Happened(_Decision, frozen=True):
    """It happened; ``receipt`` is its result, where it is known. The record succeeds."""

    kind: ClassVar[DecisionKind] = DecisionKind.HAPPENED
    receipt: Any = None


class DidNotHappen(_Decision, frozen=True):
    """It did not happen. Recovery sends nothing; a repeat of the call may."""

    kind: ClassVar[DecisionKind] = DecisionKind.DID_NOT_HAPPEN


class AllowOneAttempt(_Decision, frozen=True):
    """One more attempt may be sent, whatever became of the earlier ones.

    Void if the result of an earlier one comes in before it is sent: that is adopted instead.
    """

    kind: ClassVar[DecisionKind] = DecisionKind.ALLOW_ONE_ATTEMPT


class GiveUp(_Decision, frozen=True):
    """Nobody will know. The record closes as unknown."""

    kind: ClassVar[DecisionKind] = DecisionKind.GIVE_UP


Decision = Happened | DidNotHappen | AllowOneAttempt | GiveUp
DECISIONS: dict[str, type[Decision]] = {
    str(kind.kind): kind for kind in (Happened, DidNotHappen, AllowOneAttempt, GiveUp)
}


def decision_from_dict(data: Any) -> Decision:
    """Read a decision's JSON form.

    Raises:
        TypeError: not a mapping. ValueError: no such decision, or a receipt where none belongs.
    """
    if not isinstance(data, dict):
        raise TypeError("a decision is a mapping with 'decision'")
    fields: dict[str, Any] = dict(data)  # pyright: ignore[reportUnknownArgumentType]
    word = str(fields.pop("decision", "")).replace("-", "_")
    word = "allow_one_attempt" if word == "allow_one" else word
    if word not in DECISIONS:
        raise ValueError(f"a decision is one of {sorted(DECISIONS)}")
    if DECISIONS[word] is not Happened and fields:
        raise ValueError(f"{word} takes nothing else")
    if set(fields) - {"receipt"}:
        raise ValueError("happened takes a receipt and nothing else")
    return DECISIONS[word](**fields)


class Question(NamedTuple):
    """A ref, read."""

    record_id: str
    attempt: int


def question(asked: str | RecordView | OutcomeUnknown) -> Question:
    """Read a ref.

    Raises:
        TypeError: neither a ref nor something that carries one.
        ValueError: a bare record id, or no ref at all.
    """
    ref = asked.ref if isinstance(asked, RecordView | OutcomeUnknown) else asked
    if not isinstance(ref, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError("decide takes a ref, an inbox item or an OutcomeUnknown")
    record_id, dot, attempt = ref.rpartition(".")
    if not dot or not record_id or not (attempt.isascii() and attempt.isdigit()):
        raise ValueError("a ref is a record id and an attempt, like rec_….2 (see the inbox)")
    return Question(record_id, int(attempt[:9]))


def command_of(
    asked: Question, decision: Decision, *, actor: str, reason: str, decision_id: str | None
) -> Decide:
    """Check a decision's parts before anything is read or written.

    Raises:
        TypeError, ValueError: naming the part.
    """
    if not isinstance(decision, Happened | DidNotHappen | AllowOneAttempt | GiveUp):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError("decision: Happened, DidNotHappen, AllowOneAttempt or GiveUp (an instance)")
    receipt = NO_RAW
    if isinstance(decision, Happened):
        receipt = Raw(detach(decision.receipt, where="receipt", max_bytes=RECEIPT_BYTES).text)
    return Decide(
        kind=decision.kind,
        attempt=asked.attempt,
        decision_id=words(
            new_decision_id() if decision_id is None else decision_id, "decision_id", NAME_CHARS
        ),
        actor=words(actor, "actor", NAME_CHARS),
        reason=words(reason, "reason", MESSAGE_CHARS),
        receipt=receipt,
    )


def words(value: object, where: str, most: int = MESSAGE_CHARS) -> str:
    """Check what a person wrote; raises TypeError or ValueError naming the part."""
    if not isinstance(value, str):
        raise TypeError(f"{where}: text, not {type(value).__name__}")
    if len(value) > most or "\0" in value:
        raise ValueError(f"{where}: at most {most} characters, none of them NUL")
    if not any(char.isprintable() and not char.isspace() for char in value):
        raise ValueError(f"{where}: must not be blank")
    detach(value, where=where)
    return value


def decide_flow(resolver: Resolver, seen: Seen, command: Decide) -> Generator[Request, Any, Seen]:
    """Record a decision; it ends whatever hold is over, and raises the fence.

    Raises:
        StaleDecision, AlreadyDecided, TooEarly, EffectBusy: nothing was changed.
    """
    engine = resolver.engine
    while True:
        record = _there(seen)
        command = replace(command, store_epoch=seen.epoch)
        before: tuple[Command, ...] = ()
        if record.state is State.DISPATCHED:
            seen, dead = yield from resolver.prove_death(seen)
            record = _there(seen)
            before = (resolver.claim(seen, dead),) if record.state is State.DISPATCHED else ()
        done = yield from engine.apply(
            seen, (*before, command), deadline=engine.clock.now() + PATIENCE_S
        )
        if isinstance(done, Refused):
            if done.again:
                return seen
            raise refusal(record, done)
        if not isinstance(done, Conflict):
            return done
        seen = engine.found(done, seen)


def refusal(record: Record, refused: Refused) -> Exception:
    """Why a decision was not accepted, as the error that says what to do now."""
    record_id = record.id
    if refused.reason == "already_decided" and refused.decided is not None:
        decided = refused.decided
        return AlreadyDecided(
            f"{record_id}.{decided.attempt} was decided: {decided.kind} by {decided.actor}",
            record_id=record_id,
            decision=msgspec.to_builtins(decided),
        )
    if refused.reason == "too_early":
        until = when(refused.until_ms) if refused.until_ms is not None else None
        why = f"before {until.isoformat()}" if until else "while the provider is still at it"
        return TooEarly(
            f"{record.ref}: a sent request may still land; not {why}",
            record_id=record_id,
            until=until,
        )
    if refused.reason == "busy":
        return EffectBusy(
            f"{record_id} is held and being performed; nothing is in doubt",
            record_id=record_id,
            retry_after=timedelta(seconds=1),
        )
    if refused.reason == "late_success":
        return StaleDecision(
            f"{record.ref}: the success of an attempt came in after all, so it can neither be"
            " denied nor allowed again; read it as it is now, and decide Happened",
            record_id=record_id,
            current_ref=record.ref,
        )
    open_question = not record.closed and record.attempt > 0
    return StaleDecision(
        f"{record_id}: {refused.reason}; the question now is {record.ref}"
        if open_question
        else f"{record_id}: {refused.reason}; it is {record.state}",
        record_id=record_id,
        current_ref=record.ref if open_question else None,
    )


def _there(seen: Seen) -> Record:
    if seen.record is None:
        raise RecordNotFound("the record is gone: it was pruned meanwhile")
    return seen.record


__all__ = [
    "DECISIONS",
    "AllowOneAttempt",
    "Decision",
    "DidNotHappen",
    "GiveUp",
    "Happened",
    "command_of",
    "decide_flow",
    "decision_from_dict",
    "question",
    "refusal",
    "words",
]
