"""Waiters of this process, by topic. A hint: nothing is lost where it does not come."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from ..store import Written

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..store import Batch

Waiter = asyncio.Future[None]


class Wakes:
    """Any thread may announce; waiters are on event loops, any number of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[str, set[Waiter]] = {}

    def announce(self, batches: Sequence[Batch], answers: Sequence[object]) -> None:
        """Wake whoever waits for a topic of those batches that were written."""
        if not self._waiters:
            return
        topics = [
            topic
            for batch, answer in zip(batches, answers, strict=True)
            if batch.wakes and isinstance(answer, Written)
            for topic in batch.wakes
        ]
        self.wake(topics)

    def wake(self, topics: Iterable[str] | None = None) -> None:
        """Wake the waiters of these topics; None: all of them."""
        with self._lock:
            names = list(self._waiters) if topics is None else topics
            woken = {waiter for name in names for waiter in self._waiters.get(name, ())}
        for waiter in woken:
            with contextlib.suppress(RuntimeError):  # its loop was closed
                waiter.get_loop().call_soon_threadsafe(_wake, waiter)

    async def wait(self, topics: Sequence[str], *, timeout: float) -> bool:
        """Whether one of them was announced within so many seconds."""
        waiter: Waiter = asyncio.get_running_loop().create_future()
        with self._lock:
            for topic in topics:
                self._waiters.setdefault(topic, set()).add(waiter)
        try:
            await asyncio.wait_for(waiter, timeout)
        except TimeoutError:
            return False
        finally:
            self._forget(topics, waiter)
        return True

    def close(self) -> None:
        """Wake all who wait."""
        self.wake()

    def _forget(self, topics: Sequence[str], waiter: Waiter) -> None:
        with self._lock:
            for topic in topics:
                if waiters := self._waiters.get(topic):
                    waiters.discard(waiter)
                    if not waiters:
                        del self._waiters[topic]


class WatchedWakes(Wakes, ABC):
    """Hears other processes too: a thread watches while somebody waits, and ends soon after.

    While it cannot watch, waiters go on after their time-outs.

    Attributes:
        idle_looks: looks for nobody before the thread ends: whoever waits in a loop is soon back.
    """

    idle_looks = 4

    def __init__(self) -> None:
        super().__init__()
        self._count = threading.Condition()
        self._waiting = 0
        self._idle = 0
        self._watching = False
        self._closed = False

    async def wait(self, topics: Sequence[str], *, timeout: float) -> bool:
        with self._count:
            self._waiting += 1
            if not self._watching and not self._closed:
                self._watching, self._idle = True, 0
                threading.Thread(target=self._run, name="indoubt-wakes", daemon=True).start()
        try:
            return await super().wait(topics, timeout=timeout)
        finally:
            with self._count:
                self._waiting -= 1

    def close(self) -> None:
        """Wake all who wait, and end the thread."""
        with self._count:
            self._closed = True
            self._count.notify_all()
            self._count.wait_for(lambda: not self._watching)
        self.wake()

    @abstractmethod
    def _watch(self) -> None:
        """Look and ``wake`` for as long as ``_wanted`` says so; raise nothing of the engine's."""

    def _wanted(self) -> bool:
        """Whether to look once more: somebody waits, or did a few looks ago."""
        self._idle = 0 if self._waiting else self._idle + 1
        return self._idle <= self.idle_looks and not self._closed

    def _run(self) -> None:
        try:
            self._watch()
        finally:
            with self._count:
                self._watching = False
                self._count.notify_all()


def _wake(waiter: Waiter) -> None:
    if not waiter.done():
        waiter.set_result(None)
