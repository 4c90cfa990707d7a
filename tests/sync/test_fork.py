"""A ledger that is a module global goes on in a forked child, with a store of the child's own."""

import os
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from indoubt.engine import background
from indoubt.guard import opened
from indoubt.sync import Ledger

PATIENCE_S = 60


def in_a_child(do: Callable[[], object]) -> int:
    """Run something in a forked child; its exit code is 0 where that did not raise."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            do()
            code = 0
        except BaseException:  # noqa: BLE001 - the child must not go on as a second pytest
            traceback.print_exc()
        finally:
            os._exit(code)
    killer = threading.Timer(PATIENCE_S, os.kill, (pid, 9))
    killer.start()
    _, status = os.waitpid(pid, 0)
    killer.cancel()
    return os.waitstatus_to_exitcode(status)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(f"sqlite:///{tmp_path}/ledger.db")


def by_order(order: str) -> str:
    return order


def guard(ledger: Ledger) -> Any:
    @ledger.effect(name="notify", safety="non_idempotent", key=by_order)
    def notify(order: str) -> str:
        return f"{order} by {os.getpid()}"

    return notify


@pytest.mark.parametrize("used", [False, True], ids=["before it was opened", "after"])
def test_parent_and_child_both_go_on(ledger: Ledger, used: bool) -> None:  # noqa: FBT001
    notify = guard(ledger)
    if used:
        assert notify("first").startswith("first by")

    def child() -> None:
        assert notify("second") == f"second by {os.getpid()}"
        assert ledger.in_doubt().items == ()
        found = ledger.find("notify", "second")
        assert found is not None
        assert found.state == "succeeded"

    assert in_a_child(child) == 0
    assert notify("second") != f"second by {os.getpid()}"  # answered from the child's record
    assert notify("third") == f"third by {os.getpid()}"
    ledger.close()


def test_a_child_owes_nothing_to_locks_that_other_threads_held(ledger: Ledger) -> None:
    assert ledger.in_doubt().items == ()
    starting = background._background._lock  # pyright: ignore[reportPrivateUsage]
    opening = opened._turns.lock  # pyright: ignore[reportPrivateUsage]
    with starting, opening:
        code = in_a_child(ledger.in_doubt)
    assert code == 0
    ledger.close()
