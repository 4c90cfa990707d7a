"""From one image of a record to the next, as the store's compare-and-set sees it.

A time that changed is an offset from the clock it was decided on; one that did not is left to the
store, since a renewal may have moved it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from indoubt.core.codec import body_of, fixed_of
from indoubt.store import KEEP, Absent, Expected, Extend, In, Put, Time, Version

if TYPE_CHECKING:
    from indoubt.core.record import Record


_OTHER = -1
"""No time of any record: what is compared with it has changed."""

Times = tuple[int | None, int | None, int | None, int | None, int | None]


def _times(record: Record) -> Times:
    """What the store stamps: the ends of lease and permit, ready, dispatched, doubt."""
    last = record.attempts[-1] if record.attempts else None
    return (
        record.lease_until_ms,
        last and last.permit_until_ms,
        record.ready_at_ms,
        last and last.dispatched_at_ms,
        record.doubt_since_ms,
    )


def _time(before: int | None, after: int | None, now_ms: int) -> Time:
    if after is None:
        return None
    return KEEP if after == before else In(after - now_ms)


def put_of(
    before: Record | None, after: Record, now_ms: int, event: bytes, expected: Expected | None
) -> Put:
    """Describe the change; ``expected`` None: the version that was read."""
    if before is None:
        lease, permit, ready, dispatched, doubt = _OTHER, _OTHER, _OTHER, _OTHER, _OTHER
    else:
        lease, permit, ready, dispatched, doubt = _times(before)
        if before.attempt != after.attempt:
            permit = dispatched = _OTHER
    if expected is None:
        expected = Absent() if before is None else Version(before.version)
    to_lease, to_permit, to_ready, to_dispatched, to_doubt = _times(after)
    return Put(  # by place: by name, making it would cost as much as all else here
        after.id,
        after.root_id,
        after.tenant_id,
        after.parent_id,
        after.kind,
        expected,
        after.state.value,
        after.owner,
        after.fence,
        after.claims,
        after.attempt,
        after.cancel_requested,
        after.store_epoch,
        _time(lease, to_lease, now_ms),
        _time(permit, to_permit, now_ms),
        _time(ready, to_ready, now_ms),
        _time(dispatched, to_dispatched, now_ms),
        _time(doubt, to_doubt, now_ms),
        body_of(after),
        fixed_of(after) if before is None else None,
        event,
        after.queue or after.kind,
    )


def landed(after: Record, put: Put, *, version: int, now_ms: int) -> Record:
    """The image as the store holds it now: stamped times in the place of decided ones."""
    lease, permit, ready, dispatched, doubt = _times(after)
    if isinstance(put.lease_until, In):
        lease = now_ms + put.lease_until.ms
    if isinstance(put.permit_until, In):
        permit = now_ms + put.permit_until.ms
    if isinstance(put.ready_at, In):
        ready = now_ms + put.ready_at.ms
    if isinstance(put.dispatched_at, In):
        dispatched = now_ms + put.dispatched_at.ms
    if isinstance(put.doubt_since, In):
        doubt = now_ms + put.doubt_since.ms
    attempts, first = after.attempts, after.first_dispatched_at_ms
    if attempts:
        last = attempts[-1]
        first = dispatched if first == last.dispatched_at_ms else first
        last = replace(last, dispatched_at_ms=dispatched or 0, permit_until_ms=permit or 0)
        attempts = (*attempts[:-1], last)
    return replace(
        after,
        version=version,
        attempts=attempts,
        first_dispatched_at_ms=first,
        lease_until_ms=lease,
        ready_at_ms=ready,
        doubt_since_ms=doubt,
        created_at_ms=after.created_at_ms or now_ms,
        updated_at_ms=now_ms,
    )


def extend_of(record: Record, *, lease_ms: int, permit_ms: int | None) -> Extend:
    """A renewal of what this process holds; ``permit_ms`` None: the permit stays where it is."""
    return Extend(
        id=record.id,
        root_id=record.root_id,
        owner=record.owner or "",
        fence=record.fence,
        lease_until=In(lease_ms),
        permit_until=KEEP if permit_ms is None else In(permit_ms),
        ready_at=In(lease_ms),
    )
