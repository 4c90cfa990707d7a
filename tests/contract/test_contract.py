"""The stores of indoubt keep the contract."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from indoubt.store import Store
from indoubt.stores import open_store
from indoubt.stores.clock import Clock
from indoubt.stores.memory import MemoryStore
from indoubt.testing.store_contract import StoreContract

HOLD_AND_DIE = """
import os, signal, sys
from indoubt.stores import open_store
open_store(sys.argv[1]).hold_owner(sys.argv[2])
os.kill(os.getpid(), signal.SIGKILL)
"""


class TestMemory(StoreContract):
    async def open_store(self, place: Path, clock: Clock) -> Store:
        del place  # nothing of it outlives the store
        return open_store("memory:", clock=clock)

    async def kill_owner(self, store: Store, place: Path, owner: str) -> None:
        del place
        assert isinstance(store, MemoryStore)
        store.hold_owner(owner)
        store.owners.declare_dead(owner)


class TestSQLite(StoreContract):
    async def open_store(self, place: Path, clock: Clock) -> Store:
        return open_store(f"sqlite:///{place}/ledger.db", clock=clock)

    async def kill_owner(self, store: Store, place: Path, owner: str) -> None:
        del store
        url = f"sqlite:///{place}/ledger.db"
        died = subprocess.run([sys.executable, "-c", HOLD_AND_DIE, url, owner], check=False)  # noqa: ASYNC221
        assert died.returncode == -9, os.strerror(died.returncode)
