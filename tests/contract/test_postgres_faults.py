"""Ended connections, a restarted server, foreign locks: every answer is true, a repeat mends it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from tests.servers.fixtures import postgres, postgres_versions
from tests.servers.postgres import Postgres

from indoubt.errors import AnswerLost, Contended
from indoubt.store import Version, Written
from indoubt.stores.postgres.store import PostgresStore
from indoubt.testing.store_contract.examples import answered, batch, events, put, written

TRIGGER = """
CREATE FUNCTION {schema}.meet() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(10); RETURN NEW; END $$;
CREATE CONSTRAINT TRIGGER meet AFTER INSERT ON {schema}.indoubt_record
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.meet()
"""


@pytest.fixture(params=postgres_versions())
def server(request: pytest.FixtureRequest) -> Postgres:
    return postgres(str(request.param))


@pytest.fixture
def url(server: Postgres) -> Generator[str]:
    with server.ledger() as made:
        yield made


@pytest.fixture
async def store(url: str) -> AsyncGenerator[PostgresStore]:
    made = PostgresStore(url)
    yield made
    await made.close()


def end_connections(server: Postgres) -> None:
    server.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE application_name = 'indoubt'"
    )


async def test_an_ended_connection_is_doubt_and_the_repeat_lands_once(
    server: Postgres, store: PostgresStore
) -> None:
    await written(store, put("before"))
    end_connections(server)
    insert = batch(put("a"))
    assert isinstance(await answered(store, insert), AnswerLost)
    again = await answered(store, insert)
    assert isinstance(again, Written)
    assert not again.repeated
    assert [n for n, _ in await events(store, "a")] == [1]


async def test_a_backend_that_dies_at_commit_is_doubt_and_nothing_was_written(
    server: Postgres, store: PostgresStore
) -> None:
    await written(store, put("before"))
    schema = store.place.schema or "public"
    server.execute(TRIGGER.format(schema=schema))
    insert = batch(put("a"))
    assert isinstance(await answered(store, insert), AnswerLost)
    server.execute(f"DROP TRIGGER meet ON {schema}.indoubt_record")
    assert (await store.read(["a"])).records == ()
    assert isinstance(await answered(store, insert), Written)


async def test_a_row_that_a_foreign_transaction_holds_holds_up_its_own_batch_alone(
    server: Postgres, store: PostgresStore
) -> None:
    await written(store, put("held"))
    schema = store.place.schema or "public"
    with psycopg.connect(server.url()) as foreign:
        foreign.execute(f"SET search_path = {schema}".encode())
        foreign.execute(b"SELECT 1 FROM indoubt_record WHERE id = 'held' FOR UPDATE")
        refused = await answered(store, batch(put("held", expected=Version(1))))
        assert isinstance(refused, Contended)
        assert isinstance(await answered(store, batch(put("free"))), Written)
    assert isinstance(await answered(store, batch(put("held", expected=Version(1)))), Written)


def test_all_who_open_a_new_place_at_once_find_one_ledger(server: Postgres) -> None:
    for _ in range(2):
        with server.ledger() as url, ThreadPoolExecutor(8) as pool:
            stores = list(pool.map(PostgresStore, [url] * 8))
            assert len({made.meta.incarnation for made in stores}) == 1
