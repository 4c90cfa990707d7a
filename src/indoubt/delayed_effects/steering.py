"""Looking at intents and steering them: what people and programs do that do not fire them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from indoubt.core.codec import record_of
from indoubt.engine.engine import Seen
from indoubt.recovery.items import RecordView, view
from indoubt.store import ANY_TENANT, ScanQuery, Tenant

from . import checks
from .ground import Ground
from .values import DelayedEffectAction, DelayedEffectIntent
from .words import intent_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .checks import Seconds

A = DelayedEffectAction


class DelayedEffectPage(msgspec.Struct, frozen=True):
    """One page of a listing; ``cursor`` None means that there is no more."""

    items: tuple[DelayedEffectIntent, ...]
    cursor: str | None = None


class Steering(Ground):
    """The half of ``DelayedEffectStore`` that holds nothing."""

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

    def _id_of(self, seen: Seen) -> str:
        return self._names.intent_id(seen.record.id if seen.record else "")


def _id(intent: DelayedEffectIntent | str) -> str:
    if isinstance(intent, DelayedEffectIntent):
        return intent.intent_id
    return checks.text(intent, "intent_id")
