"""One queue and one lead: whoever has the lead commits all that waits, in one commit.

A blocking caller that finds the lead free takes it on its own thread: no hop. For callers on event
loops one writer thread leads. A caller that goes away leaves its batches in the queue.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from ..store import Batch, Conflict, DueQuery, Lease, Snapshot, Written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..errors import StoreError

    Answer = Written | Conflict | StoreError
    Result = Answer | Snapshot
    Resolved = tuple[asyncio.Future[list[Result]], list[Result]]

GROUP_MAX: Final = 512
"""Calls in one commit: bounds how long the first of them waits."""
GATHER_S: Final = 0.01
"""How long the writer thread waits for an event loop to come round, at most."""


class Leasing(NamedTuple):
    """A lease among the batches of a group."""

    query: DueQuery
    lease: Lease


Work = Batch | Leasing


class _Call:
    """One caller's batches; it waits on a future, or on a lock, or not any more."""

    __slots__ = ("answers", "batches", "future", "leads", "wake")

    def __init__(self, batches: Sequence[Work]) -> None:
        self.batches = batches
        self.answers: list[Result] = []
        self.future: asyncio.Future[list[Result]] | None = None
        self.wake: threading.Lock | None = None
        self.leads = False


class GroupCommit:
    """``commit`` answers each batch and raises nothing but what ends its thread.

    ``lost`` makes the answer of a batch whose commit was cut short by such an end.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Work]], list[Result]],
        lost: Callable[[BaseException], Answer],
    ) -> None:
        self._commit = commit
        self._lost = lost
        self._mutex = threading.Lock()
        self._idle = threading.Condition(self._mutex)
        self._waiting: deque[_Call] = deque()
        self._led = False
        self._closed = False
        self._writer: threading.Thread | None = None
        self._signal = threading.Semaphore(0)
        self._crowd = False

    def write(self, batches: Sequence[Work]) -> list[Result] | None:
        """Commit on the calling thread, or wait for whoever does; None once closed."""
        with self._mutex:
            if self._closed:
                return None
            call = self._enqueued(batches) if self._led else None
            self._led = True
        if call is None:
            return self._lead_alone(batches)
        if self._awaited(call):
            self._lead([call])
        return call.answers

    def submit(self, batches: Sequence[Work]) -> asyncio.Future[list[Result]] | None:
        """Have the writer thread commit; None once closed."""
        call = _Call(batches)
        call.future = asyncio.get_running_loop().create_future()
        with self._mutex:
            if self._closed:
                return None
            self._waiting.append(call)
            if not self._led:
                self._led = True
                self._wake_writer()
        return call.future

    def close(self) -> None:
        """Refuse new calls, wait until all waiting ones are answered, and end the thread."""
        with self._idle:
            self._closed = True
            self._idle.wait_for(lambda: not self._led)
            writer, self._writer = self._writer, None
        if writer is not None:
            self._signal.release()
            writer.join()

    def _enqueued(self, batches: Sequence[Work]) -> _Call:
        call = _Call(batches)
        call.wake = threading.Lock()
        call.wake.acquire()
        self._waiting.append(call)
        return call

    def _lead_alone(self, batches: Sequence[Work]) -> list[Result]:
        """The lead was free, so nobody waits yet; who comes meanwhile is in the next group."""
        try:
            return self._commit(batches)
        finally:
            with self._mutex:
                self._pass_lead()

    def _awaited(self, call: _Call) -> bool:
        """Wait for the answer, or for the lead: then True."""
        try:
            if call.wake is not None:
                call.wake.acquire()
        except BaseException:  # Ctrl-C: nobody may wait for this thread to lead
            with self._mutex:
                call.wake = None
                if call.leads:
                    self._waiting.appendleft(call)
                    self._pass_lead()
            raise
        return call.leads

    def _lead(self, group: list[_Call]) -> None:
        """Commit for the group and for all who wait; then pass the lead on, then answer."""
        try:
            self._answer(group)
        finally:
            with self._mutex:
                self._pass_lead()
            _deliver(group)

    def _answer(self, group: list[_Call]) -> None:
        with self._mutex:
            while self._waiting and len(group) < GROUP_MAX:
                group.append(self._waiting.popleft())
        try:
            answers = iter(self._commit([batch for call in group for batch in call.batches]))
        except BaseException as error:
            for call in group:
                call.answers = [self._lost(error) for _ in call.batches]
            if threading.current_thread() is not self._writer:  # Ctrl-C of the caller who leads
                raise
        else:
            for call in group:
                call.answers = [next(answers) for _ in call.batches]

    def _pass_lead(self) -> None:
        """To the one who waits longest; asynchronous callers are led by the writer thread."""
        if not self._waiting:
            self._led = False
            self._idle.notify_all()
        elif wake := self._waiting[0].wake:
            self._waiting.popleft().leads = True
            wake.release()
        else:
            self._wake_writer()

    def _wake_writer(self) -> None:
        if self._writer is None:
            self._writer = threading.Thread(
                target=_write_for,
                args=(weakref.ref(self), self._signal),
                name="indoubt-writer",
                daemon=True,
            )
            self._writer.start()
            # A store that nobody closed must not be kept alive by its own thread.
            weakref.finalize(self, self._signal.release)
        self._signal.release()

    def lead_once(self) -> bool:
        """The writer thread's turn; False once there is nothing to lead, which ends it."""
        with self._mutex:
            if not self._led:
                return False
            first = self._waiting[0].future
        if self._crowd and first is not None:
            _come_round(first.get_loop())
        group: list[_Call] = []
        self._lead(group)
        self._crowd = len(group) > 1
        return True


def _come_round(loop: asyncio.AbstractEventLoop) -> None:
    """Wait until the loop has run all that it was about to run.

    The last group woke its callers all at once. If the first of them to write again were taken at
    once, it would be committed alone, and the others after it: twice the commits.
    """
    came_round = threading.Event()
    try:
        loop.call_soon_threadsafe(came_round.set)
    except RuntimeError:  # the loop was closed: nobody else comes from it
        return
    came_round.wait(GATHER_S)


def _write_for(queue: weakref.ref[GroupCommit], signal: threading.Semaphore) -> None:
    while signal.acquire():
        owner = queue()
        if owner is None or not owner.lead_once():
            return
        del owner


def _deliver(group: Iterable[_Call]) -> None:
    """Wake the callers: threads one by one, each event loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[Resolved]] = {}
    for call in group:
        if call.future is not None:
            loops.setdefault(call.future.get_loop(), []).append((call.future, call.answers))
        elif call.wake is not None and not call.leads:
            call.wake.release()
    for loop, resolved in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, resolved)
        except RuntimeError:  # the loop was closed: nobody waits there any more
            continue


def _resolve(resolved: Iterable[Resolved]) -> None:
    for future, answers in resolved:
        if not future.done():  # cancelled: the write stands all the same
            future.set_result(answers)
