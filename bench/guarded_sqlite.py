#!/usr/bin/env python3
"""Guarded calls on SQLite against bare commits, DBOS and LangGraph, in one run (budgets B3, B4).

A guarded call is two durable commits: the intent before the function, its outcome after it. "Bare"
is the same driver, one small table and as many bytes in each commit as a guarded call writes,
without any library logic. The peers' steps do nothing either, and each peer is shown at several
settings. ``--rows N`` also measures 32 callers on a ledger that has N records behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
import threading
from collections.abc import Awaitable, Callable, Generator
from functools import partial

import apsw
from benchlib import Budget, Options, closed_loop, in_turns, parser, repeated, versions
from filling import fill
from peer import Peer, running
from store_sqlite import FLOOR, FLOOR_INSERT, FLOOR_UPDATE, BareWriter, Write, connect
from workload import Effects, bytes_written, effects, order

from indoubt import Ledger

PEERS = {
    "dbos": ("1-step c=1", "10-step c=1", "1-step c=32", "10-step c=32"),
    "langgraph": ("sync c=1", "async c=1", "sync c=32", "async c=32"),
}
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
    """Each method measures one way once: calls per second on a new file."""

    def __init__(self, folder: str, args: Arguments) -> None:
        self._folder = folder
        self._seconds = args.seconds
        self._files = itertools.count()
        first, second = bytes_written()
        self.sizes = f"{first} and {second} bytes in the two commits of a call"
        self._first, self._second = b"x" * first, b"x" * second
        self._large = f"{folder}/large.db" if args.rows else ""
        if self._large:
            fill(self._large, args.rows)

    def file(self) -> str:
        return f"{self._folder}/{next(self._files)}.db"

    def _writes(self, name: str, number: int) -> tuple[Write, Write]:
        insert, update = (name, number, self._first), (self._second, name)
        return (
            lambda db: db.execute(FLOOR_INSERT, insert).fetchall(),
            lambda db: db.execute(FLOOR_UPDATE, update).fetchall(),
        )

    def bare(self) -> float:
        db = connect(self.file(), FLOOR)

        def call(number: int) -> None:
            for write in self._writes(f"op-{number:09}", number):
                write(db)

        with contextlib.closing(db):
            return repeated(call, self._seconds)

    async def bare_writer(self, callers: int) -> float:
        writer = BareWriter(self.file(), FLOOR)

        async def call(caller: int, number: int) -> None:
            for write in self._writes(f"op-{caller}-{number:09}", number):
                await writer.do(write)

        with contextlib.closing(writer):
            return await closed_loop(call, callers, self._seconds)

    @contextlib.contextmanager
    def _ledger(self, path: str) -> Generator[tuple[Ledger, Effects]]:
        ledger = Ledger(f"sqlite:///{path}")
        made = effects(ledger)
        made.blocking(**order(-1))  # opens it
        yield ledger, made

    def sync(self, threads: int = 1) -> float:
        with self._ledger(self.file()) as (ledger, made):
            rates: list[float] = []

            def run(thread: int) -> None:
                def call(number: int) -> None:
                    made.blocking(**order(number * threads + thread))

                rates.append(repeated(call, self._seconds))

            running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
            asyncio.run(ledger.close())
        return sum(rates)

    async def coroutine(self, callers: int = 1, path: str = "") -> float:
        first = next(self._files) * 1_000_000_000  # other acts than in earlier rounds on this file
        with self._ledger(path or self.file()) as (ledger, made):

            async def call(caller: int, number: int) -> None:
                await made.coroutine(**order(first + number * callers + caller))

            rate = await closed_loop(call, callers, self._seconds)
            await ledger.close()
        return rate

    def all(self) -> dict[str, Callable[[], float | Awaitable[float]]]:
        """Ours and bare, by name; what needs no loop runs on a thread that has none."""
        cases: dict[str, Callable[[], float | Awaitable[float]]] = {
            BARE: partial(asyncio.to_thread, self.bare),
            SYNC: partial(asyncio.to_thread, self.sync),
            BARE_WRITER: partial(self.bare_writer, 1),
            ASYNC: self.coroutine,
            BARE_GROUP: partial(self.bare_writer, 32),
            MANY: partial(self.coroutine, 32),
            "indoubt sync, 8 threads": partial(asyncio.to_thread, self.sync, 8),
            "indoubt sync, 32 threads": partial(asyncio.to_thread, self.sync, 32),
        }
        if self._large:
            cases[ROWS] = partial(self.coroutine, 32, self._large)
        return cases


def steps(peers: dict[str, Peer], seconds: float) -> dict[str, Callable[[], float]]:
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
            {**cases.all(), **steps(peers, args.seconds)},
            "per second",
            BUDGETS,
        )


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
