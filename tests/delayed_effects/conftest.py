"""Delayed effects on every kind of store that can be started here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.servers.fixtures import postgres, postgres_versions, redis, redis_versions

from indoubt.delayed_effects import DelayedEffectStore
from indoubt.store import Store
from indoubt.stores import open_store

BACKENDS = [
    "memory",
    "sqlite",
    *(f"postgres-{version}" for version in postgres_versions()),
    *(f"redis-{version}" for version in redis_versions()),
]


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """A ledger's place on each kind of store."""
    kind, _, version = request.param.partition("-")
    with ExitStack() as stack:
        if kind == "postgres":
            yield stack.enter_context(postgres(version).ledger())
        elif kind == "redis":
            yield stack.enter_context(redis(version).ledger())
        else:
            yield {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/ledger.db"}[kind]


@pytest.fixture
async def ledger_store(url: str) -> AsyncGenerator[Store]:
    """An open store of that kind."""
    store = open_store(url)
    yield store
    await store.close()


class Effects:
    """Views of one namespace: all see the same intents, each with times of its own."""

    def __init__(self, store: Store) -> None:
        self.ledger_store = store
        self.lasting = self.view()
        self.expiring = self.view(execution_lease_seconds=0.001)

    def view(self, **times: Any) -> DelayedEffectStore:
        return DelayedEffectStore(self.ledger_store, **times)


@pytest.fixture
def effects(ledger_store: Store) -> Effects:
    return Effects(ledger_store)
