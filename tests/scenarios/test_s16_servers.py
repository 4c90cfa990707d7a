"""S16 on servers: a proxy cuts the link before the completion gets there, or before its answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.performing import Payment, told_by
from tests.scenarios.test_s16 import Watched
from tests.servers.places import SERVERS, place
from tests.servers.proxy import Proxy, When

from indoubt.errors import AnswerLost
from indoubt.stores import open_store
from indoubt.testing import Blow, Crash, FakeProvider, Fate, ManualClock
from indoubt.testing.provider import act_async


@pytest.fixture(params=SERVERS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A ledger's place on a server."""
    with place(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    """The way there."""
    with Proxy(url) as made:
        yield made


@pytest.fixture
def payment(bank: FakeProvider, url: str) -> Payment:
    """As others know it, who go straight to the server."""
    return Payment(store=url, bank=bank.url, lease_ms=2000, wait_ms=10_000)


def cutting(proxy: Proxy, when: When, *, away_s: float = 0.0) -> Any:
    """Pay; the completion that is written next meets the cut."""

    async def send(**request: Any) -> Any:
        answer = await act_async(**request)
        proxy.cut(b"succeeded", when, away_s=away_s)
        return answer

    return send


@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_completion_is_written_again(
    bank: FakeProvider, payment: Payment, proxy: Proxy, order: str, when: When
) -> None:
    """The store is reachable again 500 ms later.

    The write is retried with the same fence and write id and ends COMPLETED in both; exactly one
    completion event; the handler is not called again.
    """
    store = Watched(open_store(proxy.url), Fate())
    async with payment.ledger(store) as ledger:
        pay = payment.guard(ledger, send=cutting(proxy, when, away_s=0.5))
        assert (await told_by(pay, order))[0] == "returned"
        assert proxy.cuts == 1
        found = await ledger.find("pay", order)
        assert found is not None
        assert found.state == "succeeded"
        states = [entry.state for entry in await ledger.journal(found.record_id)]
    assert type(store.answers[0]) is AnswerLost
    assert {(batch.write_id, batch.puts[0].fence) for batch in store.handed_in} == {
        (store.handed_in[0].write_id, store.handed_in[0].puts[0].fence)
    }
    assert len(store.handed_in) >= 2
    assert states == ["dispatched", "succeeded"]
    assert bank.count(order) == 1
    assert sum(one["key"] == order for one in bank.log()) == 1


@pytest.mark.parametrize("when", ["before", "after"])
async def test_then_the_worker_dies(
    bank: FakeProvider, payment: Payment, proxy: Proxy, order: str, when: When
) -> None:
    """If the worker died, (ii) is found complete and (i) goes the normal uncertain path."""
    fate = Fate(Blow(at=2, name="write succeeded", how="before"))
    store = Watched(open_store(proxy.url), fate)
    dying = payment.ledger(store, ManualClock())
    with pytest.raises(Crash):
        await payment.guard(dying, send=cutting(proxy, when))(order)
    await store.close()
    assert proxy.cuts == 1
    async with payment.ledger() as ledger:
        told = await told_by(payment.guard(ledger), order)
        in_doubt = [item.key for item in (await ledger.in_doubt()).items]
    if when == "after":
        assert (told[0], in_doubt) == ("returned", [])
    else:
        assert (told, in_doubt) == (["raised", "OutcomeUnknown", "ask_person"], [order])
    assert bank.count(order) == 1
