"""The two drivers of a flow: one on the caller's thread, one on the caller's event loop.

A caller that is cancelled is never delayed: what remains of its flow (a release, a note that the
outcome is in doubt) is written by a task of its own.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from indoubt.errors import LeaseLost, StoreError
from indoubt.store import BlockingStore

from .background import run_in_background
from .invoke import invoke, invoke_blocking
from .requests import CallerGone, Invoke, Read, Request, Wait, Write
from .waiting import wait

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from indoubt.store import Batch, Snapshot, Store

    from .clock import LocalClock

T = TypeVar("T")
log = logging.getLogger("indoubt.drivers")
# What ends a caller but not its process. Any other BaseException ends the flow as a crash would:
# nothing more is written, and nothing is claimed.
GONE = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)


class AsyncDriver:
    """Runs flows on the caller's event loop."""

    def __init__(self, store: Store, clock: LocalClock) -> None:
        self._store = store
        self._clock = clock
        self._aftermath: set[asyncio.Task[None]] = set()

    async def drive(self, flow: Generator[Request, Any, T]) -> T:
        """Run a flow to its end."""
        step: Callable[[Any], Request] = flow.send
        given: Any = None
        try:
            while True:
                request = step(given)
                try:
                    given = await self._answer(request)
                    step = flow.send
                except StoreError as error:
                    step, given = flow.throw, error
        except StopIteration as stop:
            return stop.value
        except GONE:
            self._leave(flow)
            raise
        except BaseException:
            flow.close()
            raise

    async def _answer(self, request: Request) -> Any:
        if isinstance(request, Write):
            return (await self._store.write((request.batch,)))[0]
        if isinstance(request, Invoke):
            return await invoke(request)
        if isinstance(request, Read):
            return await self._store.read(request.ids)
        if isinstance(request, Wait):
            return await wait(request, self._store, self._clock)
        return await self._clock.sleep_async(request.seconds)

    def _leave(self, flow: Generator[Request, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(self._finish(flow))
        self._aftermath.add(task)
        task.add_done_callback(self._aftermath.discard)

    async def _finish(self, flow: Generator[Request, Any, Any]) -> None:
        try:
            request = flow.throw(CallerGone())
            while True:
                request = flow.send(await self._answer(request))
        except (StopIteration, CallerGone, LeaseLost):
            return  # of a lost lease, what was learned is kept beside the record
        except Exception:
            log.exception("what a cancelled call left behind could not be recorded")

    async def settle_aftermath(self) -> None:
        """Wait for what cancelled callers on this loop left behind."""
        here = asyncio.get_running_loop()
        tasks = [task for task in self._aftermath if task.get_loop() is here]
        if tasks:
            await asyncio.wait(tasks)


class BlockingDriver:
    """Runs flows on the caller's thread."""

    def __init__(self, store: Store, clock: LocalClock) -> None:
        self._store = store
        # Asked once: whether a class has the methods of a protocol is slow to find out.
        self._blocking = store if isinstance(store, BlockingStore) else None
        self._clock = clock

    def drive(self, flow: Generator[Request, Any, T]) -> T:
        """Run a flow to its end."""
        step: Callable[[Any], Request] = flow.send
        given: Any = None
        try:
            while True:
                request = step(given)
                try:
                    given = self._answer(request)
                    step = flow.send
                except StoreError as error:
                    step, given = flow.throw, error
        except StopIteration as stop:
            return stop.value
        except GONE:
            self._finish(flow)
            raise
        except BaseException:
            flow.close()
            raise

    def _answer(self, request: Request) -> Any:
        if isinstance(request, Write):
            return self._write((request.batch,))[0]
        if isinstance(request, Invoke):
            return invoke_blocking(request)
        if isinstance(request, Read):
            return self._read(request.ids)
        if isinstance(request, Wait):
            return run_in_background(wait(request, self._store, self._clock))
        return self._clock.sleep(request.seconds)

    def _write(self, batches: Sequence[Batch]) -> Sequence[Any]:
        if self._blocking is not None:
            return self._blocking.write_blocking(batches)
        return run_in_background(self._store.write(batches))

    def _read(self, ids: Sequence[str]) -> Snapshot:
        if self._blocking is not None:
            return self._blocking.read_blocking(ids)
        return run_in_background(self._store.read(ids))

    def _finish(self, flow: Generator[Request, Any, Any]) -> None:
        try:
            request = flow.throw(CallerGone())
            while True:
                request = flow.send(self._answer(request))
        except (StopIteration, CallerGone, LeaseLost):
            return  # of a lost lease, what was learned is kept beside the record
        except Exception:
            log.exception("what an interrupted call left behind could not be recorded")
