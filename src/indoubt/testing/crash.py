"""Crashes on purpose inside one process: at every outside call, before and after it.

    fate = Fate(Blow(at=3, how="after"))
    ledger = Ledger(CrashStore(store, fate), ...)
    act = fate.sending(act)
    with pytest.raises(Crash):
        await pay("order-7")

A process is known from outside by its outside calls only: what it asks of its store and of its
provider. So its whole fate is *which* call, and *on which side of it*; `Fate.calls` says which
calls there were. After its crash it is dead: every later call of it is refused with `Crash`, a
``BaseException`` that no ``except Exception`` can save.
"""

from __future__ import annotations

import functools
import inspect
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, ParamSpec, Self, TypeVar, cast

from indoubt.engine.background import run_in_background
from indoubt.errors import AnswerLost, StoreUnavailable
from indoubt.store import BlockingStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from indoubt.store import (
        Batch,
        Capabilities,
        Conflict,
        DueQuery,
        Event,
        Lease,
        Page,
        ScanQuery,
        Snapshot,
        Store,
        Written,
    )
    from indoubt.testing.clock import ManualClock

    Answers = Sequence[Written | Conflict | StoreUnavailable]

P = ParamSpec("P")
R = TypeVar("R")

How = Literal["before", "after", "answer_lost", "never_arrived", "delayed"]
"""``before``, ``after``: the process dies there (after it the call has done its work, and its
answer is lost with the process). ``answer_lost``: it lives, the work was done, no answer comes.
``never_arrived``: neither work nor answer. ``delayed``: time passes first."""

Cut = Literal["F0", "F1", "F2", "F3", "F4", "F5", "F6"]
"""The points of one effect: F0 nothing is durable · F1 the mark is durable, nothing sent · F2 the
request is under way, not applied · F3 applied, the answer not read · F4 answer in memory, outcome
not committed · F5 outcome committed, the store's answer lost · F6 settled, the caller not told."""


class Crash(BaseException):
    """The process is gone."""


class NoAnswer(Exception):
    """Inside this module: an outside call whose answer does not come."""


class Blow(NamedTuple):
    """What hits a process, and when: at its ``at``-th outside call that counts.

    ``name``: only calls whose name begins so count. ``since``: only calls after the first one
    whose name begins so.
    """

    at: int = 1
    how: How = "before"
    name: str = ""
    since: str = ""


CUTS: dict[Cut, Blow] = {
    "F0": Blow(name="write dispatched", how="before"),
    "F1": Blow(name="write dispatched", how="after"),
    "F2": Blow(name="send", how="before"),
    "F3": Blow(name="send", how="after"),
    "F4": Blow(name="write", since="send", how="before"),
    "F5": Blow(name="write", since="send", how="after"),
    "F6": Blow(name="tell", how="before"),
}
"""The cut points as blows (F2: nothing has arrived yet; it looks the same to the ledger)."""


class Fate:
    """What becomes of one process.

    Attributes:
        calls: the outside calls that it began, by name: ``read``, ``write`` and the states
            written, ``renew``, ``scan``, ``due``, ``journal``, ``hold owner``, ``send``, and
            whatever names its own wrappers have.
        dead: it has crashed.
        unreachable: True: from now on it, and only it, does not reach its store.
    """

    def __init__(
        self,
        *blows: Blow,
        clock: ManualClock | None = None,
        delay: timedelta = timedelta(0),
    ) -> None:
        """Take the blows; ``delay`` passes on ``clock`` before each ``delayed`` call."""
        self.calls: list[str] = []
        self.dead = False
        self.unreachable = False
        self._blows = blows
        self._clock = clock
        self._delay = delay

    def call(self, name: str) -> OutsideCall:
        """One outside call, for ``with``; it raises `Crash`, or `NoAnswer`."""
        return OutsideCall(self, name)

    def sending(self, fn: Callable[P, R], *, name: str = "send") -> Callable[P, R]:
        """A provider call (or a probe) as an outside call of this process.

        Where no answer comes it raises ConnectionResetError, whether the effect happened or not.
        """
        if inspect.iscoroutinefunction(fn):

            @functools.wraps(fn)
            async def send_async(*args: Any, **kwargs: Any) -> Any:
                try:
                    with self.call(name):
                        return await fn(*args, **kwargs)
                except NoAnswer:
                    raise ConnectionResetError("no answer came") from None

            return cast("Callable[P, R]", send_async)

        @functools.wraps(fn)
        def send(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                with self.call(name):
                    return fn(*args, **kwargs)
            except NoAnswer:
                raise ConnectionResetError("no answer came") from None

        return send

    def begin(self, name: str) -> How | None:
        """Count a call that begins, and say what hits it."""
        if self.dead:
            raise Crash(f"{name}: this process is dead")
        self.calls.append(name)
        return next((blow.how for blow in self._blows if self._hits(blow)), None)

    def die(self) -> None:
        """Be dead from now on.

        Raises:
            Crash: always.
        """
        self.dead = True
        raise Crash(f"at call {len(self.calls)}: {self.calls[-1] if self.calls else 'none'}")

    def wait(self) -> None:
        """Let the delay pass."""
        if self._clock is not None:
            self._clock.advance(self._delay)

    def _hits(self, blow: Blow) -> bool:
        """Whether the call that was counted last is the one."""
        calls = self.calls
        if blow.since:
            first = [n for n, call in enumerate(calls) if call.startswith(blow.since)][:1]
            calls = calls[first[0] + 1 :] if first else []
        matching = [call for call in calls if call.startswith(blow.name)]
        return bool(calls) and calls[-1].startswith(blow.name) and len(matching) == blow.at


class OutsideCall:
    """One call of a process to the outside, whose block does the work."""

    def __init__(self, fate: Fate, name: str) -> None:
        """Prepare; nothing is counted yet."""
        self._fate = fate
        self._name = name
        self._how: How | None = None

    def __enter__(self) -> Self:
        """Count it; what hits it before its work was done, happens here."""
        self._how = self._fate.begin(self._name)
        if self._how == "before":
            self._fate.die()
        if self._how == "never_arrived":
            raise NoAnswer
        if self._how == "delayed":
            self._fate.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The work was done (or was refused): what hits it now, happens here."""
        if self._fate.dead:
            raise Crash(f"{self._name}: this process died meanwhile")
        if self._how == "after":
            self._fate.die()
        if self._how == "answer_lost":
            raise NoAnswer


class CrashStore:
    """A store as one process sees it; every verb is an outside call of that process."""

    def __init__(self, inner: Store, fate: Fate) -> None:
        """Wrap an open store; several processes may each wrap the same one."""
        self._inner = inner
        self._fate = fate
        self._owners: list[str] = []

    @property
    def capabilities(self) -> Capabilities:
        """The inner store's."""
        return self._inner.capabilities

    async def read(self, ids: Sequence[str]) -> Snapshot:
        """Read; where no answer comes, StoreUnavailable."""
        with _Reading(self._fate, "read"):
            return await self._inner.read(ids)

    def read_blocking(self, ids: Sequence[str]) -> Snapshot:
        """Read on this thread."""
        with _Reading(self._fate, "read"):
            if isinstance(self._inner, BlockingStore):
                return self._inner.read_blocking(ids)
            return run_in_background(self._inner.read(ids))

    async def write(self, batches: Sequence[Batch]) -> Answers:
        """Write; where no answer comes, AnswerLost for each batch."""
        if self._fate.unreachable:
            return _unreachable(batches)
        try:
            with self._fate.call(name_of(batches)):
                return cast("Answers", await self._inner.write(batches))
        except NoAnswer:
            return _lost(batches)

    def write_blocking(self, batches: Sequence[Batch]) -> Answers:
        """Write on this thread."""
        if self._fate.unreachable:
            return _unreachable(batches)
        try:
            with self._fate.call(name_of(batches)):
                if isinstance(self._inner, BlockingStore):
                    return cast("Answers", self._inner.write_blocking(batches))
                return cast("Answers", run_in_background(self._inner.write(batches)))
        except NoAnswer:
            return _lost(batches)

    async def due(self, query: DueQuery) -> Snapshot:
        """As the inner store."""
        with _Reading(self._fate, "due"):
            return await self._inner.due(query)

    async def lease(self, query: DueQuery, lease: Lease) -> Snapshot:
        """As the inner store; without an answer, what was picked may be ours."""
        with _Reading(self._fate, "lease"):
            return await self._inner.lease(query, lease)

    async def queues(self, prefix: str = "") -> Sequence[str]:
        """As the inner store."""
        with _Reading(self._fate, "queues"):
            return await self._inner.queues(prefix)

    async def wait(self, topics: Sequence[str], *, timeout: float) -> None:
        """As the inner store; a process that does not reach it waits all the same."""
        if self._fate.dead:
            raise Crash("this process is dead")
        await self._inner.wait(topics, timeout=timeout)

    async def scan(self, query: ScanQuery) -> Page:
        """As the inner store."""
        with _Reading(self._fate, "scan"):
            return await self._inner.scan(query)

    async def journal(self, record_id: str, *, after: int = 0, limit: int = 100) -> Sequence[Event]:
        """As the inner store."""
        with _Reading(self._fate, "journal"):
            return await self._inner.journal(record_id, after=after, limit=limit)

    def hold_owner(self, owner: str) -> None:
        """Take the lock, and remember whose it is."""
        with _Reading(self._fate, "hold owner"):
            self._inner.hold_owner(owner)
            self._owners.append(owner)

    def owner_dead(self, owner: str) -> bool | None:
        """As the inner store; looking at a lock is not counted as a call."""
        if self._fate.dead:
            raise Crash("this process is dead")
        return self._inner.owner_dead(owner)

    async def close(self) -> None:
        """Close the inner store."""
        await self._inner.close()

    def declare_owners_dead(self) -> None:
        """Let others find the proof that this process is dead, as the kernel would.

        Raises:
            TypeError: the inner store has no way to say so (it goes by the lease only).
        """
        inner: Any = self._inner
        for owner in self._owners:
            if hasattr(inner, "owners"):
                inner.owners.declare_dead(owner)
            elif hasattr(inner, "release_owner"):
                inner.release_owner(owner)
            else:
                raise TypeError(f"{type(inner).__name__} cannot be told that an owner is dead")


class _Reading(OutsideCall):
    """A call that changes no record: without an answer the store was unavailable."""

    def __enter__(self) -> Self:
        if self._fate.unreachable:
            raise StoreUnavailable("this process does not reach its store")
        try:
            return super().__enter__()
        except NoAnswer:
            raise StoreUnavailable("no answer came") from None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        except NoAnswer:
            raise StoreUnavailable("no answer came") from None


def name_of(batches: Sequence[Batch]) -> str:
    """What a write is called in `Fate.calls`: ``renew``, or ``write`` and the states written."""
    states = [put.state for batch in batches for put in batch.puts]
    if not states and all(batch.extends for batch in batches):
        return "renew"
    return " ".join(["write", *states])


def _lost(batches: Sequence[Batch]) -> list[StoreUnavailable]:
    return [AnswerLost("no answer came; the write may have landed") for _ in batches]


def _unreachable(batches: Sequence[Batch]) -> list[StoreUnavailable]:
    return [StoreUnavailable("this process does not reach its store") for _ in batches]


__all__ = ["CUTS", "Blow", "Crash", "CrashStore", "Cut", "Fate", "How", "OutsideCall"]
