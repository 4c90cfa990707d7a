"""May this batch be written? One answer for all stores, so that they cannot drift apart.

The order is part of the contract: guards, deletes, puts, extends, each as listed; the first that
fails names the conflict. Deletes come first, so a put of a deleted id must expect ``Absent``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ..store import Absent, Free

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..store import Batch, Delete, Extend, Guard, Put, Why

REPEATS_KEPT: Final = 4
"""A write is known again while at most this many versions (its own included) were written since.

More would be cheap here; the bound is what a Redis record holds, and all stores answer alike.
"""


class Held(NamedTuple):
    """What a check needs to know of a stored record."""

    n: int
    version: int
    owner: str | None
    fence: int
    lease_until: int | None
    cancel_requested: bool


if TYPE_CHECKING:
    Look = Callable[[str], Held | None]
    Wrote = Callable[[str, Held, int], str | None]
    """The id of the write that led this record to this version."""


def refusal(batch: Batch, look: Look) -> tuple[str, Why] | None:
    """The id that forbids this batch, and why; None if it may be written."""
    for guard in batch.guards:
        if why := _guard(guard, look(guard.id)):
            return guard.id, why
    for delete in batch.deletes:
        if why := _delete(delete, look(delete.id)):
            return delete.id, why
    deleted = {delete.id for delete in batch.deletes}
    for put in batch.puts:
        if why := _put(put, None if put.id in deleted else look(put.id)):
            return put.id, why
    for extend in batch.extends:
        if why := _extend(extend, look(extend.id)):
            return extend.id, why
    return None


def _guard(guard: Guard, held: Held | None) -> Why | None:
    if held is None:
        return "missing"
    if held.fence != guard.fence:
        return "fence"
    return "cancelled" if guard.not_cancelled and held.cancel_requested else None


def _delete(delete: Delete, held: Held | None) -> Why | None:
    if held is None:
        return "missing"
    return None if held.version == delete.version else "version"


def _put(put: Put, held: Held | None) -> Why | None:
    expected = put.expected
    if isinstance(expected, Absent):
        return None if held is None else "exists"
    if held is None:
        return "missing"
    if held.version != expected.n:
        return "version"
    if isinstance(expected, Free) and held.lease_until != expected.lease_until:
        return "lease"
    return None


def _extend(extend: Extend, held: Held | None) -> Why | None:
    if held is None:
        return "missing"
    return None if (held.owner, held.fence) == (extend.owner, extend.fence) else "held"


def versions(batch: Batch) -> tuple[int, ...]:
    """The versions its puts lead to, which follow from the batch alone."""
    gone = {delete.id: delete.version for delete in batch.deletes}
    return tuple(
        [
            gone.get(put.id, 0) + 1 if isinstance(put.expected, Absent) else put.expected.n + 1
            for put in batch.puts
        ]
    )


def repeated(batch: Batch, first: Sequence[int], look: Look, wrote: Wrote) -> bool | None:
    """None: this write never landed, as far as is known. Else: has one of its records moved on?

    It suffices to ask after the checks failed: a write that landed stepped its records' versions,
    so its own repeat cannot pass them.
    """
    found = [look(put.id) for put in batch.puts]
    landed = any(
        held is not None
        and version <= held.version < version + REPEATS_KEPT
        and wrote(put.id, held, version) == batch.write_id
        for put, held, version in zip(batch.puts, found, first, strict=True)
    )
    if not landed:
        return None
    return any(
        held is None or held.version != version for held, version in zip(found, first, strict=True)
    )
