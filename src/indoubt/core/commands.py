"""Commands: what may be asked of a record. Several may be applied in one write, in order.

Commands that carry a ``fence`` are the holder's; the others are anybody's.
"""

from __future__ import annotations

from msgspec import Raw

from .record import (
    NO_RAW,
    Closed,
    DecisionKind,
    Effect,
    Evidence,
    Millis,
    Policy,
    Record,
    State,
    Struct,
)


class Prepare(Struct, frozen=True):
    """Record the intent; the record must not exist."""

    record: Record


class Claim(Struct, frozen=True):
    """Become the holder: where nobody is, or where the lease is over or the owner proven dead.

    ``dead_owners`` were proven dead before the record was read; their attempts fall silent.
    ``store_epoch``: the store's present one. A record that was last written in an older one may
    have been dispatched since, in a write that the store has lost (P19).
    """

    owner: str
    lease_ms: Millis
    dead_owners: tuple[str, ...] = ()
    store_epoch: int = 1


class Dispatch(Struct, frozen=True):
    """From now on it may have happened. At most one in a write."""

    fence: int
    permit_ms: Millis
    policy: Policy | None = None


class Acknowledge(Struct, frozen=True):
    """The provider has confirmed that it knows this attempt."""

    fence: int
    token: Raw = NO_RAW
    external_ref: str | None = None


class Checkpoint(Struct, frozen=True):
    """Keep a note about the attempt under way; says nothing about how far it came."""

    fence: int
    token: Raw


class Renew(Struct, frozen=True):
    """Hold on; ``permit_ms`` None leaves a fixed permit where it is."""

    fence: int
    lease_ms: Millis
    permit_ms: Millis | None = None


class Settle(Struct, frozen=True):
    """Record an outcome. ``attempt`` is the one it speaks about; None: about all of them.

    ``closes``: why those attempts are closed; None: a clean failure where the effect is none.
    """

    fence: int
    outcome: State
    attempt: int | None = None
    effect: Effect | None = None
    closes: Closed | None = None
    receipt: Raw = NO_RAW
    receipt_lost: bool = False
    error: Raw = NO_RAW


class Doubt(Struct, frozen=True):
    """The live holder cannot tell. ``returned``: its function has ended, nothing more is sent."""

    fence: int
    returned: bool
    keep: bool = False
    evidence: Evidence | None = None


class Release(Struct, frozen=True):
    """Let go. ``never_sent``: the holder certifies that its dispatch never left this process.

    ``after_ms``: ready again so much later. ``give_back``: the claim does not count. ``error``: why
    it is let go, kept with the record; none leaves what is there.
    """

    fence: int
    never_sent: bool = False
    after_ms: Millis | None = None
    give_back: bool = False
    error: Raw = NO_RAW


class Postpone(Struct, frozen=True):
    """Have what nobody holds wait until ``after_ms`` from now."""

    after_ms: Millis


class Clear(Struct, frozen=True):
    """Proven absence: every open attempt is closed without effect."""

    fence: int


class Ask(Struct, frozen=True):
    """It is a person's turn."""

    fence: int
    reason: str


class Note(Struct, frozen=True):
    """Evidence. ``counts`` against the probe budget; the rest is about attempt ``about``.

    ``returned``: its holder reports that its function has ended, so it can be sent no more.
    ``late_lost``: the late result could not be stored; ``late`` only says that there was one.
    ``journal_only``: says nothing of an attempt, so it takes no room among what the record keeps.
    """

    evidence: Evidence
    counts: bool = False
    about: int | None = None
    active: bool = False
    returned: bool = False
    late: Raw = NO_RAW
    late_lost: bool = False
    closes: Closed | None = None
    journal_only: bool = False


class Decide(Struct, frozen=True):
    """A person's answer to the question about attempt number ``attempt``."""

    kind: DecisionKind
    attempt: int
    decision_id: str
    actor: str
    reason: str
    receipt: Raw = NO_RAW
    store_epoch: int = 1


class Cancel(Struct, frozen=True):
    """Ask that no further attempt is sent. It cannot make the past certain."""

    actor: str
    reason: str
    store_epoch: int = 1


class Reopen(Struct, frozen=True):
    """A repeat of the call after a certain "no effect" starts anew."""

    store_epoch: int = 1


class Abandon(Struct, frozen=True):
    """Close what nobody will send: past ``no_use_after``, or repeated by nobody for too long."""

    reason: str
    store_epoch: int = 1


Command = (
    Prepare
    | Claim
    | Dispatch
    | Acknowledge
    | Checkpoint
    | Renew
    | Settle
    | Doubt
    | Release
    | Postpone
    | Clear
    | Ask
    | Note
    | Decide
    | Cancel
    | Reopen
    | Abandon
)
