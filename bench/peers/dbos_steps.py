"""DBOS on SQLite: a durable workflow of steps that do nothing; a step is its guarded call.

Usage: dbos_steps.py FILE. The file is made with a write-ahead log first: DBOS keeps it, and is
faster on it than on its default, a rollback journal.
"""

import asyncio
import functools
import logging
import sqlite3
import sys

from answering import answer, rate
from dbos import DBOS


async def main(path: str) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode=WAL")
    DBOS(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{path}",
            "log_level": "ERROR",
            "enable_otlp": False,
        }
    )

    @DBOS.step()
    async def step(number: int) -> dict:
        return {"ok": True, "number": number}

    @DBOS.workflow()
    async def flow(steps: int) -> int:
        for number in range(steps):
            await step(number)
        return steps

    DBOS.launch()
    logging.getLogger("dbos").setLevel(logging.ERROR)
    await flow(1)
    cases = {
        f"{steps}-step c={callers}": functools.partial(
            rate, functools.partial(flow, steps), steps, callers
        )
        for steps in (1, 10)
        for callers in (1, 32)
    }
    await answer(cases, "dbos", "sqlalchemy")
    DBOS.destroy()


asyncio.run(main(sys.argv[1]))
