#!/usr/bin/env python3
"""What importing indoubt costs, in processes of their own (budget B14).

Others' use of the machine can only add to a time, so the least of many runs is compared; the cases'
runs alternate. Importing must pull in no store and no optional package.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from functools import partial
from typing import Any

from benchlib import ROOT, Options, in_turns, parser, versions

BASE = "asyncio, msgspec"
CASES = {
    "bare Python": "pass",
    BASE: "import asyncio, msgspec",
    "indoubt": "import indoubt",
    "Ledger": "from indoubt import Ledger",
}
OVER_PYTHON_MS, OVER_BASE_MS = 80, 25
UNWANTED = {"apsw", "sqlite3", "psycopg", "redis", "starlette", "typer", "rich", "opentelemetry"}
TIMED = """
import json, sys, time
started = time.perf_counter()
exec({code!r})
ms = (time.perf_counter() - started) * 1000
print(json.dumps([ms, sorted({{name.partition(".")[0] for name in sys.modules}})]))
"""


class Arguments(Options):
    runs: int


def imported(code: str) -> tuple[float, set[str]]:
    """Run in a new process: how many milliseconds it took, and what it has loaded."""
    command = [sys.executable, "-c", TIMED.format(code=code)]
    environment = {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, check=True, capture_output=True, env=environment)  # noqa: S603
    ms, modules = json.loads(done.stdout)
    return ms, set(modules)


def least_ms(code: str, runs: int) -> float:
    """The best of so many runs."""
    return min(imported(code)[0] for _ in range(runs))


def unwanted() -> set[str]:
    """What `from indoubt import Ledger` loads although nothing has asked for it."""
    return imported(CASES["Ledger"])[1] & UNWANTED


async def measure(args: Arguments) -> None:
    print(versions("msgspec"), "loaded although unasked:", sorted(unwanted()) or "nothing")
    cases: dict[str, Any] = {
        name: partial(least_ms, code, args.runs) for name, code in CASES.items()
    }
    bare = await in_turns("what was imported", args, cases, "ms")
    for name in [name for name in ("indoubt", "Ledger") if name in bare]:
        for base, most in (("bare Python", OVER_PYTHON_MS), (BASE, OVER_BASE_MS)):
            if base in bare:
                over = bare[name] - bare[base]
                verdict = "kept" if over <= most else "MISSED"
                print(f"{name}: {over:.1f} ms over {base}: goal <= {most} {verdict}")


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--runs", type=int, default=8, help="per case and round (default 8)")
    asyncio.run(measure(made.parse_args(namespace=Arguments())))


if __name__ == "__main__":
    main()
