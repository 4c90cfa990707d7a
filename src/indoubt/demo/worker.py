"""The demo's worker: holds one act of each class and is killed at one point, with ``kill -9``.

It is a user's program: the crash points are in its own provider call and around its store, none in
the library.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from indoubt.ledger import Ledger
from indoubt.stores import open_store
from indoubt.testing.crash import Blow, CrashStore, Fate
from indoubt.testing.provider import act_async, find_async

from .acts import AMOUNT, LEASE, guard_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

# Points at the store; the others are in the provider call below, or inside the provider.
BLOWS = {
    "F0": Blow(name="write dispatched", how="before"),
    "F5": Blow(at=6, name="write succeeded", how="after"),
}


class Killed(Fate):
    """A fate that is no exception but the real thing."""

    def die(self) -> NoReturn:
        """End this process as a power cut would."""
        os.kill(os.getpid(), signal.SIGKILL)
        raise SystemExit  # not reached


class Worker:
    """Six acts at once, kept in step so that one kill finds all of them at one point."""

    def __init__(self, store: str, url: str, cut: str) -> None:
        self._fate = Killed(*([BLOWS[cut]] if cut in BLOWS else []))
        self._ledger = Ledger(CrashStore(open_store(store), self._fate), lease=LEASE)
        self._url = url
        self._cut = cut
        self._step = asyncio.Barrier(6)

    async def run(self) -> None:
        """Start all six; one of them kills the process."""
        acts = guard_all(self._ledger, self._url, self._send, self._look)
        await asyncio.gather(*(pay(f"{self._cut} {safety}") for safety, pay in acts.items()))
        self._reached("F6")

    async def _send(self, key: str, idempotency_key: str | None) -> dict[str, Any]:
        return await self._in_step(
            lambda: act_async(self._url, key, AMOUNT, idempotency_key=idempotency_key, timeout=60)
        )

    async def _look(self, key: str) -> dict[str, Any]:
        return await self._in_step(lambda: find_async(self._url, key))

    async def _in_step(self, call: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
        await self._step.wait()
        self._reached("F1")
        answer = await call()
        await self._step.wait()
        self._reached("F4")
        return {"id": answer["id"]} if isinstance(answer, dict) else {"seen": len(answer.acts)}

    def _reached(self, point: str) -> None:
        if point == self._cut:
            self._fate.die()


if __name__ == "__main__":
    asyncio.run(Worker(*sys.argv[1:4]).run())
