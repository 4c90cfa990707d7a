#!/usr/bin/env python3
"""CPU time that the library itself takes for one guarded call, and the JSON door (budget B11).

The store answers at once and keeps nothing, so what is counted is binding and recording the
arguments, ids, rules, encoding, the hold and the way through the driver: for the first write, the
call and the second write. Other programs' use of the machine can only add to a time, so each
figure is the best of several bursts.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Final

from benchlib import Budget, Options, in_turns, parser, versions
from json_door import VALUES, best_us
from workload import effects, order

from indoubt import Ledger
from indoubt.json_values import detach
from indoubt.store import Absent, Batch, Capabilities, Event, Page, Snapshot, Written

CALL_US: Final = 60.0
DOOR_US: Final = 3.0
DOOR_US_PER_KB: Final = 10.0
BURST: Final = 25
BURSTS: Final = 80


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class NullStore:
    """Says yes to every write and has never heard of any record."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            durable=True, durable_why="Nothing is.", shared=False, decides_silence=False
        )

    async def read(self, ids: Sequence[str]) -> Snapshot:
        return self.read_blocking(ids)

    async def write(self, batches: Sequence[Batch]) -> Sequence[Written]:
        return self.write_blocking(batches)

    def read_blocking(self, ids: Sequence[str]) -> Snapshot:
        del ids
        return Snapshot(now_ms(), 1, ())

    def write_blocking(self, batches: Sequence[Batch]) -> Sequence[Written]:
        expected = batches[0].puts[0].expected
        version = 1 if isinstance(expected, Absent) else expected.n + 1
        return (Written(now_ms(), 1, (version,)),)

    async def due(self, query: object) -> Snapshot:
        del query
        return Snapshot(now_ms(), 1, ())

    async def lease(self, query: object, lease: object) -> Snapshot:
        del query, lease
        return Snapshot(now_ms(), 1, ())

    async def queues(self, prefix: str = "") -> Sequence[str]:
        del prefix
        return ()

    async def wait(self, topics: Sequence[str], *, timeout: float) -> None:
        del topics, timeout

    async def scan(self, query: object) -> Page:
        del query
        return Page(now_ms(), 1, (), None)

    async def journal(self, record_id: str, *, after: int = 0, limit: int = 100) -> Sequence[Event]:
        del record_id, after, limit
        return ()

    def hold_owner(self, owner: str) -> None:
        del owner

    def owner_dead(self, owner: str) -> bool | None:
        del owner

    async def close(self) -> None: ...


class Calls:
    """The same guarded function, blocking and async, on a store that costs nothing."""

    def __init__(self) -> None:
        self._effects = effects(Ledger(NullStore()))
        self._numbers = itertools.count()

    def sync_us(self) -> float:
        def burst() -> None:
            for _ in range(BURST):
                self._effects.blocking(**order(next(self._numbers)))

        return least_us(burst)

    async def async_us(self) -> float:
        times: list[float] = []
        for _ in range(BURSTS):
            started = time.process_time()
            for _ in range(BURST):
                await self._effects.coroutine(**order(next(self._numbers)))
            times.append((time.process_time() - started) / BURST * 1e6)
        return min(times)


def least_us(burst: Callable[[], object]) -> float:
    """The best time per call of several bursts."""
    times: list[float] = []
    for _ in range(BURSTS):
        started = time.process_time()
        burst()
        times.append((time.process_time() - started) / BURST * 1e6)
    return min(times)


def additions_us() -> float:
    """How fast Python is here now: a yardstick for the other figures."""

    def burst() -> None:
        total = 0
        for number in range(1000 * BURST):
            total += number

    return least_us(burst)


def arguments_us() -> float:
    """What making the arguments costs: not the library's."""
    return least_us(lambda: [order(number) for number in range(BURST)])


async def measure(args: Options) -> None:
    calls = Calls()
    print(versions("msgspec"), f"arguments: {len(detach(order(1000)).text)} bytes")
    await in_turns(
        "CPU per guarded call",
        args,
        {
            "a yardstick: 1,000 additions": additions_us,
            "making the arguments, not counted": arguments_us,
            "sync": calls.sync_us,
            "async": calls.async_us,
        },
        "us",
        {"sync": Budget(None, most=CALL_US), "async": Budget(None, most=CALL_US)},
    )
    sizes = {name: len(detach(value).text) for name, value in VALUES.items()}
    doors = {f"{name}, {size} bytes": VALUES[name] for name, size in sizes.items()}
    goals = {
        case: Budget(None, most=round(DOOR_US + DOOR_US_PER_KB * size / 1024, 1))
        for case, size in zip(doors, sizes.values(), strict=True)
    }
    await in_turns(
        "the JSON door: detach and fingerprint",
        args,
        {case: (lambda value=value: best_us(value, rounds=3)) for case, value in doors.items()},
        "us",
        goals,
    )


def main() -> None:
    asyncio.run(measure(parser(__doc__).parse_args(namespace=Options())))


if __name__ == "__main__":
    main()
