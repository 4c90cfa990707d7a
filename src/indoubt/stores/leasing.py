"""What a lease makes of one record: the same in every store."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..store import Lease, Stored


def leased(old: Stored, lease: Lease, now_ms: int) -> Stored:
    """The record as it is once it was picked."""
    until = now_ms + lease.lease_ms
    taken = old._replace(
        version=old.version + 1,
        owner=lease.owner,
        fence=old.fence + 1,
        claims=old.claims + 1,
        lease_until=until,
        ready_at=until,
        updated_at=now_ms,
    )
    become = next((become for become in lease.becomes if become.before == old.state), None)
    if become is None:
        return taken
    if not become.sent:
        return taken._replace(state=become.after, doubt_since=now_ms)
    return taken._replace(
        state=become.after,
        attempt=old.attempt + 1,
        dispatched_at=now_ms,
        permit_until=now_ms + lease.permit_ms,
        doubt_since=None,
    )
