"""The Redis store keeps the contract, on every server that is here."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from tests.servers.fixtures import cluster, redis, redis_versions

from indoubt.store import Store
from indoubt.stores import open_store
from indoubt.stores.clock import Clock
from indoubt.testing.store_contract import StoreContract


@pytest.mark.parametrize("version", redis_versions(), scope="class")
class TestRedis(StoreContract):
    """In one partition: the contract's ids do not tell their roots."""

    steers_time = False

    @pytest.fixture(autouse=True)
    def place(self, version: str) -> Generator[None]:
        with redis(version).ledger(partitions=1) as url:
            self.url = url
            yield

    async def open_store(self, place: Path, clock: Clock) -> Store:
        del place, clock  # the server has its own
        return open_store(self.url)


class TestRedisCluster(StoreContract):
    """Its one partition is in one of three masters."""

    steers_time = False

    @pytest.fixture(autouse=True)
    def place(self) -> Generator[None]:
        with cluster().ledger(partitions=1) as url:
            self.url = url
            yield

    async def open_store(self, place: Path, clock: Clock) -> Store:
        del place, clock
        return open_store(self.url)
