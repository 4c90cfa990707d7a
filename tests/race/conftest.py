"""What the race tests share: one provider that counts, and a ledger in a file."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from tests.race.worker import Job

from indoubt.testing import FakeProvider

WORKER = Path(__file__).parent / "worker.py"
T = TypeVar("T")
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def bank() -> Iterator[FakeProvider]:
    """One provider for all tests of this process; each test has orders of its own."""
    with FakeProvider() as provider:
        yield provider


@pytest.fixture
def job(bank: FakeProvider, tmp_path: Path) -> Job:
    """A job for one order that no other test has."""
    order = f"order-{next(_numbers)}"
    return Job(store=f"sqlite:///{tmp_path}/ledger.db", bank=bank.url, orders=(order,))


async def eventually(ask: Callable[[], Awaitable[T | None]], seconds: float = 30.0) -> T:
    """Ask again and again until there is an answer.

    Raises:
        TimeoutError: there is none in so many seconds.
    """
    pace = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(seconds):
        while (answer := await ask()) is None:
            await asyncio.wait([pace], timeout=0.02)
    return answer
