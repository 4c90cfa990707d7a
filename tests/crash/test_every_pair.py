"""Kill a process before and after every outside call, then the next one at every call of its own.

Whatever happened: nothing is sent twice that must not be, no record lies, nothing is stuck.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.crash.histories import (
    History,
    Life,
    Sequel,
    check_history,
    in_memory,
    lates,
    on_sqlite,
    play_pairs,
    sides,
)
from tests.crash.processes import CASES, Case, named

from indoubt.testing import CUTS

SEQUELS = (
    Sequel("proven", "call", "recover"),
    Sequel("proven", "recover", "call"),
    Sequel("lapsed", "recover", "call"),
)
# On disk the rules are the same; what differs is the store, so one case of each kind will do.
ON_DISK = [
    Case("non_idempotent", "none"),
    Case("idempotent", "function"),
    Case("status_query_required", "provider"),
]
PERMITTED = [
    Case("non_idempotent", "none"),
    Case("non_idempotent", "authoritative"),
    Case("status_query_required", "function"),
    Case("human_confirmation_required", "provider"),
]


@pytest.mark.parametrize("case", CASES, ids=named)
async def test_every_pair_of_crash_points(case: Case) -> None:
    assert await play_pairs(case, in_memory(), SEQUELS) > 200


@pytest.mark.parametrize("case", ON_DISK, ids=named)
async def test_every_pair_on_a_file(case: Case, tmp_path: Path) -> None:
    assert await play_pairs(case, on_sqlite(tmp_path), SEQUELS[:1]) > 50


@pytest.mark.parametrize("case", CASES, ids=named)
async def test_every_crash_point_of_a_blocking_call(case: Case) -> None:
    opener = in_memory()
    whole = await check_history(case, History((Life("block"),)), opener)
    for blow, flying in sides(whole.calls[0]):
        for late in lates(flying):
            lives = (Life("block", (blow,)), Life("block"))
            again = await check_history(case, History(lives, late=late), opener)
            for second, also in sides(again.calls[1]):
                lives = (Life("block", (blow,)), Life("block", (second,)))
                await check_history(case, History(lives, late=late or also), opener)


@pytest.mark.parametrize("case", PERMITTED, ids=named)
async def test_a_permission_is_spent_once(case: Case) -> None:
    """A person allows one attempt; whoever dies wherever then, it is one at most."""
    opener = in_memory()
    for cut, late in ((CUTS["F2"], True), (CUTS["F2"], False), (CUTS["F3"], False)):
        first = Life("call", (cut,))
        allowed = await check_history(case, History((first, Life("permit")), late=late), opener)
        assert allowed.permissions == 1
        for blow, _ in sides(allowed.calls[1]):
            lives = (first, Life("permit", (blow,)), Life("call"))
            world = await check_history(case, History(lives, late=late), opener)
            assert world.bank.count() <= 2


@pytest.mark.parametrize(
    "case",
    [Case("status_query_required", "authoritative"), Case("non_idempotent", "resend")],
    ids=named,
)
async def test_three_crashes(case: Case) -> None:
    """Each of three processes dies; what the first one sent lands as late as it may."""
    opener = in_memory()
    first = Life("call", (CUTS["F2"],))
    for late in (True, False):
        second = await check_history(case, History((first, Life("recover")), late=late), opener)
        for two, _ in sides(second.calls[1]):
            lives = (first, Life("recover", (two,)), Life("call"))
            third = await check_history(case, History(lives, late=late), opener)
            for three, _ in sides(third.calls[2]):
                lives = (first, Life("recover", (two,)), Life("call", (three,)), Life("recover"))
                await check_history(case, History(lives, late=late), opener)
    assert opener


def test_the_cases_are_all_there() -> None:
    """Six classes without a probe (but one), with each kind of probe, and the one opt-in."""
    assert len(set(CASES)) == 5 + 3 * 6 + 1
