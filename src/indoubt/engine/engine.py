"""Read, decide, write: the only place that writes to a store, and where every transition is seen.

The rules are the core's; what is decided is compared and set by the store. A lost answer is
repeated under the same write id until the caller's own deadline; losing to somebody else decides
again on what the conflict brought.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from indoubt.core.bounds import TRIES_MAX
from indoubt.core.codec import burial_of, event_of, record_of
from indoubt.core.commands import Claim, Command, Decide, Prepare
from indoubt.core.machine import decide
from indoubt.core.record import State
from indoubt.core.refusals import Refused
from indoubt.errors import Contended, StoreError, StoreUnavailable
from indoubt.store import Batch, Conflict, Delete, Expected, Free, Guard, Put, Snapshot, Written

from .clock import LocalClock, SystemClock
from .clock_watch import ClockWatch
from .holds import Heartbeat
from .ids import write_id
from .owner import Owner
from .puts import landed, put_of
from .requests import CallerGone, Read, Request, Sleep, Write

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from indoubt.core.record import Record
    from indoubt.store import Store

PAUSES_S = (0.005, 0.02, 0.1, 0.25)
"""Between repeats of a write whose answer did not come; the last one goes on."""

PATIENCE_S = 10.0
"""How long a flow insists on a store that does not answer before it tells its caller."""


_ENDING = frozenset({Claim, Decide})
"""Commands that may end another's hold."""


class Seen(Struct, frozen=True):
    """A record as the store held it at ``now_ms`` of its clock; None: no such record."""

    record: Record | None
    now_ms: int
    epoch: int


class Transition(Struct, frozen=True):
    """One write that landed: what hooks get."""

    before: Record | None
    after: Record
    commands: tuple[Command, ...]


class Engine:
    """One store, and this process as an owner at it."""

    def __init__(self, store: Store, *, clock: LocalClock | None = None) -> None:
        self.store = store
        self.clock = clock or SystemClock()
        self.owner = Owner(store)
        self.heartbeat = Heartbeat(store, self.clock)
        self.hooks: list[Callable[[Transition], None]] = []
        self.epoch = 1
        self._clock_watch = ClockWatch()

    def read(self, record_id: str) -> Generator[Request, Any, Seen]:
        """Read one record, and the store's time."""
        asked_s = self.clock.now()
        snapshot: Snapshot = yield Read((record_id,))
        self._noted(snapshot.now_ms, snapshot.epoch, asked_s)
        return self._seen(snapshot, record_id)

    def apply(
        self,
        seen: Seen,
        commands: Sequence[Command],
        *,
        deadline: float,
        guards: tuple[Guard, ...] = (),
        wakes: tuple[str, ...] = (),
    ) -> Generator[Request, Any, Seen | Refused | Conflict]:
        """Decide and write once. A conflict is the caller's to look at.

        ``wakes``: topics that somebody may wait for (``Store.wait``).

        Raises:
            StoreError: the store refused, or was unavailable until ``deadline`` (local clock).
        """
        after = decide(seen.record, commands, seen.now_ms)
        if isinstance(after, Refused):
            return after
        put = put_of(
            seen.record,
            after,
            seen.now_ms,
            event_of(commands, after),
            _ending(seen.record, commands),
        )
        topics = (*wakes, *_answered(seen.record, after))
        batch = Batch(write_id(), (put,), (), guards, (), topics)
        try:
            answer = yield from self._submit(batch, deadline)
        except CallerGone as gone:
            if gone.written is not None:
                gone.seen = self._landed(seen, after, put, gone.written, commands)
            raise
        if isinstance(answer, Conflict):
            return answer
        if answer.superseded:
            return (yield from self.read(after.id))
        return self._landed(seen, after, put, answer, commands)

    def persist(
        self, seen: Seen, commands: Sequence[Command], *, deadline: float
    ) -> Generator[Request, Any, Seen | Refused]:
        """Apply, deciding again each time somebody was faster.

        Raises:
            Contended: somebody was faster ``TRIES_MAX`` times.
            StoreError: as ``apply``.
        """
        gone: CallerGone | None = None
        for _ in range(TRIES_MAX):
            try:
                answer = yield from self.apply(seen, commands, deadline=deadline)
            except CallerGone as caught:
                if caught.seen is not None or seen.record is None:
                    raise
                gone, seen = caught, (yield from self.read(seen.record.id))
                continue
            if isinstance(answer, Conflict):
                seen = self.found(answer, seen)
                continue
            if gone is not None:
                gone.seen = None if isinstance(answer, Refused) else answer
                raise gone
            return answer
        raise Contended(f"{seen.record.id if seen.record else '?'}: others were faster each time")

    def bury(
        self, seen: Seen, tombstone: Record | None, *, deadline: float
    ) -> Generator[Request, Any, bool]:
        """Retention only: put a tombstone in a record's place, or nothing.

        False: the record has changed since it was seen, and stays. The tombstone's version goes on
        from the record's, so that whoever read the record can write nothing on it.
        """
        record = seen.record
        if record is None:
            return False
        gone = Delete(record.id, record.root_id, record.version)
        puts: tuple[Put, ...] = ()
        if tombstone is not None:
            puts = (put_of(None, tombstone, seen.now_ms, burial_of(tombstone), None),)
        answer = yield from self._submit(Batch(write_id(), puts, deletes=(gone,)), deadline)
        return isinstance(answer, Written)

    def supplant(
        self, seen: Seen, record: Record, *, deadline: float
    ) -> Generator[Request, Any, Seen | Conflict]:
        """Put a new record in the place of one that has ended, if it is still as it was seen.

        Its version goes on from there, so that whoever holds the old one can write nothing on it.
        """
        old = seen.record
        if old is None:
            raise LookupError("there is nothing to supplant")
        commands = (Prepare(record=record),)
        put = put_of(None, record, 0, event_of(commands, record), None)
        gone = Delete(old.id, old.root_id, old.version)
        answer = yield from self._submit(Batch(write_id(), (put,), deletes=(gone,)), deadline)
        if isinstance(answer, Conflict):
            return answer
        return self._landed(Seen(None, 0, seen.epoch), record, put, answer, commands)

    def found(self, conflict: Conflict, seen: Seen) -> Seen:
        """What a conflict brought, in place of what was seen."""
        record_id = seen.record.id if seen.record else conflict.id
        return self._seen(conflict.found, record_id)

    def _submit(self, batch: Batch, deadline: float) -> Generator[Request, Any, Written | Conflict]:
        tries, asked_s = 0, self.clock.now()  # a repeat may be told when the first try landed
        try:
            while True:
                answer: Written | Conflict | StoreError = yield Write(batch)
                if not isinstance(answer, StoreError):
                    told = answer.found if isinstance(answer, Conflict) else answer
                    self._noted(told.now_ms, told.epoch, asked_s)
                    return answer
                if not isinstance(answer, StoreUnavailable) or self.clock.now() >= deadline:
                    raise answer
                yield Sleep(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
                tries += 1
        except CallerGone as gone:
            # The batch is in the store's queue all the same: learn what became of it.
            answer = yield Write(batch)
            if isinstance(answer, Written):
                self._noted(answer.now_ms, answer.epoch, asked_s)
                gone.written = answer
            raise

    def _landed(
        self, seen: Seen, after: Record, put: Put, answer: Written, commands: Sequence[Command]
    ) -> Seen:
        record = landed(after, put, version=answer.versions[0], now_ms=answer.now_ms)
        for hook in self.hooks:
            hook(Transition(seen.record, record, tuple(commands)))
        return Seen(record, answer.now_ms, answer.epoch)

    def _noted(self, now_ms: int, epoch: int, asked_s: float) -> None:
        self.epoch = epoch
        self._clock_watch.compare(now_ms, asked_s, self.clock.now())

    def _seen(self, snapshot: Snapshot, record_id: str) -> Seen:
        rows = [row for row in snapshot.records if row.id == record_id]
        return Seen(record_of(rows[0]) if rows else None, snapshot.now_ms, snapshot.epoch)


def _answered(before: Record | None, after: Record) -> tuple[str, ...]:
    """Whoever waits for a person's answer waits for the record's id."""
    asked = State.AWAITING_DECISION
    answered = before is not None and before.state is asked and after.state is not asked
    return (after.id,) if answered else ()


def _ending(record: Record | None, commands: Sequence[Command]) -> Expected | None:
    """What ends another's hold must also see that the hold was not renewed meanwhile."""
    if record is None or record.owner is None:
        return None
    if not _ENDING.isdisjoint(map(type, commands)):
        return Free(record.version, record.lease_until_ms)
    return None
