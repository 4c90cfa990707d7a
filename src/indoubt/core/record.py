"""The record: what was intended, who holds it, which attempts may have happened, what is known.

Plain frozen values. Times are milliseconds of the store's clock. JSON that callers gave or get is
kept as its stored text (``msgspec.Raw``), so that reading it back changes nothing.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec import Raw

from indoubt.contracts.safety import ExecutionSafetyClass

Safety = ExecutionSafetyClass
Millis = int
NO_RAW = Raw(b"")
"""No JSON here (an empty text is no JSON, so it cannot be mistaken for a value)."""


def stored(text: Raw) -> Raw:
    """The one empty text for every empty one: another is no default, so it would be written."""
    return NO_RAW if text == NO_RAW else text


class State(StrEnum):
    """What we recorded."""

    PREPARED = "prepared"
    DISPATCHED = "dispatched"
    IN_DOUBT = "in_doubt"
    AWAITING_DECISION = "awaiting_decision"
    PERMITTED = "permitted"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PARTIAL = "partial"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


CLOSED = frozenset(
    {State.SUCCEEDED, State.FAILED, State.PARTIAL, State.CANCELLED, State.UNKNOWN},
)
DOUBTFUL = frozenset({State.IN_DOUBT, State.AWAITING_DECISION, State.PERMITTED})


REPLAYABLE = frozenset({Safety.PURE, Safety.IDEMPOTENT, Safety.RETRY_SAFE})
"""Classes that may be sent again although an attempt may have happened."""


class Effect(StrEnum):
    """What a closed record says about the effect itself."""

    NONE = "none"
    PARTIAL = "partial"
    POSSIBLE = "possible"


class Stage(StrEnum):
    """How far one attempt is known to have come."""

    SENT = "sent"
    ACKNOWLEDGED = "acknowledged"


class Closed(StrEnum):
    """Why one attempt is no longer open."""

    SUCCEEDED = "succeeded"
    CLEAN_FAILURE = "clean_failure"
    NEVER_SENT = "never_sent"
    ABSENT = "absent"
    FAILED = "failed"
    DECIDED = "decided"


class DecisionKind(StrEnum):
    """What a person may say about a question."""

    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did_not_happen"
    ALLOW_ONE_ATTEMPT = "allow_one_attempt"
    GIVE_UP = "give_up"


class Struct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of all values of the core; they hold values only, so no cycle for a collector to find.

    It would go through every field of what calls under way hold, again and again.
    """


class Policy(Struct, frozen=True):
    """What was declared about the effect when it was last dispatched.

    Attributes:
        settle_ms: the longest a request may still land after its permit, plus the read lag.
        authoritative: the provider's "not found" is about this very act.
        key_retention_ms: the effect is safe only through its key, and for so long.
        resend: proven absence may be answered by a new attempt (non_idempotent only).
        detached: the effect starts something that outlives it, so it is never silent.
        no_use_after_ms: after this instant no attempt is sent (again).
    """

    safety: Safety = Safety.NON_IDEMPOTENT
    can_probe: bool = False
    settle_ms: Millis | None = None
    authoritative: bool = False
    key_retention_ms: Millis | None = None
    resend: bool = False
    detached: bool = False
    no_use_after_ms: Millis | None = None
    probes_max: int = 10
    probes_within_ms: Millis = 600_000


class Permission(Struct, frozen=True):
    """A person allows one dispatch: number ``attempt`` of this record, nothing else."""

    attempt: int
    decision_id: str
    actor: str
    at_ms: Millis


class Late(Struct, frozen=True):
    """A result that its fenced-out holder brought in; ``lost``: it could not be stored."""

    receipt: Raw
    at_ms: Millis
    lost: bool = False


class Attempt(Struct, frozen=True):
    """One dispatch. Open until something closes it; ``silent_at_ms``: nobody can send it any more.

    Silence is known when its holder reported that its function has returned, or was proven dead.
    """

    number: int
    fence: int
    owner: str
    dispatched_at_ms: Millis = 0
    permit_until_ms: Millis = 0
    stage: Stage = Stage.SENT
    token: Raw = NO_RAW
    external_ref: str | None = None
    silent_at_ms: Millis | None = None
    active: bool = False
    late: Late | None = None
    closed: Closed | None = None
    permission: Permission | None = None

    @property
    def open(self) -> bool:
        """It may have happened, and nothing has settled that."""
        return self.closed is None


class Evidence(Struct, frozen=True):
    """One thing somebody reported about an attempt."""

    source: str
    at_ms: Millis
    attempt: int = 0
    status: str | None = None
    note: str | None = None
    data: Raw = NO_RAW


class Decided(Struct, frozen=True):
    """A decision that was taken, as its repeat must find it."""

    decision_id: str
    kind: DecisionKind
    attempt: int
    actor: str
    reason: str
    at_ms: Millis


class Record(Struct, frozen=True):
    """One thing we track."""

    id: str
    root_id: str
    kind: str
    name: str
    fingerprint: str
    queue: str | None = None
    parent_id: str | None = None
    tenant_id: str | None = None
    scope: str | None = None
    key: str | None = None
    payload: Raw = NO_RAW
    redacted: bool = False
    rebuildable: bool = True

    version: int = 0
    state: State = State.PREPARED
    fence: int = 0
    owner: str | None = None
    lease_until_ms: Millis | None = None
    ready_at_ms: Millis | None = None
    doubt_since_ms: Millis | None = None
    claims: int = 0
    attempt: int = 0
    cancel_requested: bool = False
    store_epoch: int = 1
    created_at_ms: Millis = 0
    updated_at_ms: Millis = 0

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

    @property
    def open_attempts(self) -> tuple[Attempt, ...]:
        """Attempts that may have happened, oldest first."""
        return tuple([attempt for attempt in self.attempts if attempt.closed is None])

    @property
    def closed(self) -> bool:
        """Whether the record has ended (``unknown`` may still be corrected once)."""
        return self.state in CLOSED

    @property
    def ref(self) -> str:
        """The question about this record as it stands: id and attempt."""
        return f"{self.id}.{self.attempt}"


def execution_id(record_id: str, attempt: int) -> str:
    """Name one attempt, as providers see it."""
    return f"{record_id}.{attempt}"
