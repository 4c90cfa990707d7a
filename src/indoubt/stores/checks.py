"""Refuses, before any I/O, what some store could not hold: the same list for every store."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from ..errors import CrossRootBatch
from ..store import KEEP, Absent, Free, In

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..store import Batch, DueQuery, Extend, Lease, Put, ScanQuery, Time

INT_MAX: Final = 2**63 - 1
"""SQL's and Redis' integers end here."""
PAGE_MAX: Final = 1_000
"""Records of one read, page or due query: what one answer may hold in memory."""


def check_batches(batches: Sequence[Batch]) -> None:
    """Refuse batches that no store may write.

    Raises:
        CrossRootBatch: a batch names more than one root.
        ValueError: an id twice, no write id, an integer over 63 bits, a lone surrogate.
    """
    for batch in batches:
        if not batch.write_id:
            raise ValueError("a batch needs a write_id: its repeat is known by it")
        check_text(batch.write_id, "write_id")
        if len(batch.puts) + len(batch.extends) + len(batch.deletes) + len(batch.guards) > 1:
            _check_root(batch)
            _check_names(batch)
        for put in batch.puts:
            _check_put(put)
        for extend in batch.extends:
            _check_extend(extend)
        for guard in batch.guards:
            check_text(guard.id, "id")
            _check_int(guard.fence, "fence")
        for delete in batch.deletes:
            check_text(delete.id, "id")
            _check_int(delete.version, "version")


def _check_root(batch: Batch) -> None:
    changed = (*batch.puts, *batch.extends, *batch.deletes)
    roots = {item.root_id for item in changed} | {guard.id for guard in batch.guards}
    if len(roots) > 1:
        raise CrossRootBatch(f"one batch, one root; this one names {sorted(roots)}")


def _check_names(batch: Batch) -> None:
    changed = [item.id for item in (*batch.puts, *batch.extends)]
    removed = {item.id for item in batch.deletes}
    if len(set(changed)) < len(changed) or len(removed) < len(batch.deletes):
        raise ValueError("a batch names a record twice")
    if removed & {item.id for item in batch.extends}:
        raise ValueError("a batch deletes and extends one record")


def _check_put(put: Put) -> None:
    # Nearly all are fine: look at all fields at once, and for the culprit only if there is one.
    texts = (*put[:5], put.state, put.owner, put.queue)
    if not "".join([text for text in texts if text]).isascii():
        _blame(put, ("id", "root_id", "kind", "state", "tenant_id", "parent_id", "owner", "queue"))
    if not (
        -INT_MAX <= put.fence <= INT_MAX
        and -INT_MAX <= put.claims <= INT_MAX
        and -INT_MAX <= put.attempt <= INT_MAX
        and -INT_MAX <= put.store_epoch <= INT_MAX
    ):
        _blame(put, ("fence", "claims", "attempt", "store_epoch"))
    _check_time(put.lease_until, "lease_until")
    _check_time(put.permit_until, "permit_until")
    _check_time(put.ready_at, "ready_at")
    _check_time(put.dispatched_at, "dispatched_at")
    _check_time(put.doubt_since, "doubt_since")
    _check_expected(put)


def _check_expected(put: Put) -> None:
    expected = put.expected
    if isinstance(expected, Absent):
        times = (put.lease_until, put.permit_until, put.ready_at, put.dispatched_at)
        if KEEP in (*times, put.doubt_since):
            raise ValueError("an insert has no time to keep")
        return
    _check_int(expected.n, "expected.n")
    if isinstance(expected, Free):
        _check_time(expected.lease_until, "expected.lease_until")


def _blame(put: Put, fields: Iterable[str]) -> None:
    """Refuse the first of these fields that is at fault, if one is."""
    for field in fields:
        value = getattr(put, field)
        if isinstance(value, str):
            check_text(value, field)
        elif value is not None:
            _check_int(value, field)


def _check_extend(extend: Extend) -> None:
    check_text(extend.id, "id")
    check_text(extend.owner, "owner")
    _check_int(extend.fence, "fence")
    for name in ("lease_until", "permit_until", "ready_at"):
        _check_time(getattr(extend, name), name)


def check_text(value: str, field: str) -> None:
    """Refuse what UTF-8 cannot say; NUL and all else is kept as it is.

    Raises:
        ValueError: naming the field.
    """
    if value.isascii():
        return
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{field} holds a lone surrogate") from None


def _check_int(value: int, field: str) -> None:
    if not -INT_MAX <= value <= INT_MAX:
        raise ValueError(f"{field} needs more than 63 bits")


def _check_time(value: Time, field: str) -> None:
    if value is None or value is KEEP:
        return
    # Half the range for relative times, so that the store's clock plus one of them fits.
    if not (abs(value.ms) <= INT_MAX // 2 if isinstance(value, In) else abs(value) <= INT_MAX):
        raise ValueError(f"{field} needs more than 63 bits")


def check_ids(ids: Sequence[str]) -> None:
    """Refuse to read more at once than one answer may hold.

    Raises:
        ValueError: too many ids, or one that is no text.
    """
    _check_limit(len(ids), 0)
    for record_id in ids:
        check_text(record_id, "id")


def check_due(query: DueQuery) -> None:
    """Refuse a due query without bounds.

    Raises:
        ValueError: a queue twice, a quota or lane out of range.
    """
    queues = [queue for queue, _ in query.quotas]
    if len(set(queues)) < len(queues):
        raise ValueError("quotas name a queue twice")
    for queue, limit in query.quotas:
        check_text(queue, "queue")
        _check_limit(limit, 0)
    if query.lane and not (0 <= query.lane.index < query.lane.count <= PAGE_MAX):
        raise ValueError(f"a lane's index is below its count, which is at most {PAGE_MAX}")


def check_lease(query: DueQuery, lease: Lease) -> None:
    """Refuse a lease that no store may give.

    Raises:
        ValueError: as ``check_due``; no owner, no write id, or a length that is not positive.
    """
    check_due(query)
    for name in ("owner", "write_id"):
        value: str = getattr(lease, name)
        if not value:
            raise ValueError(f"a lease needs its {name}")
        check_text(value, name)
    for name in ("lease_ms", "permit_ms"):
        if not 0 < getattr(lease, name) <= INT_MAX // 2:
            raise ValueError(f"{name} is positive, and less than 63 bits")


def check_wait(topics: Sequence[str], timeout: float) -> None:
    """Refuse to wait for ever.

    Raises:
        ValueError: naming the field.
    """
    for topic in topics:
        check_text(topic, "topic")
    if not 0 <= timeout < INT_MAX:  # NaN is neither
        raise ValueError(f"timeout: seconds, not negative: {timeout}")


def check_scan(query: ScanQuery) -> None:
    """Refuse a listing without bounds, or with a filter that is no text.

    Raises:
        ValueError: naming the field.
    """
    _check_limit(query.limit, 1)
    if query.queues and query.view != "ready":
        raise ValueError(f"queues belong to the view ready, not {query.view}")
    named = (("kinds", query.kinds), ("states", query.states), ("queues", query.queues))
    for name, values in named:
        for value in values:
            check_text(value, name)
    for name, value in (("tenant_id", query.tenant_id), ("parent_id", query.parent_id)):
        if isinstance(value, str):
            check_text(value, name)
    if query.id_prefix is not None:
        _check_prefix(query.id_prefix, query.view)


def _check_prefix(prefix: str, view: str) -> None:
    if view != "all":
        raise ValueError(f"id_prefix belongs to the view all, not {view}: those have their order")
    if not prefix or prefix.endswith("\U0010ffff"):
        raise ValueError("id_prefix is empty, or ends in U+10FFFF, above which there is no text")
    check_text(prefix, "id_prefix")


def check_journal(record_id: str, after: int, limit: int) -> None:
    """Refuse a journal page without bounds.

    Raises:
        ValueError: naming the field.
    """
    check_text(record_id, "id")
    _check_int(after, "after")
    _check_limit(limit, 1)


def _check_limit(limit: int, least: int) -> None:
    if not least <= limit <= PAGE_MAX:
        raise ValueError(f"between {least} and {PAGE_MAX} records at once, not {limit}")


def above_prefix(prefix: str) -> str:
    """The least text above all that begin so: by code points, which is how UTF-8 orders bytes."""
    if not prefix:
        return "\U0010ffff"
    above = ord(prefix[-1]) + 1
    return prefix[:-1] + chr(0xE000 if above == 0xD800 else above)  # noqa: PLR2004 - surrogates


def lane_hash(record_id: str) -> int:
    """What lanes share records out by: stable for ever, and the same in every store."""
    return zlib.crc32(record_id.encode())


def stamp(when: Time, now_ms: int, kept: int | None = None) -> int | None:
    """The time that is stored for ``when``, given what is stored."""
    if when is KEEP:
        return kept
    return now_ms + when.ms if isinstance(when, In) else when
