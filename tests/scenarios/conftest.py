"""What the scenario tests share: a provider that counts, and a place on every kind of store."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.conftest import World
from tests.scenarios.performing import Payment
from tests.servers.places import ALL, KEPT, place

from indoubt.testing import FakeProvider

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def bank() -> Iterator[FakeProvider]:
    """One provider for all tests of this process; each test has an order of its own."""
    with FakeProvider() as provider:
        yield provider


@pytest.fixture
def order() -> str:
    """A business key that no other test has."""
    return f"order-{next(_numbers)}"


@pytest.fixture
def payment(bank: FakeProvider, tmp_path: Path) -> Payment:
    """A non-idempotent payment that cannot be looked up, on a SQLite file of its own."""
    return Payment(store=str(tmp_path / "ledger.db"), bank=bank.url)


@pytest.fixture(params=KEPT)
def kept_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A ledger's place on each kind of store that several processes can open."""
    with place(request.param, tmp_path) as url:
        yield url


@pytest.fixture
def kept_payment(bank: FakeProvider, kept_url: str) -> Payment:
    """That payment, on each of them."""
    return Payment(store=kept_url, bank=bank.url)


def world_on(kind: str, folder: Path, stack: ExitStack) -> World:
    """A world on that kind of store; on a server nobody steers the store's time."""
    url = stack.enter_context(place(kind, folder))
    if kind == "memory":
        return World()
    return World(folder / "ledger.db") if kind == "sqlite" else World(url=url)


@pytest.fixture(params=ALL)
async def any_world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A world on each kind of store. Here no test waits for the store's time to pass."""
    with ExitStack() as stack:
        made = world_on(request.param, tmp_path, stack)
        yield made
        await made.check()
        await made.close()
