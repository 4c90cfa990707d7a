"""An intent in the application's own transaction: there with its rows, or gone with them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from tests.servers.fixtures import postgres, postgres_versions

from indoubt import Ledger
from indoubt.delayed_effects import (
    DelayedEffectAction,
    DelayedEffectConflict,
    DelayedEffectIntent,
    DelayedEffectStore,
    DelayedEffectWorker,
)
from indoubt.errors import StoreError
from indoubt.store import Conflict, Put, Version, Written
from indoubt.stores.postgres.store import PostgresStore
from indoubt.testing.store_contract.examples import answered, batch, put


def intent(name: str, **changes: Any) -> Put:
    """What shall happen, and was not sent."""
    return put(name, **({"state": "prepared", "owner": None} | changes))


class RolledBack(Exception):
    """The application changed its mind."""


class Shop:
    """An application with a table of its own in the database of the ledger."""

    def __init__(self, store: PostgresStore, dsn: str) -> None:
        self.store = store
        self.dsn = dsn

    def orders(self) -> list[str]:
        with psycopg.connect(self.dsn) as db:
            return [name for (name,) in db.execute(b"SELECT id FROM app_orders ORDER BY 1")]

    async def intents(self, *names: str) -> list[str]:
        return [record.id for record in (await self.store.read(names)).records]

    async def order(self, name: str, *, changes_its_mind: bool = False) -> None:
        """One order and one intent, through an async connection."""
        with suppress(RolledBack):
            async with await psycopg.AsyncConnection.connect(self.dsn) as db:
                await db.execute(b"INSERT INTO app_orders VALUES (%s)", (name,))
                assert isinstance(await answered(self.store.join(db), batch(intent(name))), Written)
                assert await self.intents(name) == []  # nobody sees it yet
                if changes_its_mind:
                    raise RolledBack

    async def order_blocking(self, name: str, *, changes_its_mind: bool = False) -> None:
        """The same through a blocking connection."""
        with suppress(RolledBack), psycopg.connect(self.dsn) as db:
            db.execute(b"INSERT INTO app_orders VALUES (%s)", (name,))
            assert isinstance(await answered(self.store.join(db), batch(intent(name))), Written)
            if changes_its_mind:
                raise RolledBack


@pytest.fixture(params=postgres_versions())
def url(request: pytest.FixtureRequest) -> Generator[str]:
    server = postgres(str(request.param))
    with server.ledger() as made:
        server.execute("CREATE TABLE app_orders(id text PRIMARY KEY)")
        yield made
        server.execute("DROP TABLE app_orders")


@pytest.fixture
async def shop(url: str) -> AsyncGenerator[Shop]:
    store = PostgresStore(url)
    yield Shop(store, url.partition("?")[0])
    await store.close()


@pytest.mark.parametrize("how", ["order", "order_blocking"])
async def test_an_intent_is_committed_and_rolled_back_with_the_row(shop: Shop, how: str) -> None:
    order = getattr(shop, how)
    await order("kept")
    await order("dropped", changes_its_mind=True)
    assert shop.orders() == ["kept"]
    assert await shop.intents("kept", "dropped") == ["kept"]
    assert [event.sequence for event in await shop.store.journal("kept")] == [1]


async def test_a_second_intent_of_that_name_is_a_conflict_and_fails_no_transaction(
    shop: Shop,
) -> None:
    await shop.order("a")
    async with await psycopg.AsyncConnection.connect(shop.dsn) as db:
        refused = await answered(shop.store.join(db), batch(intent("a")))
        await db.execute(b"INSERT INTO app_orders VALUES ('b')")
    assert isinstance(refused, Conflict)
    assert refused.why == "exists"
    assert shop.orders() == ["a", "b"]


@pytest.mark.parametrize(
    "made",
    [
        {"state": "in_doubt", "attempt": 1},
        {"owner": "w1", "fence": 1},
        {"expected": Version(1)},
    ],
    ids=["sent", "owned", "moved"],
)
async def test_what_is_more_than_an_intent_is_refused(shop: Shop, made: dict[str, Any]) -> None:
    await shop.order("a")
    name = "a" if "expected" in made else "b"
    async with await psycopg.AsyncConnection.connect(shop.dsn) as db:
        with pytest.raises(ValueError, match="only new intents"):
            await shop.store.join(db).write([batch(intent(name, **made))])
    assert await shop.intents("b") == []
    assert [event.sequence for event in await shop.store.journal("a")] == [1]


async def test_a_guarded_call_through_it_sends_nothing(shop: Shop) -> None:
    sent: list[str] = []
    async with await psycopg.AsyncConnection.connect(shop.dsn) as db:
        ledger = Ledger(shop.store.join(db), allow_ledger_loss=True)

        @ledger.effect(safety="non_idempotent", name="pay")
        async def pay(order: str) -> None:
            sent.append(order)

        with pytest.raises(ValueError, match="whatever is sent must be durable first"):
            await pay.using(key="order-1")("order-1")
    assert sent == []
    assert (await Ledger(shop.store).in_doubt()).items == ()


async def test_a_connection_without_a_transaction_is_refused(shop: Shop) -> None:
    with psycopg.connect(shop.dsn, autocommit=True) as db:
        with pytest.raises(ValueError, match="no transaction is open"):
            await shop.store.join(db).write([batch(intent("a"))])
        with db.transaction():
            assert isinstance(await answered(shop.store.join(db), batch(intent("b"))), Written)
    assert await shop.intents("a", "b") == ["b"]


async def test_what_the_server_refuses_is_raised_and_nothing_is_left(shop: Shop) -> None:
    with psycopg.connect(shop.dsn) as db:
        db.execute(b"INSERT INTO app_orders VALUES ('a')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            db.execute(b"INSERT INTO app_orders VALUES ('a')")
        with pytest.raises(StoreError):
            await shop.store.join(db).write([batch(intent("a"))])
        db.rollback()
    assert (shop.orders(), await shop.intents("a")) == ([], [])


async def test_a_delayed_effect_is_registered_with_the_order_that_asks_for_it(shop: Shop) -> None:
    fired: list[str] = []
    for name, fails in (("order-1", False), ("order-2", True)):
        with suppress(RolledBack):
            async with await psycopg.AsyncConnection.connect(shop.dsn) as db:
                await db.execute(b"INSERT INTO app_orders VALUES (%s)", (name,))
                joined = DelayedEffectStore(shop.store.join(db))
                made = await joined.register(name, "ship", {"order": name}, delay_seconds=0)
                assert made.action is DelayedEffectAction.REGISTERED
                if fails:
                    raise RolledBack
    effects = DelayedEffectStore(shop.store)

    def ship(intent: DelayedEffectIntent) -> None:
        fired.append(intent.payload["order"])

    worker = DelayedEffectWorker(effects, {"ship": ship})
    await worker.recover_once()
    assert fired == shop.orders() == ["order-1"]


async def test_a_delayed_effect_is_registered_once_whichever_way(shop: Shop) -> None:
    effects = DelayedEffectStore(shop.store)
    await effects.register("op", "ship", {"n": 1}, delay_seconds=60)
    async with await psycopg.AsyncConnection.connect(shop.dsn) as db:
        joined = DelayedEffectStore(shop.store.join(db))
        again = await joined.register("op", "ship", {"n": 1}, delay_seconds=60)
        assert again.action is DelayedEffectAction.CACHED
        twice = [
            (await joined.register("new", "ship", {"n": 1}, delay_seconds=60)).action
            for _ in range(2)
        ]
        assert twice == [DelayedEffectAction.REGISTERED, DelayedEffectAction.CACHED]
        with pytest.raises(DelayedEffectConflict):
            await joined.register("new", "ship", {"n": 2}, delay_seconds=60)
