"""No question scans or sorts the records: each goes through the index that is meant for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import indoubt.stores
from indoubt.stores.sql import statements
from indoubt.stores.sqlite import SQLiteStore
from indoubt.stores.sqlite.connection import Connection, Place

SQL = statements()
BLOCKS = {"columns", "filters", "kinds", "moved"}  # parts of others
PEOPLE_ASK = {"states"}  # bounded, and for `doctor` alone
BY_ID = "SEARCH record USING INDEX sqlite_autoindex_record_1 (id=?)"
BY_N = "SEARCH record USING INTEGER PRIMARY KEY (rowid=?)"
BY_META = "SEARCH meta USING INTEGER PRIMARY KEY (rowid=?)"
PLANS = {
    "about": BY_META,
    "append": "",
    "clock": BY_META,
    "delete_journal": "SEARCH journal USING PRIMARY KEY (n=?)",
    "delete_record": BY_N,
    "due": "SEARCH record USING INDEX record_ready (queue=? AND ready_at>? AND ready_at<?)",
    "due_lane": "SEARCH record USING INDEX record_ready (queue=? AND ready_at>? AND ready_at<?)",
    "extend": BY_ID,
    "held": BY_ID,
    "insert": "",
    "journal": "SEARCH journal USING PRIMARY KEY (n=? AND version>?)",
    "read": BY_ID,
    "queues": "SEARCH record USING COVERING INDEX record_ready (queue>?)",
    "scan_all": "SEARCH record USING INTEGER PRIMARY KEY (rowid>?)",
    "scan_all_parent": "SEARCH record USING INDEX record_parent (parent_id=? AND n>?)",
    "scan_doubt": "SEARCH record USING INDEX record_doubt ((doubt_since,id)>(?,?))",
    "scan_doubt_tenant": (
        "SEARCH record USING INDEX record_tenant_doubt (tenant_id=? AND (doubt_since,id)>(?,?))"
    ),
    "scan_prefix": "SEARCH record USING INDEX sqlite_autoindex_record_1 (id>? AND id<?)",
    "scan_ready": "SEARCH record USING INDEX record_ready (queue=? AND (ready_at,id)>(?,?))",
    "take": BY_N,
    "tick": BY_META,
    "update": BY_ID,
    "update_free": BY_ID,
    "wrote": "SEARCH journal USING PRIMARY KEY (n=? AND version=?)",
}


@pytest.fixture
async def ledger(tmp_path: Path) -> Connection:
    path = str(tmp_path / "ledger.db")
    await SQLiteStore(path).close()
    return Place(path).connect()


def plan_of(db: Connection, name: str) -> list[str]:
    statement = SQL[name]
    given = (None,) * len(statement.names)
    return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement.text}", given)]


@pytest.mark.parametrize("name", sorted(SQL.keys() - BLOCKS - PEOPLE_ASK))
def test_a_statement_takes_its_index(ledger: Connection, name: str) -> None:
    plan = plan_of(ledger, name)
    assert PLANS[name] in [*plan, ""], plan
    assert not [step for step in plan if "TEMP B-TREE" in step], plan
    assert not [step for step in plan if re.match(r"SCAN (record|journal)", step)], plan
    ledger.close()


def test_queues_are_found_by_hops(ledger: Connection) -> None:
    """Each queue costs one search, however many records it has."""
    program = ledger.execute(f"EXPLAIN {SQL['queues'].text}", (None, None)).fetchall()
    assert not [row for row in program if row[1] == "Sorter"]
    plan = plan_of(ledger, "queues")
    assert [step for step in plan if "COVERING INDEX record_ready" in step], plan
    ledger.close()


def test_every_statement_is_used() -> None:
    folder = Path(indoubt.stores.__file__).parent
    code = "\n".join(file.read_text("utf-8") for file in folder.rglob("*.py"))
    assert [name for name in sorted(SQL.keys() - BLOCKS) if f'"{name}"' not in code] == []


def test_parameters_are_numbered_in_the_order_of_their_names() -> None:
    text = "-- name: x\nSELECT :b, :a, :b -- :c\n-- name: y\n-- about y\n{x} WHERE :d"
    found = statements(text)
    assert found["x"] == ("SELECT ?1, ?2, ?1", ("b", "a"))
    assert found["y"] == ("SELECT ?1, ?2, ?1 WHERE ?3", ("b", "a", "d"))
    assert found["y"].values({"a": 1, "b": 2, "c": 3, "d": 4}) == (2, 1, 4)
