"""S13 on servers: a worker alone is cut off from its store, by refusals or by silence."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.performing import Payment, told_by
from tests.servers.places import SERVERS, place
from tests.servers.proxy import Proxy

from indoubt.stores import open_store
from indoubt.testing import FakeProvider
from indoubt.testing.provider import act_async

LEASE_MS = 1500


@pytest.mark.parametrize("fault", ["sever", "silence"])
@pytest.mark.parametrize("kind", SERVERS)
async def test_a_worker_that_does_not_reach_its_store(
    bank: FakeProvider, tmp_path: Path, order: str, kind: str, fault: str
) -> None:
    """(b), (c) By the last *confirmed* deadline it has stopped.

    By the last confirmed deadline the worker has stopped dispatching, cancelled the handler
    cooperatively and recorded `lease_lost`; its later writes change nothing.
    """
    with place(kind, tmp_path) as url, Proxy(url) as proxy:
        payment = Payment(store=url, bank=bank.url, lease_ms=LEASE_MS, wait_ms=10_000)
        loop = asyncio.get_running_loop()
        cancelled_after: list[float] = []
        ledger, peer = payment.ledger(open_store(proxy.url)), payment.ledger()

        async def send(**request: Any) -> Any:
            await act_async(**request)
            getattr(proxy, fault)()
            begun = loop.time()
            try:
                async with asyncio.timeout(30):
                    await asyncio.Event().wait()  # for ever, but for its cancellation
            except asyncio.CancelledError:
                cancelled_after.append(loop.time() - begun)
                told = await told_by(payment.guard(peer), order)
                assert told[:2] == ["raised", "OutcomeUnknown"]
                proxy.restore()
                raise

        told = await told_by(payment.guard(ledger, send=send), order)
        assert told[:2] == ["raised", "LeaseLost"]
        # A lease after the last confirmation at the latest, and a busy machine's moment.
        assert [True for after in cancelled_after if after < LEASE_MS / 1000 + 2] == [True]
        found = await peer.find("pay", order)
        assert found is not None
        assert found.state == "awaiting_decision"
        fences = [entry.fence for entry in await peer.journal(found.record_id)]
        assert fences == sorted(fences)
        assert fences[-1] == 2
        await ledger.close()
        await peer.close()
    assert bank.count(order) == 1
