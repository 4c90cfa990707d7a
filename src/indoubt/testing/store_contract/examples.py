"""Records whose every field differs from every other, so that a mix-up shows."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from ...store import Absent, Batch, Conflict, Delete, Extend, Guard, In, Put, Stored, Written

if TYPE_CHECKING:
    from pathlib import Path

    from ...store import Store

ROOT = "root"
LONG_AGO = 1_600_000_000_000
"""A time that has passed by every clock."""
FAR_OFF = 9_000_000_000_000
"""A time that no clock reaches."""

_process = secrets.token_hex(8)  # tests may write from several processes
_writes = count(1)


@dataclass
class SteeredClock:
    """A host whose wall clock is set at will; the clock since boot counts on by itself."""

    wall: int = 1_800_000_000_000
    boot: int = 50_000

    def wall_ms(self) -> int:
        return self.wall

    def boot_ms(self) -> int:
        return self.boot

    def step(self, wall: int, boot: int = 0) -> None:
        """Set the wall clock forwards or back, while ``boot`` milliseconds pass in truth."""
        self.wall += wall
        self.boot += boot


class Opener(Protocol):
    """How the store under test is opened, and how an owner in it dies."""

    steers_time: bool

    async def open_store(self, place: Path, clock: SteeredClock) -> Store: ...

    async def kill_owner(self, store: Store, place: Path, owner: str) -> None: ...


class Bench:
    """What a test works with: an open store, the clock it reads, and its place."""

    def __init__(self, opener: Opener, place: Path, clock: SteeredClock, store: Store) -> None:
        self.store = store
        self.clock = clock
        self.steered = opener.steers_time
        self._opener = opener
        self._place = place
        self._opened = [store]

    async def again(self) -> Store:
        """The same place, opened once more."""
        store = await self._opener.open_store(self._place, self.clock)
        self._opened.append(store)
        return store

    async def kill_owner(self, owner: str) -> None:
        """Have a process die that held ``owner``."""
        await self._opener.kill_owner(self.store, self._place, owner)

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


def put(record_id: str = "a", **changes: Any) -> Put:
    """A new record under ``ROOT``, or with ``expected=`` a changed one."""
    values: dict[str, Any] = {
        "id": record_id,
        "root_id": ROOT,
        "tenant_id": "tenant-1",
        "parent_id": "parent-1",
        "kind": "effect",
        "expected": Absent(),
        "state": "dispatched",
        "owner": "owner-1",
        "fence": 11,
        "claims": 12,
        "attempt": 13,
        "cancel_requested": False,
        "store_epoch": 14,
        "lease_until": In(60_001),
        "permit_until": In(60_002),
        "ready_at": In(60_003),
        "dispatched_at": 1_700_000_000_004,
        "doubt_since": 1_700_000_000_005,
        "body": f"body of {record_id}".encode("utf-8", "surrogatepass"),
        "fixed": f"fixed part of {record_id}".encode("utf-8", "surrogatepass"),
        "event": f"event of {record_id}".encode("utf-8", "surrogatepass"),
    }
    return Put(**(values | changes))


def extend(record_id: str = "a", **changes: Any) -> Extend:
    """A renewal by the holder of ``put``."""
    values: dict[str, Any] = {
        "id": record_id,
        "root_id": ROOT,
        "owner": "owner-1",
        "fence": 11,
        "lease_until": In(90_001),
        "permit_until": In(90_002),
        "ready_at": In(90_003),
    }
    return Extend(**(values | changes))


def delete(record_id: str = "a", version: int = 1) -> Delete:
    return Delete(record_id, ROOT, version)


def batch(*items: Put | Extend | Guard | Delete, write_id: str | None = None) -> Batch:
    """One batch with a write id of its own."""
    return Batch(
        write_id or f"write-{_process}-{next(_writes)}",
        puts=tuple(item for item in items if isinstance(item, Put)),
        extends=tuple(item for item in items if isinstance(item, Extend)),
        guards=tuple(item for item in items if isinstance(item, Guard)),
        deletes=tuple(item for item in items if isinstance(item, Delete)),
    )


async def written(store: Store, *items: Put | Extend | Guard | Delete | Batch) -> Written:
    """Write one batch, which must succeed."""
    answer = await answered(store, *items)
    assert isinstance(answer, Written), answer
    return answer


async def refused(store: Store, *items: Put | Extend | Guard | Delete | Batch) -> Conflict:
    """Write one batch, which must conflict."""
    answer = await answered(store, *items)
    assert isinstance(answer, Conflict), answer
    return answer


async def answered(store: Store, *items: Put | Extend | Guard | Delete | Batch) -> Any:
    """The answer to one batch."""
    given = [item for item in items if isinstance(item, Batch)]
    made = batch(*(item for item in items if not isinstance(item, Batch)))
    (answer,) = await store.write(given or [made])
    return answer


async def stored(store: Store, record_id: str = "a") -> Stored:
    """The one record of this id."""
    (record,) = (await store.read([record_id])).records
    return record


async def events(store: Store, record_id: str = "a") -> list[tuple[int, bytes]]:
    """Sequence numbers and bodies of the whole journal."""
    return [(e.sequence, e.body) for e in await store.journal(record_id, limit=1000)]
