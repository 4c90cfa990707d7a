"""An explicit-state search of the one-record protocol, run on the real rules of ``indoubt.core``.

Workers (first caller, recoverer, prober), a sweeper, a person, a provider and a store do whatever
they may do, in every order. ``python -m tests.model.protocol_model --help`` says how to ask it.
"""

from __future__ import annotations

import argparse
import sys
import time
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .images import ENDED
from .ledger import Ledger
from .states import KNOWN_KEY, NOT_SENT, Budget, Next, Worker, World, canonical
from .surroundings import Surroundings
from .switches import ASSUMPTIONS, EXTRA, NEED_NOT_SHOW, RULES, SCENARIOS, WHERE, Scenario, core
from .workers import Workers

LIVENESS = "LIVENESS nobody can bring it to an end without another fault"
LIMIT = "limit reached"


class Model:
    """All steps from a state, and what must hold in each."""

    def __init__(
        self, scenario: Scenario, off: Sequence[str] = (), add: Sequence[str] = ()
    ) -> None:
        self.scenario = scenario
        on = {rule: rule not in off for rule in RULES} | {rule: rule in add for rule in EXTRA}
        self.ledger = Ledger(scenario, core(off), decides_silence=on["silence"])
        jumps, renews = scenario.jump > 0, scenario.renew > 0
        self._workers = Workers(self.ledger, on, jumps=jumps, renews=renews)
        self._around = Surroundings(self.ledger, scenario, on)

    def start(self) -> World:
        """Nothing has happened yet."""
        c = self.scenario
        left = Budget(c.crash, c.lost, c.jump, c.cancel, c.prune, c.rewind, c.renew, c.grants)
        cells = ((NOT_SENT, 0),) * c.attempts
        return World(None, (Worker(),) * c.workers, cells, left)

    def next(self, s: World) -> list[Next]:
        """Every step from here."""
        out: list[Next] = []
        for i in range(len(s.workers)):
            self._workers.next(s, i, out)
        self._around.next(s, out)
        return out

    @staticmethod
    def broken(s: World) -> str:
        """The invariant that does not hold here, or nothing."""
        if s.bad:
            return s.bad
        if s.effects > 1 + s.allowed:
            return f"O1 {s.effects} effects, {s.allowed} permissions"
        rec = s.rec
        if rec is None or rec.st not in "SFC":
            return ""
        if rec.st == "S":
            known = s.effects or any(what == KNOWN_KEY for what, _ in s.cells)
            return "" if known else "O2 succeeded, but nothing happened"
        if rec.effect == "none" and s.effects:
            return f"O2 {'failed' if rec.st == 'F' else 'cancelled'}, effect none; it happened"
        return ""


class Found(NamedTuple):
    """What a search came to."""

    states: int
    steps: int
    broken: str
    trace: tuple[str, ...]
    last: World | None


class Search:
    """Breadth first, so that a trace is a shortest one.

    ``traced`` keeps workers apart, since a trace must name them; else two states that differ only
    in their names are one.
    """

    def __init__(self, model: Model, *, limit: int = 3_000_000, traced: bool = False) -> None:
        self._model = model
        self._limit = limit
        self._traced = traced
        self._ids: dict[World, int] = {}
        self._from: list[tuple[int, str]] = []
        self._heads, self._tails = array("I"), array("I")
        self._steps = 0

    def run(self) -> Found:
        """Search until something is broken, or all is seen."""
        start = self._model.start()
        self._ids[start] = 0
        self._from.append((0, ""))
        queue = deque([start])
        while queue:
            s = queue.popleft()
            why = self._model.broken(s)
            if not why:
                why = self._expand(s, queue)
            if why:
                return self._found(why, s)
        stuck = self._stuck()
        return self._found(LIVENESS if stuck else "", stuck)

    def _expand(self, s: World, queue: deque[World]) -> str:
        here, ids = self._ids[s], self._ids
        for label, fault, step_to in self._model.next(s):
            self._steps += 1
            t = step_to if self._traced else canonical(step_to, self._model.ledger)
            there = ids.get(t)
            if there is None:
                there = len(ids)
                if there >= self._limit:
                    return LIMIT
                ids[t] = there
                queue.append(t)
                if self._traced:
                    self._from.append((here, label))
            if not fault:
                self._heads.append(here)
                self._tails.append(there)
        return ""

    def _stuck(self) -> World | None:
        """A state from which no fault-free path leads to an end."""
        count = len(self._ids)
        first = array("I", bytes(4 * (count + 1)))
        for there in self._tails:
            first[there + 1] += 1
        for n in range(count):
            first[n + 1] += first[n]
        place, before = array("I", first), array("I", bytes(4 * len(self._tails)))
        for here, there in zip(self._heads, self._tails, strict=True):
            before[place[there]] = here
            place[there] += 1
        alive = bytearray(count)
        stack = [n for s, n in self._ids.items() if s.rec is not None and s.rec.st in ENDED]
        for n in stack:
            alive[n] = 1
        while stack:
            n = stack.pop()
            for here in before[first[n] : first[n + 1]]:
                if not alive[here]:
                    alive[here] = 1
                    stack.append(here)
        return next((s for s, n in self._ids.items() if not alive[n]), None)

    def _found(self, why: str, last: World | None) -> Found:
        trace: list[str] = []
        if why and self._traced and last is not None:
            n = self._ids[last]
            while n:
                n, label = self._from[n]
                trace.append(label)
        return Found(len(self._ids), self._steps, why, tuple(reversed(trace)), last)


def search(
    scenario: Scenario,
    *,
    off: Sequence[str] = (),
    add: Sequence[str] = (),
    limit: int = 3_000_000,
    traced: bool = False,
) -> Found:
    """Search one scenario with some rules off."""
    return Search(Model(scenario, off, add), limit=limit, traced=traced).run()


# -- the command -------------------------------------------------------------------------------


def lines(found: Found) -> Iterator[str]:
    """A trace, a step a line."""
    for number, label in enumerate(found.trace, 1):
        yield f"    {number:2} {label}"
    if found.trace and found.last is not None:
        yield f"    -> {found.broken}: {found.last.rec}"


def each_off(limit: int, names: Sequence[str]) -> int:
    """Switch each rule off in turn where it shows first."""
    silent = 0
    for rule in RULES:
        where = names or [WHERE.get(rule, "non")]
        for name in where:
            scenario = SCENARIOS.get(name, SCENARIOS["non"])
            found = search(scenario, off=(rule,), limit=limit, traced=True)
            shown = bool(found.broken) and found.broken != LIMIT
            kind = "assumption" if rule in ASSUMPTIONS else "rule"
            end = f"{found.broken} ({len(found.trace)} steps)" if shown else "no violation found"
            why = f"; need not: {NEED_NOT_SHOW[rule]}" if rule in NEED_NOT_SHOW else ""
            say(f"{kind} {rule} off, {name}: {end}, {found.states} states{why}")
            silent += not shown and rule not in NEED_NOT_SHOW
            if shown:
                say("\n".join(lines(found)))
    return silent


def say(text: str) -> None:
    """Print at once: a search takes minutes."""
    print(text, flush=True)  # noqa: T201 - a command speaks


def arguments() -> argparse.Namespace:
    """Read the command line."""
    ask = argparse.ArgumentParser(prog="python -m tests.model.protocol_model", description=__doc__)
    ask.add_argument("--off", action="append", default=[], choices=list(RULES))
    ask.add_argument("--add", action="append", default=[], choices=list(EXTRA))
    ask.add_argument("--scenario", action="append", default=[], choices=list(SCENARIOS))
    ask.add_argument("--each-off", action="store_true", help="every rule off in turn, with traces")
    ask.add_argument("--limit", type=int, default=5_000_000, help="states of one search")
    ask.add_argument("--trace", action="store_true", help="keep traces (more memory)")
    ask.add_argument("--list", action="store_true", help="the rules and what they say")
    return ask.parse_args()


def main() -> int:
    """Search; exit 1 where something is broken."""
    args = arguments()
    if args.list:
        for rule, text in (RULES | EXTRA).items():
            say(f"{rule:22} {text}")
        return 0
    if args.each_off:
        return min(1, each_off(args.limit, args.scenario))
    broken = 0
    for name in args.scenario or SCENARIOS:
        began = time.monotonic()
        traced = args.trace or bool(args.off)
        found = search(SCENARIOS[name], off=args.off, add=args.add, limit=args.limit, traced=traced)
        broken += bool(found.broken)
        took = time.monotonic() - began
        end = found.broken or "no violation, live"
        say(f"{name:11} {found.states:>9} states {found.steps:>10} steps {took:6.1f} s  {end}")
        say("\n".join(lines(found))) if found.trace else None
    return min(1, broken)


if __name__ == "__main__":
    sys.exit(main())
