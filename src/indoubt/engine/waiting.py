"""Sleeping until somebody announces what one waits for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from indoubt.store import Store

    from .clock import LocalClock
    from .requests import Wait


async def wait(request: Wait, store: Store, clock: LocalClock) -> None:
    """Sleep on the clock until one of the topics is announced at the store.

    Announcements are a hint: where the store cannot bring them, this sleeps its time.
    """
    slept = asyncio.ensure_future(clock.sleep_async(request.seconds))
    woken = asyncio.ensure_future(store.wait(request.topics, timeout=request.seconds))
    try:
        await asyncio.wait({slept, woken}, return_when=asyncio.FIRST_COMPLETED)
        if woken.done() and (woken.cancelled() or woken.exception() is not None):
            await slept
    finally:
        slept.cancel()
        woken.cancel()
        await asyncio.gather(slept, woken, return_exceptions=True)
