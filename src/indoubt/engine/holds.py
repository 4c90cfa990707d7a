"""What this process holds now, and the one thread that renews it.

A hold is kept by (record, fence) in memory. Its deadlines are counted on this process's own clock
from before the request whose answer confirmed them; when they are over without a confirmed
renewal, the hold is lost: no answer from the store is not permission to go on. The thread starts
with the first hold, and a blocked event loop does not stop it.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING

from indoubt.errors import ForkedHandle, StoreError
from indoubt.store import Batch, BlockingStore, Conflict, Written

from .background import run_in_background
from .ids import write_id
from .puts import extend_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from indoubt.core.record import Record
    from indoubt.store import Store

    from .clock import LocalClock

log = logging.getLogger("indoubt.holds")
RENEWALS_PER_LEASE = 3
RETRIES_PER_LEASE = 12
IDLE_S = 5.0


class Hold:
    """One record held under one fence.

    Attributes:
        ends: local instant at which it is lost without a confirmed renewal: when the lease is
            over or, where this process slept past that, when the store had time to say more.
        permit_ms: what each renewal moves the permit by; None: the permit is fixed.
        permit_until: local instant at which the permit ends.
        outlived: the function may still run though its caller waits no more.
    """

    __slots__ = (
        "_pid",
        "due",
        "ends",
        "lease_ms",
        "lease_until",
        "lost",
        "on_lost",
        "outlived",
        "permit_ms",
        "permit_until",
        "record",
    )

    def __init__(
        self, record: Record, *, sent_at: float, lease_ms: int, permit_ms: int, fixed: bool
    ) -> None:
        self.record = record
        self.lease_ms = lease_ms
        self.permit_ms = None if fixed else permit_ms
        self.lease_until = self.ends = sent_at + lease_ms / 1000
        self.permit_until = sent_at + permit_ms / 1000
        self.due = sent_at + lease_ms / 1000 / RENEWALS_PER_LEASE
        self.lost = self.outlived = False
        self.on_lost: Callable[[], object] | None = None
        self._pid = os.getpid()

    def lose(self) -> None:
        """The hold is over; whoever works under it is told once."""
        if not self.lost:
            self.lost = True
            if self.on_lost is not None:
                self.on_lost()

    def renewed(self, sent_at: float) -> None:
        """A renewal sent at this instant was confirmed."""
        self.lease_until = self.ends = sent_at + self.lease_ms / 1000
        self.due = sent_at + self.lease_ms / 1000 / RENEWALS_PER_LEASE
        if self.permit_ms is not None:
            self.permit_until = sent_at + self.permit_ms / 1000

    def slept(self, now: float) -> None:
        """If no renewal was sent when it was due, this process was stopped, or its machine slept.

        Whether somebody took over meanwhile only the store knows; it gets a moment to say so.
        """
        patience = self.lease_ms / 1000 / RETRIES_PER_LEASE
        if self.due + patience < now:
            self.ends = max(self.lease_until, now + patience)

    def check_process(self) -> None:
        """Refuse use in a forked child.

        Raises:
            ForkedHandle: this hold was taken by the parent process.
        """
        if os.getpid() != self._pid:
            raise ForkedHandle(f"{self.record.id} is held by the process that forked this one")


class Heartbeat:
    """The holds of one engine and their renewals, many in one write."""

    def __init__(self, store: Store, clock: LocalClock) -> None:
        self._store = store
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        """Nothing held, no thread: at first, and in a forked child.

        The child has none of the parent's threads, and may have its lock as one of them held it.
        """
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._holds: set[Hold] = set()
        self._pid = 0
        self._renewing = False
        self._wakes_at = float("inf")

    def hold(self, hold: Hold) -> None:
        """Renew this hold until it is dropped."""
        if self._process != os.getpid():
            self._begin()
        with self._lock:
            self._holds.add(hold)
            if self._pid != os.getpid():
                self._pid = os.getpid()
                self._holds = {hold}
                threading.Thread(target=self._run, name="indoubt-heartbeat", daemon=True).start()
            elif hold.due < self._wakes_at:
                self._wake.notify()

    def drop(self, hold: Hold) -> None:
        """Stop renewing."""
        if self._process != os.getpid():
            self._begin()
        with self._lock:
            self._holds.discard(hold)

    def _run(self) -> None:
        while self._step():
            pass

    def _step(self) -> bool:
        """Wait for the next moment that matters; False: nothing held for a while, the thread ends.

        Renewals are written by a thread of their own, one round at a time: where the store hangs,
        somebody must still notice that a lease is over.
        """
        with self._lock:
            now = self._clock.now()
            due = [hold for hold in self._holds if hold.due <= now and not self._renewing]
            for hold in due:
                hold.slept(now)
            over = [hold for hold in self._holds if hold.ends <= now]
            if not over and not due:
                return self._sleep(now)
            self._renewing = self._renewing or bool(due)
        for hold in over:
            self._lose(hold)
        if due:
            threading.Thread(
                target=self._renew_aside, args=(due,), name="indoubt-renewal", daemon=True
            ).start()
        return True

    def _sleep(self, now: float) -> bool:
        moments = [hold.ends if self._renewing else hold.due for hold in self._holds]
        nearest = min(moments, default=now + IDLE_S)
        self._wakes_at = nearest
        self._wake.wait(max(nearest - now, 0.001))
        self._wakes_at = float("-inf")
        if self._holds or self._renewing or self._clock.now() < nearest:
            return True
        self._pid = 0
        return False

    def _renew_aside(self, due: Sequence[Hold]) -> None:
        try:
            self._renew(due)
        finally:
            with self._lock:
                self._renewing = False
                self._wake.notify()

    def _renew(self, due: Sequence[Hold]) -> None:
        sent_at = self._clock.now()
        for hold in due:  # at most one renewal of a hold is under way
            hold.due = sent_at + hold.lease_ms / 1000 / RETRIES_PER_LEASE
        batches = [
            Batch(
                write_id(),
                extends=(extend_of(h.record, lease_ms=h.lease_ms, permit_ms=h.permit_ms),),
            )
            for h in due
        ]
        try:
            answers = self._write(batches)
        except (StoreError, OSError) as error:
            log.warning("renewal of %d holds failed: %s", len(due), error)
            answers = [error] * len(due)
        for hold, answer in zip(due, answers, strict=True):
            self._judge(hold, answer, sent_at)

    def _judge(self, hold: Hold, answer: object, sent_at: float) -> None:
        if isinstance(answer, Written):
            hold.renewed(sent_at)
        elif isinstance(answer, Conflict) or self._clock.now() >= hold.lease_until:
            self._lose(hold)

    def _lose(self, hold: Hold) -> None:
        if hold in self._holds:
            log.warning("lease of %s (fence %d) lost", hold.record.id, hold.record.fence)
        self.drop(hold)
        hold.lose()

    def _write(self, batches: Sequence[Batch]) -> Sequence[object]:
        if isinstance(self._store, BlockingStore):
            return self._store.write_blocking(batches)
        return run_in_background(self._store.write(batches))
