"""Records in every state, each brought there by commands, as the tests of the core meet them.

All of them are looked at at ``NOW``. A permit and a lease run 30 s, the settle time is 5 s. ``w1``
sent what was sent; ``w2`` took over. Names say the state, then what is special.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from indoubt.contracts import ExecutionSafetyClass as Safety
from indoubt.core.codec import body_of, fixed_of
from indoubt.core.commands import (
    Abandon,
    Acknowledge,
    Ask,
    Cancel,
    Claim,
    Clear,
    Command,
    Decide,
    Dispatch,
    Doubt,
    Note,
    Release,
    Reopen,
    Settle,
)
from indoubt.core.machine import decide
from indoubt.core.record import (
    NO_RAW,
    Closed,
    DecisionKind,
    Effect,
    Evidence,
    Millis,
    Policy,
    Record,
    State,
)
from indoubt.core.refusals import Refused
from indoubt.store import Stored as Row

NOW = 1_000_000
LEASE = PERMIT = 30_000
SETTLE = 5_000
LONG_AGO = NOW - 100_000
LAPSED = NOW - 50_000  # a lease from here is over, and so are permit and settle time
RECENT = NOW - 1_000
RECEIPT, OTHER_RECEIPT, ERROR = Raw(b'{"id":7}'), Raw(b'{"id":8}'), Raw(b'{"code":"no"}')

POLICY = Policy(can_probe=True, settle_ms=SETTLE, authoritative=True)
NEWEST = -1


def intent(policy: Policy = POLICY, **changes: Any) -> Record:
    """An intent as the store holds it after the first write."""
    return Record(
        id="rec_1",
        root_id="rec_1",
        kind="effect",
        name="pay",
        fingerprint="f",
        version=1,
        policy=policy,
        created_at_ms=LONG_AGO,
        **changes,
    )


def of_class(safety: Safety, **changes: Any) -> Policy:
    """The usual policy, but of this class."""
    return replace(POLICY, safety=safety, **changes)


def after(record: Record | None, *commands: Command, at: Millis) -> Record:
    """What the commands make of a record; they must be allowed."""
    done = decide(record, commands, at)
    assert not isinstance(done, Refused), f"{record and record.state}, {commands}: {done.reason}"
    return done


def row_of(record: Record) -> Row:
    """The record as any store answers it."""
    last = record.attempts[-1] if record.attempts else None
    return Row(
        id=record.id,
        root_id=record.root_id,
        tenant_id=record.tenant_id,
        parent_id=record.parent_id,
        kind=record.kind,
        version=record.version,
        state=record.state.value,
        owner=record.owner,
        fence=record.fence,
        claims=record.claims,
        attempt=record.attempt,
        cancel_requested=record.cancel_requested,
        store_epoch=record.store_epoch,
        lease_until=record.lease_until_ms,
        permit_until=last.permit_until_ms if last else None,
        ready_at=record.ready_at_ms,
        dispatched_at=last.dispatched_at_ms if last else None,
        doubt_since=record.doubt_since_ms,
        created_at=record.created_at_ms,
        updated_at=record.updated_at_ms,
        queue=record.queue or record.kind,
        body=body_of(record),
        fixed=fixed_of(record),
    )


def claim(owner: str = "w1", **changes: Any) -> Claim:
    """A claim as any flow makes it."""
    return Claim(owner=owner, lease_ms=LEASE, **changes)


def dispatch(fence: int, policy: Policy | None = None) -> Dispatch:
    """A dispatch as any flow makes it."""
    return Dispatch(fence=fence, permit_ms=PERMIT, policy=policy)


def evidence(attempt: int = 0) -> Evidence:
    """Something that somebody reported."""
    return Evidence(source="test", at_ms=NOW, attempt=attempt)


def decision(
    kind: DecisionKind, attempt: int, *, name: str = "d1", receipt: Raw = RECEIPT
) -> Decide:
    """A person's decision."""
    return Decide(
        kind=kind, attempt=attempt, decision_id=name, actor="ada", reason="saw it", receipt=receipt
    )


def sent(policy: Policy = POLICY, *, at: Millis = LAPSED) -> Record:
    """Claimed and dispatched by w1."""
    return after(intent(policy), claim(), dispatch(1), at=at)


def doubted(policy: Policy = POLICY, *, at: Millis = RECENT) -> Record:
    """Sent long ago, and taken over by w2."""
    return after(sent(policy), claim("w2"), at=at)


def released(record: Record, *, at: Millis = RECENT) -> Record:
    """Let go by its holder."""
    return after(record, Release(fence=record.fence), at=at)


def again(record: Record, *, at: Millis = RECENT) -> Record:
    """One more attempt by w3, who may take over."""
    return after(record, claim("w3"), dispatch(record.fence + 1), at=at)


def settled(outcome: State, effect: Effect | None, attempt: int | None = NEWEST) -> Record:
    """Sent, and settled by its holder."""
    record = sent()
    return after(record, settlement(record, outcome, effect, attempt), at=RECENT)


def settlement(
    record: Record, outcome: State, effect: Effect | None, attempt: int | None = NEWEST
) -> Settle:
    """A settlement by whoever holds the record."""
    happened = outcome is State.SUCCEEDED
    return Settle(
        fence=record.fence,
        outcome=outcome,
        effect=effect,
        attempt=record.attempt if attempt == NEWEST else attempt,
        receipt=RECEIPT if happened else NO_RAW,
        error=NO_RAW if happened else ERROR,
    )


def late(record: Record, about: int, receipt: Raw = RECEIPT, *, at: Millis = RECENT) -> Record:
    """The holder that was replaced brings its result."""
    return after(record, Note(evidence=evidence(about), about=about, late=receipt), at=at)


def decided(
    record: Record, kind: DecisionKind, *, at: Millis = RECENT, name: str = "d1", **rest: Any
) -> Record:
    """What a decision makes of the question."""
    return after(record, decision(kind, record.attempt, name=name, **rest), at=at)


def _full() -> Record:
    """Sixteen open attempts of a class that may not fold them away."""
    record = sent(of_class(Safety.STATUS_QUERY_REQUIRED), at=LONG_AGO)
    for _ in range(15):
        record = after(record, Doubt(fence=record.fence, returned=True), at=LONG_AGO)
        record = again(record, at=LONG_AGO)
    return after(record, claim("w2"), at=RECENT)


K = DecisionKind
ASK = Ask(fence=2, reason="nothing more can be asked")
CANCEL = Cancel(actor="ada", reason="not wanted any more")


def records() -> dict[str, Record]:
    """All of them."""
    return _under_way() | _waiting() | _closed()


def _awaiting() -> Record:
    return after(doubted(), ASK, at=RECENT)


def _under_way() -> dict[str, Record]:
    retry = of_class(Safety.RETRY_SAFE)
    permitted = decided(_awaiting(), K.ALLOW_ONE_ATTEMPT)
    denied = decided(_awaiting(), K.DID_NOT_HAPPEN)
    prepared = {
        "prepared": intent(),
        "prepared held": after(intent(), claim(), at=RECENT),
        "prepared lapsed": after(intent(), claim(), at=LAPSED),
        "prepared expired": after(intent(replace(POLICY, no_use_after_ms=NOW)), claim(), at=RECENT),
        "prepared cleared": after(doubted(), Clear(fence=2), at=RECENT),
        "prepared decided": after(denied, Reopen(), at=RECENT),
    }
    dispatched = {
        "dispatched": sent(at=RECENT),
        "dispatched lapsed": sent(),
        "dispatched cancel": after(sent(at=RECENT), CANCEL, at=RECENT),
        "dispatched retry": again(released(doubted(retry))),
        "dispatched permission": again(permitted),
    }
    acknowledged = after(sent(), Acknowledge(fence=1), at=LAPSED)
    active = Note(evidence=evidence(1), about=1, active=True, counts=True)
    in_doubt = {
        "in_doubt": doubted(),
        "in_doubt free": released(doubted()),
        "in_doubt early": after(sent(at=RECENT), Doubt(fence=1, returned=False), at=RECENT),
        "in_doubt returned": after(
            sent(at=RECENT), Doubt(fence=1, returned=True, keep=True), at=RECENT
        ),
        "in_doubt retry": doubted(retry),
        "in_doubt cancel": after(doubted(), CANCEL, at=RECENT),
        "in_doubt acknowledged": after(acknowledged, claim("w2"), at=RECENT),
        "in_doubt active": after(doubted(), active, at=RECENT),
        "in_doubt late": late(doubted(), 1),
        "in_doubt full": _full(),
    }
    return prepared | dispatched | in_doubt


def _waiting() -> dict[str, Record]:
    awaiting = _awaiting()
    permitted = decided(awaiting, K.ALLOW_ONE_ATTEMPT)
    return {
        "awaiting_decision": awaiting,
        "awaiting_decision cancel": after(awaiting, CANCEL, at=RECENT),
        "awaiting_decision late": late(awaiting, 1),
        "permitted": permitted,
        "permitted held": after(permitted, claim("w3"), at=RECENT),
        "permitted lapsed": after(permitted, claim("w3"), at=LAPSED),
        "permitted another": replace(
            after(permitted, claim("w3"), at=RECENT), attempt=permitted.attempt + 1
        ),
    }


def _closed() -> dict[str, Record]:
    awaiting, possible = _awaiting(), Effect.POSSIBLE
    succeeded = settled(State.SUCCEEDED, None)
    refused = settled(State.FAILED, Effect.NONE)
    denied = decided(awaiting, K.DID_NOT_HAPPEN)
    return {
        "succeeded": succeeded,
        "succeeded twice": late(succeeded, 1, OTHER_RECEIPT),
        "failed none": refused,
        "failed possible": settled(State.FAILED, possible, None),
        "failed contradicted": late(denied, 1),
        "failed cancel": decided(after(awaiting, CANCEL, at=RECENT), K.DID_NOT_HAPPEN),
        "partial": settled(State.PARTIAL, Effect.PARTIAL, None),
        "cancelled none": after(intent(), CANCEL, at=RECENT),
        "cancelled abandoned": after(intent(), Abandon(reason="nobody"), at=RECENT),
        "cancelled possible": settled(State.CANCELLED, possible, None),
        "unknown": decided(awaiting, K.GIVE_UP),
        "unknown late": late(decided(awaiting, K.GIVE_UP), 1),
        "pruned": replace(refused, pruned=True),
    }


def marred() -> Record:
    """Two open attempts, of which one was closed by a probe's "failed": possible, not certain."""
    record = again(decided(doubted(), K.ALLOW_ONE_ATTEMPT))
    noted = Note(evidence=evidence(1), about=1, closes=Closed.FAILED)
    return after(record, Doubt(fence=record.fence, returned=True, keep=True), noted, at=RECENT)
