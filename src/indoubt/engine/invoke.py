"""Calling somebody else's code, so that whatever it does becomes a value.

A coroutine is cancelled when its time is over or its hold lost, and waited for until it has really
ended: only then is it known that it sends nothing more. A plain function is never cancelled.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from indoubt.errors import LeaseLost

from .background import run_in_background
from .requests import Invoke, Raised, Returned

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .holds import Hold


async def invoke(request: Invoke) -> Returned | Raised:
    """Call on the running loop (a plain function with ``thread`` set: on a thread)."""
    try:
        if request.thread and request.hold is not None:
            return Returned(await _on_thread(request.run))
        called = _on_thread(request.run) if request.thread else request.run()
        if not inspect.isawaitable(called):
            return Returned(called)
        if request.hold is not None:
            return await _under_hold(called, request.timeout, request.hold)
        return await _in_time(called, request.timeout)
    except Exception as error:  # noqa: BLE001 - whatever it raised is the answer
        return Raised(error)


async def _on_thread(run: Callable[[], Any]) -> Any:
    """Call a plain function; it may turn out to have made a coroutine, as a lambda does."""
    called = await asyncio.to_thread(run)
    return await called if inspect.isawaitable(called) else called


async def _in_time(called: Awaitable[Any], seconds: float | None) -> Returned | Raised:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return Returned(await called)
    except TimeoutError as error:
        return Raised(error, ours=limit.expired())


async def _under_hold(
    called: Awaitable[Any], seconds: float | None, hold: Hold
) -> Returned | Raised:
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    running, interrupted = True, False

    def interrupt() -> None:
        nonlocal interrupted
        if running and task is not None:
            interrupted = True
            task.cancel()

    hold.on_lost = lambda: loop.call_soon_threadsafe(interrupt)
    try:
        if seconds is None:
            return Returned(await called)
        return await _in_time(called, seconds)
    except asyncio.CancelledError:
        if not interrupted or task is None or task.uncancel() > 0:
            raise  # the caller's own cancellation
        lost = LeaseLost("the lease was lost while the function ran", record_id=hold.record.id)
        return Raised(lost, ours=True)
    finally:
        running = False
        hold.on_lost = None


def invoke_blocking(request: Invoke) -> Returned | Raised:
    """Call on this thread; a coroutine (an ``async`` probe) runs on the background loop."""
    try:
        called = request.run()
        if not inspect.isawaitable(called):
            return Returned(called)
        return Returned(run_in_background(_awaited(called), request.timeout))
    except Exception as error:  # noqa: BLE001 - whatever it raised is the answer
        return Raised(error)


async def _awaited(called: Awaitable[Any]) -> Any:
    return await called
