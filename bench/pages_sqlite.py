#!/usr/bin/env python3
"""Pages of 100 out of a million records against ten thousand, on SQLite (budget B10).

What recovery asks for (due), what operators list (ready, doubt) and what people see (the inbox, a
record and its journal). ``--large`` sets the larger number; a million takes a minute to make.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import apsw
from benchlib import Budget, Options, in_turns, parser, versions
from filling import KIND, fill

from indoubt import Ledger
from indoubt.store import DueQuery, Lane, ScanQuery

SMALL = 10_000
Ask = Callable[[Ledger], Awaitable[Any]]


class Arguments(Options):
    large: int


def _store(ledger: Ledger) -> Any:
    return ledger.open().store


ASKED: dict[str, Ask] = {
    "due": lambda ledger: _store(ledger).due(DueQuery(((KIND, 100),))),
    "due, two kinds, one lane of four": lambda ledger: _store(ledger).due(
        DueQuery(((KIND, 50), ("effect", 50)), Lane(1, 4))
    ),
    "due, none": lambda ledger: _store(ledger).due(DueQuery((("none", 100),))),
    "ready": lambda ledger: _store(ledger).scan(ScanQuery(view="ready")),
    "doubt": lambda ledger: _store(ledger).scan(ScanQuery(view="doubt")),
    "doubt, one tenant": lambda ledger: _store(ledger).scan(
        ScanQuery(view="doubt", tenant_id="tenant-1")
    ),
    "inbox": lambda ledger: ledger.in_doubt(),
    "inbox, one tenant": lambda ledger: ledger.in_doubt(tenant_id="tenant-1"),
    "one record by its key": lambda ledger: ledger.find("blocking", "order-0"),
}


async def page_ms(ledger: Ledger, ask: Ask, seconds: float) -> float:
    """Ask for so long, once at least."""
    started = time.perf_counter()
    spent, asked = 0.0, 0
    while spent < seconds or not asked:
        await ask(ledger)
        spent, asked = time.perf_counter() - started, asked + 1
    return spent / asked * 1000


async def measure(args: Arguments, folder: str) -> None:
    print(versions("apsw") | {"sqlite": apsw.sqlite_lib_version()})
    ledgers: dict[int, Ledger] = {}
    for count in (SMALL, args.large):
        await asyncio.to_thread(fill, f"{folder}/{count}.db", count)
        ledgers[count] = Ledger(f"sqlite:///{folder}/{count}.db")
    cases: dict[str, Any] = {}
    budgets: dict[str, Budget] = {}
    for name, ask in ASKED.items():
        for count, ledger in ledgers.items():
            cases[f"{name}: {count:,}"] = partial(page_ms, ledger, ask, args.seconds)
        budgets[f"{name}: {args.large:,}"] = Budget(f"{name}: {SMALL:,}", most=1.3)
    await in_turns("a page of 100", args, cases, "ms", budgets)
    for ledger in ledgers.values():
        await ledger.close()


def main() -> None:
    made = parser(__doc__, reps=7, seconds=0.1)
    made.add_argument("--large", type=int, default=1_000_000, help="records (default 1000000)")
    args = made.parse_args(namespace=Arguments())
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        asyncio.run(measure(args, folder))


if __name__ == "__main__":
    main()
