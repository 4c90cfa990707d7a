"""Ledgers with many records behind: copies, by plain SQL, of what two real calls left.

Nineteen of twenty records have succeeded, the others wait for a decision; each has its journal. A
third is given a ready time, as delayed effects have one: so every page that can be asked for is
long.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import apsw
from workload import effects, order

from indoubt import Ledger, OutcomeUnknown

KIND = "delayed_effect"
"""Of the records that have a ready time."""
RECORDS = """
WITH RECURSIVE many(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM many WHERE value < ?)
INSERT INTO record({names}) SELECT {values} FROM many
JOIN record AS old ON old.doubt_since IS NULL = (value % 20 <> 0) WHERE old.n <= 2 ORDER BY value
"""
JOURNAL = """
INSERT INTO journal(n, version, at, write_id, event)
SELECT new.n, entry.version, entry.at, lower(hex(randomblob(16))), entry.event
FROM record AS new JOIN record AS old ON old.n <= 2 AND old.state = new.state
JOIN journal AS entry ON entry.n = old.n WHERE new.n > 2 ORDER BY new.n, entry.version
"""


def fill(path: str, count: int) -> None:
    """Make a ledger of so many records."""
    started = time.perf_counter()
    _two_calls(path)
    db: Any = apsw.Connection(path)
    db.execute("PRAGMA synchronous=OFF").fetchall()
    _copy(db, count)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.close()
    size = Path(path).stat().st_size / 2**20
    took = time.perf_counter() - started
    print(f"{count:,} records: {size:,.0f} MiB, made in {took:.1f} s", flush=True)


def _two_calls(path: str) -> None:
    ledger = Ledger(f"sqlite:///{path}")
    effects(ledger).blocking(**order(0))

    @ledger.effect(safety="non_idempotent", name="lost", key=lambda: "lost")
    def lost() -> None:
        raise ConnectionError("no answer")

    with contextlib.suppress(OutcomeUnknown):
        lost()
    asyncio.run(ledger.close())


def _copy(db: Any, count: int) -> None:
    names = [row[1] for row in db.execute("PRAGMA table_info(record)") if row[1] != "n"]
    differs = {
        "id": "'rec_' || lower(hex(randomblob(13)))",
        "root_id": "'rec_' || value",
        "hash": "abs(random()) % 4294967296",
        "tenant_id": "'tenant-' || (value % 2)",
        "kind": f"CASE WHEN value % 3 = 0 THEN '{KIND}' ELSE old.kind END",
        "ready_at": "CASE WHEN value % 3 = 0 THEN 1700000000000 + abs(random()) % 100000000 END",
        "doubt_since": "old.doubt_since - abs(random()) % 100000000",
    }
    values = [differs.get(name, f"old.{name}") for name in names]
    statement = RECORDS.format(names=", ".join(names), values=", ".join(values))
    db.execute("BEGIN").fetchall()
    db.execute(statement, (count,)).fetchall()
    db.execute(JOURNAL).fetchall()
    db.execute("COMMIT").fetchall()
