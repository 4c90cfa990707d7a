"""What people and programs see of a record: views with ids, states and evidence, no internals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from indoubt.core.absence import permits_end, quiet_at, silent
from indoubt.core.decisions import came_in, choices
from indoubt.core.record import (
    NO_RAW,
    Attempt,
    Decided,
    DecisionKind,
    Evidence,
    Record,
    Stage,
    State,
)
from indoubt.core.situation import held

if TYPE_CHECKING:
    from msgspec import Raw

    from indoubt.core.codec import Event

RISKS = {
    DecisionKind.HAPPENED: "recorded as done; if it did not happen, it never will",
    DecisionKind.DID_NOT_HAPPEN: "recorded as not done; a repeat of the call sends it again, and"
    " if it did happen, it happens twice",
    DecisionKind.ALLOW_ONE_ATTEMPT: "one more attempt may be sent; if the earlier one happened,"
    " it happens twice",
    DecisionKind.GIVE_UP: "closed as unknown; nothing is sent, and nobody will have known",
}


UNMARKED = "sent, no answer recorded, and nobody holds it any more"
PRUNED = "pruned: its outcome is kept, and a repeat of the call is not sent"


class Choice(NamedTuple):
    """One decision a person may take, with its risk in a sentence."""

    decision: str
    risk: str


class RecordView(msgspec.Struct, frozen=True, kw_only=True):
    """A record as it stands, for people and programs; plain values only.

    Attributes:
        ref: the question about it: record id and attempt number, as ``decide`` takes it.
        since: since when it is in doubt (else since its last change).
        quiet_at: before this a sent request may still land; None where nothing is open.
        silent: nobody can send an open attempt any more.
        arguments: as recorded; redacted values are marked.
        decisions: what people decided about it, with their names and reasons, newest last.
    """

    ref: str
    record_id: str
    kind: str
    name: str
    tenant_id: str | None
    scope: str | None
    key: str | None
    state: str
    effect: str | None
    attempt: int
    safety: str
    fingerprint: str
    since: datetime
    created_at: datetime
    updated_at: datetime
    quiet_at: datetime | None
    silent: bool
    arguments: Any
    receipt: Any
    receipt_lost: bool
    error: Any
    evidence: tuple[Any, ...]
    attempts: tuple[Any, ...]
    decisions: tuple[Any, ...]
    reason: str
    choices: tuple[Choice, ...]
    contradicted: str | None
    cancel_requested: bool
    retry_after: timedelta | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON: instants as ISO 8601 text, durations as seconds."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__}
        fields["choices"] = [choice._asdict() for choice in self.choices]
        return {name: _json(value) for name, value in fields.items()}


def _json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value


def view(
    record: Record, now_ms: int, *, dead: bool = False, retry_after_ms: int | None = None
) -> RecordView:
    """Show a record as it stood at ``now_ms`` of the store's clock.

    What was dispatched and is held by nobody any more is in doubt, marked or not; ``dead``: its
    owner is proven dead.
    """
    if record.state is State.DISPATCHED and not held(record, now_ms=now_ms, dead=dead):
        record = replace(record, state=State.IN_DOUBT, asked=UNMARKED)
    is_open = bool(record.open_attempts)
    return RecordView(
        ref=record.ref,
        record_id=record.id,
        kind=record.kind,
        name=record.name,
        tenant_id=record.tenant_id,
        scope=record.scope,
        key=record.key,
        state=record.state.value,
        effect=record.effect.value if record.effect else None,
        attempt=record.attempt,
        safety=record.policy.safety.value,
        fingerprint=record.fingerprint,
        since=when(record.doubt_since_ms or record.updated_at_ms),
        created_at=when(record.created_at_ms),
        updated_at=when(record.updated_at_ms),
        quiet_at=when(quiet_at(record)) if is_open else None,
        silent=silent(record),
        arguments=plain(record.payload),
        receipt=plain(record.receipt),
        receipt_lost=record.receipt_lost,
        error=plain(record.error),
        evidence=tuple([shown(one) for one in record.evidence]),
        attempts=tuple([_attempt(one) for one in record.attempts]),
        decisions=tuple([_decided(one) for one in record.decisions]),
        reason=PRUNED if record.pruned else reason(record, now_ms),
        choices=() if record.pruned else _choices(record, now_ms),
        contradicted=record.contradicted,
        cancel_requested=record.cancel_requested,
        retry_after=None if retry_after_ms is None else timedelta(milliseconds=retry_after_ms),
    )


def _choices(record: Record, now_ms: int) -> tuple[Choice, ...]:
    return tuple([Choice(kind.value, RISKS[kind]) for kind in sorted(choices(record, now_ms))])


def reason(record: Record, now_ms: int) -> str:
    """Why it is listed, in words."""
    if record.contradicted:
        return record.contradicted
    if record.state is State.AWAITING_DECISION:
        asked = record.asked or "nothing more can be asked"
        why = "the success of an attempt has come in" if came_in(record) else asked
        return f"a person must decide ({why})"
    if record.state is State.PERMITTED:
        return "one attempt is permitted and not yet sent"
    if record.state is State.IN_DOUBT:
        if record.asked == UNMARKED:
            return UNMARKED
        early = record.open_attempts and now_ms < permits_end(record)
        return "may have happened" + ("; a permit still runs" if early else "")
    return record.state.value


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "stage": Stage(attempt.stage).value,
        "dispatched_at": when(attempt.dispatched_at_ms).isoformat(),
        "permit_until": when(attempt.permit_until_ms).isoformat(),
        "silent": attempt.silent_at_ms is not None,
        "external_ref": attempt.external_ref,
        "token": plain(attempt.token),
        "late_result": attempt.late is not None,
        "closed": attempt.closed.value if attempt.closed else None,
    }


def _decided(decided: Decided) -> dict[str, Any]:
    return {
        "decision_id": decided.decision_id,
        "decision": decided.kind.value,
        "attempt": decided.attempt,
        "actor": decided.actor,
        "reason": decided.reason,
        "at": when(decided.at_ms).isoformat(),
    }


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One write to a record: the commands in it, in order, and what they led to."""

    sequence: int
    at: datetime
    did: tuple[str, ...]
    state: str
    fence: int
    attempt: int
    owner: str | None
    actor: str | None
    reason: str | None
    evidence: tuple[Any, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {name: _json(getattr(self, name)) for name in self.__struct_fields__}


def entry(sequence: int, at_ms: int, event: Event) -> JournalEntry:
    """Show one journal event."""
    return JournalEntry(
        sequence=sequence,
        at=when(at_ms),
        did=event.did,
        state=event.state,
        fence=event.fence,
        attempt=event.attempt,
        owner=event.owner,
        actor=event.actor,
        reason=event.reason,
        evidence=tuple([shown(one) for one in event.evidence]),
    )


def plain(raw: Raw) -> Any:
    """The JSON value of a stored text; None where there is none."""
    return None if raw == NO_RAW else msgspec.json.decode(raw)


def shown(evidence: Evidence) -> dict[str, Any]:
    """One piece of evidence as plain JSON."""
    known = {
        "source": evidence.source,
        "at": when(evidence.at_ms).isoformat(),
        "attempt": evidence.attempt or None,
        "status": evidence.status,
        "note": evidence.note,
        "data": plain(evidence.data),
    }
    return {name: value for name, value in known.items() if value is not None}


def when(ms: int) -> datetime:
    """An instant of the store's clock."""
    return datetime.fromtimestamp(ms / 1000, UTC)
