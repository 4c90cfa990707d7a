"""What a store must do: keep records, compare and set them, keep their journal, tell its time.

A store knows no domain and no rule. Everything it may change by itself is a field of its own,
outside the opaque ``body``. Every answer brings the store's own clock (milliseconds since 1970,
never running backwards), and every write is stamped with it.
"""

# No `from __future__ import annotations`: named tuples compile annotations that are text, one by
# one, which takes a third of this module's import.
from collections.abc import Sequence
from enum import Enum
from typing import Final, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from .errors import StoreError


class In(msgspec.Struct, frozen=True):
    """A time the store fills in: its own clock at the write, plus this many milliseconds."""

    ms: int


class Keep(Enum):
    """Type of ``KEEP``."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP
"""Leave the stored time as it is: a renewal may have moved it since this writer read it."""

Time = In | int | Keep | None
"""``In(ms)``: stamped at the write; ``int``: absolute; KEEP: unchanged (never in an insert)."""


class AnyTenant(Enum):
    """Type of ``ANY_TENANT``."""

    ANY = "any"

    def __repr__(self) -> str:
        return "ANY_TENANT"


ANY_TENANT: Final = AnyTenant.ANY
"""An operator's view: records of every tenant, and those of none."""

Tenant = str | None | AnyTenant
"""A tenant's id, None (records without a tenant), or every tenant."""


class Absent(msgspec.Struct, frozen=True):
    """The record must not exist."""


class Version(msgspec.Struct, frozen=True):
    """The record must still have this version."""

    n: int


class Free(msgspec.Struct, frozen=True):
    """Ends another's hold: the version and the lease end that were read must both still stand.

    A renewal steps no version, so the version alone would not notice it.
    """

    n: int
    lease_until: int | None


Expected = Absent | Version | Free


class Put(NamedTuple):
    """One record as it shall be: promoted fields, and the rest as opaque bytes.

    ``body`` changes with the state; None leaves it as it is. ``fixed`` is written at the insert.
    The write steps the version by one, and ``event`` is appended to the journal under it.
    ``queue`` names the listing of ``due`` and ``lease`` that it waits in: its kind, or its kind,
    a colon and more. It is written once, like the kind.
    """

    id: str
    root_id: str
    tenant_id: str | None
    parent_id: str | None
    kind: str
    expected: Expected
    state: str
    owner: str | None
    fence: int
    claims: int
    attempt: int
    cancel_requested: bool
    store_epoch: int
    lease_until: Time
    permit_until: Time
    ready_at: Time
    dispatched_at: Time
    doubt_since: Time
    body: bytes | None
    fixed: bytes | None
    event: bytes
    queue: str = ""  # the kind


class Extend(NamedTuple):
    """A renewal: whoever holds (owner, fence) moves its times. No version step, no event."""

    id: str
    root_id: str
    owner: str
    fence: int
    lease_until: Time
    permit_until: Time
    ready_at: Time


class Guard(NamedTuple):
    """The batch's root (``id``) must still have this fence, or nothing is written."""

    id: str
    fence: int
    not_cancelled: bool = False


class Delete(NamedTuple):
    """Retention only: the record and its journal go, if it still has this version.

    The same batch may put a new record under the same id (a tombstone): deletes come first.
    """

    id: str
    root_id: str
    version: int


class Batch(NamedTuple):
    """All or nothing. Its records, guards and deletes have one root (see ``root_of``).

    A repeat with the same ``write_id`` gets the first answer and changes nothing.
    """

    write_id: str
    puts: tuple[Put, ...] = ()
    extends: tuple[Extend, ...] = ()
    guards: tuple[Guard, ...] = ()
    deletes: tuple[Delete, ...] = ()
    wakes: tuple[str, ...] = ()  # topics: whoever waits for one is woken once this is durable


class Stored(NamedTuple):
    """A record as the store holds it."""

    id: str
    root_id: str
    tenant_id: str | None
    parent_id: str | None
    kind: str
    version: int
    state: str
    owner: str | None
    fence: int
    claims: int
    attempt: int
    cancel_requested: bool
    store_epoch: int
    lease_until: int | None
    permit_until: int | None
    ready_at: int | None
    dispatched_at: int | None
    doubt_since: int | None
    created_at: int
    updated_at: int
    body: bytes
    fixed: bytes
    queue: str


class Snapshot(NamedTuple):
    """Records as they stood at one instant of the store's clock; missing ones are left out."""

    now_ms: int
    epoch: int
    records: tuple[Stored, ...]


class Written(NamedTuple):
    """The batch is durable. ``versions`` are those of its puts, in order.

    ``repeated``: this very write had landed before, these are its first versions, and
    ``superseded`` says whether somebody has written one of its records since.
    """

    now_ms: int
    epoch: int
    versions: tuple[int, ...]
    repeated: bool = False
    superseded: bool = False


Why = Literal["exists", "missing", "version", "lease", "held", "fence", "cancelled"]


class Conflict(NamedTuple):
    """Nothing of the batch was written: ``id`` failed for the reason ``why``.

    ``found`` is what is stored now under the ids of the batch's puts, extends and guards.
    """

    id: str
    why: Why
    found: Snapshot


class Event(NamedTuple):
    """One journal entry; ``sequence`` is the record's version it led to: unique and gap-free."""

    sequence: int
    at_ms: int
    body: bytes


class Lane(msgspec.Struct, frozen=True):
    """One of ``count`` disjoint shares of all records, by hash of the id."""

    index: int
    count: int


class DueQuery(msgspec.Struct, frozen=True):
    """Up to ``limit`` records of each queue whose ready time has passed, oldest first."""

    quotas: tuple[tuple[str, int], ...]
    lane: Lane | None = None


class Becomes(NamedTuple):
    """What a lease makes of a state.

    ``sent``: the claim is the dispatch: attempt + 1, dispatched now, a new permit, no doubt.
    Otherwise: in doubt since now.
    """

    before: str
    after: str
    sent: bool


class Lease(NamedTuple):
    """What ``Store.lease`` changes on each record that it picks: ownership, and the state.

    The owner, fence + 1, version + 1, claims + 1, the lease end, and a ready time equal to it; the
    state as ``becomes`` says, which leaves a state that it does not name as it is. ``event`` is
    appended to the journal of each.
    """

    owner: str
    lease_ms: int
    permit_ms: int
    becomes: tuple[Becomes, ...]
    write_id: str
    event: bytes


View = Literal["all", "ready", "doubt"]
"""``all``: by insertion; ``ready``: by ready time, past or to come; ``doubt``: by doubt_since."""


class ScanQuery(NamedTuple):
    """A keyset listing; ``after`` is a cursor of the same query.

    ``id_prefix`` (not empty, of the view ``all`` only): the ids that begin so, in their own order.
    ``queues`` (of the view ``ready`` only): of these queues; together with ``kinds``, both hold.
    """

    view: View = "all"
    kinds: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    tenant_id: Tenant = ANY_TENANT
    parent_id: str | None = None
    id_prefix: str | None = None
    after: str | None = None
    limit: int = 100
    queues: tuple[str, ...] = ()


class Page(NamedTuple):
    """One page; ``cursor`` None means that there is no more."""

    now_ms: int
    epoch: int
    records: tuple[Stored, ...]
    cursor: str | None


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a store declares of itself; the contract suite tests both answers of each.

    Attributes:
        durable: an acknowledged write survives the loss of the process and of the power.
        durable_why: one sentence for ``doctor``.
        shared: several processes may use it at once.
        decides_silence: it can prove an owner dead (a lock that dies with the process).
        joins_transaction: ``Prepare`` may join the caller's own transaction.
        blocking: it offers ``write_blocking`` and ``read_blocking``.
    """

    durable: bool
    durable_why: str
    shared: bool
    decides_silence: bool
    joins_transaction: bool = False
    blocking: bool = False


class Store(Protocol):
    """What every store does. None of its verbs retries, and none knows a rule."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def read(self, ids: Sequence[str]) -> Snapshot:
        """Read records by id, with the store's time."""
        ...

    async def write(self, batches: Sequence[Batch]) -> Sequence[Written | Conflict | StoreError]:
        """Apply each batch by itself, all in one round trip and one commit; raises none of them.

        Raises:
            CrossRootBatch: a batch names more than one root (a bug; nothing was written).
        """
        ...

    async def due(self, query: DueQuery) -> Snapshot:
        """Read what is due, oldest first."""
        ...

    async def lease(self, query: DueQuery, lease: Lease) -> Snapshot:
        """Pick what is due and take it, in one step: the records as they are now.

        What ``due`` and one write for each would do, without racing others for the same page.
        Where the answer is lost, what was picked comes back when its lease is over; a client that
        sends the call again by itself (the same ``write_id``) gets the first page, and no other.
        """
        ...

    async def queues(self, prefix: str = "") -> Sequence[str]:
        """The queues that begin so and hold a record with a ready time, in order."""
        ...

    async def wait(self, topics: Sequence[str], *, timeout: float) -> None:
        """Return when one of these topics has been woken, or after ``timeout`` seconds.

        A hint: it may return early, and what was announced before the call may be missed.
        """
        ...

    async def scan(self, query: ScanQuery) -> Page:
        """List one page.

        Raises:
            ValueError: the cursor is garbled or belongs to another query.
        """
        ...

    async def journal(self, record_id: str, *, after: int = 0, limit: int = 100) -> Sequence[Event]:
        """Events with a sequence above ``after``, oldest first."""
        ...

    def hold_owner(self, owner: str) -> None:
        """Take the lock that proves that this owner's process lives."""
        ...

    def owner_dead(self, owner: str) -> bool | None:
        """True: proven dead. False: its lock is held. None: cannot be decided."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class BlockingStore(Protocol):
    """Stores in this process or on this disk also answer callers that have no event loop."""

    def read_blocking(self, ids: Sequence[str]) -> Snapshot: ...

    def write_blocking(
        self, batches: Sequence[Batch]
    ) -> Sequence[Written | Conflict | StoreError]: ...


def root_of(record_id: str) -> str:
    """The root that a record's id tells: a child's id is its root's, a slash and more."""
    return record_id.partition("/")[0]
