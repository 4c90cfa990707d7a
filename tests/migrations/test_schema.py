"""Ledgers of every age: an old one waits for its upgrade and keeps all it holds (S25).

The older schema is synthetic, so that the way to it is walked before there is a second version.
"""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from indoubt.errors import SchemaMissing, SchemaTooNew, SchemaTooOld, StoreBroken
from indoubt.store import DueQuery, ScanQuery, Version
from indoubt.stores.checks import lane_hash
from indoubt.stores.clock import StoreTime
from indoubt.stores.sql import Migration, migrations, steps
from indoubt.stores.sqlite import SQLiteStore, schema, schema_status, upgrade
from indoubt.stores.sqlite.connection import Place
from indoubt.testing.store_contract import SteeredClock
from indoubt.testing.store_contract.examples import (
    answered,
    batch,
    events,
    extend,
    put,
    refused,
    stored,
    written,
)

HERE = Path(__file__).parent
OLD, STEP = steps(HERE)
OPEN = ("prepared", "dispatched", "in_doubt", "awaiting_decision", "permitted")
STATES = [*OPEN, "succeeded", "failed", "partial", "cancelled", "unknown"]
LONG_AGO = 1_700_000_000_000
TOGETHER = """
import sys
from pathlib import Path
from indoubt.stores.sql import steps
from indoubt.stores.sqlite import SQLiteStore, schema
if sys.argv[2:]:
    schema.SHIPPED = steps(Path(sys.argv[2]))
print("ready", flush=True)
sys.stdin.readline()
print(SQLiteStore(sys.argv[1], upgrade=True).meta.incarnation)
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "ledger.db")


def old_row(n: int, state: str) -> dict[str, object]:
    return {
        "n": n + 1,
        "hash": lane_hash(state),
        "id": state,
        "root_id": "root",
        "tenant_id": f"tenant-{n % 2}",
        "kind": "effect",
        "version": 2,
        "state": state,
        "owner": "owner-1",
        "fence": 11 + n,
        "claims": 1,
        "attempt": 1,
        "cancel_requested": 0,
        "store_epoch": 1,
        "lease_until": LONG_AGO + n,
        "permit_until": LONG_AGO + 100 + n,
        "ready_at": LONG_AGO + 200 + n,
        "created_at": LONG_AGO,
        "updated_at": LONG_AGO + 300 + n,
        "body": f"body of {state}".encode(),
        "fixed": b"fixed",
    }


@pytest.fixture
def old(path: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file of the older schema with a record in every state; this version knows both."""
    monkeypatch.setattr(schema, "SHIPPED", (OLD,))
    schema.prepare(Place(path), StoreTime(SteeredClock()), create=True, upgrade=False)
    db: Any = apsw.Connection(path)
    for n, state in enumerate(STATES):
        row = old_row(n, state)
        marks = ", ".join("?" * len(row))
        names = ", ".join(row)
        db.execute(f"INSERT INTO record({names}) VALUES ({marks})", tuple(row.values()))  # noqa: S608
        for version in (1, 2):
            event = (n + 1, version, LONG_AGO + version, f"w{n}.{version}", b"event")
            db.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?)", event)
    db.close()
    monkeypatch.setattr(schema, "SHIPPED", (OLD, STEP))
    return path


def content(path: str) -> bytes:
    return Path(path).read_bytes()


def shape(path: str) -> dict[str, list[Any]]:
    """Columns by name and indexes by their text: what a schema means, not how it came about."""
    db: Any = apsw.Connection(path)
    found: dict[str, list[Any]] = {}
    for kind, name, sql in db.execute("SELECT type, name, sql FROM sqlite_schema").fetchall():
        if kind == "table":
            columns = db.execute(
                'SELECT name, type, "notnull", pk FROM pragma_table_info(?)', (name,)
            )
            found[name] = sorted(columns.fetchall())
        elif sql:
            found[name] = [" ".join(sql.split())]
    db.close()
    return found


async def test_an_older_ledger_is_refused_and_left_as_it_is(old: str) -> None:
    before = content(old)
    for create in (True, False):
        with pytest.raises(SchemaTooOld, match="indoubt db upgrade") as caught:
            SQLiteStore(old, create=create)
        assert old in str(caught.value)
    assert content(old) == before
    assert schema_status(old)[:2] == (0, 1)
    assert schema_status(old).pending == ("0001_doubt",)
    assert content(old) == before


async def test_after_the_upgrade_every_record_is_there_and_goes_on(old: str) -> None:
    said: list[tuple[int, int, str]] = []
    status = upgrade(old, lambda done, of, name: said.append((done, of, name)))
    assert status[:2] == (1, 1)
    assert status.pending == ()
    assert said == [(0, 1, "doubt"), (1, 1, "")]
    store = SQLiteStore(old, clock=SteeredClock())
    found = {r.id: r for r in (await store.read(STATES)).records}
    assert list(found) == STATES
    for n, state in enumerate(STATES):
        record = found[state]
        assert (record.state, record.version, record.fence) == (state, 2, 11 + n)
        assert (record.body, record.fixed) == (b"body of " + state.encode(), b"fixed")
        assert (record.lease_until, record.permit_until) == (LONG_AGO + n, LONG_AGO + 100 + n)
        assert await events(store, state) == [(1, b"event"), (2, b"event")]
    doubt = (await store.scan(ScanQuery(view="doubt"))).records
    assert [record.id for record in doubt] == ["in_doubt", "awaiting_decision", "permitted"]
    due = (await store.due(DueQuery((("effect", 100),)))).records
    assert [record.id for record in due] == STATES
    await store.close()


async def test_after_the_upgrade_fences_leases_and_repeats_go_on(old: str) -> None:
    store = SQLiteStore(old, upgrade=True, clock=SteeredClock())
    for n, state in enumerate(STATES):
        assert (await refused(store, put(state))).why == "exists"
        assert (await refused(store, extend(state, fence=10 + n))).why == "held"
        await written(store, extend(state, fence=11 + n))
        repeat = batch(put(state, expected=Version(1)), write_id=f"w{n}.2")
        assert (await written(store, repeat)).repeated
        claim = put(state, expected=Version(2), fence=12 + n, event=b"claimed")
        assert (await written(store, claim)).versions == (3,)
        assert (await events(store, state))[-1] == (3, b"claimed")
        assert (await stored(store, state)).fence == 12 + n
    await store.close()


async def test_the_upgrade_leads_to_the_shipped_schema(
    old: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade(old)
    monkeypatch.setattr(schema, "SHIPPED", migrations("sqlite"))
    fresh = str(tmp_path / "fresh.db")
    await SQLiteStore(fresh).close()
    assert shape(old) == shape(fresh)


async def test_an_upgrade_may_be_repeated(old: str) -> None:
    store = SQLiteStore(old, upgrade=True)
    before = store.meta
    await store.close()
    said: list[str] = []
    assert upgrade(old, lambda _done, _of, name: said.append(name))[:2] == (1, 1)
    assert said == []
    store = SQLiteStore(old)
    assert store.meta == before
    await store.close()


@pytest.mark.parametrize(
    "bad", ["CREATE TABLE extra(x); SELECT no_such_function()", "CREATE TABLE meta(x)"]
)
def test_a_step_that_fails_leaves_the_old_ledger(
    old: str, monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    before = content(old)
    monkeypatch.setattr(schema, "SHIPPED", (OLD, STEP, Migration(2, "bad", bad, "")))
    with pytest.raises(StoreBroken, match=re.escape(old)):
        upgrade(old)
    assert schema_status(old)[:2] == (0, 2)
    assert content(old) == before


def test_an_upgrade_that_is_interrupted_leaves_the_old_ledger(old: str) -> None:
    before = content(old)

    def interrupt(done: int, of: int, name: str) -> None:
        raise KeyboardInterrupt(done, of, name)

    with pytest.raises(KeyboardInterrupt):
        upgrade(old, interrupt)
    assert content(old) == before
    assert schema_status(old).found == 0


def test_there_must_be_something_to_upgrade(path: str) -> None:
    with pytest.raises(SchemaMissing, match=re.escape(path)):
        upgrade(path)
    assert not Path(path).exists()
    assert schema_status(path)[:2] == (None, 1)
    assert schema_status(path).pending == ("0001_initial",)
    Path(path).touch()
    with pytest.raises(SchemaMissing, match="empty"):
        upgrade(path)
    assert schema_status(path).found is None
    assert content(path) == b""


def test_a_foreign_file_is_no_ledger_to_upgrade(path: str) -> None:
    Path(path).write_bytes(b"a letter to a friend " * 100)
    before = content(path)
    for look in (upgrade, schema_status):
        with pytest.raises(StoreBroken, match=re.escape(path)):
            look(path)
    assert content(path) == before


async def newer(path: str, change: str) -> None:
    """A ledger as a later version could leave it."""
    await SQLiteStore(path).close()
    db: Any = apsw.Connection(path)
    db.execute(change)
    db.close()


NEWER = {
    "schema": "INSERT INTO migration VALUES (99, 'later', '', 0)",
    "scheme of ids": "UPDATE meta SET scheme = 'v2'",
    "partitions": "UPDATE meta SET partitions = 16",
}


@pytest.mark.parametrize("what", NEWER)
async def test_a_newer_ledger_is_refused_before_anything_is_written(path: str, what: str) -> None:
    await newer(path, NEWER[what])
    before = content(path)
    for wanted in (False, True):
        with pytest.raises(SchemaTooNew, match="newer indoubt") as caught:
            SQLiteStore(path, upgrade=wanted)
        assert path in str(caught.value)
    assert content(path) == before


async def test_an_open_store_notices_that_its_file_was_upgraded(path: str) -> None:
    store = SQLiteStore(path)
    await written(store, put())
    await newer(path, NEWER["schema"])
    before = (await answered(store, put("b")), store.write_blocking([batch(put("c"))])[0])
    assert [type(answer) for answer in before] == [SchemaTooNew, SchemaTooNew]
    with pytest.raises(SchemaTooNew):
        await store.read(["a"])
    with pytest.raises(SchemaTooNew):
        await store.scan(ScanQuery())
    await store.close()
    db: Any = apsw.Connection(path)
    assert db.execute("SELECT id FROM record").fetchall() == [("a",)]
    db.close()


@pytest.mark.parametrize("table", ["meta", "migration"])
async def test_a_ledger_without_its_own_rows_is_corrupt(path: str, table: str) -> None:
    await newer(path, f"DELETE FROM {table}")  # noqa: S608
    with pytest.raises(StoreBroken, match="corrupt"):
        SQLiteStore(path)


async def test_a_new_ledger_says_what_it_is(path: str) -> None:
    store = SQLiteStore(path, clock=SteeredClock(wall=LONG_AGO))
    assert (store.meta.format, store.meta.scheme, store.meta.partitions) == (2, "v1", 1)
    assert re.fullmatch("[0-9a-f]{32}", store.meta.incarnation)
    assert (await store.read([])).epoch == 1
    await store.close()
    db: Any = apsw.Connection(path)
    history = db.execute("SELECT number, name, sha256, at FROM migration").fetchall()
    (shipped,) = migrations("sqlite")
    assert history == [(1, "initial", shipped.sha256, LONG_AGO)]
    assert db.pragma("journal_mode") == "wal"
    db.close()


@pytest.mark.parametrize("kind", ["new", "old"])
def test_eight_processes_open_one_file_at_once(
    kind: str, path: str, request: pytest.FixtureRequest
) -> None:
    if kind == "old":
        request.getfixturevalue("old")
    command = [sys.executable, "-c", TOGETHER, path, *([str(HERE)] if kind == "old" else [])]
    pipe = subprocess.PIPE
    running = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(8)]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * 8
    assert len(set(said)) == 1
    db: Any = apsw.Connection(path)
    numbers = db.execute("SELECT number FROM migration ORDER BY number").fetchall()
    assert numbers == ([(0,), (1,)] if kind == "old" else [(1,)])
    assert db.execute("SELECT count(*) FROM meta").fetchall() == [(1,)]
    db.close()
