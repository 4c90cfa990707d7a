"""S15, two clocks in one comparison, on SQLite: what a stepped or skewed host clock may do.

The bound: a step back frees no live lease and holds a dead one no longer than its lease; a step
forward may end a lease early, which costs a take-over and never a second effect.
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Crash, World, first, only

from indoubt import LeaseLost, Ledger
from indoubt.stores.sqlite import SQLiteStore
from indoubt.testing import ManualClock
from indoubt.testing.clock import START_MS, step_renewals

HOUR = timedelta(hours=1)
NOW = timedelta(0)
RESEND: dict[str, Any] = {
    "settle_time": timedelta(seconds=5),
    "not_found_is_authoritative": True,
    "resend_on_proven_absence": True,
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "ledger.db")


async def holding(world: World, ledger: Ledger, safety: str = "idempotent") -> Any:
    """A call under way, and how to end it."""
    entered, free = asyncio.Event(), asyncio.Event()

    @ledger.effect(safety=safety, name="pay", key=first)
    async def pay(order: str, cents: int = 1) -> Any:
        entered.set()
        await free.wait()
        return world.bank.pay(order, cents)

    running = asyncio.create_task(pay("order-7"))
    await entered.wait()

    async def end() -> Any:
        free.set()
        return await running

    return end


@pytest.mark.parametrize("opened", ["before", "after"])
async def test_s15_a_step_back_frees_no_live_lease(world: World, opened: str) -> None:
    ledger = world.process()
    other = world.process() if opened == "before" else None
    end = await holding(world, ledger)
    world.clock.step(-HOUR)
    other = other or world.process()
    world.payer(other, safety="idempotent")
    for _ in range(8):
        world.pass_time(15)
        recovery = await other.recover(wait=NOW)
        assert (recovery.replayed, recovery.waiting) == ((), ())
    assert (await end())["id"] == "pay_1"
    assert world.bank.count("order-7") == 1
    await world.close()


@pytest.mark.parametrize("opened", ["before", "after"])
async def test_s15_a_step_back_holds_a_dead_lease_no_longer_than_its_lease(
    world: World, opened: str
) -> None:
    dying = world.process()
    other = world.process() if opened == "before" else None
    world.bank.next = ["crash_before"]
    with pytest.raises(Crash):
        await world.payer(dying, safety="idempotent")("order-7")
    world.kill(dying, proven=False)  # the lease alone must end it
    world.clock.step(-HOUR)
    other = other or world.process()
    world.payer(other, safety="idempotent")
    await other.in_doubt()  # its clock runs
    world.pass_time(29)
    assert (await other.recover(wait=NOW)).replayed == ()
    world.pass_time(2)
    assert len((await other.recover(wait=NOW)).replayed) == 1
    await world.close()


async def test_s15_a_step_forward_costs_a_take_over_and_never_a_second_effect(
    world: World,
) -> None:
    ledger, other = world.process(), world.process()
    end = await holding(world, ledger, "non_idempotent")
    world.payer(other, probe=world.bank.probe, **RESEND)
    world.clock.step(HOUR)
    for _ in range(20):
        assert (await other.recover(wait=NOW)).replayed == ()
        world.pass_time(5)
    assert world.bank.count("order-7") == 0
    with pytest.raises(LeaseLost):
        await end()
    assert world.bank.count("order-7") <= 1
    await world.close()


async def test_s15_durations_travel_as_durations(world: World) -> None:
    ledger = world.process()
    world.bank.next = ["crash_before"]
    with pytest.raises(Crash):
        await world.payer(ledger)("order-7")
    world.kill(ledger)
    item = await only(world.process())
    assert item.quiet_at == item.created_at + timedelta(seconds=30)  # by the store's clock
    await world.close()


def beside(world: World, path: Path, skew: timedelta) -> Ledger:
    """A process whose host clock is wrong by so much."""
    clock = ManualClock(wall_ms=START_MS + skew // timedelta(milliseconds=1))
    store = SQLiteStore(path, clock=clock)
    ledger = Ledger(store, clock=clock)
    step_renewals(ledger, clock)
    world.payer(ledger, probe=world.bank.probe, **RESEND)
    return ledger


@pytest.mark.parametrize("minutes", [10, -10])
async def test_s15_a_worker_with_a_wrong_clock_sends_nothing_twice(
    tmp_path: Path, minutes: int
) -> None:
    path = tmp_path / "ledger.db"
    world = World(path)
    end = await holding(world, world.process(), "non_idempotent")
    other = beside(world, path, timedelta(minutes=minutes))
    for _ in range(5):
        recovery = await other.recover(wait=timedelta(seconds=30))
        assert recovery.replayed == ()
    assert world.bank.count("order-7") == 0
    with contextlib.suppress(LeaseLost):  # the fast one replaces it
        await end()
    assert world.bank.count("order-7") <= 1
    await other.close()
    await world.close()


async def test_s15_a_slow_clock_delays_no_take_over_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    world = World(path)
    dying = world.process()
    world.bank.next = ["crash_after"]
    with pytest.raises(Crash):
        await world.payer(dying)("order-7")
    world.kill(dying, proven=False)
    slow = beside(world, path, timedelta(minutes=-10))
    clock = slow.open().engine.clock
    assert isinstance(clock, ManualClock)
    await slow.in_doubt()
    clock.advance(timedelta(seconds=31))
    recovery = await slow.recover(wait=NOW)
    assert [view.state for view in recovery.settled] == ["succeeded"]
    await slow.close()
    await world.close()
