"""Answers that the server gave and nobody heard, callers that went away, and what a call costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from typing import Any

import psycopg
import pytest
from tests.servers.fixtures import postgres, postgres_versions
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy, When

from indoubt import Ledger
from indoubt.errors import AnswerLost, Contended, StoreUnavailable
from indoubt.store import Version, Written
from indoubt.stores.postgres.store import PostgresStore
from indoubt.testing.store_contract.examples import answered, batch, events, put, written


@pytest.fixture(params=postgres_versions())
def server(request: pytest.FixtureRequest) -> Postgres:
    return postgres(str(request.param))


@pytest.fixture
def url(server: Postgres) -> Generator[str]:
    with server.ledger() as made:
        yield made


@pytest.fixture
def proxy(url: str) -> Generator[Proxy]:
    with Proxy(url) as made:
        yield made


@pytest.fixture
async def store(proxy: Proxy) -> AsyncGenerator[PostgresStore]:
    made = PostgresStore(proxy.url)
    await written(made, put("before"))  # the connection is there, the statement prepared
    yield made
    await made.close()


@pytest.mark.parametrize(("when", "landed"), [("before", False), ("after", True)])
async def test_a_link_cut_at_a_write_is_doubt_and_the_repeat_lands_once(
    proxy: Proxy,
    store: PostgresStore,
    when: When,
    landed: bool,  # noqa: FBT001
) -> None:
    insert = batch(put("a"))
    proxy.cut(insert.write_id.encode(), when)
    assert isinstance(await answered(store, insert), AnswerLost)
    assert proxy.cuts == 1
    again = await answered(store, insert)
    assert isinstance(again, Written)
    assert again.repeated == landed
    assert [n for n, _ in await events(store, "a")] == [1]


async def test_a_caller_that_goes_away_in_mid_write_leaves_a_write_that_a_repeat_tells_of(
    server: Postgres, store: PostgresStore
) -> None:
    schema = store.place.schema or "public"
    change = batch(put("before", expected=Version(1)))
    with psycopg.connect(server.url()) as foreign:
        foreign.execute(f"SET search_path = {schema}".encode())
        foreign.execute(b"SELECT 1 FROM indoubt_record WHERE id = 'before' FOR UPDATE")
        caller = asyncio.create_task(answered(store, change))
        await asyncio.to_thread(wait_for_a_lock, server)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
    again: Any = await answered(store, change)
    assert isinstance(again, Written)
    assert [n for n, _ in await events(store, "before")] == [1, 2]


def wait_for_a_lock(server: Postgres) -> None:
    """Until a connection of ours waits for somebody's row."""
    with psycopg.connect(server.url(), autocommit=True) as db:
        for _ in range(10_000):
            waiting = db.execute(
                b"SELECT FROM pg_stat_activity WHERE application_name = 'indoubt'"
                b" AND wait_event_type = 'Lock'"
            ).fetchall()
            if waiting:
                return
    raise TimeoutError("nobody waits for a row")


async def test_a_statement_that_takes_too_long_wrote_nothing(server: Postgres, url: str) -> None:
    store = PostgresStore(url, patience_ms=300)
    await written(store, put("a"))
    schema = store.place.schema or "public"
    with psycopg.connect(server.url()) as foreign:
        foreign.execute(f"LOCK {schema}.indoubt_journal".encode())
        refused = await answered(store, batch(put("b")))
    assert isinstance(refused, StoreUnavailable | Contended)
    assert (await store.read(["b"])).records == ()
    assert isinstance(await answered(store, batch(put("b"))), Written)
    await store.close()


async def test_a_guarded_call_is_two_commits(server: Postgres, url: str) -> None:
    """By the server's own count: each transaction that writes takes a number.

    Its housekeeping takes some too, so the least of several counts is meant.
    """
    ledger = Ledger(url)

    @ledger.effect(safety="non_idempotent", name="pay")
    async def pay() -> str:
        return "paid"

    await pay.using(key="first")()
    counts: list[int] = []
    for key in ("second", "third", "fourth"):
        before = number(server)
        assert await pay.using(key=key)() == "paid"
        counts.append(number(server) - before - 1)
    await ledger.close()
    assert min(counts) == 2


def number(server: Postgres) -> int:
    with psycopg.connect(server.url()) as db:
        row = db.execute(b"SELECT pg_current_xact_id()::text::bigint").fetchone()
    assert row
    return int(row[0])
