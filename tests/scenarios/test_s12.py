"""S12: a handler blocks the event loop for more than its lease; nobody may take it over."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.scenarios.performing import SCRIPT, Payment, reached, told_by

from indoubt.testing import FakeProvider, Worker


@pytest.mark.parametrize("plain", [False, True], ids=["async def", "def"])
async def test_renewal_goes_on_while_the_loop_is_blocked(
    bank: FakeProvider, kept_payment: Payment, order: str, *, plain: bool
) -> None:
    """A blocked loop does not stop the heartbeat.

    The preferred result: renewal continues (own thread and connection), the peer gets BUSY
    throughout, effects = 1. The test must block, not await.
    """
    payment = replace(kept_payment, lease_ms=600, plain=plain, block_s=2.0)
    polls: list[list[str]] = []
    with Worker(SCRIPT, payment.text()) as worker:
        worker.say(order)
        async with payment.ledger() as ledger:
            heard = asyncio.ensure_future(asyncio.to_thread(worker.hear))
            await reached(lambda: ledger.find("pay", order))
            peer = replace(payment, block_s=0.0).guard(ledger)
            while not (await asyncio.wait([heard], timeout=0.1))[0]:
                polls.append((await told_by(peer, order))[:2])
            assert (await heard)[0] == "returned"
            found = await ledger.find("pay", order)
            assert found is not None
            journal = await ledger.journal(found.record_id)
    busy = polls[:-1]  # the last one may have come after the end
    assert len(busy) >= 3
    assert [poll for poll in busy if poll != ["raised", "EffectBusy"]] == []
    assert polls[-1] == ["raised", "EffectBusy"] or polls[-1][0] == "returned"
    assert {entry.fence for entry in journal} == {1}
    assert bank.count(order) == 1
