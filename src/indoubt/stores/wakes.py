"""Waiters of this process, by topic. A hint: nothing is lost where it does not come."""

from __future__ import annotations

import asyncio
import contextlib
import threading
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


def _wake(waiter: Waiter) -> None:
    if not waiter.done():
        waiter.set_result(None)
