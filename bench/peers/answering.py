"""A peer's side of ``bench/peer.py``: answers one figure for each line it is asked.

A line is ``case seconds``; the answer is a JSON line. Only the standard library is used here: it
runs in the peer's own environment.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib import metadata


async def rate(
    unit: Callable[[], Awaitable[object]], steps: int, callers: int, seconds: float
) -> float:
    """So many callers run units of so many steps back to back; returns steps per second."""
    started = time.perf_counter()
    stop = started + seconds
    done = 0

    async def caller() -> None:
        nonlocal done
        while time.perf_counter() < stop:
            await unit()
            done += steps

    await asyncio.gather(*(caller() for _ in range(callers)))
    return done / (time.perf_counter() - started)


async def answer(cases: Mapping[str, Callable[[float], Awaitable[float]]], *packages: str) -> None:
    """Serve the cases until standard input ends."""
    say({"ready": {name: metadata.version(name) for name in packages}})
    while line := await asyncio.to_thread(sys.stdin.readline):
        case, seconds = line.rsplit(maxsplit=1)
        say({"figure": await cases[case](float(seconds))})


def say(what: object) -> None:
    print(json.dumps(what), flush=True)
