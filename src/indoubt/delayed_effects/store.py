"""``DelayedEffectStore``: the ledger of effects that fire later (seed 002), on any store."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from indoubt.core.bounds import RECEIPT_BYTES
from indoubt.core.codec import leased_event, record_of
from indoubt.core.machine import leased
from indoubt.core.record import NO_RAW, Safety
from indoubt.engine.engine import Seen
from indoubt.engine.ids import write_id
from indoubt.guard.opened import Opened
from indoubt.json_values import detach
from indoubt.recovery.items import RecordView, view
from indoubt.store import ANY_TENANT, Becomes, DueQuery, Lease, ScanQuery, Tenant

from . import checks
from .names import Names, record_of_intent
from .transitions import Transitions
from .values import DelayedEffectAction, DelayedEffectIntent, seen_in
from .words import intent_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from indoubt.guard.runtime import Runtime
    from indoubt.store import Store

    from .checks import Seconds
    from .transitions import Flow

NAMESPACE: Final = "sg:delayed_effect:v1"
WEEK_S: Final = 604_800
LEASE_S: Final = 300
_BECOMES: Final = tuple([Becomes(*row) for row in leased(Safety.IDEMPOTENT)])


class DelayedEffectPage(msgspec.Struct, frozen=True):
    """One page of a listing; ``cursor`` None means that there is no more."""

    items: tuple[DelayedEffectIntent, ...]
    cursor: str | None = None


class DelayedEffectStore:
    """Registers effects, and lets workers claim, renew, complete and requeue them.

    Only replay-safe effects belong here: a worker whose lease expires may have done its work, and
    the next one does it again. A handler that is not safe to repeat is a guarded effect (see
    ``DelayedEffectWorker``).

    Args:
        redis: a redis client, an open store, a store's URL, or a ``Ledger``.
        namespace: separates intents of one store from one another.
        terminal_ttl_seconds: how long the end of an intent is told; after it, the same operation
            registers anew and runs again (D-17).
        execution_lease_seconds: how long a claim lasts that is not renewed.
        tombstone_seconds: how much longer the operation id is known: then it registers as CACHED,
            without a receipt, and does not run again.
    """

    def __init__(
        self,
        redis: Any,
        *,
        namespace: str = NAMESPACE,
        terminal_ttl_seconds: Seconds = WEEK_S,
        execution_lease_seconds: Seconds = LEASE_S,
        tombstone_seconds: Seconds = 0,
    ) -> None:
        self.namespace = checks.namespace(namespace)
        self._names = Names(self.namespace)
        self._lease_ms = checks.milliseconds(
            execution_lease_seconds, "execution_lease_seconds", least=1
        )
        self._ttl_ms = checks.milliseconds(terminal_ttl_seconds, "terminal_ttl_seconds", least=1)
        self._tombstone_ms = checks.milliseconds(tombstone_seconds, "tombstone_seconds")
        self._opened = _opened(redis, self._lease_ms)
        self._made: tuple[Runtime, Transitions] | None = None

    @staticmethod
    def intent_id_for(operation_id: str) -> str:
        """The id of an operation's intent: its SHA-256, so that no raw id is in a key (D-06)."""
        return hashlib.sha256(checks.operation(operation_id).encode()).hexdigest()

    def key_for_intent(self, intent_id: str) -> str:
        """The record of an intent; on Redis, its key (D-08, D-3)."""
        return self._names.key(checks.text(intent_id, "intent_id"))

    async def register(
        self,
        operation_id: str,
        effect_type: str,
        payload: dict[str, Any],
        *,
        delay_seconds: Seconds,
        tenant_id: str | None = None,
        no_use_after: datetime | None = None,
    ) -> DelayedEffectIntent:
        """Record that this effect shall fire once, so much later; again is CACHED.

        Args:
            operation_id: names the effect: one operation, one intent (D-09).
            effect_type: which handler fires it.
            payload: a JSON object.
            delay_seconds: from now, by the store's clock; 0: at once.
            tenant_id: whose it is.
            no_use_after: it is closed as expired instead of being fired later than this.

        Raises:
            DelayedEffectConflict: the operation id has another effect; nothing was changed.
            TypeError, ValueError: a wrong argument; nothing was written.
        """
        intent_id = self.intent_id_for(operation_id)
        kind = checks.text(effect_type, "effect_type")
        if "\x1f" in kind:
            raise ValueError("effect_type holds a control character")
        text = checks.payload(payload)
        fingerprint = detach({"effect_type": kind, "payload": msgspec.json.decode(text)})
        record = record_of_intent(
            self._names,
            intent_id,
            operation_id=operation_id,
            effect_type=kind,
            payload=text,
            fingerprint=fingerprint.fingerprint(),
            delay_ms=checks.milliseconds(delay_seconds, "delay_seconds"),
            tenant_id=None if tenant_id is None else checks.text(tenant_id, "tenant_id"),
            no_use_after_ms=_instant(no_use_after),
        )
        return await self._drive(self._verbs().register(intent_id, record))

    async def list_due(self, *, limit: int = 32) -> list[str]:
        """Ids of what is due or whose lease is over, oldest first, of every type (D-28, D-30)."""
        checks.limit(limit)
        store = self.runtime().store
        queues = await store.queues(self._names.queues)
        if not queues:
            return []
        found = await store.due(DueQuery(tuple([(queue, limit) for queue in queues])))
        return [self._names.intent_id(row.id) for row in found.records[:limit]]

    async def claim(self, intent_id: str, owner_token: str) -> DelayedEffectIntent:
        """Take an intent that is due: ACQUIRED, or RECLAIMED from a lease that is over."""
        checks.text(intent_id, "intent_id")
        owner = checks.text(owner_token, "owner_token")
        return await self._drive(self._verbs().claim(intent_id, owner))

    async def claim_due(
        self, owner_token: str, *, limit: int, effect_types: Iterable[str] | None = None
    ) -> list[DelayedEffectIntent]:
        """Take up to so many that are due, in one round trip, each once however many ask.

        Those that were claimed before are RECLAIMED. What was cancelled or is of no use any more
        is ended on the way, and not returned.

        Args:
            owner_token: who takes them.
            limit: how many, of each type.
            effect_types: which; default: every type that waits here.
        """
        owner = checks.text(owner_token, "owner_token")
        checks.limit(limit)
        store = self.runtime().store
        queues = await self._queues(store, effect_types)
        if not queues:
            return []
        lease = Lease(
            owner=owner,
            lease_ms=self._lease_ms,
            permit_ms=self._lease_ms,
            becomes=_BECOMES,
            write_id=write_id(),
            event=leased_event(owner),
        )
        page = await store.lease(DueQuery(tuple([(queue, limit) for queue in queues])), lease)
        taken = [
            self._taken(Seen(record_of(row), page.now_ms, page.epoch), owner)
            for row in page.records
        ]
        return [intent for intent in taken if not await self._ended(intent)]

    async def renew(self, intent: DelayedEffectIntent) -> DelayedEffectIntent:
        """Hold on for another lease: RENEWED, or why not."""
        return await self._drive(self._verbs().renew(_intent(intent)))

    async def complete(
        self, intent: DelayedEffectIntent, receipt: Any, *, error: Any = None
    ) -> DelayedEffectIntent:
        """It happened; the first receipt is final.

        Args:
            intent: as claimed.
            receipt: JSON, None too.
            error: JSON that says what is amiss with it, kept beside it (D-6).

        Raises:
            TypeError, ValueError: the receipt is no JSON or too large; nothing was written (D-25).
        """
        text = Raw(detach(receipt, where="receipt", max_bytes=RECEIPT_BYTES).text)
        kept = _error(error)
        return await self._drive(self._verbs().complete(_intent(intent), text, kept))

    async def requeue(
        self,
        intent: DelayedEffectIntent,
        *,
        delay_seconds: Seconds,
        error: Any = None,
        deferred: bool = False,
    ) -> DelayedEffectIntent:
        """Let go of it until later.

        Args:
            intent: as claimed.
            delay_seconds: from now, by the store's clock.
            error: JSON, why; none leaves what is there.
            deferred: it was not tried: the claim does not count as an attempt.
        """
        after_ms = checks.milliseconds(delay_seconds, "delay_seconds")
        if not isinstance(deferred, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("deferred: True or False")
        kept = _error(error)
        return await self._drive(
            self._verbs().requeue(_intent(intent), after_ms=after_ms, error=kept, deferred=deferred)
        )

    async def cancel(self, intent: DelayedEffectIntent | str) -> DelayedEffectIntent:
        """Fire it no more: COMPLETED (done), BUSY (asked: it runs just now), CACHED, MISSING."""
        intent_id = _id(intent)
        return await self._drive(self._verbs().cancel(intent_id))

    async def reschedule(
        self, intent: DelayedEffectIntent | str, *, delay_seconds: Seconds
    ) -> DelayedEffectIntent:
        """Move its due time, from now: DEFERRED, BUSY, CACHED or MISSING."""
        intent_id = _id(intent)
        after_ms = checks.milliseconds(delay_seconds, "delay_seconds")
        return await self._drive(self._verbs().reschedule(intent_id, after_ms))

    async def get(self, intent_id: str) -> DelayedEffectIntent:
        """One intent as it stands (CACHED), or MISSING."""
        checks.text(intent_id, "intent_id")
        return await self._drive(self._verbs().get(intent_id))

    async def scan(
        self,
        *,
        effect_types: Iterable[str] | None = None,
        tenant_id: Tenant = ANY_TENANT,
        limit: int = 100,
        cursor: str | None = None,
    ) -> DelayedEffectPage:
        """List a page of this namespace.

        With ``effect_types`` what waits or runs of these types, by due time; without, all intents,
        in the order of their ids.

        Raises:
            ValueError: a garbled or foreign cursor, or a limit out of range.
        """
        checks.limit(limit)
        query = ScanQuery(tenant_id=tenant_id, after=cursor, limit=limit)
        if effect_types is None:
            query = query._replace(id_prefix=f"{self.namespace}:")
        else:
            queues = [self._names.queue(checks.text(t, "effect_type")) for t in effect_types]
            query = query._replace(view="ready", queues=tuple(queues))
        page = await self.runtime().store.scan(query)
        found = [Seen(record_of(row), page.now_ms, page.epoch) for row in page.records]
        return DelayedEffectPage(
            tuple([intent_of(seen, A.CACHED, self._id_of(seen)) for seen in found]), page.cursor
        )

    async def record(self, intent_id: str) -> RecordView | None:
        """The ledger's own view of an intent; None where there is none."""
        key = self.key_for_intent(intent_id)
        runtime = self.runtime()
        seen = await runtime.driver.drive(runtime.engine.read(key))
        return None if seen.record is None else view(seen.record, seen.now_ms)

    # -- for the worker ----------------------------------------------------------------------------

    async def park(self, intent: DelayedEffectIntent) -> DelayedEffectIntent:
        """Leave to a person what was claimed too often; only for its holder."""
        return await self._drive(self._verbs().park(_intent(intent)))

    def runtime(self) -> Runtime:
        """The open store, its engine and drivers."""
        return self._opened.open()

    @property
    def lease_ms(self) -> int:
        """How long a claim lasts."""
        return self._lease_ms

    def queues_of(self, effect_types: Iterable[str]) -> tuple[str, ...]:
        """The queues in which these types wait: what a write announces (``Store.wait``)."""
        return tuple([self._names.queue(name) for name in effect_types])

    # -- inside ------------------------------------------------------------------------------------

    def _taken(self, seen: Seen, owner: str) -> DelayedEffectIntent:
        again = seen.record is not None and seen.record.claims > 1
        action = A.RECLAIMED if again else A.ACQUIRED
        return intent_of(seen, action, self._id_of(seen), mine=owner)

    async def _ended(self, intent: DelayedEffectIntent) -> bool:
        seen = seen_in(intent)
        record = seen.record if seen else None
        if record is None or seen is None:
            return False
        late = record.policy.no_use_after_ms
        if not record.cancel_requested and (late is None or late > seen.now_ms):
            return False
        await self._drive(self._verbs().end(intent))
        return True

    async def _queues(self, store: Store, effect_types: Iterable[str] | None) -> Sequence[str]:
        if effect_types is None:
            return await store.queues(self._names.queues)
        return sorted({self._names.queue(checks.text(t, "effect_type")) for t in effect_types})

    def _id_of(self, seen: Seen) -> str:
        return self._names.intent_id(seen.record.id if seen.record else "")

    def _verbs(self) -> Transitions:
        runtime = self.runtime()
        if self._made is None or self._made[0] is not runtime:  # not opened yet, or forked
            verbs = Transitions(
                runtime.engine,
                self._names,
                lease_ms=self._lease_ms,
                ttl_ms=self._ttl_ms,
                tombstone_ms=self._tombstone_ms,
            )
            self._made = (runtime, verbs)
        return self._made[1]

    async def _drive(self, flow: Flow) -> DelayedEffectIntent:
        return await self.runtime().driver.drive(flow)


A = DelayedEffectAction


def _opened(given: Any, lease_ms: int) -> Opened:
    if isinstance(given, Opened):  # a ledger: its store, and its hold on it
        return given
    from indoubt.stores import open_store, store_of_client  # noqa: PLC0415 - engines load lazily

    store = given if isinstance(given, str) else store_of_client(given) or given
    return Opened(store, open_store, lease_ms=lease_ms, clock=None)


def _error(error: Any) -> Raw:
    return NO_RAW if error is None else Raw(detach(error, where="error").text)


def _intent(intent: Any) -> DelayedEffectIntent:
    if not isinstance(intent, DelayedEffectIntent):
        raise TypeError(f"intent: as claim gave it, not {type(intent).__name__}")
    return intent


def _id(intent: DelayedEffectIntent | str) -> str:
    if isinstance(intent, DelayedEffectIntent):
        return intent.intent_id
    return checks.text(intent, "intent_id")


def _instant(when: datetime | None) -> int | None:
    if when is None:
        return None
    if not isinstance(when, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError("no_use_after: a datetime with a time zone")
    if when.tzinfo is None or when.utcoffset() is None:
        raise ValueError("no_use_after: a datetime with a time zone")
    return int(when.timestamp() * 1000)
