"""S13: the work takes longer than the lease, and renewals that fail, or hang."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.scenarios.performing import Payment, itself, ms, told_by

from indoubt import EffectContext, Ledger
from indoubt.core.record import Record
from indoubt.engine.holds import Heartbeat, Hold
from indoubt.store import Batch
from indoubt.stores.memory import MemoryStore
from indoubt.testing import CrashStore, FakeProvider, Fate, ManualClock
from indoubt.testing.clock import step_renewals
from indoubt.testing.crash import name_of
from indoubt.testing.provider import act_async

LEASE_MS = 30_000
SHORT_MS = 300


class Host:
    """A worker on a clock that the test steers, and a peer that polls."""

    def __init__(self, payment: Payment) -> None:
        self.clock, self.fate = ManualClock(), Fate()
        self.store = CrashStore(payment.open(self.clock), self.fate)
        self.ledger: Ledger = payment.ledger(self.store, self.clock)
        self.peer: Ledger = payment.ledger(clock=self.clock)
        self.peers = payment.guard(self.peer)


@pytest.fixture
async def host(payment: Payment) -> AsyncIterator[Host]:
    """Both on one file."""
    host = Host(payment)
    yield host
    await host.ledger.close()
    await host.peer.close()


async def test_a_handler_of_five_leases(
    bank: FakeProvider, payment: Payment, host: Host, order: str
) -> None:
    """(a) One execution."""
    polls: list[list[str]] = []

    async def send(**request: Any) -> Any:
        for _ in range(20):
            host.clock.advance(ms(LEASE_MS // 4))
            polls.append((await told_by(host.peers, order))[:2])
        return await act_async(**request)

    told = await told_by(payment.guard(host.ledger, send=send), order)
    assert told[0] == "returned"
    assert polls == [["raised", "EffectBusy"]] * 20
    assert host.fate.calls.count("renew") >= 12
    assert bank.count(order) == 1


async def test_a_worker_that_does_not_reach_its_store(
    bank: FakeProvider, payment: Payment, host: Host, order: str
) -> None:
    """(b) By the last *confirmed* deadline it has stopped.

    By the last confirmed deadline the worker has stopped dispatching, cancelled the handler
    cooperatively and recorded `lease_lost`; its later writes change nothing.
    """
    cancelled_at: list[float] = []

    async def send(**request: Any) -> Any:
        paid = await act_async(**request)
        host.clock.advance(ms(LEASE_MS // 3))  # one renewal is confirmed
        host.fate.unreachable = True
        confirmed = host.clock.now()
        try:
            for _ in range(40):
                host.clock.advance(ms(LEASE_MS // 20))
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            cancelled_at.append(host.clock.now() - confirmed)
            assert (await told_by(host.peers, order))[:2] == ["raised", "OutcomeUnknown"]
            host.fate.unreachable = False
            raise
        return paid

    told = await told_by(payment.guard(host.ledger, send=send), order)
    assert [round(at, 3) for at in cancelled_at] == [LEASE_MS / 1000]
    assert told[:2] == ["raised", "LeaseLost"]
    found = await host.peer.find("pay", order)
    assert found is not None
    assert found.state == "awaiting_decision"
    assert [one["note"] for one in found.evidence] == ["LeaseLost"]
    journal = await host.peer.journal(found.record_id)
    assert [entry.fence for entry in journal] == sorted(entry.fence for entry in journal)
    assert bank.count(order) == 1


class Hanging(CrashStore):
    """A store whose renewals hang without an error, from the second on."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner, Fate())
        self.freed = threading.Event()
        self.renewals: list[int] = []
        self._under_way = 0
        self._lock = threading.Lock()

    def write_blocking(self, batches: Sequence[Batch]) -> Any:
        if name_of(batches) == "renew":
            with self._lock:
                self._under_way += 1
                self.renewals.append(self._under_way)
            if len(self.renewals) > 1:
                self.freed.wait(20)
            with self._lock:
                self._under_way -= 1
        return super().write_blocking(batches)


@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "alone"])
async def test_renewals_that_hang(
    bank: FakeProvider, payment: Payment, order: str, *, replaced: bool
) -> None:
    """(c) The handler is cancelled; at most one renewal outstanding at a time."""
    payment = replace(payment, lease_ms=SHORT_MS)
    store = Hanging(payment.open())
    ledger, peer = payment.ledger(store), payment.ledger()
    cancelled: list[bool] = []

    async def send(**request: Any) -> Any:
        await act_async(**request)
        try:
            async with asyncio.timeout(20):
                await asyncio.Event().wait()  # for ever, but for its cancellation
        except asyncio.CancelledError:
            cancelled.append(True)
            if replaced:
                told = await told_by(payment.guard(peer).using(wait=ms(5000)), order)
                assert told[:2] == ["raised", "OutcomeUnknown"]
            store.freed.set()
            raise

    told = await told_by(payment.guard(ledger, send=send), order)
    assert cancelled == [True]
    assert set(store.renewals) == {1}
    assert told[1] == ("LeaseLost" if replaced else "OutcomeUnknown")
    found = await peer.find("pay", order)
    assert found is not None
    assert found.state == "awaiting_decision"
    assert bank.count(order) == 1
    await ledger.close()
    await peer.close()


def test_a_lease_that_was_slept_through_while_renewals_hang() -> None:
    """No answer from the store is not permission to continue: it gets a moment to say so."""
    clock = ManualClock()
    store = Hanging(MemoryStore(clock=clock))
    store.renewals.append(0)  # the next one hangs
    record = Record(id="rec_a", root_id="rec_a", kind="effect", name="pay", fingerprint="f")
    hold = Hold(record, sent_at=0.0, lease_ms=LEASE_MS, permit_ms=LEASE_MS, fixed=False)
    heartbeat = Heartbeat(store, clock)
    heartbeat._holds.add(hold)
    clock.advance(ms(3 * LEASE_MS))  # the whole process stood still
    assert heartbeat._step()
    assert not hold.lost
    clock.advance(ms(LEASE_MS // 12))
    assert heartbeat._step()
    assert hold.lost
    store.freed.set()


async def test_a_lease_has_room_for_three_renewals(payment: Payment) -> None:
    """(d) Lease <= renewal interval is refused at construction: the interval is a third of it."""
    for wrong in (timedelta(0), timedelta(seconds=-1)):
        with pytest.raises(ValueError, match="lease"):
            Ledger("memory:", lease=wrong)
    for lease in (ms(1), ms(10), timedelta(days=1)):
        clock, fate = ManualClock(), Fate()
        store = CrashStore(replace(payment, store=f"{payment.store}-{lease}").open(clock), fate)
        ledger = Ledger(store, lease=lease, clock=clock)
        step_renewals(ledger, clock)

        def pass_two_leases(clock: ManualClock = clock, lease: timedelta = lease) -> None:
            clock.advance(lease * 2)

        @ledger.effect(safety="non_idempotent", name="wait", key=itself)
        async def wait(order: str, *, effect: EffectContext) -> list[Any]:
            pass_two_leases()
            return [order, effect.remaining() > 0]

        assert await wait("order-7") == ["order-7", True]
        assert fate.calls.count("renew") >= 3
        await ledger.close()
