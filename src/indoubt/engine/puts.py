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


def _time(before: int | None, after: int | None, now_ms: int, *, insert: bool) -> Time:
    if after is None:
        return None
    return KEEP if after == before and not insert else In(after - now_ms)


def _permit(record: Record | None) -> int | None:
    return record.attempts[-1].permit_until_ms if record and record.attempts else None


def _dispatched(record: Record | None) -> int | None:
    return record.attempts[-1].dispatched_at_ms if record and record.attempts else None


def put_of(
    before: Record | None, after: Record, now_ms: int, event: bytes, expected: Expected | None
) -> Put:
    """Describe the change; ``expected`` None: the version that was read."""
    insert = before is None
    dispatched_anew = insert or before.attempt != after.attempt
    if expected is None:
        expected = Absent() if insert else Version(before.version)
    return Put(
        id=after.id,
        root_id=after.root_id,
        tenant_id=after.tenant_id,
        parent_id=after.parent_id,
        kind=after.kind,
        expected=expected,
        state=after.state.value,
        owner=after.owner,
        fence=after.fence,
        claims=after.claims,
        attempt=after.attempt,
        cancel_requested=after.cancel_requested,
        store_epoch=after.store_epoch,
        lease_until=_time(
            before and before.lease_until_ms, after.lease_until_ms, now_ms, insert=insert
        ),
        permit_until=_time(_permit(before), _permit(after), now_ms, insert=dispatched_anew),
        ready_at=_time(before and before.ready_at_ms, after.ready_at_ms, now_ms, insert=insert),
        dispatched_at=_time(
            _dispatched(before), _dispatched(after), now_ms, insert=dispatched_anew
        ),
        doubt_since=_time(
            before and before.doubt_since_ms, after.doubt_since_ms, now_ms, insert=insert
        ),
        body=body_of(after),
        fixed=fixed_of(after) if insert else None,
        event=event,
    )


def landed(after: Record, put: Put, *, version: int, now_ms: int) -> Record:
    """The image as the store holds it now: stamped times in the place of decided ones."""

    def stamped(time: Time, decided: int | None) -> int | None:
        return now_ms + time.ms if isinstance(time, In) else decided

    attempts, first = after.attempts, after.first_dispatched_at_ms
    if attempts:
        last = attempts[-1]
        dispatched = stamped(put.dispatched_at, last.dispatched_at_ms) or 0
        first = dispatched if first == last.dispatched_at_ms else first
        last = replace(
            last,
            dispatched_at_ms=dispatched,
            permit_until_ms=stamped(put.permit_until, last.permit_until_ms) or 0,
        )
        attempts = (*attempts[:-1], last)
    return replace(
        after,
        version=version,
        attempts=attempts,
        first_dispatched_at_ms=first,
        lease_until_ms=stamped(put.lease_until, after.lease_until_ms),
        ready_at_ms=stamped(put.ready_at, after.ready_at_ms),
        doubt_since_ms=stamped(put.doubt_since, after.doubt_since_ms),
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
