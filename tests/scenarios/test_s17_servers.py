"""S17 on servers: the server itself says serialization failure, deadlock or BUSY, and means it."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest
import redis as driver
from tests.conftest import World
from tests.scenarios.performing import Payment, told_by
from tests.servers.fixtures import postgres, postgres_versions, redis, redis_versions
from tests.servers.processes import wait_for
from tests.servers.redis import Redis

from indoubt.stores.postgres.store import PostgresStore
from indoubt.testing import FakeProvider

FAILING_WRITE = """
CREATE SEQUENCE {schema}.writes;
CREATE FUNCTION {schema}.fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('{schema}.writes') = 1000 THEN
        RAISE EXCEPTION 'call again' USING ERRCODE = '{code}';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER fails BEFORE INSERT OR UPDATE ON {schema}.indoubt_record
FOR EACH STATEMENT EXECUTE FUNCTION {schema}.fails()
"""
"""A sequence does not roll back: of all writes only the one that draws 1000 fails, and once."""
ISOLATIONS = ["read committed", "serializable"]


class Statements:
    """The ledger's own writes, one of which fails."""

    def __init__(self, url: str, schema: str) -> None:
        self._url = url
        self._sequence = f"{schema}.writes"

    def execute(self, statement: str) -> int:
        with psycopg.connect(self._url, autocommit=True) as db:
            cursor = db.execute(statement.encode())
            return int(cursor.fetchone()[0]) if cursor.description else 0  # type: ignore[index]

    def fail(self, k: int) -> None:
        """The k-th write from now on fails."""
        self.execute(f"SELECT setval('{self._sequence}', {1000 - k})")

    def drawn(self) -> int:
        """The number of the last write."""
        return self.execute(f"SELECT last_value FROM {self._sequence}")  # noqa: S608 - a test's name


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("code", ["40001", "40P01"])
async def test_each_write_fails_once(code: str, isolation: str) -> None:
    """Ledger transactions are retried whole, and nothing of it becomes an outcome.

    Provider calls are never inside a retried transaction (effects = 1 each); none of these errors
    is stored as an outcome.
    """
    server = postgres(postgres_versions()[0])
    with ExitStack() as stack:
        place = stack.enter_context(server.ledger())
        level = isolation.replace(" ", "%5C%20")
        url = f"{place}&options=-c%20default_transaction_isolation%3D{level}"
        world = World(url=url)
        pay = world.payer(ledger := world.process(), probe=world.bank.probe)
        await pay("order-0")
        store = ledger.open().store
        assert isinstance(store, PostgresStore)
        schema = store.place.schema or "public"
        server.execute(FAILING_WRITE.format(schema=schema, code=code))
        writes = Statements(server.url(), schema)
        for how in ([], ["lost"]):
            writes.fail(900)
            world.bank.next = how.copy()
            await pay(f"{how} counted")
            many = writes.drawn() - 100
            assert many >= 2
            for k in range(1, many + 1):
                order = f"{how} order-{k}"
                calls, world.bank.next = world.bank.calls, how.copy()
                writes.fail(k)
                receipt = await pay(order)  # the caller is told nothing of it
                assert writes.drawn() >= 1000
                assert (world.bank.calls, world.bank.count(order)) == (calls + 1, 1)
                found = await ledger.find("pay", order)
                assert found is not None
                assert (found.state, found.receipt, found.error) == ("succeeded", receipt, None)
                assert "call again" not in str(found.to_dict())
        assert (await ledger.in_doubt()).items == ()
        await world.check()
        await ledger.close()
        await world.close()


@contextmanager
def busy(server: Redis, seconds: float) -> Generator[None]:
    """A script keeps the server busy for so long, and is killed then."""

    def run() -> None:
        with pytest.raises(driver.ResponseError):
            server.administer("EVAL", "while true do end", 0)

    def says_so() -> bool:
        try:
            return not server.administer("PING")
        except driver.ResponseError as error:
            return "BUSY" in repr(error) or "busy" in str(error)

    script = threading.Thread(target=run)
    script.start()
    wait_for("BUSY", says_so)
    killer = threading.Timer(seconds, server.administer, ("SCRIPT", "KILL"))
    killer.start()
    yield
    script.join()
    killer.join()


@pytest.mark.parametrize("version", redis_versions())
async def test_a_busy_server_is_asked_again(bank: FakeProvider, order: str, version: str) -> None:
    """BUSY before the dispatch: one effect, and nobody is told."""
    server = redis(version)
    server.configure(busy_reply_threshold="20")
    with server.ledger() as url:
        payment = Payment(store=url, bank=bank.url)
        async with payment.ledger() as ledger:
            assert (await told_by(payment.guard(ledger), f"{order} first"))[0] == "returned"
            with busy(server, 0.6):
                assert (await told_by(payment.guard(ledger), order))[0] == "returned"
            found = await ledger.find("pay", order)
            assert found is not None
            assert (found.state, found.error) == ("succeeded", None)
            assert "BUSY" not in str(found.to_dict())
            states = [entry.state for entry in await ledger.journal(found.record_id)]
            assert states == ["dispatched", "succeeded"]
    assert bank.count(order) == 1
