"""How intents, their records and their queues are called; and the record of a new intent."""

from __future__ import annotations

from typing import Final

from msgspec import Raw

from indoubt.core.record import Policy, Record, Safety

from .words import KIND


class Names:
    """How intents, their records and their queues are called in one namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._tagged = "{" in namespace and "}" in namespace.partition("{")[2]
        self.queues = f"{KIND}:{namespace}\x1f"

    def key(self, intent_id: str) -> str:
        """The record's id; on Redis its key too, so the tag keeps it in one slot (D-3)."""
        if self._tagged:
            return f"{self.namespace}:intent:{intent_id}"
        return f"{self.namespace}:{{{_partition(intent_id):02}}}:intent:{intent_id}"

    def intent_id(self, key: str) -> str:
        """The intent of a record."""
        return key.rpartition(":intent:")[2]

    def queue(self, effect_type: str) -> str:
        """Where intents of this type wait: a type that nobody knows holds up no other (D-34)."""
        return self.queues + effect_type


PARTITIONS: Final = 16


def _partition(intent_id: str) -> int:
    try:
        return int(intent_id[:2], 16) % PARTITIONS
    except ValueError:
        return sum(intent_id.encode()) % PARTITIONS


def record_of_intent(
    names: Names,
    intent_id: str,
    *,
    operation_id: str,
    effect_type: str,
    payload: bytes,
    fingerprint: str,
    delay_ms: int,
    tenant_id: str | None,
    no_use_after_ms: int | None,
) -> Record:
    """The record of a new intent; its times are counted from the store's clock at the write."""
    key = names.key(intent_id)
    return Record(
        id=key,
        root_id=key,
        kind=KIND,
        name=effect_type,
        fingerprint=fingerprint,
        queue=names.queue(effect_type),
        tenant_id=tenant_id,
        scope=names.namespace,
        key=operation_id,
        payload=Raw(payload),
        ready_at_ms=delay_ms,
        delay_ms=delay_ms,
        policy=Policy(safety=Safety.IDEMPOTENT, no_use_after_ms=no_use_after_ms),
    )
