"""The PostgreSQL store keeps the contract, on every version that is here."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from tests.servers.fixtures import postgres, postgres_versions

from indoubt.store import Store
from indoubt.stores import open_store
from indoubt.stores.clock import Clock
from indoubt.testing.store_contract import StoreContract


@pytest.mark.parametrize("version", postgres_versions(), scope="class")
class TestPostgres(StoreContract):
    steers_time = False

    @pytest.fixture(autouse=True)
    def database(self, version: str) -> Generator[None]:
        with postgres(version).ledger() as url:
            self.url = url
            yield

    async def open_store(self, place: Path, clock: Clock) -> Store:
        del place, clock  # the server has its own
        return open_store(self.url)
