#!/usr/bin/env python3
"""Delayed effects per second, registered and processed, on each store that is named.

Processed: claimed under a fence, an empty handler, completed with a receipt; by one worker, 32 at
once, against the same worker that takes them one by one. Without --url a SQLite file is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from functools import partial
from typing import Any

from benchlib import Budget, Case, Options, in_turns, parser, versions

from indoubt.delayed_effects import DelayedEffectIntent, DelayedEffectStore, DelayedEffectWorker
from indoubt.stores import open_store

PAYLOAD = {"group": 17, "user": 4_711, "text": "x" * 30}


class Arguments(Options):
    url: list[str]
    count: int


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__, reps=3)
    made.add_argument("--url", action="append", default=[], help="a store; may be repeated")
    made.add_argument("--count", type=int, default=500, help="intents in each turn (default 500)")
    return made


class Load:
    """One store, and new intents for each turn."""

    def __init__(self, url: str, count: int) -> None:
        self.name = url.partition(":")[0]
        self._ledger = open_store(url)
        self._count = count
        self._turn = 0

    async def register(self, *, callers: int) -> float:
        """Intents registered per second."""
        _, took = await self._registered(callers)
        return self._count / took

    async def process(self, *, concurrency: int) -> float:
        """Intents processed per second."""
        store, _ = await self._registered(32)
        worker = DelayedEffectWorker(
            store, {"nothing": _fire}, concurrency=concurrency, batch_size=1_000
        )
        started, done = time.perf_counter(), 0
        while done < self._count:
            done += await worker.recover_once()
        return self._count / (time.perf_counter() - started)

    async def close(self) -> None:
        await self._ledger.close()

    async def _registered(self, callers: int) -> tuple[DelayedEffectStore, float]:
        self._turn += 1
        store = DelayedEffectStore(self._ledger, namespace=f"bench-{time.time_ns()}")
        slots = asyncio.Semaphore(callers)

        async def one(number: int) -> None:
            async with slots:
                await store.register(f"op-{number}", "nothing", PAYLOAD, delay_seconds=0)

        started = time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(self._count)))
        return store, time.perf_counter() - started


async def _fire(intent: DelayedEffectIntent) -> dict[str, Any]:
    return {"fence": intent.fence}


async def measure(args: Arguments, folder: str) -> None:
    for url in args.url or [f"sqlite:///{folder}/ledger.db"]:
        load = Load(url, args.count)
        cases: dict[str, Case] = {
            "register, one by one": partial(load.register, callers=1),
            "register, 32 at once": partial(load.register, callers=32),
            "process, one by one": partial(load.process, concurrency=1),
            "process, 32 at once": partial(load.process, concurrency=32),
        }
        goals = {"process, 32 at once": Budget("process, one by one", least=3)}
        await in_turns(f"delayed effects on {load.name}", args, cases, "per second", goals)
        await load.close()


def main() -> None:
    args = arguments().parse_args(namespace=Arguments())
    print(versions("indoubt", "apsw", "psycopg", "redis"))
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        asyncio.run(measure(args, folder))


if __name__ == "__main__":
    main()
