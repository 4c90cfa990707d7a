#!/usr/bin/env python3
"""Guarded calls on SQLite against bare commits, DBOS and LangGraph, in one run (budgets B3, B4).

A guarded call is two durable commits: the intent before the function, its outcome after it. "Bare"
is the same driver, one small table and as many bytes in each commit as a guarded call writes,
without any library logic. The peers' steps do nothing either, and each peer is shown at several
settings. ``--rows N`` also measures 32 callers on a ledger that has N records behind it.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import apsw
from benchlib import Budget, Case, Options, closed_loop, in_turns, parser, repeated, versions
from filling import fill
from peer import Peer, running
from store_sqlite import FLOOR, FLOOR_INSERT, FLOOR_UPDATE, BareWriter, Write, connect
from workload import Effects, bytes_written, effects, order

from indoubt import Ledger

PEERS = {
    "dbos": ("1-step c=1", "10-step c=1", "1-step c=32", "10-step c=32"),
    "langgraph": ("sync c=1", "async c=1", "sync c=32", "async c=32"),
}
CALLERS = 32
SLICES = 10
"""Turns of each case in one round; the peers take theirs, a long one, at its end."""
BARE, BARE_WRITER, BARE_GROUP = "bare, calling thread", "bare, writer thread", "bare, c=32"
SYNC, ASYNC, MANY = "indoubt sync", "indoubt async", "indoubt async, c=32"
ROWS = "indoubt async, c=32, rows behind"
BUDGETS = {
    SYNC: [Budget(BARE, least=round(1 / 1.5, 2))],
    ASYNC: [Budget(BARE_WRITER, least=round(1 / 1.3, 2))],
    MANY: [
        Budget(BARE_GROUP, least=0.55),
        Budget("dbos 10-step c=32", least=20),
        Budget("langgraph sync c=32", least=12),
    ],
    ROWS: [Budget(MANY, least=0.6)],
}


class Arguments(Options):
    peers: str
    rows: int


class Cases:
    """Each case is opened once, on a file of its own, and then answers calls per second."""

    def __init__(self, folder: str, args: Arguments) -> None:
        self._folder = folder
        self._slice_s = args.seconds / SLICES
        self._numbers = itertools.count()
        self._opened: list[Callable[[], Awaitable[object]]] = []
        first, second = bytes_written()
        self.sizes = f"{first} and {second} bytes in the two commits of a call"
        self._first, self._second = b"x" * first, b"x" * second
        self._large = f"{folder}/large.db" if args.rows else ""
        if self._large:
            fill(self._large, args.rows)

    def _file(self) -> str:
        return f"{self._folder}/{next(self._numbers)}.db"

    def _writes(self) -> tuple[Write, Write]:
        number = next(self._numbers)
        name = f"op-{number:09}"
        insert, update = (name, number, self._first), (self._second, name)
        return (
            lambda db: db.execute(FLOOR_INSERT, insert).fetchall(),
            lambda db: db.execute(FLOOR_UPDATE, update).fetchall(),
        )

    def bare(self) -> Case:
        db = connect(self._file(), FLOOR)

        def call(_: int) -> None:
            for write in self._writes():
                write(db)

        return lambda: asyncio.to_thread(repeated, call, self._slice_s)

    def bare_writer(self, callers: int) -> Case:
        writer = BareWriter(self._file(), FLOOR)
        self._opened.append(partial(asyncio.to_thread, writer.close))

        async def call(*_: int) -> None:
            for write in self._writes():
                await writer.do(write)

        return partial(closed_loop, call, callers, self._slice_s)

    def _effects(self, path: str = "") -> Effects:
        ledger = Ledger(f"sqlite:///{path or self._file()}")
        made = effects(ledger)
        made.blocking(**order(-1))  # opens it
        self._opened.append(ledger.close)
        return made

    def sync(self, threads: int = 1) -> Case:
        made = self._effects()

        def call(_: int) -> None:
            made.blocking(**order(next(self._numbers)))

        def run() -> float:
            with ThreadPoolExecutor(threads) as pool:
                return sum(pool.map(partial(repeated, call), [self._slice_s] * threads))

        return partial(asyncio.to_thread, run)

    def coroutine(self, callers: int = 1, path: str = "") -> Case:
        made = self._effects(path)

        async def call(*_: int) -> None:
            await made.coroutine(**order(next(self._numbers)))

        return partial(closed_loop, call, callers, self._slice_s)

    def all(self) -> dict[str, Case]:
        """Ours and bare, by name; what needs no loop runs on a thread that has none."""
        cases: dict[str, Case] = {
            BARE: self.bare(),
            SYNC: self.sync(),
            BARE_WRITER: self.bare_writer(1),
            ASYNC: self.coroutine(),
            BARE_GROUP: self.bare_writer(CALLERS),
            MANY: self.coroutine(CALLERS),
            "indoubt sync, 8 threads": self.sync(8),
            "indoubt sync, 32 threads": self.sync(CALLERS),
        }
        if self._large:
            cases[ROWS] = self.coroutine(CALLERS, self._large)
        return cases

    async def close(self) -> None:
        for close in self._opened:
            await close()


def steps(peers: dict[str, Peer], seconds: float) -> dict[str, Case]:
    return {
        f"{name} {case}": partial(peer.rate, case, seconds)
        for name, peer in peers.items()
        for case in PEERS[name]
    }


async def measure(args: Arguments, folder: str, cases: Cases) -> None:
    names = [] if args.peers == "none" else args.peers.split(",")
    with running(names, folder) as peers:
        found = {
            name: version for peer in peers.values() for name, version in peer.versions.items()
        }
        print(versions("apsw", "msgspec") | {"sqlite": apsw.sqlite_lib_version()} | found)
        print(cases.sizes)
        await in_turns(
            "guarded calls, durable steps",
            args,
            cases.all(),
            "per second",
            BUDGETS,
            slices=SLICES,
            slow=steps(peers, args.seconds),
        )
    await cases.close()


def main() -> None:
    made = parser(__doc__, seconds=1.0)
    made.add_argument(
        "--peers", default="dbos,langgraph", help="comma list of dbos and langgraph, or none"
    )
    made.add_argument("--rows", type=int, default=0, help="records behind (B4: 1000000)")
    args = made.parse_args(namespace=Arguments())
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        asyncio.run(measure(args, folder, Cases(folder, args)))


if __name__ == "__main__":
    main()
