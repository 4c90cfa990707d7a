"""What the scenario tests share: a provider that counts, and a payment on a file of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.scenarios.performing import Payment

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
