"""What the bench scripts share: cases run in turns, medians, ratios to a base, and the disk's mood.

A machine's disk changes its speed by the minute. So the cases of one table run interleaved
(A B C, A B C, …), only their ratios count, and the time of one sync is printed before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# Also where this project is not installed, and from a copy of it: its own sources are measured.
sys.path.insert(0, str(ROOT / "src"))

Case = Callable[[], float | Awaitable[float]]


class Budget(NamedTuple):
    """A goal for one case: its figure is at least, or at most, so many times that of ``base``.

    Without a base the figure itself is meant.
    """

    base: str | None
    least: float | None = None
    most: float | None = None

    def kept(self, ratio: float) -> bool:
        return (self.least is None or ratio >= self.least) and (
            self.most is None or ratio <= self.most
        )

    def __str__(self) -> str:
        return f">= {self.least}" if self.least is not None else f"<= {self.most}"


Figures = Mapping[str, Sequence[float]]
Budgets = Mapping[str, Budget | Sequence[Budget]]


class Options(argparse.Namespace):
    """The options that every script has."""

    reps: int
    seconds: float
    only: str
    json: str
    dir: str | None


def parser(doc: str | None, reps: int = 5, seconds: float = 0.5) -> argparse.ArgumentParser:
    """Parses into ``Options``."""
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--reps", type=int, default=reps, help=f"rounds (default {reps})")
    made.add_argument(
        "--seconds", type=float, default=seconds, help=f"per case and round (default {seconds})"
    )
    made.add_argument("--only", default="", help="comma list: cases whose name has one of these")
    made.add_argument("--json", default="", help="add the raw numbers to this file")
    made.add_argument("--dir", default=None, help="folder for the data (default: a temporary one)")
    return made


def versions(*names: str) -> dict[str, str]:
    """Versions of Python and of the packages that are measured."""
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "-"
    return found


def sync_ms(folder: str | None, tries: int = 50) -> float:
    """Median time of one 4-KiB write and its sync, in milliseconds."""
    times: list[float] = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(tries):
            started = time.perf_counter()
            os.pwrite(file.fileno(), b"x" * 4096, 0)
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times)


async def in_turns(
    title: str,
    args: Options,
    cases: Mapping[str, Case],
    unit: str,
    budgets: Budgets | None = None,
    *,
    slices: int = 1,
    slow: Mapping[str, Case] | None = None,
) -> dict[str, float]:
    """Run the cases in turns and print them; returns the medians.

    Each case answers one figure. One that breaks is reported and does not stop the others. With
    ``slices`` a round's figure is the mean of so many turns, so that the disk has no time to change
    between two cases; ``slow`` cases get one turn a round.
    """
    figures: dict[str, list[float]] = {}
    wanted = {name: case for name, case in cases.items() if _wanted(name, args.only)}
    once = {name: case for name, case in (slow or {}).items() if _wanted(name, args.only)}
    before = sync_ms(args.dir)
    for _ in range(args.reps):
        turns: dict[str, list[float]] = {name: [] for name in (*wanted, *once)}
        for name, case in [*wanted.items()] * slices + [*once.items()]:
            try:
                answer = case()
                turns[name].append(float(await answer if inspect.isawaitable(answer) else answer))
            except Exception as error:  # noqa: BLE001
                print(f"  ! {name}: {type(error).__name__}: {error}"[:300], file=sys.stderr)
        for name, got in turns.items():
            figures.setdefault(name, []).append(statistics.fmean(got) if got else math.nan)
    load = " ".join(f"{load:.1f}" for load in os.getloadavg())
    print(f"\n## {title}  [{unit}; median of {args.reps}, least .. greatest]")
    print(f"one sync: {before:.2f} ms before, {sync_ms(args.dir):.2f} ms after; load {load}")
    medians = {name: statistics.median(got) for name, got in figures.items()}
    _print(figures, medians, budgets or {})
    save(args.json, {"title": title, "unit": unit, "medians": medians, "figures": figures})
    return medians


def _wanted(name: str, only: str) -> bool:
    return not only or any(part in name for part in only.split(","))


def _print(figures: Figures, medians: Mapping[str, float], budgets: Budgets) -> None:
    for name, got in figures.items():
        line = f"{name:<36} {medians[name]:>10,.2f}  {min(got):>10,.2f} .. {max(got):>10,.2f}"
        print(line, flush=True)
        goals = budgets.get(name, ())
        for budget in [goals] if isinstance(goals, Budget) else goals:
            if words := _judged(name, budget, figures):
                print(f"    {words}", flush=True)


def _judged(name: str, budget: Budget, figures: Figures) -> str:
    """Compare round by round: the disk and the neighbours are nearly the same within one."""
    if budget.base is None:
        ratios, words = figures[name], ""
    else:
        pairs = zip(figures[name], figures.get(budget.base, ()), strict=False)
        ratios = [own / base for own, base in pairs]
        words = f" x {budget.base}"
    if not ratios:
        return ""
    median = statistics.median(ratios)
    verdict = "kept" if budget.kept(median) else "MISSED"
    return f"{median:.2f}{words}, {min(ratios):.2f} .. {max(ratios):.2f}: goal {budget} {verdict}"


def summary(figures: Sequence[float]) -> str:
    """The median, the least and the greatest."""
    return f"{statistics.median(figures):.2f}, {min(figures):.2f} .. {max(figures):.2f}"


def save(path: str, result: dict[str, Any]) -> None:
    """Add a result to a JSON file, with the time and the machine's load; "": to none."""
    if path:
        file = Path(path)
        old: list[Any] = json.loads(file.read_text("utf-8")) if file.exists() else []
        now = {"when": time.strftime("%F %T"), "load": os.getloadavg()}
        file.write_text(json.dumps([*old, result | now], indent=1), "utf-8")


async def closed_loop(
    call: Callable[[int, int], Awaitable[object]], callers: int, seconds: float
) -> float:
    """So many callers call back to back, as ``call(caller, number)``; returns calls per second."""
    stop = time.perf_counter() + seconds

    async def caller(number: int) -> int:
        done = 0
        while time.perf_counter() < stop:
            await call(number, done)
            done += 1
        return done

    started = time.perf_counter()
    done = sum(await asyncio.gather(*(caller(number) for number in range(callers))))
    return done / (time.perf_counter() - started)


def repeated(call: Callable[[int], object], seconds: float) -> float:
    """Call back to back, as ``call(number)``; returns calls per second."""
    started = time.perf_counter()
    done = 0
    while time.perf_counter() - started < seconds:
        call(done)
        done += 1
    return done / (time.perf_counter() - started)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that this share of all lies below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
