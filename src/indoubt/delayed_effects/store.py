"""``DelayedEffectStore``: the ledger of effects that fire later (seed 002), on any store."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from indoubt.core.bounds import RECEIPT_BYTES
from indoubt.core.codec import leased_event, record_of
from indoubt.core.machine import LEASED
from indoubt.core.record import NO_RAW
from indoubt.engine.engine import Seen
from indoubt.engine.ids import write_id
from indoubt.json_values import detach
from indoubt.store import Becomes, DueQuery, Lease

from . import checks
from .ground import held_intent
from .names import record_of_intent
from .steering import Steering
from .values import DelayedEffectIntent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from indoubt.store import Store

    from .checks import Seconds

NAMESPACE: Final = "sg:delayed_effect:v1"
WEEK_S: Final = 604_800
LEASE_S: Final = 300
_BECOMES: Final = tuple([Becomes(*row) for row in LEASED])


class DelayedEffectStore(Steering):
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
        super().__init__(
            redis,
            namespace=namespace,
            terminal_ttl_seconds=terminal_ttl_seconds,
            execution_lease_seconds=execution_lease_seconds,
            tombstone_seconds=tombstone_seconds,
        )

    @staticmethod
    def intent_id_for(operation_id: str) -> str:
        """The id of an operation's intent: its SHA-256, so that no raw id is in a key (D-06)."""
        return hashlib.sha256(checks.operation(operation_id).encode()).hexdigest()

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
        given = checks.payload(payload)
        fingerprint = detach({"effect_type": kind, "payload": given.value})
        record = record_of_intent(
            self._names,
            intent_id,
            operation_id=operation_id,
            effect_type=kind,
            payload=given.text,
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
        """Take up to so many that are due, each once however many ask.

        One round trip for what was never sent; what may have happened before (RECLAIMED) takes one
        more each. What was cancelled or is of no use any more is ended, and not returned.

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
        verbs, found = self._verbs(), list[DelayedEffectIntent]()
        for row in page.records:
            seen = Seen(record_of(row), page.now_ms, page.epoch)
            found.append(await self._drive(verbs.taken(seen, self._id_of(seen), owner)))
        return [intent for intent in found if intent.should_execute]

    async def renew(self, intent: DelayedEffectIntent) -> DelayedEffectIntent:
        """Hold on for another lease: RENEWED, or why not."""
        return await self._drive(self._verbs().renew(held_intent(intent)))

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
        return await self._drive(self._verbs().complete(held_intent(intent), text, kept))

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
            self._verbs().requeue(
                held_intent(intent), after_ms=after_ms, error=kept, deferred=deferred
            )
        )

    # -- inside ------------------------------------------------------------------------------------

    async def _queues(self, store: Store, effect_types: Iterable[str] | None) -> Sequence[str]:
        if effect_types is None:
            return await store.queues(self._names.queues)
        return sorted({self._names.queue(checks.text(t, "effect_type")) for t in effect_types})


def _error(error: Any) -> Raw:
    return NO_RAW if error is None else Raw(detach(error, where="error").text)


def _instant(when: datetime | None) -> int | None:
    if when is None:
        return None
    if not isinstance(when, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError("no_use_after: a datetime with a time zone")
    if when.tzinfo is None or when.utcoffset() is None:
        raise ValueError("no_use_after: a datetime with a time zone")
    return int(when.timestamp() * 1000)
