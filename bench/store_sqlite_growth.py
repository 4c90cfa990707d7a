"""Pages and writes with a million records behind, against ten thousand (budgets B10, B4).

Builds two ledgers by plain SQL, then asks both for the same pages in turns.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import apsw
from benchlib import Budget, Options, closed_loop, in_turns, parser, versions
from store_sqlite import prepared, settled

from indoubt.store import DueQuery, Lane, ScanQuery
from indoubt.stores.sqlite import SQLiteStore

SMALL, LARGE = 10_000, 1_000_000
# A twentieth is in doubt, a third is ready now or later, the rest is settled; two tenants.
FILL = """
WITH RECURSIVE many(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM many WHERE value < ?)
INSERT INTO record(hash, id, root_id, tenant_id, kind, version, state, fence, claims, attempt,
  cancel_requested, store_epoch, ready_at, doubt_since, created_at, updated_at, body, fixed)
SELECT abs(random()) % 4294967296, 'rec_' || hex(randomblob(13)), 'root', 'tenant-' || (value % 2),
  CASE value % 3 WHEN 0 THEN 'effect' WHEN 1 THEN 'run' ELSE 'delayed_effect' END,
  1, 'dispatched', 1, 1, 1, 0, 1,
  CASE WHEN value % 3 <> 0 OR value % 9 = 0 THEN 1600000000000 + abs(random()) % 400000000000 END,
  CASE WHEN value % 20 = 0 THEN 1600000000000 + abs(random()) % 100000000 END,
  1600000000000, 1600000000000, zeroblob(150), zeroblob(150)
FROM many;
"""
QUERIES: dict[str, Callable[[SQLiteStore], Awaitable[Any]]] = {
    "due, one kind": lambda store: store.due(DueQuery((("run", 100),))),
    "due, two kinds, lane 1 of 4": lambda store: store.due(
        DueQuery((("run", 50), ("delayed_effect", 50)), Lane(1, 4))
    ),
    "due, nothing": lambda store: store.due(DueQuery((("none", 100),))),
    "scan all": lambda store: store.scan(ScanQuery()),
    "scan ready, one kind": lambda store: store.scan(ScanQuery(view="ready", kinds=("run",))),
    "scan ready, every kind": lambda store: store.scan(ScanQuery(view="ready")),
    "scan doubt": lambda store: store.scan(ScanQuery(view="doubt")),
    "scan doubt, one tenant": lambda store: store.scan(
        ScanQuery(view="doubt", tenant_id="tenant-1")
    ),
}


def filled(path: str, count: int) -> SQLiteStore:
    store = SQLiteStore(path)
    started = time.perf_counter()
    db: Any = apsw.Connection(path)
    db.execute("PRAGMA synchronous=OFF").fetchall()
    db.execute(FILL, (count,)).fetchall()
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.close()
    size = Path(path).stat().st_size / 2**20
    print(f"{count:,} records: {size:,.0f} MiB, made in {time.perf_counter() - started:.1f} s")
    return store


async def page_ms(store: SQLiteStore, query: Callable[[SQLiteStore], Awaitable[Any]]) -> float:
    started = time.perf_counter()
    for _ in range(30):
        await query(store)
    return (time.perf_counter() - started) / 30 * 1000


async def write_rate(store: SQLiteStore, seconds: float) -> float:
    stem = time.perf_counter_ns()

    async def call(caller: int, n: int) -> None:
        first = prepared(f"rec_{hash((stem, caller, n)):x}")
        await store.write([first])
        await store.write([settled(first)])

    return await closed_loop(call, 32, seconds)


async def measure(args: Options, folder: str) -> None:
    print(versions("apsw") | {"sqlite": apsw.sqlite_lib_version()})
    small, large = filled(f"{folder}/small.db", SMALL), filled(f"{folder}/large.db", LARGE)
    cases: dict[str, Any] = {}
    budgets: dict[str, Budget] = {}
    for name, query in QUERIES.items():
        cases[f"{name}: 10k"] = partial(page_ms, small, query)
        cases[f"{name}: 1M"] = partial(page_ms, large, query)
        budgets[f"{name}: 1M"] = Budget(f"{name}: 10k", most=1.3)
    await in_turns("a page of 100", args, cases, "ms", budgets)
    await in_turns(
        "guarded calls, c=32",
        args,
        {
            "10k behind": lambda: write_rate(small, args.seconds),
            "1M behind": lambda: write_rate(large, args.seconds),
        },
        "calls/s",
        {"1M behind": Budget("10k behind", least=0.6)},
    )
    await small.close()
    await large.close()


def main() -> None:
    args = parser(__doc__).parse_args(namespace=Options())
    folder = tempfile.mkdtemp(dir=args.dir)
    try:
        asyncio.run(measure(args, folder))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
