"""Batches as the server's functions take them, and records as its rows tell them."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final

from ...store import KEEP, Absent, Free, In, Stored
from ..checks import lane_hash
from ..judge import versions
from .text import held, held_or_none, told, told_or_none

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...store import Batch, DueQuery, Extend, Lease, Put, Time

COLUMNS: Final = ", ".join(f"r.{name}" for name in Stored._fields)
_TEXTS: Final = ("id", "root_id", "tenant_id", "parent_id", "kind", "state", "owner", "queue")
_PLACES: Final = tuple(Stored._fields.index(name) for name in _TEXTS)


def stored(row: Sequence[Any]) -> Stored:
    """A record from a row of ``COLUMNS``."""
    values = list(row)
    for place in _PLACES:
        values[place] = told_or_none(values[place])
    return Stored._make(values)


def stored_from_json(found: dict[str, Any]) -> Stored:
    """A record that a refusal brought: ``to_jsonb`` of its row."""
    values = {name: found[name] for name in Stored._fields}
    for name in _TEXTS:
        values[name] = told_or_none(values[name])
    for name in ("body", "fixed"):
        values[name] = bytes.fromhex(values[name][2:])
    return Stored(**values)


def work_of(batches: Sequence[Batch], schema: int) -> dict[str, Any]:
    """One group as the argument of ``indoubt_write``."""
    named = {held(name) for batch in batches for name in _locked(batch)}
    return {
        "schema": schema,
        "ids": sorted(named),
        "batches": [batch_of(batch) for batch in batches],
    }


def _locked(batch: Batch) -> Iterable[str]:
    """The records that must be there: an insert finds nothing to lock."""
    for put in batch.puts:
        if not isinstance(put.expected, Absent):
            yield put.id
    for item in (*batch.extends, *batch.guards, *batch.deletes):
        yield item.id


def batch_of(batch: Batch) -> dict[str, Any]:
    """One batch; a put that is alone stands under ``put``."""
    puts = [_put(put, landed) for put, landed in zip(batch.puts, versions(batch), strict=True)]
    made: dict[str, Any] = {"write_id": held(batch.write_id)}
    if batch.wakes:
        made["wakes"] = [topic_of(topic) for topic in batch.wakes]
    if len(puts) == 1 and not (batch.extends or batch.guards or batch.deletes):
        return made | {"put": puts[0]}
    return made | {
        "puts": puts,
        "extends": [_extend(extend) for extend in batch.extends],
        "guards": [{**guard._asdict(), "id": held(guard.id)} for guard in batch.guards],
        "deletes": [{"id": held(gone.id), "version": gone.version} for gone in batch.deletes],
    }


def topic_of(topic: str) -> str:
    """What a notification says; those over the server's limit say "something"."""
    text = held(topic)
    return text if len(text.encode()) < _TOPIC_MAX else ""


_TOPIC_MAX: Final = 4_000


def lease_of(query: DueQuery, lease: Lease) -> dict[str, Any]:
    """The argument of ``indoubt_lease``."""
    lane = query.lane
    return {
        "quotas": [[held(queue), limit] for queue, limit in query.quotas],
        "index": lane.index if lane else 0,
        "count": lane.count if lane else 1,
        "owner": held(lease.owner),
        "lease_ms": lease.lease_ms,
        "permit_ms": lease.permit_ms,
        "becomes": {held(b.before): [held(b.after), b.sent] for b in reversed(lease.becomes)},
        "write_id": held(lease.write_id),
        "event": b64encode(lease.event).decode(),
    }


def _put(put: Put, landed: int) -> dict[str, Any]:
    expected = put.expected
    made: dict[str, Any] = {
        "id": held(put.id),
        "root_id": held(put.root_id),
        "tenant_id": held_or_none(put.tenant_id),
        "parent_id": held_or_none(put.parent_id),
        "kind": held(put.kind),
        "queue": held(put.queue or put.kind),
        "landed": landed,
        "state": held(put.state),
        "owner": held_or_none(put.owner),
        "fence": put.fence,
        "claims": put.claims,
        "attempt": put.attempt,
        "cancel_requested": put.cancel_requested,
        "store_epoch": put.store_epoch,
        "event": b64encode(put.event).decode(),
    }
    _times(
        made,
        lease_until=put.lease_until,
        permit_until=put.permit_until,
        ready_at=put.ready_at,
        dispatched_at=put.dispatched_at,
        doubt_since=put.doubt_since,
    )
    if isinstance(expected, Absent):
        made |= {"expect": "absent", "hash": lane_hash(put.id)}
    elif isinstance(expected, Free):
        made |= {"expect": "free", "n": expected.n, "lease": expected.lease_until}
    else:
        made |= {"expect": "version", "n": expected.n}
    if put.body is not None:
        made["body"] = b64encode(put.body).decode()
    if put.fixed is not None:
        made["fixed"] = b64encode(put.fixed).decode()
    return made


def _extend(extend: Extend) -> dict[str, Any]:
    made: dict[str, Any] = {
        "id": held(extend.id),
        "owner": held(extend.owner),
        "fence": extend.fence,
    }
    _times(
        made,
        lease_until=extend.lease_until,
        permit_until=extend.permit_until,
        ready_at=extend.ready_at,
    )
    return made


def _times(made: dict[str, Any], **times: Time) -> None:
    for name, when in times.items():
        how = name.partition("_")[0] + "_how"
        if isinstance(when, In):
            made[name], made[how] = when.ms, 1
        elif when is KEEP:
            made[how] = 2
        elif when is not None:
            made[name] = when


__all__ = [
    "COLUMNS",
    "batch_of",
    "lease_of",
    "stored",
    "stored_from_json",
    "told",
    "topic_of",
    "work_of",
]
