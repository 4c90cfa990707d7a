"""The store's wall clock is set, forwards or back, at any moment of a call or of its recovery.

A lease may then end early or late; a permit and a proof of absence must not (P5).
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.crash.histories import History, Life, World, check_history, in_memory, lates, sides
from tests.crash.processes import CASES, Case, named

from indoubt.testing import Blow, Crash, Fate, ManualClock

HOUR = timedelta(hours=1)
STEPS = (HOUR, -HOUR)


class Stepped(Fate):
    """Its blows do not kill it: they set the store's wall clock."""

    def __init__(self, *blows: Blow, clock: ManualClock, step: timedelta) -> None:
        super().__init__(*blows, clock=clock)
        self._step = step

    def die(self) -> None:
        assert self._clock is not None
        self._clock.step(self._step)


@pytest.mark.parametrize("step", STEPS, ids=["forwards", "back"])
@pytest.mark.parametrize("case", CASES, ids=named)
async def test_a_step_after_each_death(case: Case, step: timedelta) -> None:
    opener = in_memory()
    whole = await check_history(case, History((Life(),)), opener)
    for blow, flying in sides(whole.calls[0]):
        for late in lates(flying):
            for death in ("proven", "lapsed"):
                lives = (Life("call", (blow,)), Life("recover"), Life("call"))
                await check_history(case, History(lives, death, late, step), opener)


@pytest.mark.parametrize("step", STEPS, ids=["forwards", "back"])
@pytest.mark.parametrize("case", CASES, ids=named)
async def test_a_step_at_each_call_of_a_recovery(case: Case, step: timedelta) -> None:
    """What was sent lands as late as it may, by the true time: no step makes it absent."""
    opener = in_memory()
    lost = Life("call", (Blow(name="send", how="before"),))
    calls = (await check_history(case, History((lost, Life("call")), late=True), opener)).calls[1]
    for blow, _ in sides(calls):
        world = World(case, opener, late=True, stepped=True)
        first = world.process(Fate(*lost.blows, clock=world.clock))
        with pytest.raises(Crash):
            await world.live(first, "call")
        await world.end(first, "proven")
        second = world.process(Stepped(blow, clock=world.clock, step=step))
        try:
            await world.live(second, "call")
            await world.end(second, "proven")
            await world.check()
            await world.mend()
        except BaseException as error:
            error.add_note(f"{case} {blow} {step} {world.calls}")
            raise
        finally:
            await world.close()


@pytest.mark.parametrize("step", STEPS, ids=["forwards", "back"])
async def test_a_step_while_a_call_is_under_way_does_not_cost_its_result(step: timedelta) -> None:
    for blow, _ in sides(["hold owner", "write dispatched", "send", "write succeeded"]):
        world = World(Case("non_idempotent", "none"), in_memory(), stepped=True)
        process = world.process(Stepped(blow, clock=world.clock, step=step))
        assert await process.pay("order-7") == {"paid": "order-7"}
        await world.close()
