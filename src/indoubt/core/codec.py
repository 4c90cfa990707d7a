"""Record to stored bytes and back.

``fixed`` is written once, ``body`` with each change. What the store stamps by itself (leases,
permits, dispatch times) lives in columns of its own and is merged in when a record is read: kept
in the body as well, the two would come to differ.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, get_args

import msgspec
from msgspec import Raw
from msgspec.structs import asdict, replace

from indoubt.errors import StoreBroken

from .attempts import one_more
from .commands import Command, Decide, Settle
from .record import (
    NO_RAW,
    Attempt,
    Decided,
    Effect,
    Evidence,
    Millis,
    Permission,
    Policy,
    Record,
    State,
    Struct,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    class Row(Protocol):  # to make it costs a millisecond, and nothing asks for it at run time
        """The columns of a stored record, as any store answers them."""

        @property
        def id(self) -> str: ...
        @property
        def root_id(self) -> str: ...
        @property
        def tenant_id(self) -> str | None: ...
        @property
        def parent_id(self) -> str | None: ...
        @property
        def kind(self) -> str: ...
        @property
        def version(self) -> int: ...
        @property
        def state(self) -> str: ...
        @property
        def owner(self) -> str | None: ...
        @property
        def fence(self) -> int: ...
        @property
        def claims(self) -> int: ...
        @property
        def attempt(self) -> int: ...
        @property
        def cancel_requested(self) -> bool: ...
        @property
        def store_epoch(self) -> int: ...
        @property
        def lease_until(self) -> int | None: ...
        @property
        def permit_until(self) -> int | None: ...
        @property
        def ready_at(self) -> int | None: ...
        @property
        def dispatched_at(self) -> int | None: ...
        @property
        def doubt_since(self) -> int | None: ...
        @property
        def created_at(self) -> int: ...
        @property
        def updated_at(self) -> int: ...
        @property
        def body(self) -> bytes: ...
        @property
        def fixed(self) -> bytes: ...
        @property
        def queue(self) -> str: ...


class Fixed(Struct, frozen=True):
    """What never changes."""

    name: str
    fingerprint: str
    scope: str | None = None
    key: str | None = None
    payload: Raw = NO_RAW
    redacted: bool = False
    rebuildable: bool = True


class Body(Struct, frozen=True):
    """What changes with the state."""

    policy: Policy = Policy()
    series: int = 1
    attempts: tuple[Attempt, ...] = ()
    folded_until_ms: Millis | None = None
    first_dispatched_at_ms: Millis | None = None
    permission: Permission | None = None
    effect: Effect | None = None
    receipt: Raw = NO_RAW
    receipt_lost: bool = False
    error: Raw = NO_RAW
    asked: str | None = None
    evidence: tuple[Evidence, ...] = ()
    decisions: tuple[Decided, ...] = ()
    contradicted: str | None = None
    probes: int = 0
    probing_since_ms: Millis | None = None
    pruned: bool = False
    digest: str | None = None
    delay_ms: Millis | None = None
    due_at_ms: Millis | None = None


class Event(Struct, frozen=True):
    """One journal entry: the commands of one write, in order, and what they led to."""

    did: tuple[str, ...]
    state: str
    fence: int
    attempt: int
    owner: str | None = None
    actor: str | None = None
    reason: str | None = None
    evidence: tuple[Evidence, ...] = ()


_SENT = frozenset({State.DISPATCHED.value, State.IN_DOUBT.value})
NO_TIME = 0
"""Stored where a new series has no first dispatch yet; None says that it is the last attempt's."""
_encode = msgspec.json.Encoder().encode
_fixed = msgspec.json.Decoder(Fixed).decode
_body = msgspec.json.Decoder(Body).decode
_event = msgspec.json.Decoder(Event).decode
_changing = attrgetter(*Body.__struct_fields__)
_NAMES = {kind: kind.__name__.lower() for kind in get_args(Command)}
_SPOKEN = frozenset({"actor", "reason", "evidence"})
_SPEAKING = frozenset(kind for kind in _NAMES if _SPOKEN & {*kind.__struct_fields__})


def fixed_of(record: Record) -> bytes:
    """Encode what never changes."""
    return _encode(
        Fixed(
            name=record.name,
            fingerprint=record.fingerprint,
            scope=record.scope,
            key=record.key,
            payload=record.payload,
            redacted=record.redacted,
            rebuildable=record.rebuildable,
        )
    )


def body_of(record: Record) -> bytes:
    """Encode what changes, without the times that the store stamps into its columns.

    What is prepared keeps them: a lease would stamp those of the next attempt over them.
    """
    body = Body(*_changing(record))
    if not record.attempts:
        return _encode(body)
    last = record.attempts[-1]
    first = record.first_dispatched_at_ms
    if record.state is State.PREPARED:
        return _encode(replace(body, first_dispatched_at_ms=first or NO_TIME))
    body = replace(
        body,
        attempts=(*record.attempts[:-1], replace(last, dispatched_at_ms=0, permit_until_ms=0)),
        first_dispatched_at_ms=None if first == last.dispatched_at_ms else first or NO_TIME,
    )
    return _encode(body)


def record_of(row: Row) -> Record:
    """Decode a stored record, merging the stamped columns into it.

    Raises:
        StoreBroken: this version cannot read it; it is never taken for what it knows.
    """
    try:
        return _record_of(row)
    except (ValueError, msgspec.MsgspecError) as error:
        raise StoreBroken(
            f"{row.id}: no record that this version can read: use a newer indoubt, or see what"
            " wrote to the store"
        ) from error


def _record_of(row: Row) -> Record:
    body = _body(row.body)
    stamped = body.attempts[-1].number if body.attempts else 0
    if row.state in _SENT and row.attempt > stamped:
        return _leased(_record(row, body), row)
    if not body.attempts:
        return _record(row, body)
    dispatched, first = row.dispatched_at or 0, body.first_dispatched_at_ms
    last = replace(
        body.attempts[-1], dispatched_at_ms=dispatched, permit_until_ms=row.permit_until or 0
    )
    body = replace(
        body,
        attempts=(*body.attempts[:-1], last),
        first_dispatched_at_ms=dispatched if first is None else first,
    )
    return _record(row, body)


def _record(row: Row, body: Body) -> Record:
    fixed = _fixed(row.fixed)
    fields = asdict(body)
    fields["first_dispatched_at_ms"] = body.first_dispatched_at_ms or None
    return Record(
        id=row.id,
        root_id=row.root_id,
        kind=row.kind,
        name=fixed.name,
        fingerprint=fixed.fingerprint,
        queue=None if row.queue == row.kind else row.queue,
        parent_id=row.parent_id,
        tenant_id=row.tenant_id,
        scope=fixed.scope,
        key=fixed.key,
        payload=fixed.payload,
        redacted=fixed.redacted,
        rebuildable=fixed.rebuildable,
        version=row.version,
        state=State(row.state),
        fence=row.fence,
        owner=row.owner,
        lease_until_ms=row.lease_until,
        ready_at_ms=row.ready_at,
        doubt_since_ms=row.doubt_since,
        claims=row.claims,
        attempt=row.attempt,
        cancel_requested=row.cancel_requested,
        store_epoch=row.store_epoch,
        created_at_ms=row.created_at,
        updated_at_ms=row.updated_at,
        **fields,
    )


def _leased(record: Record, row: Row) -> Record:
    """What a lease that was the dispatch made of it, by the columns: as the core's own dispatch.

    Once somebody else has taken the record over, nobody knows whose attempt it was: such a holder
    is never proven silent.
    """
    ours = record.state is State.DISPATCHED
    attempt = Attempt(
        number=row.attempt,
        fence=row.fence if ours else row.fence - 1,
        owner=(row.owner or "") if ours else "",
        dispatched_at_ms=row.dispatched_at or 0,
        permit_until_ms=row.permit_until or 0,
    )
    sent = one_more(record, attempt)
    return replace(sent, state=record.state, doubt_since_ms=record.doubt_since_ms)


def leased_event(owner: str) -> bytes:
    """Encode the journal entry that every record of a leased page gets."""
    return _encode(Event(did=("lease",), state="", fence=0, attempt=0, owner=owner))


def event_of(commands: Sequence[Command], after: Record) -> bytes:
    """Encode the journal entry of one write."""
    speaking = [command for command in commands if type(command) in _SPEAKING]
    said = _said(speaking)
    settled = after.evidence and any(isinstance(command, Settle) for command in commands)
    if settled and not after.closed:
        said["evidence"] = (*said.get("evidence", ()), after.evidence[-1])  # it settled too little
    return _encode(
        Event(
            did=tuple([name_of(command) for command in commands]),
            state=after.state,
            fence=after.fence,
            attempt=after.attempt,
            owner=after.owner,
            **said,
        )
    )


def burial_of(tombstone: Record) -> bytes:
    """Encode the one journal entry of a tombstone."""
    return _encode(
        Event(
            did=("prune",),
            state=tombstone.state,
            fence=tombstone.fence,
            attempt=tombstone.attempt,
        )
    )


def _said(commands: Sequence[Command]) -> dict[str, Any]:
    """Who acts and why, by the first command that says it, and all evidence."""
    said: dict[str, Any] = {}
    for command in commands:
        for name in ("actor", "reason"):
            if text := getattr(command, name, None):
                said.setdefault(name, text)
        if evidence := getattr(command, "evidence", None):
            said["evidence"] = (*said.get("evidence", ()), evidence)
    return said


def event(raw: bytes) -> Event:
    """Decode a journal entry."""
    return _event(raw)


def name_of(command: Command) -> str:
    """A command's word in the journal; a decision is named by its kind."""
    return str(command.kind) if isinstance(command, Decide) else _NAMES[type(command)]
