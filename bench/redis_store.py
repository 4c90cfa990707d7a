"""The Redis store against bare EVALSHA of the same bytes, and the memory of pending effects.

Give ``--url`` of a Redis that may be filled; it is flushed at the end (budgets B6 and B8).
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from typing import Any

import redis as driver
from benchlib import Budget, Options, closed_loop, in_turns, parser, repeated

from indoubt.store import Absent, Batch, DueQuery, In, Put, ScanQuery, Written
from indoubt.stores import open_store
from indoubt.stores.redis import RedisStore
from indoubt.stores.redis.keys import Keys
from indoubt.stores.redis.partitions import Partitions
from indoubt.stores.redis.rows import Encoded
from indoubt.stores.redis.scripts import WRITE

NAMESPACE = "sg:delayed_effect:v1"
QUEUE = f"delayed_effect:{NAMESPACE}:mail"
FIXED = b'{"payload":"' + b"p" * 65 + b'"}'
EVENT = b'{"what":"prepared"}'
PENDING = 20_000
GROUP = 500
py: Any = driver


class Cases:
    """One server, and names that no other case has used."""

    def __init__(self, store: RedisStore, url: str, seconds: float) -> None:
        self.store = store
        self.client = py.Redis.from_url(url)
        self.client.script_load(WRITE.text)
        self.seconds = seconds
        self._numbers = itertools.count()
        keys = Keys(store.place.namespace, store.meta.partitions)
        self._partitions = Partitions(store.wire, keys, store.meta)

    def batch(self) -> Batch:
        """A delayed effect that is due at once."""
        digest = hashlib.sha256(str(next(self._numbers)).encode()).hexdigest()
        name = f"{NAMESPACE}:{{{int(digest[:2], 16) % 16:02}}}:intent:{digest}"
        put = Put(
            id=name,
            root_id=name,
            tenant_id=None,
            parent_id=None,
            kind="delayed_effect",
            expected=Absent(),
            state="prepared",
            owner=None,
            fence=0,
            claims=0,
            attempt=0,
            cancel_requested=False,
            store_epoch=1,
            lease_until=None,
            permit_until=None,
            ready_at=In(0),
            dispatched_at=None,
            doubt_since=None,
            body=b"{}",
            fixed=FIXED,
            event=EVENT,
            queue=QUEUE,
        )
        return Batch(digest[:32], puts=(put,))

    def bare(self) -> float:
        """The same script with the same bytes, made beforehand."""
        keys = self._partitions.keys
        commands: list[Any] = []
        for _ in range(4_000):
            batch = self.batch()
            partition = keys.partition(batch.puts[0].root_id)
            made = Encoded(batch, keys, partition)
            call = self._partitions.call(WRITE, partition, made.keys, made.strings, **made.head)
            commands.append(call.command())
        ready = itertools.cycle(commands)
        return repeated(lambda _: self.client.execute_command(*next(ready)), self.seconds)

    async def alone(self) -> float:
        return await closed_loop(self._one, 1, self.seconds)

    async def crowd(self) -> float:
        return await closed_loop(self._one, 32, self.seconds)

    async def _one(self, *_: int) -> None:
        (answer,) = await self.store.write([self.batch()])
        assert isinstance(answer, Written), answer

    async def memory(self) -> float:
        """MiB for a hundred thousand pending."""
        before = self.client.info("memory")["used_memory"]
        for _ in range(PENDING // GROUP):
            await self.store.write([self.batch() for _ in range(GROUP)])
        grown = self.client.info("memory")["used_memory"] - before
        return grown / PENDING * 100_000 / 2**20


async def measure(args: Options, url: str) -> None:
    store = open_store(url)
    assert isinstance(store, RedisStore)
    cases = Cases(store, url, args.seconds)
    writes = {
        "bare EVALSHA, c=1": cases.bare,
        "store, c=1": cases.alone,
        "store, c=32": cases.crowd,
    }
    goals = {
        "store, c=1": Budget("bare EVALSHA, c=1", least=0.85),
        "store, c=32": Budget("store, c=1", least=1.3),
    }
    await in_turns("register", args, writes, "writes/s", goals)
    goal = {"pending": Budget(None, most=65)}
    await in_turns("memory per 100k", args, {"pending": cases.memory}, "MiB", goal)
    page, listing = DueQuery(((QUEUE, 32),)), ScanQuery()
    pages = {
        "due, 32": lambda: closed_loop(lambda _c, _n: store.due(page), 1, args.seconds),
        "list, 100": lambda: closed_loop(lambda _c, _n: store.scan(listing), 1, args.seconds),
    }
    await in_turns("pages", args, pages, "pages/s")
    await store.close()
    cases.client.flushdb()
    cases.client.close()


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--url", default="redis://127.0.0.1:6379/15")
    args = options.parse_args(namespace=Options())
    asyncio.run(measure(args, args.url))


if __name__ == "__main__":
    main()
