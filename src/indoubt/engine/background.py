"""One event loop on a thread of its own, for callers that have none and code that needs one.

An ``async`` probe of a blocking effect runs here, and so does a store that only speaks async.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class _Background:
    """The loop of this process, started at its first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                run, loop = _run_for_ever, self._loop
                threading.Thread(target=run, args=(loop,), name="indoubt-loop", daemon=True).start()
            return self._loop

    def forget(self) -> None:
        """In a forked child: the thread is gone, and the lock may have been another thread's."""
        self.__init__()


def _run_for_ever(loop: asyncio.AbstractEventLoop) -> None:
    """A coroutine that raises SystemExit ends its waiting caller, not the loop of all others."""
    while True:
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            continue
        return


_background = _Background()
os.register_at_fork(after_in_child=_background.forget)


def run_in_background(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop and wait for it on this thread.

    If the waiting ends before it (Ctrl-C), it is cancelled, and not waited for.
    """
    future = asyncio.run_coroutine_threadsafe(coroutine, background_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def background_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process, started at its first use (and anew after a fork)."""
    return _background.loop()
