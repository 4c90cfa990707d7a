"""S01: a call is sent again after its connection dropped; here guarded calls, without a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.performing import Payment, itself, ms

from indoubt import Ledger, OutcomeUnknown
from indoubt.testing import FakeProvider
from indoubt.testing.provider import ProviderRejected, act_async, find_async

BEFORE_SENDING = (ConnectionRefusedError, ProviderRejected)


@pytest.fixture
async def ledger(payment: Payment) -> AsyncIterator[Ledger]:
    """The ledger of a worker that stays alive."""
    async with payment.ledger() as ledger:
        yield ledger


def asked(bank: FakeProvider, order: str, what: str = "act") -> int:
    """How many requests arrived."""
    return sum(one["key"] == order and one["request"] == what for one in bank.log())


def reader(ledger: Ledger, bank: FakeProvider) -> Any:
    """``get_order``: a pure read."""

    @ledger.effect(safety="pure", name="get_order", key=itself)
    async def get_order(order: str) -> int:
        return len((await find_async(bank.url, order)).acts)

    return get_order


async def test_a_lost_answer_is_in_doubt_also_for_a_living_worker(
    bank: FakeProvider, payment: Payment, ledger: Ledger, order: str
) -> None:
    """`place_order`: effects = 1, row `unknown`, no second send, run pauses for a person."""
    place_order = payment.guard(ledger)
    bank.next("apply_then_drop", key=order)
    for _ in range(3):
        with pytest.raises(OutcomeUnknown) as caught:
            await place_order(order)
        assert caught.value.next == "ask_person"
        await ledger.recover(wait=timedelta(0))
    assert (bank.count(order), asked(bank, order)) == (1, 1)
    items = (await ledger.in_doubt()).items
    assert [(item.key, item.state) for item in items] == [(order, "awaiting_decision")]


async def test_a_read_is_sent_again_once(bank: FakeProvider, ledger: Ledger, order: str) -> None:
    """`get_order`: sent again at most once."""
    get_order = reader(ledger, bank)
    bank.fault("lookup", key=order, status="drop", times=1)
    assert await get_order(order) == 0
    assert asked(bank, order, "find") == 2
    bank.fault("lookup", key=f"{order} b", status="drop")
    with pytest.raises(OutcomeUnknown) as caught:
        await get_order(f"{order} b")
    assert (caught.value.next, asked(bank, f"{order} b", "find")) == ("call_again", 2)


async def test_first_try_and_replay_share_one_deadline(
    bank: FakeProvider, ledger: Ledger, order: str
) -> None:
    """First try and replay sharing one deadline."""
    get_order = reader(ledger, bank)
    with bank.fault("hang", key=order, on="find"):
        bank.fault("lookup", key=order, status="drop", times=1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await get_order(order)
        await ledger.open().driver.settle_aftermath()
    assert asked(bank, order, "find") <= 2


async def test_a_refused_connection_may_be_tried_again(tmp_path: Path) -> None:
    """The transport proves that nothing was sent.

    Refused connection: may be retried, because nothing was dispatched and the transport can
    prove it.
    """
    with FakeProvider() as bank:
        payment = Payment(store=str(tmp_path / "ledger.db"), bank=bank.url)
        async with payment.ledger() as ledger:
            guarded = ledger.effect(
                safety="non_idempotent",
                name="place_order",
                key=itself,
                clean_failures=BEFORE_SENDING,
            )
            place_order = guarded(sender(bank.url))
            bank.kill()
            with pytest.raises(ConnectionRefusedError):
                await place_order("order-7")
            found = await ledger.find("place_order", "order-7")
            assert found is not None
            assert (found.state, found.effect) == ("failed", "none")
            bank.restart()
            assert (await place_order("order-7"))["key"] == "order-7"
            assert bank.count("order-7") == 1


def sender(url: str) -> Any:
    """The tool itself."""

    async def place_order(order: str) -> dict[str, Any]:
        return dict(await act_async(url, order, 12))

    return place_order


async def test_a_refusal_is_an_answer(
    bank: FakeProvider, payment: Payment, ledger: Ledger, order: str
) -> None:
    """Tool-level error: recorded `failed`, never retried by the reconnect path."""
    place_order = payment.guard(ledger)
    bank.next("reject", key=order)
    with pytest.raises(ProviderRejected):
        await place_order(order)
    recovery = await ledger.recover(wait=timedelta(0))
    assert (recovery.replayed, recovery.settled) == ((), ())
    found = await ledger.find("pay", order)
    assert found is not None
    assert (found.state, found.effect, asked(bank, order), bank.count(order)) == (
        "failed",
        "none",
        1,
        0,
    )


async def test_two_calls_lost_on_one_dead_server(tmp_path: Path) -> None:
    """Two calls lost on one dead server get two rows and one reconnect."""
    with FakeProvider() as bank:
        payment = Payment(store=str(tmp_path / "ledger.db"), bank=bank.url)
        async with payment.ledger() as ledger:
            place_order = payment.guard(ledger)
            orders = ("order-7", "order-8")
            with bank.fault("hang") as held:
                calls = [asyncio.ensure_future(place_order(order)) for order in orders]
                await held.wait_reached_async(requests=2)
                bank.kill()
            done = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(one) for one in done] == [OutcomeUnknown] * 2
            items = (await ledger.in_doubt()).items
            assert sorted(item.key or "" for item in items) == list(orders)
            bank.restart()
            await place_order.using(wait=ms(0))("order-9")
            assert bank.counts() == dict.fromkeys([*orders, "order-9"], 1)
            assert [one["request"] for one in bank.log()] == ["act"] * 3
