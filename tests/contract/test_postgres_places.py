"""What a PostgreSQL URL may say: several hosts, a schema, a pooler in between."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from tests.servers.fixtures import postgres, postgres_versions
from tests.servers.postgres import Postgres
from tests.servers.processes import free_port

from indoubt.errors import StoreUnavailable
from indoubt.store import ScanQuery
from indoubt.stores.postgres import PostgresStore, place_of
from indoubt.testing.store_contract.examples import put, written


@pytest.fixture
def server() -> Postgres:
    return postgres(postgres_versions()[0])


@pytest.fixture
def url(server: Postgres) -> Generator[str]:
    with server.ledger() as made:
        yield made


async def test_of_several_hosts_the_one_that_answers_is_used(server: Postgres, url: str) -> None:
    here = f"127.0.0.1:{server.port}"
    store = PostgresStore(url.replace(here, f"127.0.0.1:{free_port()},{here}"))
    await written(store, put("a"))
    await store.close()
    direct = PostgresStore(url)
    assert [record.id for record in (await direct.read(["a"])).records] == ["a"]
    await direct.close()


def test_of_several_hosts_one_that_takes_no_writes_is_passed_over(
    server: Postgres, url: str
) -> None:
    role = f"reader_{url.partition('schema=')[2]}"
    server.execute(f"CREATE ROLE {role} LOGIN SUPERUSER")
    server.execute(f"ALTER ROLE {role} SET default_transaction_read_only = on")
    here = f"127.0.0.1:{server.port}"
    several = url.replace("postgres@", f"{role}@").replace(here, f"{here},{here}")
    with pytest.raises(StoreUnavailable, match="read-only"):
        PostgresStore(several)
    server.execute(f"DROP ROLE {role}")


def test_no_host_that_answers_is_an_error_that_shows_no_password() -> None:
    port = free_port()
    with pytest.raises(StoreUnavailable) as caught:
        PostgresStore(f"postgresql://ana:secret@127.0.0.1:{port},127.0.0.1:{port}/shop")
    assert "secret" not in str(caught.value)
    assert str(port) in str(caught.value)


async def test_behind_a_pooler_nothing_is_set(server: Postgres) -> None:
    store = PostgresStore(f"{server.database()}?prepare=never")
    await written(store, put("a"))
    for _ in range(8):
        assert len((await store.scan(ScanQuery())).records) == 1
    with store.place.connect() as db:
        (shown,) = db.execute(b"SELECT current_setting('statement_timeout')").fetchone() or ("",)
    await store.close()
    assert shown == "0"


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("schema=a-b", "a plain name"),
        ("schema=", "a plain name"),
        ("prepare=sometimes", "always, or never"),
        ("prepare=never&schema=a", "not with prepare=never"),
        ("nosuch=1", "cannot read this URL"),
    ],
)
def test_a_garbled_url_is_refused_without_its_secrets(query: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        place_of(f"postgresql://ana:secret@db/shop?{query}")
    assert "secret" not in str(caught.value)


def test_what_is_libpqs_reaches_it_as_it_was_written() -> None:
    place = place_of("postgresql://db/shop?options=-c%20a%3D1&schema=ledger&password=a+b%26c")
    assert place.url == "postgresql://db/shop?options=-c%20a%3D1&password=a+b%26c"
    assert place.schema == "ledger"
