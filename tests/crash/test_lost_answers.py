"""The worker lives, and the answer of one of its outside calls does not come."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.crash.histories import History, Life, check_history, in_memory, on_sqlite, sides
from tests.crash.processes import CASES, Case, itself, named

from indoubt import (
    DoubtfulAttempt,
    Ledger,
    OutcomeUnknown,
    ProviderProbeResult,
    StoreUnavailable,
)
from indoubt.stores.memory import MemoryStore
from indoubt.testing import CUTS, Blow, CrashStore, Fate, ManualClock, memory_ledger
from indoubt.testing.clock import step_renewals
from indoubt.testing.crash import How

LOSSES: tuple[How, ...] = ("answer_lost", "never_arrived", "delayed")


@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize("case", CASES, ids=named)
async def test_one_answer_is_lost(case: Case, how: How) -> None:
    """At each call of a first call, of a repeat that recovers, and of both."""
    opener = in_memory()
    whole = await check_history(case, History((Life(),)), opener)
    crash = Life("call", (CUTS["F2"],))
    again = await check_history(case, History((crash, Life("call"))), opener)
    for at in range(1, len(whole.calls[0]) + 1):
        await check_history(case, History((Life("call", (Blow(at, how),)),), late=True), opener)
    for at in range(1, len(again.calls[1]) + 1):
        for late in (False, True):
            lives = (crash, Life("call", (Blow(at, how),)))
            await check_history(case, History(lives, late=late), opener)


@pytest.mark.parametrize(
    "case", [Case("non_idempotent", "none"), Case("status_query_required", "provider")], ids=named
)
async def test_an_answer_is_lost_and_then_a_life(case: Case) -> None:
    """The first loses an answer and goes on, and dies later; the second repeats the call."""
    opener = in_memory()
    for how in ("answer_lost", "never_arrived"):
        whole = await check_history(case, History((Life("call", (Blow(2, how),)),)), opener)
        for at in range(2, 5):
            lossy = await check_history(case, History((Life("call", (Blow(at, how),)),)), opener)
            for blow, _ in sides(lossy.calls[0]):
                lives = (Life("call", (Blow(at, how), blow)), Life("recover"), Life("call"))
                await check_history(case, History(lives, late=True), opener)
        assert whole.calls


@pytest.mark.parametrize("how", LOSSES)
async def test_one_answer_is_lost_on_a_file(
    how: How, tmp_path_factory: pytest.TempPathFactory
) -> None:
    case = Case("non_idempotent", "none")
    opener = on_sqlite(tmp_path_factory.mktemp("files"))
    for at in range(1, 5):
        world = await check_history(case, History((Life("call", (Blow(at, how),)),)), opener)
        assert world.bank.count() == 1


async def test_a_lost_answer_of_the_mark_does_not_cost_a_second_mark() -> None:
    """The repeat is known by its write id: one attempt, one event, and the call goes on."""
    fate = Fate(Blow(name="write dispatched", how="answer_lost"))
    with crashing_ledger(fate) as (ledger, counted):

        @ledger.effect(safety="non_idempotent", name="pay", key=itself)
        async def pay(order: str) -> str:
            counted.append(order)
            return order

        assert await pay("order-7") == "order-7"
        found = await ledger.find("pay", "order-7")
        assert found is not None
        assert (found.attempt, found.state, counted) == (1, "succeeded", ["order-7"])
        assert [entry.did for entry in await ledger.journal(found.record_id)] == [
            ("prepare", "claim", "dispatch"),
            ("settle",),
        ]


async def test_a_store_that_never_answers_ends_the_call_unsent() -> None:
    fate = Fate()
    with crashing_ledger(fate) as (ledger, counted):

        @ledger.effect(safety="non_idempotent", name="pay", key=itself)
        async def pay(order: str) -> str:
            counted.append(order)
            return order

        await ledger.find("pay", "order-7")
        fate.unreachable = True
        with pytest.raises(StoreUnavailable):
            await pay("order-7")
        assert counted == []
        fate.unreachable = False
        assert await pay("order-7") == "order-7"
        assert counted == ["order-7"]


async def test_an_outcome_that_cannot_be_written_is_in_doubt_and_never_sent_again() -> None:
    """S19: an error after the effect is not answered by calling the function again."""
    fate = Fate()
    with crashing_ledger(fate) as (ledger, counted):

        @ledger.effect(safety="non_idempotent", name="pay", key=itself)
        async def pay(order: str) -> str:
            counted.append(order)
            fate.unreachable = True
            return order

        with pytest.raises(StoreUnavailable):
            await pay("order-7")
        fate.unreachable = False
        with pytest.raises(OutcomeUnknown) as told:
            await pay.using(wait=timedelta(minutes=5))("order-7")
        assert told.value.next == "ask_person"
        assert counted == ["order-7"]


class crashing_ledger:  # noqa: N801 - it reads as a verb in `with`
    """A ledger whose store is seen through a fate, and a list for what happened."""

    def __init__(self, fate: Fate) -> None:
        self.clock = ManualClock()
        store = CrashStore(MemoryStore(clock=self.clock), fate)
        self.ledger = Ledger(store, allow_ledger_loss=True, clock=self.clock)
        self.beat = step_renewals(self.ledger, self.clock)

    def __enter__(self) -> tuple[Ledger, list[str]]:
        return self.ledger, []

    def __exit__(self, *_: object) -> None:
        self.clock.remove(self.beat)


async def test_a_memory_ledger_needs_no_waiting() -> None:
    """Half a minute of another holder's lease passes in no time."""
    clock = ManualClock()
    with memory_ledger(clock=clock) as ledger:

        @ledger.effect(safety="non_idempotent", name="pay", key=itself)
        async def pay(order: str) -> str:
            clock.advance(timedelta(minutes=2))
            return order

        assert await pay("order-7") == "order-7"
    assert clock.now() == 120


async def test_a_probe_may_be_a_plain_function_that_makes_a_coroutine() -> None:
    """A lambda around an async look-up is no coroutine function, and yet its answer is awaited."""
    with crashing_ledger(Fate()) as (ledger, counted):

        async def look_up(attempt: DoubtfulAttempt) -> ProviderProbeResult:
            return attempt.succeeded({"id": 1})

        def probe(attempt: DoubtfulAttempt) -> Any:
            return look_up(attempt)

        @ledger.effect(safety="non_idempotent", name="pay", key=itself, probe=probe)
        async def pay(order: str) -> Any:
            counted.append(order)
            raise ConnectionResetError("no answer came")

        assert await pay("order-7") == {"id": 1}
        assert counted == ["order-7"]
