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
_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def run_in_background(coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
    """Run a coroutine on the background loop and wait for it on this thread.

    Raises:
        TimeoutError: it took longer than ``timeout`` seconds, and was cancelled.
    """
    future = asyncio.run_coroutine_threadsafe(coroutine, background_loop())
    try:
        return future.result(timeout)
    except BaseException:
        future.cancel()
        raise


def background_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process, started at its first use (and anew after a fork)."""
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = asyncio.new_event_loop()
            _loops.clear()
            _loops[os.getpid()] = loop
            threading.Thread(target=loop.run_forever, name="indoubt-loop", daemon=True).start()
        return loop
