"""A walk through the pages of recover looks at each record once."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from indoubt import DoubtfulAttempt, Ledger, OutcomeUnknown, ProviderProbeResult
from indoubt.stores.memory import MemoryStore
from indoubt.testing.clock import ManualClock

NOW = timedelta(0)
ORDERS = [f"order-{n}" for n in range(5)]


def by_order(order: str) -> str:
    return order


class World:
    """Payments whose provider cannot be asked; every question takes a moment."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        store = MemoryStore(clock=self.clock)
        self.ledger = Ledger(store, clock=self.clock, allow_ledger_loss=True)
        self.asked: list[str] = []
        pay: Any = self.ledger.effect(
            self._pay, name="pay", safety="non_idempotent", key=by_order, probe=self._probe
        )
        self.pay = pay.using(wait=NOW)

    async def _pay(self, order: str) -> None:
        del order
        raise ConnectionResetError

    def _probe(self, attempt: DoubtfulAttempt) -> ProviderProbeResult:
        self.clock.advance(timedelta(milliseconds=1))
        self.asked.append(attempt.key or "")
        return attempt.unavailable()

    async def walk(self, limit: int) -> list[str]:
        """Whatever all pages of one walk bring, at most so many as there could be."""
        found: list[str] = []
        cursor = None
        for _ in range(100):
            page = await self.ledger.recover(limit=limit, wait=NOW, cursor=cursor)
            found += [item.key or "" for item in (*page.waiting, *page.asked)]
            cursor = page.cursor
            if cursor is None:
                return found
        pytest.fail("the walk did not end")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    for order in ORDERS:
        with pytest.raises(OutcomeUnknown):
            await made.pay(order)
    made.clock.advance(timedelta(seconds=20))
    made.asked.clear()
    yield made
    await made.ledger.close()


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_a_walk_asks_about_each_record_once(world: World, limit: int) -> None:
    assert sorted(await world.walk(limit)) == ORDERS
    assert sorted(world.asked) == ORDERS


async def test_the_next_walk_asks_again(world: World) -> None:
    await world.walk(2)
    world.clock.advance(timedelta(seconds=20))
    assert sorted(await world.walk(2)) == ORDERS
    assert sorted(world.asked) == sorted(ORDERS * 2)


@pytest.mark.parametrize("cursor", ["", "x", "12", ".x", "-1.x", "1.x", "\0.x"])
async def test_a_garbled_cursor_is_refused(world: World, cursor: str) -> None:
    with pytest.raises(ValueError, match="cursor"):
        await world.ledger.recover(cursor=cursor)
    assert world.asked == []
