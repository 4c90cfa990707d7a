"""What of a ledger may go, and what must stay for ever (protocol P24). Pure rules over one record.

Rule 1: whatever may still be asked about, decided or corrected stays as it is.
Rule 2: an act that a caller named by a key leaves a tombstone, so that its repeat is known. With
this rule off the model needs 13 steps to the harm: the key succeeds, is pruned, is repeated, and is
sent again.
Rule 3: a tombstone goes only where a caller said after how long; after that the effect may happen
again.
"""

from __future__ import annotations

from enum import StrEnum

from indoubt.json_values import parse

from .absence import quiet_at
from .record import NO_RAW, Millis, Record, State, Struct


class Fate(StrEnum):
    """What becomes of one record."""

    KEEP = "keep"
    TOMBSTONE = "tombstone"
    DELETE = "delete"
    FORGET = "forget"
    """As DELETE, of a tombstone."""


class Ages(Struct, frozen=True):
    """How long what has ended is kept, counted from its last change; None: for ever."""

    after_ms: Millis
    unknown_ms: Millis | None = None
    forget_ms: Millis | None = None

    @property
    def least_ms(self) -> Millis:
        """What is younger than this is kept, whatever it is."""
        given = (self.after_ms, self.unknown_ms, self.forget_ms)
        return min(ms for ms in given if ms is not None)


def fate(record: Record, now_ms: Millis, ages: Ages, *, alive: bool) -> Fate:
    """Judge one record by itself.

    Args:
        record: as it stands.
        now_ms: store time.
        ages: how long to keep what.
        alive: the owner of an open attempt lives, and has not reported that its function ended.
    """
    age = _age(record, ages)
    if age is None or record.updated_at_ms + age > now_ms:
        return Fate.KEEP
    if record.pruned:
        return Fate.FORGET
    if record.open_attempts and (alive or now_ms < quiet_at(record)):
        return Fate.KEEP  # its late result would find nothing that it contradicts
    # A child's key was made by its root, which has ended: nobody will repeat it.
    named = record.key is not None and record.parent_id is None
    return Fate.TOMBSTONE if named else Fate.DELETE


def _age(record: Record, ages: Ages) -> Millis | None:
    if record.pruned:
        return ages.forget_ms
    if not record.closed or record.contradicted:
        return None
    return ages.unknown_ms if record.state is State.UNKNOWN else ages.after_ms


def tombstone(record: Record) -> Record:
    """What is left in the record's place: who it was, how it ended, and its last fence."""
    known = None if record.receipt == NO_RAW else parse(bytes(record.receipt)).fingerprint()
    return Record(
        id=record.id,
        root_id=record.root_id,
        kind=record.kind,
        name=record.name,
        fingerprint=record.fingerprint,
        parent_id=record.parent_id,
        tenant_id=record.tenant_id,
        state=record.state,
        effect=record.effect,
        fence=record.fence,
        claims=record.claims,
        attempt=record.attempt,
        cancel_requested=record.cancel_requested,
        store_epoch=record.store_epoch,
        pruned=True,
        digest=known,
    )
