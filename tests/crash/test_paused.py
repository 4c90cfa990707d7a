"""Stop a process at every outside call, let another one take over, and let the first go on.

As with a suspended machine: nothing in it runs, its lease ends, its locks stay held. What it does
when it wakes changes no state that is not its own any more, and nothing is sent twice.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.crash.histories import A_SECOND, Deed, World, in_memory, lates, sides
from tests.crash.processes import CASES, LEASE, Case, Process, fate_of, named

from indoubt import LeaseLost
from indoubt.testing import CUTS, Blow, Fate, ManualClock

SUSPENDED = LEASE + A_SECOND
DEEDS: tuple[Deed, ...] = ("call", "recover")


class Paused(Fate):
    """Its blow does not kill it: for the length of ``meanwhile`` it stands still."""

    def __init__(self, blow: Blow, clock: ManualClock) -> None:
        super().__init__(blow, clock=clock)
        self.process: Process | None = None
        self.meanwhile: World | None = None
        self.deed: Deed = "call"

    def die(self) -> None:
        process, world = self.process, self.meanwhile
        assert process is not None
        assert world is not None
        self.process = None  # once
        process.freeze()
        world.clock.advance(SUSPENDED)
        other = world.process(fate_of(clock=world.clock))
        # On a thread: this one's event loop stands still, like everything in the process.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, world.live(other, self.deed)).result()
        other.freeze()
        process.thaw()


async def check_paused(world: World, blow: Blow, first: Deed, second: Deed) -> None:
    """One process is stopped at the blow while another one lives; then a last one mends."""
    fate = Paused(blow, world.clock)
    process = world.process(fate)
    fate.process, fate.meanwhile, fate.deed = process, world, second
    try:
        await world.live(process, first)
        process.freeze()
        await world.check()
        for one in world.processes:
            one.free_locks()
        await world.mend(proven=False)
    except BaseException as error:
        error.add_note(f"{world.case} {blow} {first} {second} late={world.late} {world.calls}")
        raise
    finally:
        await world.close()


@pytest.mark.parametrize("case", CASES, ids=named)
async def test_a_first_call_is_stopped_at_every_point(case: Case) -> None:
    opener = in_memory()
    calls = ["hold owner", "write dispatched", "send", "write succeeded"]
    for blow, _ in sides(calls):
        for second in DEEDS:
            world = World(case, opener)
            await check_paused(world, blow, "call", second)


@pytest.mark.parametrize("case", CASES, ids=named)
async def test_whoever_recovers_is_stopped_at_every_point(case: Case) -> None:
    """What it has read or been told by a probe is old when it goes on."""
    opener = in_memory()
    for cut in (CUTS["F1"], CUTS["F2"], CUTS["F3"]):
        for late in lates(cut is CUTS["F2"]):
            calls = await recovering(World(case, opener, late=late), cut)
            for blow, _ in sides(calls):
                for second in DEEDS:
                    world = World(case, opener, late=late)
                    await crash_first(world, cut)
                    await check_paused(world, blow, "call", second)


async def crash_first(world: World, blow: Blow) -> None:
    """A first process dies, provably."""
    process = world.process(fate_of(blow, clock=world.clock))
    with pytest.raises(BaseException, match="at call"):
        await world.live(process, "call")
    await world.end(process, "proven")


async def recovering(world: World, blow: Blow) -> list[str]:
    """The outside calls of an undisturbed repeat after that crash."""
    await crash_first(world, blow)
    process = world.process(fate_of(clock=world.clock))
    await world.live(process, "call")
    process.freeze()
    await world.close()
    return process.fate.calls


async def test_the_holder_that_was_replaced_is_told() -> None:
    """Its late result is kept beside the record, and its caller gets LeaseLost."""
    world = World(Case("non_idempotent", "none"), in_memory())
    fate = Paused(Blow(name="send", how="after"), world.clock)
    process = world.process(fate)
    fate.process, fate.meanwhile = process, world
    with pytest.raises(LeaseLost):
        await process.pay("order-7")
    found = await process.ledger.find("pay", "order-7")
    assert found is not None
    assert (found.state, found.attempts[0]["late_result"]) == ("awaiting_decision", True)
    assert [one["source"] for one in found.evidence][-1] == "late_result"
    assert found.evidence[-1]["data"] == {"paid": "order-7"}
    assert world.bank.count() == 1
    await world.close()


async def test_the_holder_that_nobody_replaced_goes_on() -> None:
    """Only the store knows whether somebody took over: an old lease that stands is enough."""
    world = World(Case("non_idempotent", "none"), in_memory())
    process = world.process(Slept(Blow(name="send", how="after"), clock=world.clock))
    assert await process.pay("order-7") == {"paid": "order-7"}
    assert world.bank.count() == 1
    await world.close()


class Slept(Fate):
    """Its blow is a long sleep, in which nobody else did anything."""

    def die(self) -> None:
        assert self._clock is not None
        self._clock.advance(SUSPENDED * 2)
