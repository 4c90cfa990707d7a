"""An attempt's time is over, or the provider says no: what that proves, and what it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.race.worker import Job, itself, ledger_of

from indoubt import (
    AllowOneAttempt,
    DidNotHappen,
    Ledger,
    OutcomeUnknown,
    TooEarly,
)
from indoubt.testing import FakeProvider
from indoubt.testing.provider import ProviderRejected, act, act_async, async_probe

SHORT = timedelta(milliseconds=300)
AT_ONCE = timedelta(0)


@pytest.fixture
async def ledger(job: Job) -> AsyncIterator[Ledger]:
    async with ledger_of(job) as ledger:
        yield ledger


async def test_a_coroutine_is_cancelled_at_its_time_and_that_is_no_failure(
    bank: FakeProvider, job: Job, ledger: Ledger
) -> None:
    """The provider still has the request: it lands when it likes, and the probe finds it."""
    order = job.orders[0]

    @ledger.effect(
        safety="non_idempotent", name="pay", key=itself, timeout=SHORT, probe=async_probe(bank.url)
    )
    async def pay(order: str) -> Any:
        return await act_async(bank.url, order, 12)

    with bank.gate(order) as held:
        with pytest.raises(OutcomeUnknown) as told:
            await pay.using(wait=AT_ONCE)(order)
        assert isinstance(told.value.__cause__, TimeoutError)
        await held.wait_reached_async()
        assert bank.count(order) == 0
        held.release()
        assert bank.count(order, at_least=1) == 1
    found = await ledger.find("pay", order)
    assert found is not None
    assert found.state in {"in_doubt", "awaiting_decision"}
    await ledger.probe(found.ref)
    if found.state == "in_doubt":
        assert (await pay(order))["key"] == order
    assert bank.count(order) == 1


@pytest.mark.parametrize("in_thread", [False, True], ids=["blocking", "aio"])
async def test_a_plain_function_outlives_its_time_and_is_believed(
    bank: FakeProvider, job: Job, ledger: Ledger, *, in_thread: bool
) -> None:
    """Nobody can stop it; its lease is renewed, its fence holds, so what it says is recorded."""
    order = job.orders[0]
    lasting = bank.fault("slow", key=order, delay=SHORT * 2)

    @ledger.effect(safety="non_idempotent", name="pay", key=itself, timeout=SHORT)
    def pay(order: str) -> Any:
        return act(bank.url, order, 12)

    told = await pay.aio(order) if in_thread else pay(order)
    lasting.clear()
    assert told["key"] == order
    assert bank.count(order) == 1
    found = await ledger.find("pay", order)
    assert found is not None
    assert (found.state, found.attempt) == ("succeeded", 1)


async def test_a_definite_no_is_believed_and_may_be_tried_again(
    bank: FakeProvider, job: Job, ledger: Ledger
) -> None:
    order = job.orders[0]

    def declined(error: BaseException) -> bool:
        return isinstance(error, ProviderRejected) and error.code == "declined"

    @ledger.effect(safety="non_idempotent", name="pay", key=itself, clean_failures=(declined,))
    async def pay(order: str, *, effect: Any) -> Any:
        return await act_async(bank.url, order, 12, idempotency_key=effect.idempotency_key)

    bank.next("reject", key=order, code="declined")
    with pytest.raises(ProviderRejected):
        await pay(order)
    found = await ledger.find("pay", order)
    assert found is not None
    assert (found.state, found.effect) == ("failed", "none")
    assert (await pay(order))["key"] == order
    assert bank.count(order) == 1


async def test_a_no_to_a_second_attempt_says_nothing_about_the_first(
    bank: FakeProvider, job: Job, ledger: Ledger
) -> None:
    """The first landed and its answer was lost; the permitted second is told that it exists."""
    order = job.orders[0]

    @ledger.effect(
        safety="non_idempotent", name="pay", key=itself, clean_failures=(ProviderRejected,)
    )
    async def pay(order: str) -> Any:
        return await act_async(bank.url, order, 12)

    bank.next("apply_then_drop", key=order)
    with pytest.raises(OutcomeUnknown) as told:
        await pay(order)
    await ledger.decide(told.value, AllowOneAttempt(), actor="ana", reason="try again")
    bank.next("unique", key=order)
    with pytest.raises(OutcomeUnknown) as again:
        await pay(order)
    assert isinstance(again.value.__cause__, ProviderRejected)
    found = await ledger.find("pay", order)
    assert found is not None
    assert (found.state, [one["closed"] for one in found.attempts]) == (
        "awaiting_decision",
        [None, "clean_failure"],
    )
    with pytest.raises(OutcomeUnknown):
        await pay(order)
    assert bank.count(order) == 1


async def test_a_person_may_not_say_no_while_a_request_may_land(
    bank: FakeProvider, job: Job, ledger: Ledger
) -> None:
    """The caller was cancelled; by the provider's word a request may land for a minute yet."""
    order = job.orders[0]

    @ledger.effect(
        safety="non_idempotent", name="pay", key=itself, settle_time=timedelta(minutes=1)
    )
    async def pay(order: str) -> Any:
        return await act_async(bank.url, order, 12)

    with bank.gate(order) as held:
        caller = asyncio.ensure_future(pay(order))
        await held.wait_reached_async()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await ledger.open().driver.settle_aftermath()
        found = await ledger.find("pay", order)
        assert found is not None
        with pytest.raises(TooEarly):
            await ledger.decide(found.ref, DidNotHappen(), actor="ana", reason="I saw nothing")
    assert bank.count(order, at_least=1) == 1
