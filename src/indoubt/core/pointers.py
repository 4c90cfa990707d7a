"""Pointers: one act under several names has one record (decision G11, U4).

A pointer is a record of its own root that is no act: it lies where another name's code would
insert, and names the id to use instead. It always points to a lesser id, so that no chain of
pointers closes, whatever was renamed to what and back. It has no ready time and is in no doubt,
so that no listing and no recovery meets it.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from .record import Record

KIND = "key"


def pointer(intent: Record, at: str, to: str) -> Record:
    """What is inserted under ``at`` so that this act's record is looked for under ``to``."""
    if at <= to:
        raise ValueError("a pointer leads to a lesser id, or chains could close")
    return Record(
        id=at,
        root_id=at,
        kind=KIND,
        name=intent.name,
        fingerprint=intent.fingerprint,
        tenant_id=intent.tenant_id,
        payload=msgspec.Raw(msgspec.json.encode(to)),
    )


def target(record: Record | None) -> str | None:
    """The id that a pointer leads to; None: it is no pointer."""
    if record is None or record.kind != KIND:
        return None
    return msgspec.json.decode(record.payload, type=str)


def moved(intent: Record, to: str) -> Record:
    """The same act, to be recorded under another of its ids."""
    return replace(intent, id=to, root_id=to)
