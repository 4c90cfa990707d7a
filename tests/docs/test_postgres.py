"""What docs/postgres.md shows is what happens: its code runs on a server, its grants are enough."""

from __future__ import annotations

import ast
import inspect
import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from tests.servers.fixtures import postgres, postgres_versions
from tests.servers.postgres import Postgres

from indoubt import Ledger, OutcomeUnknown, RecordView
from indoubt.delayed_effects import DelayedEffectStore
from indoubt.errors import SchemaMissing, StoreBroken
from indoubt.stores import open_existing
from indoubt.stores.postgres import PostgresStore

PAGE = (Path(__file__).parents[2] / "docs" / "postgres.md").read_text("utf-8")


class Placed(NamedTuple):
    """A place for a ledger, and a role that may make nothing."""

    server: Postgres
    owner_url: str
    schema: str
    role: str

    @property
    def url(self) -> str:
        """As the role."""
        return self.owner_url.replace("postgres@", f"{self.role}@")

    def execute(self, statements: str) -> None:
        self.server.execute(statements)


@pytest.fixture
def server() -> Postgres:
    return postgres(postgres_versions()[0])


@pytest.fixture
def placed(server: Postgres) -> Generator[Placed]:
    with server.ledger() as url:
        schema = url.partition("schema=")[2]
        role = f"app_{schema}"
        server.execute(f"CREATE ROLE {role} LOGIN")
        yield Placed(server, url, schema, role)
        server.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def grants(placed: Placed) -> str:
    (text,) = blocks("sql")
    return text.replace("ledger", placed.schema).replace(" app;", f" {placed.role};")


async def test_the_pages_code_runs(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = server.database()
    with psycopg.connect(shop) as db:
        db.execute(b"CREATE TABLE orders(id text)")
    monkeypatch.setenv("SHOP_URL", shop)
    monkeypatch.setenv("INDOUBT_URL", f"{shop}?schema=ledger")
    names: dict[str, Any] = {"__name__": "shop"}
    for block in blocks("python"):
        code = compile(block, "postgres.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        ran = eval(code, names)  # noqa: S307 - our own page
        if inspect.isawaitable(ran):
            await ran
    store = PostgresStore(os.environ["INDOUBT_URL"])
    effects = DelayedEffectStore(store)
    made = await effects.get(effects.intent_id_for("remind order-7"))
    with psycopg.connect(shop) as db:
        orders = db.execute(b"SELECT id FROM orders").fetchall()
    await store.close()
    assert made.payload == {"order": "order-7"}
    assert orders == [("order-7",)]


def test_a_role_that_may_make_nothing_is_told_what_to_do(placed: Placed) -> None:
    with pytest.raises(SchemaMissing, match=r"let one that may run `indoubt db upgrade`"):
        PostgresStore(placed.url)
    placed.execute(f"CREATE SCHEMA {placed.schema}")  # it may not look into that, either
    with pytest.raises(SchemaMissing, match="grant this one their use"):
        PostgresStore(placed.url)
    PostgresStore(placed.owner_url)
    with pytest.raises(SchemaMissing, match="grant this one their use"):
        PostgresStore(placed.url)
    placed.execute(f"GRANT USAGE ON SCHEMA {placed.schema} TO {placed.role}")
    with pytest.raises(StoreBroken, match=r"this role may not do that .see docs/postgres\.md"):
        PostgresStore(placed.url)


async def test_the_grants_of_the_page_are_enough_for_a_program(placed: Placed) -> None:
    await PostgresStore(placed.owner_url).close()
    placed.execute(grants(placed))
    ledger = Ledger(placed.url)
    doubtful = await in_doubt(ledger)
    assert (await ledger.get(doubtful.ref)).attempt == 1
    assert (await ledger.recover()).errors == ()
    await ledger.close()


async def test_a_role_that_may_only_look_sees_what_is_in_doubt(placed: Placed) -> None:
    program = Ledger(placed.owner_url)
    doubtful = await in_doubt(program)
    await program.close()
    schema, role = placed.schema, placed.role
    tables = ", ".join(f"{schema}.indoubt_{n}" for n in ("migration", "meta", "record", "journal"))
    placed.execute(
        f"GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT ON {tables} TO {role};"
        f" GRANT SELECT ON SEQUENCE {schema}.indoubt_clock TO {role}"
    )
    looking = Ledger(open_existing(placed.url))
    assert [item.ref for item in (await looking.in_doubt()).items] == [doubtful.ref]
    assert await looking.journal(doubtful.record_id)
    with pytest.raises(StoreBroken, match="this role may not do that"):
        await in_doubt(looking)
    await looking.close()


async def in_doubt(ledger: Ledger) -> RecordView:
    """Make a doubt; the record."""

    @ledger.effect(safety="non_idempotent", name="pay")
    async def pay() -> None:
        raise ConnectionResetError

    with pytest.raises(OutcomeUnknown):
        await pay.using(key="order-7")()
    found = await ledger.find("pay", "order-7")
    assert found is not None
    return found
