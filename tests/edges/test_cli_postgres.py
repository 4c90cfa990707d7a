"""The command line on a ledger in PostgreSQL, each command once, and what doctor reads there."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import psycopg
import pytest
from tests.edges.conftest import Doubts
from tests.servers.fixtures import postgres, postgres_versions

from indoubt.stores import facts_of
from indoubt.stores.facts import Fact
from indoubt.stores.postgres import PostgresStore
from indoubt.stores.postgres.schema import LATEST


@pytest.fixture(params=postgres_versions())
def url(request: pytest.FixtureRequest, operator: Any) -> Generator[str]:
    """A new place, which the operator is told of."""
    with postgres(str(request.param)).ledger() as made:
        operator.url = made
        yield made


def one_done(url: str) -> None:
    doubts = Doubts(url)
    doubts.done("order-1")
    doubts.ledger.close()


async def facts(url: str) -> dict[str, Fact]:
    store = PostgresStore(url)
    found = {fact.name: fact for fact in facts_of(store)}
    await store.close()
    return found


def test_an_operators_evening(url: str, operator: Any) -> None:
    assert operator.run("inbox").code == 3
    assert operator.run("db", "status").code == 3
    doubts = Doubts(url)
    ref = doubts.make("order-7")
    doubts.ledger.close()
    (item,) = operator.run("inbox", "--json").json["items"]
    assert (item["ref"], item["key"]) == (ref, "order-7")
    assert operator.run("recover", "--wait", "0", "--json").code in {0, 4}
    assert "order-7" in operator.run("show", ref.rpartition(".")[0], "--journal").out
    word = ["--receipt", '{"id": 1}', "--actor", "ana", "--reason", "seen"]
    told = operator.run("decide", item["ref"], "happened", *word)
    assert told.code == 0, told.err
    assert operator.run("inbox", "--check").code == 0


def test_the_schema_is_looked_at_and_brought_up_to_date(url: str, operator: Any) -> None:
    one_done(url)
    assert operator.run("db", "status").out == f"schema {LATEST}, as this version writes it\n"
    assert operator.run("db", "upgrade").out == f"schema {LATEST}, before {LATEST}\n"
    plain, _, schema = url.partition("?schema=")
    with psycopg.connect(plain) as db:
        db.execute(f"SET search_path = {schema}".encode())
        db.execute(b"INSERT INTO indoubt_migration VALUES (99, 'x', 'x', 1)")
    assert operator.run("db", "status").code == 6
    refused = operator.run("inbox")
    assert refused.code == 6
    assert "use a newer indoubt" in refused.err


def test_doctor_tells_a_server_that_forgets_from_one_that_does_not(url: str, operator: Any) -> None:
    one_done(url)
    told = operator.run("doctor", "--json")
    assert told.code == 0, told.out
    assert told.json["findings"]["log"]["value"]["fsync"] == "on"
    forgets = operator.run("doctor", "--store", f"{url}&options=-csynchronous_commit%3Doff")
    assert forgets.code == 1
    assert "! durable      no" in forgets.out
    assert "! log          fsync=on, synchronous_commit=off" in forgets.out


async def test_what_a_server_says_of_itself(url: str) -> None:
    found = await facts(url)
    assert {fact.level for fact in found.values()} == {"fine"}
    assert found["server"].value["standby"] is False
    assert found["pooler"].value == {"between": False, "prepare": True}
    local = await facts(f"{url}&options=-csynchronous_commit%3Dlocal")
    assert local["log"].level == "fine"


async def test_a_clock_that_was_set_back_is_told(url: str) -> None:
    store = PostgresStore(url)
    with store.place.connect() as db:
        db.execute(b"UPDATE indoubt_meta SET ahead_ms = 60000")
    await store.close()
    clock = (await facts(url))["clock"]
    assert (clock.level, clock.value["ahead_ms"]) == ("bad", 60_000)
