#!/usr/bin/env python3
"""Commits, statements and disk syncs of a guarded call on SQLite: counted, so free of noise.

The goals: exactly two commits for a caller alone, with nothing read before the first write (B1);
at most 0.1 for each of 32 callers (B2). Syncs are counted with strace where there is one; a
checkpoint's, every thousand pages or so, are among them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from counting import Counted, counting
from workload import Effects, effects, order

from indoubt import Ledger

CALLERS = 32
GOALS = {"sync": 2.0, "async": 2.0, f"async, {CALLERS} callers": 0.1, "a repeat": 0.0}
BEGIN, END = "/mark-begin-", "/mark-end-"


class Options(argparse.Namespace):
    calls: int
    json: str
    child: str


class Way(NamedTuple):
    """What is done between two marks, and how many calls it is."""

    run: Callable[[Effects, int], Awaitable[None]]
    callers: int = 1


async def _sync(made: Effects, calls: int) -> None:
    for number in range(calls):
        made.blocking(**order(number))


async def _async(made: Effects, calls: int) -> None:
    for number in range(calls):
        await made.coroutine(**order(number))


async def _many(made: Effects, calls: int) -> None:
    async def caller(first: int) -> None:
        for number in range(calls):
            await made.coroutine(**order(first + number))

    await asyncio.gather(*(caller(at * calls) for at in range(CALLERS)))


async def _repeat(made: Effects, calls: int) -> None:
    for _ in range(calls):
        made.blocking(**order(-1))


WAYS = {
    "sync": Way(_sync),
    "async": Way(_async),
    f"async, {CALLERS} callers": Way(_many, CALLERS),
    "a repeat": Way(_repeat),
}


async def counted(name: str, calls: int) -> tuple[Counted, int]:
    """Count one way on a new file; returns the statements and the number of calls."""
    way = WAYS[name]
    with tempfile.TemporaryDirectory() as folder, counting() as found:
        ledger = Ledger(f"sqlite:///{folder}/ledger.db")
        made = effects(ledger)
        made.blocking(**order(-1))  # opens the file, takes the owner's lock
        found.reset()
        _mark(BEGIN)
        await way.run(made, calls)
        _mark(END)
        result = Counted()
        result.statements = list(found.statements)
        await ledger.close()
    return result, calls * way.callers


def _mark(name: str) -> None:
    """Show up among the system calls."""
    os.access(name, os.F_OK)


def syncs(name: str, calls: int) -> float | None:
    """Disk syncs per call, from strace; None where it is not installed."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    with tempfile.NamedTemporaryFile() as log:
        command = [strace, "-f", "-o", log.name, "-e"]
        command += ["trace=fsync,fdatasync,access,faccessat,faccessat2", sys.executable]
        command += [__file__, "--child", name, "--calls", str(calls)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        lines = Path(log.name).read_text("utf-8", "replace").splitlines()
    begin, end = (next(at for at, line in enumerate(lines) if m in line) for m in (BEGIN, END))
    done = sum(1 for line in lines[begin:end] if re.search(r"\bf(data)?sync\(", line))
    return done / (calls * WAYS[name].callers)


async def measure(args: Options) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, goal in GOALS.items():
        found, calls = await counted(name, args.calls)
        commits = found.commits / calls
        synced = syncs(name, args.calls)
        kept = "kept" if commits <= goal else "MISSED"
        print(
            f"{name:<20} commits {commits:.3f} (goal {goal}: {kept}),"
            f" statements {len(found.statements) / calls:.1f},"
            f" syncs {'not counted' if synced is None else f'{synced:.3f}'}",
            flush=True,
        )
        results[name] = {"commits": commits, "syncs": synced}
    alone, _ = await counted("sync", 1)
    print("the statements of one call:", *alone.statements, sep="\n  ")
    return results


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--calls", type=int, default=200, help="per caller (default 200)")
    made.add_argument("--json", default="", help="write the numbers to this file")
    made.add_argument("--child", default="", choices=["", *WAYS], help=argparse.SUPPRESS)
    args = made.parse_args(namespace=Options())
    if args.child:
        asyncio.run(counted(args.child, args.calls))
    else:
        results = asyncio.run(measure(args))
        if args.json:
            Path(args.json).write_text(json.dumps(results, indent=1), "utf-8")


if __name__ == "__main__":
    main()
