"""A forked child may not use what its parent opened, and does not harm it."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable

import pytest

from indoubt.errors import ForkedHandle
from indoubt.stores import open_store
from indoubt.stores.memory import MemoryStore
from indoubt.stores.sqlite import SQLiteStore
from indoubt.testing.store_contract.examples import put, written

Local = MemoryStore | SQLiteStore
USES: list[Callable[[Local], object]] = [
    lambda store: store.read_blocking([]),
    lambda store: store.write_blocking([]),
    lambda store: store.owner_dead("x"),
    lambda store: store.hold_owner("x"),
    lambda store: asyncio.run(store.close()),
]


async def said_by_a_child(act: Callable[[], str]) -> str:
    """What a forked child says; it ends by os._exit, so no test goes on in it."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, act().encode())
        finally:
            os._exit(0)
    os.close(write)
    await asyncio.to_thread(os.waitpid, child, 0)
    said = os.read(read, 10_000).decode()
    os.close(read)
    return said


def tried(store: Local) -> str:
    said: list[str] = []
    for use in USES:
        try:
            use(store)
        except ForkedHandle:
            said.append("forked")
    return " ".join(said)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_child_is_told_that_the_store_is_its_parents(kind: str, path: str) -> None:
    store = open_store("memory:" if kind == "memory" else f"sqlite:///{path}")
    assert isinstance(store, Local)
    await written(store, put())
    assert await said_by_a_child(lambda: tried(store)) == "forked forked forked forked forked"
    assert (await written(store, put("b"))).versions == (1,)
    await store.close()


async def test_a_child_opens_the_file_anew_and_drops_what_it_inherited(path: str) -> None:
    stores = [SQLiteStore(path)]
    await written(stores[0], put())

    def child() -> str:
        stores.clear()  # as a module that makes its store anew after a fork
        gc.collect()
        own = SQLiteStore(path)
        found = own.read_blocking(["a"]).records
        asyncio.run(own.close())
        return f"{len(found)} found"

    assert await said_by_a_child(child) == "1 found"
    assert (await written(stores[0], put("b"))).versions == (1,)
    assert len((await stores[0].read(["a", "b"])).records) == 2
    await stores[0].close()
