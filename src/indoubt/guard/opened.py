"""What every ledger is to guard and edges: a store, opened when it is first used in a process.

A forked child opens it anew; an open store that was given cannot be, so there it is refused.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from indoubt.errors import ForkedHandle
from indoubt.recovery.inbox import show
from indoubt.recovery.pointers import look_up as follow_up

from .runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from indoubt.engine.clock import LocalClock
    from indoubt.engine.requests import Request
    from indoubt.recovery.items import RecordView
    from indoubt.store import Store


class _Turns:
    """One opens at a time; a child does not wait for a thread that it does not have."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a ledger on a ledger opens both


_turns = _Turns()
os.register_at_fork(after_in_child=_turns.__init__)


class Opened:
    """A URL, an open store or another ledger, and what is made of it at the first use.

    ``open_url`` opens what a URL names: engines load only then. Whoever opened a store closes it.
    """

    def __init__(
        self,
        given: str | Store | Opened | None,
        open_url: Callable[[str], Store],
        *,
        lease_ms: int,
        clock: LocalClock | None,
    ) -> None:
        self._given = _checked(given)
        self._open_url = open_url
        self._lease_ms = lease_ms
        self._clock = clock
        self._runtime: Runtime | None = None
        self._pid = 0

    def open(self) -> Runtime:
        """The open store and its engine; opened at the first use in each process.

        Raises:
            StoreError: it cannot be opened; nothing was written.
            ForkedHandle: an open store was given, and this is a fork of the process that opened it.
        """
        runtime = self._runtime
        if runtime is not None and self._pid == os.getpid():
            return runtime
        with _turns.lock:
            if self._runtime is None or self._pid != os.getpid():
                self._runtime = Runtime(
                    self, self._store(), lease_ms=self._lease_ms, clock=self._clock
                )
                self._pid = os.getpid()
            return self._runtime

    async def close(self) -> None:
        """Wait for what cancelled calls left behind, and close the store if this opened it.

        A store that was given open stays open, and so does another ledger's.
        """
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.driver.settle_aftermath()
            if self._given is None or isinstance(self._given, str):
                await runtime.store.close()

    async def look_up(self, *acts: str) -> RecordView | None:
        """Read the first of these records that is there; None where none is."""
        runtime = self.open()
        return await runtime.driver.drive(_first_of(runtime, acts))

    def look_up_blocking(self, *acts: str) -> RecordView | None:
        """The same on this thread."""
        runtime = self.open()
        return runtime.blocking.drive(_first_of(runtime, acts))

    def _store(self) -> Store:
        if isinstance(self._given, Opened):
            return self._given.open().store
        if self._given is not None and not isinstance(self._given, str):
            if self._pid not in {0, os.getpid()}:
                raise ForkedHandle("give a URL instead of an open store to a program that forks")
            return self._given
        url = os.environ.get("INDOUBT_URL") if self._given is None else self._given
        if not url:
            raise ValueError("no store: give a URL, or set INDOUBT_URL")
        return self._open_url(url)


def _checked(given: Any) -> Any:
    if isinstance(beneath := getattr(given, "aio", None), Opened):
        return beneath  # a blocking ledger has its async one inside
    if isinstance(given, str) and ":" not in given:
        raise ValueError(f"store: a URL, such as sqlite:///{given or 'app.db'}")
    if given is None or isinstance(given, str | Opened):
        return given
    verbs = [getattr(given, verb, None) for verb in ("read", "write", "scan", "journal")]
    if isinstance(given, type) or not all(map(callable, verbs)):
        raise TypeError(f"store: a URL, an open store or a ledger, not {type(given).__name__}")
    return given


def _first_of(runtime: Runtime, acts: Sequence[str]) -> Generator[Request, Any, RecordView | None]:
    for act in acts:
        seen = yield from follow_up(runtime.engine, act)
        if seen.record is not None:
            return show(runtime.engine, seen.record, seen.now_ms)
    return None
