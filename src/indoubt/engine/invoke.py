"""Calling somebody else's code, so that whatever it does becomes a value.

A coroutine is cancelled when its time is over or its hold lost, and waited for until it has really
ended: only then is it known that it sends nothing more. A plain function is never cancelled.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
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
            return await _on_thread(request.run)
        if request.thread:
            return await _in_time(_on_thread(request.run), request.timeout)
        called = request.run()
        if not inspect.isawaitable(called):
            return Returned(called)
        if request.hold is not None:
            return await _under_hold(called, request.timeout, request.hold)
        return await _in_time(_returned(called), request.timeout)
    except Exception as error:  # noqa: BLE001 - whatever it raised is the answer
        return Raised(error)


async def _on_thread(run: Callable[[], Any]) -> Returned | Raised:
    """Call a plain function; it may turn out to have made a coroutine, as a lambda does."""
    answer = await asyncio.to_thread(_call, run)
    if isinstance(answer, Returned) and inspect.isawaitable(answer.value):
        return await _returned(answer.value)
    return answer


def _call(run: Callable[[], Any]) -> Returned | Raised:
    """Whatever it raises, as a value: a StopIteration cannot be set on a future, which hangs."""
    try:
        return Returned(run())
    except Exception as error:  # noqa: BLE001 - whatever it raised is the answer
        return Raised(error)


async def _returned(called: Awaitable[Any]) -> Returned:
    return Returned(await called)


async def _in_time(
    answer: Awaitable[Returned | Raised], seconds: float | None
) -> Returned | Raised:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await answer
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

    def tell() -> None:
        with suppress(RuntimeError):  # the loop was closed, and the function with it
            loop.call_soon_threadsafe(interrupt)

    hold.on_lost = tell
    try:
        if seconds is None:
            return Returned(await called)
        return await _in_time(_returned(called), seconds)
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
    answer = _call(request.run)
    if isinstance(answer, Raised) or not inspect.isawaitable(answer.value):
        return answer
    try:
        return run_in_background(_in_time(_returned(answer.value), request.timeout))
    except Exception as error:  # noqa: BLE001 - whatever it raised is the answer
        return Raised(error)
    except BaseException:
        if request.hold is not None:  # nobody waits for its end any more
            request.hold.outlived = True
        raise
