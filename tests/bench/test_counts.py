"""What a guarded call costs, as far as it can be counted instead of timed (budgets B1, B2)."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import NamedTuple

import pytest
from counting import Counted, counting
from workload import Effects, effects, order

from indoubt import Ledger

CALLERS, CALLS = 32, 30
FIRST_WRITE = ["BEGIN", "SELECT"]
"""The store's clock is read inside the transaction that writes; nothing else is."""


class Guarded(NamedTuple):
    made: Effects
    counted: Counted


@pytest.fixture
def counted() -> Generator[Counted]:
    with counting() as found:
        yield found


@pytest.fixture
async def guarded(tmp_path: Path, counted: Counted) -> AsyncGenerator[Guarded]:
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
    made = effects(ledger)
    made.blocking(**order(-1))
    counted.reset()
    yield Guarded(made, counted)
    await ledger.close()


def assert_two_commits_and_nothing_read_before(counted: Counted) -> None:
    words = counted.kinds()
    assert counted.commits == 2
    assert words.count("BEGIN") == 2
    before = counted.before_the_first_write()
    assert [statement.split(maxsplit=1)[0] for statement in before] == FIRST_WRITE
    assert " FROM meta " in before[1]


def test_a_blocking_call_is_two_commits(guarded: Guarded) -> None:
    guarded.made.blocking(**order(1))
    assert_two_commits_and_nothing_read_before(guarded.counted)


async def test_an_async_call_is_two_commits(guarded: Guarded) -> None:
    await guarded.made.coroutine(**order(1))
    assert_two_commits_and_nothing_read_before(guarded.counted)


def test_a_repeat_is_one_attempt_to_write_and_no_commit(guarded: Guarded) -> None:
    """Its conflict brings the record, so that nothing more is asked."""
    first = guarded.made.blocking(**order(1))
    guarded.counted.reset()
    assert guarded.made.blocking(**order(1)) == first
    words = guarded.counted.kinds()
    assert [words.count(word) for word in ("BEGIN", "INSERT", "COMMIT")] == [1, 1, 0]
    assert words[-1] == "ROLLBACK"


async def test_callers_at_once_share_their_commits(guarded: Guarded) -> None:
    async def caller(number: int) -> None:
        for at in range(CALLS):
            await guarded.made.coroutine(**order(number * CALLS + at))

    await asyncio.gather(*map(caller, range(CALLERS)))
    # 0.06 where every group is full; groups are smaller while the callers start and end.
    assert guarded.counted.commits <= 0.1 * CALLERS * CALLS
