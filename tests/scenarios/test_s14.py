"""S14: what a sweep has read is old when it writes: somebody finished, renewed or took over."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import LEASE, World, first
from tests.scenarios.performing import reached

from indoubt import Ledger, RecordView
from indoubt.store import Batch
from indoubt.testing import CrashStore, Fate
from indoubt.testing.clock import SteppedHeartbeat

ORDERS = tuple(f"order-{n}" for n in range(10))
DONE, RENEWED, CANCELLED = ORDERS[:3], ORDERS[3:6], ORDERS[6:8]
CLAIMED, LEFT = ORDERS[8], ORDERS[9]


class Meanwhile(CrashStore):
    """A sweeper's store: between its read of a record and its first write, something happens."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner, Fate())
        self.hooks: dict[str, Callable[[], Awaitable[object]]] = {}

    async def write(self, batches: Sequence[Batch]) -> Any:
        for batch in batches:
            for put in batch.puts:
                if hook := self.hooks.pop(put.id, None):
                    await hook()
        return await super().write(batches)


class Stale:
    """Ten calls in flight, whose holder has not renewed for longer than its lease."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.holder: Ledger = world.process()
        self.other: Ledger = world.process()
        self.beat: SteppedHeartbeat = world._beats[id(self.holder)]
        self.going_on = {order: asyncio.Event() for order in ORDERS}
        self.calls: dict[str, asyncio.Future[Any]] = {}
        self.views: dict[str, RecordView] = {}

        @self.holder.effect(name="pay", safety="non_idempotent", key=first)
        async def pay(order: str) -> dict[str, Any]:
            await self.going_on[order].wait()
            return world.bank.pay(order)

        self.pay: Any = pay
        self.others = world.payer(self.other).using(wait=timedelta(0))

    async def begin(self) -> None:
        self.calls = {order: asyncio.ensure_future(self.pay(order)) for order in ORDERS}
        await reached(self.all_dispatched)
        self.world.clock.remove(self.beat)
        self.world.clock.advance(LEASE + timedelta(seconds=1))
        self.views = {order: await self.view(order) for order in ORDERS}

    async def all_dispatched(self) -> bool:
        return len(await self.world.records()) == len(ORDERS)

    async def view(self, order: str) -> RecordView:
        found = await self.other.find("pay", order)
        assert found is not None
        return found

    async def fence(self, order: str) -> int:
        return (await self.other.journal(self.views[order].record_id))[-1].fence

    async def complete(self, order: str) -> None:
        self.going_on[order].set()
        await self.calls[order]

    async def renew(self, order: str) -> None:
        held = [hold for hold in self.beat._holds if hold.record.key == order]
        self.beat._renew(held)

    async def cancel(self, order: str) -> None:
        await self.other.cancel(self.views[order].record_id, actor="ana", reason="not wanted")

    async def claim(self, order: str) -> None:
        with pytest.raises(Exception, match=self.views[order].record_id):
            await self.others(order)

    def happening(self, order: str) -> Callable[[], Awaitable[object]]:
        if order in DONE:
            return lambda: self.complete(order)
        if order in RENEWED:
            return lambda: self.renew(order)
        if order in CANCELLED:
            return lambda: self.cancel(order)
        return lambda: self.claim(order)


async def test_a_sweep_marks_exactly_what_was_left(tmp_path: Path) -> None:
    """A decision on an old snapshot names the state that it saw.

    Exactly the one left is marked; the others keep state, result, timestamps and fence; sweep's
    answer lists only what it changed.
    """
    world = World(tmp_path / "ledger.db")
    stale = Stale(world)
    await stale.begin()
    assert {view.state for view in stale.views.values()} == {"in_doubt"}  # shown, not written
    store = Meanwhile(world.store)
    store.hooks = {
        stale.views[order].record_id: stale.happening(order) for order in ORDERS if order != LEFT
    }
    sweeper = Ledger(store, lease=LEASE, clock=world.clock)
    world.payer(sweeper)
    recovery = await sweeper.recover(wait=timedelta(0))
    assert (store.hooks, recovery.errors) == ({}, ())
    # What another sweep claimed is listed as well: a person must decide about it, that is so.
    asked = sorted(view.key or "" for view in recovery.asked)
    assert asked == sorted([*CANCELLED, CLAIMED, LEFT])
    assert (recovery.settled, recovery.replayed, recovery.waiting) == ((), (), ())
    await check_kept(stale)
    assert {order: world.bank.count(order) for order in ORDERS} == {
        order: int(order in DONE) for order in ORDERS
    }
    for order in ORDERS:
        stale.going_on[order].set()
    await asyncio.gather(*stale.calls.values(), return_exceptions=True)
    await world.check()
    await world.close()


async def check_kept(stale: Stale) -> None:
    """The others are as whoever came between has left them."""
    for order in DONE:
        found = await stale.view(order)
        assert (found.state, await stale.fence(order)) == ("succeeded", 1)
        assert found.receipt == stale.calls[order].result()
    for order in RENEWED:
        found = await stale.view(order)
        assert (found.state, await stale.fence(order)) == ("dispatched", 1)
        assert found.updated_at == stale.views[order].updated_at
    for order in (CLAIMED, LEFT):
        found = await stale.view(order)
        assert (found.state, await stale.fence(order)) == ("awaiting_decision", 2)
    for order in CANCELLED:  # nothing is known of what was sent: it is in doubt, and not lost
        found = await stale.view(order)
        assert (found.state, found.cancel_requested) == ("awaiting_decision", True)
