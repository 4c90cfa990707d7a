"""Batches as write.lua takes them, and records as the scripts tell them.

A hash holds what the store may change by itself, each value short; a field at its plainest value is
left out. What is written once (identity, payload) and the first event and body are one string.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...errors import StoreBroken
from ...store import KEEP, Absent, Free, In, Stored, root_of
from ..judge import REPEATS_KEPT, versions
from .keys import queue_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...store import Batch, Extend, Put, Time
    from .keys import Keys

_TIMES: Final = {
    "lease_until": "l",
    "permit_until": "p",
    "ready_at": "r",
    "dispatched_at": "d",
    "doubt_since": "i",
}
_NUMBERS: Final = {
    "fence": ("f", 0),
    "claims": ("c", 0),
    "attempt": ("a", 0),
    "store_epoch": ("e", 1),
}


class Fixed(msgspec.Struct, array_like=True):
    """What is written once. ``base`` is the version that the insert led to."""

    base: int
    kind: str
    queue: str | None
    root_id: str | None
    tenant_id: str | None
    parent_id: str | None
    fixed: bytes
    body: bytes
    event: bytes


_encode = msgspec.msgpack.Encoder().encode
_fixed = msgspec.msgpack.Decoder(Fixed).decode


def fixed_of(text: bytes | None, record_id: str) -> Fixed:
    """The part of a record that is written once.

    Raises:
        StoreBroken: it is gone, or was written by another program.
    """
    if text is None:
        raise StoreBroken(
            f"{record_id}: half of this record is gone: was it evicted? maxmemory-policy must be"
            " noeviction"
        )
    try:
        return _fixed(text)
    except msgspec.DecodeError as error:
        raise StoreBroken(f"{record_id}: another program has written into this record") from error


def stored(row: Sequence[Any]) -> Stored:
    """A record from {id, fields, fixed part, body}."""
    record_id = row[0].decode()
    flat = row[1]
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    fixed = fixed_of(row[2], record_id)
    get = fields.get
    created = int(fields[b"C"])
    owner = get(b"o")
    return Stored(
        id=record_id,
        root_id=root_of(record_id) if fixed.root_id is None else fixed.root_id,
        tenant_id=fixed.tenant_id,
        parent_id=fixed.parent_id,
        kind=fixed.kind,
        version=int(fields[b"v"]),
        state=fields[b"s"].decode(),
        owner=None if owner is None else owner.decode(),
        fence=int(get(b"f", 0)),
        claims=int(get(b"c", 0)),
        attempt=int(get(b"a", 0)),
        cancel_requested=b"x" in fields,
        store_epoch=int(get(b"e", 1)),
        lease_until=_time(get(b"l")),
        permit_until=_time(get(b"p")),
        ready_at=_time(get(b"r")),
        dispatched_at=_time(get(b"d")),
        doubt_since=_time(get(b"i")),
        created_at=created,
        updated_at=int(get(b"U", created)),
        body=fixed.body if row[3] is None else row[3],
        fixed=fixed.fixed,
        queue=fixed.kind if fixed.queue is None else fixed.queue,
    )


def _time(text: bytes | None) -> int | None:
    return None if text is None else int(text)


class Encoded:
    """One batch as arguments: the keys it names, its head, and strings of their own."""

    def __init__(self, batch: Batch, keys: Keys, partition: int) -> None:
        self._keys = keys
        self._partition = partition
        self._numbers: dict[str, int] = {}
        self.strings: list[bytes] = []
        for item in (*batch.puts, *batch.extends, *batch.guards, *batch.deletes):
            self._at(item.id)
        landed = versions(batch)
        self.head: dict[str, Any] = {
            "write_id": batch.write_id,
            "guards": [[self._at(g.id), str(g.fence), g.not_cancelled] for g in batch.guards],
            "deletes": [[self._at(d.id), str(d.version)] for d in batch.deletes],
            "puts": [
                self._put(put, version, batch.write_id)
                for put, version in zip(batch.puts, landed, strict=True)
            ],
            "extends": [self._extend(extend) for extend in batch.extends],
            "wakes": batch.wakes,
            "ids": ["", *self._numbers],
            "channel": keys.channel,
        }

    @property
    def keys(self) -> list[str]:
        """The hashes of the records that the batch names."""
        return [self._keys.record(self._partition, name) for name in self._numbers]

    def _at(self, record_id: str) -> int:
        """A record's number among the keys; the first is the partition's meta."""
        return self._numbers.setdefault(record_id, len(self._numbers) + 2)

    def _string(self, text: bytes) -> int:
        """A string's number among the arguments; the first is the head."""
        self.strings.append(text)
        return len(self.strings) + 1

    def _put(self, put: Put, landed: int, write_id: str) -> dict[str, Any]:
        slot = f"w{landed % REPEATS_KEPT}"
        made = _Change(("v", str(landed)), ("s", put.state), (slot, write_id))
        made.text("o", put.owner)
        made.text("x", "1" if put.cancel_requested else None)
        for name, (field, plain) in _NUMBERS.items():
            value = getattr(put, name)
            made.text(field, None if value == plain else str(value))
        for name, field in _TIMES.items():
            made.time(field, getattr(put, name))
        told: dict[str, Any] = {"at": self._at(put.id), "landed": landed, "w": slot}
        expected = put.expected
        if isinstance(expected, Absent):
            queue = put.queue or put.kind
            told |= {"queue": queue_digest(queue), "name": queue}
            if put.parent_id is not None:
                told["parent"] = put.parent_id
            told["fixed"] = self._string(_encode(_fixed_part(put, landed)))
        else:
            told["expect"] = str(expected.n)
            if isinstance(expected, Free):
                told["free"] = "" if expected.lease_until is None else str(expected.lease_until)
            if put.body is not None:
                told["body"] = self._string(put.body)
            told["event"] = self._string(put.event)
        return told | made.told()

    def _extend(self, extend: Extend) -> dict[str, Any]:
        made = _Change()
        for name in ("lease_until", "permit_until", "ready_at"):
            made.time(_TIMES[name], getattr(extend, name))
        told = {"at": self._at(extend.id), "owner": extend.owner, "fence": str(extend.fence)}
        return told | made.told()


class _Change:
    """Fields that are set, dropped, or set to a time that counts from the store's now."""

    def __init__(self, *pairs: tuple[str, str]) -> None:
        self._set: list[str] = [text for pair in pairs for text in pair]
        self._drop: list[str] = []
        self._rel: dict[str, int] = {}

    def text(self, field: str, value: str | None) -> None:
        if value is None:
            self._drop.append(field)
        else:
            self._set += (field, value)

    def time(self, field: str, when: Time) -> None:
        if isinstance(when, In):
            self._rel[field] = when.ms
        elif when is not KEEP:
            self.text(field, None if when is None else str(when))

    def told(self) -> dict[str, Any]:
        return {"set": self._set, "drop": self._drop, "rel": self._rel}


def _fixed_part(put: Put, landed: int) -> Fixed:
    queue = put.queue or put.kind
    return Fixed(
        base=landed,
        kind=put.kind,
        queue=None if queue == put.kind else queue,
        root_id=None if put.root_id == root_of(put.id) else put.root_id,
        tenant_id=put.tenant_id,
        parent_id=put.parent_id,
        fixed=put.fixed or b"",
        body=put.body or b"",
        event=put.event,
    )


def records_of(rows: Iterable[Sequence[Any]]) -> list[Stored]:
    """Records from rows; those that are gone meanwhile are left out."""
    return [stored(row) for row in rows if row]
