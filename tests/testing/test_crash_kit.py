"""The crash kit itself: fates, wrapped stores and calls, a clock by hand, workers that are cut."""

from __future__ import annotations

import asyncio
import math
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import indoubt.testing
from indoubt import AnswerLost, Ledger, StoreUnavailable
from indoubt.store import BlockingStore, DueQuery, ScanQuery
from indoubt.stores.memory import MemoryStore
from indoubt.testing import (
    CUTS,
    Blow,
    Crash,
    CrashStore,
    CutPlan,
    Fate,
    ManualClock,
    ProcessFate,
    Worker,
    memory_ledger,
)
from indoubt.testing.crash import How
from indoubt.testing.store_contract.examples import batch, extend, put

NO_STORE = "import sys, indoubt.testing; assert not any('stores' in m for m in sys.modules)"


def itself(order: str) -> str:
    return order


def test_every_exported_name_is_there() -> None:
    assert [n for n in indoubt.testing.__all__ if not hasattr(indoubt.testing, n)] == []
    assert set(indoubt.testing.__all__) <= set(dir(indoubt.testing))
    with pytest.raises(AttributeError, match="nothing"):
        indoubt.testing.nothing  # noqa: B018  # pyright: ignore[reportUnknownMemberType]


def test_importing_the_kit_loads_none_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", NO_STORE], check=False)
    assert done.returncode == 0


# -- fates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blow", "dies_at"),
    [
        (Blow(1), 1),
        (Blow(3), 3),
        (Blow(name="write"), 2),
        (Blow(2, name="write"), 4),
        (Blow(name="write", since="send"), 4),
        (Blow(name="wr", since="s"), 4),
        (Blow(name="scan"), None),
        (Blow(9), None),
    ],
)
def test_a_blow_counts_the_calls_that_it_is_about(blow: Blow, dies_at: int | None) -> None:
    fate, calls = Fate(blow), ["read", "write a", "send", "write b", "renew"]
    done: list[str] = []
    try:
        for name in calls:
            with fate.call(name):
                done.append(name)
    except Crash:
        assert fate.dead
    assert fate.calls == calls[: dies_at or 5]
    assert done == calls[: 5 if dies_at is None else dies_at - 1]


def test_after_its_crash_a_process_is_refused_everything() -> None:
    fate = Fate(Blow(1, "after"))
    store = CrashStore(MemoryStore(), fate)
    with pytest.raises(Crash):
        store.read_blocking(())
    for call in (
        lambda: store.read_blocking(()),
        lambda: store.write_blocking((batch(put()),)),
        lambda: store.hold_owner("o1"),
        lambda: store.owner_dead("o1"),
        fate.sending(lambda: None),
    ):
        with pytest.raises(Crash):
            call()
    assert fate.calls == ["read"]


def test_a_crash_is_not_caught_by_what_catches_errors() -> None:
    assert not issubclass(Crash, Exception)


@pytest.mark.parametrize(
    ("how", "done", "error"),
    [
        ("before", [], Crash),
        ("after", [1], Crash),
        ("answer_lost", [1], ConnectionResetError),
        ("never_arrived", [], ConnectionResetError),
        ("delayed", [1], None),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_what_befalls_a_provider_call(
    how: How, done: list[int], error: type[BaseException] | None, *, is_async: bool
) -> None:
    clock, seen = ManualClock(), list[int]()
    fate = Fate(Blow(1, how), clock=clock, delay=timedelta(seconds=7))

    async def send_async(n: int) -> int:
        seen.append(n)
        return n

    def send(n: int) -> int:
        seen.append(n)
        return n

    def run() -> int:
        return asyncio.run(fate.sending(send_async)(1)) if is_async else fate.sending(send)(1)

    if error is None:
        assert run() == 1
    else:
        with pytest.raises(error):
            run()
    assert seen == done
    assert clock.now() == (7 if how == "delayed" else 0)


@pytest.mark.parametrize("landed", [True, False])
async def test_a_lost_answer_of_the_store_is_a_value_for_writes_and_an_error_for_reads(
    *, landed: bool
) -> None:
    how: How = "answer_lost" if landed else "never_arrived"
    inner = MemoryStore()
    for blocking in (False, True):
        store = CrashStore(inner, Fate(Blow(1, how), Blow(2, how), Blow(3, how)))
        writes = (batch(put(f"{landed} {blocking}")),)
        answers = store.write_blocking(writes) if blocking else await store.write(writes)
        assert [type(answer) for answer in answers] == [AnswerLost]
        assert len(inner.read_blocking([f"{landed} {blocking}"]).records) == landed
        with pytest.raises(StoreUnavailable):
            await store.scan(ScanQuery())
        with pytest.raises(StoreUnavailable):
            store.hold_owner("o1")


async def test_calls_have_names() -> None:
    fate = Fate()
    store = CrashStore(MemoryStore(), fate)
    assert isinstance(store, BlockingStore)
    assert store.capabilities == MemoryStore().capabilities
    store.hold_owner("o1")
    await store.write((batch(put("a")), batch(put("b", state="failed"))))
    await store.write((batch(extend("a")),))
    await store.read(("a",))
    await store.due(DueQuery((("effect", 1),)))
    await store.scan(ScanQuery())
    await store.journal("a")
    assert fate.calls == [
        *("hold owner", "write dispatched failed", "renew", "read", "due", "scan", "journal"),
    ]


async def test_a_process_cut_off_from_its_store() -> None:
    fate = Fate()
    store = CrashStore(MemoryStore(), fate)
    fate.unreachable = True
    assert [type(one) for one in await store.write((batch(put()),))] == [StoreUnavailable]
    assert [type(one) for one in store.write_blocking((batch(put()),))] == [StoreUnavailable]
    with pytest.raises(StoreUnavailable):
        await store.read(())
    fate.unreachable = False
    assert (await store.read(("a",))).records == ()


def test_the_dead_are_proven_dead() -> None:
    inner = MemoryStore()
    store = CrashStore(inner, Fate())
    store.hold_owner("o1")
    assert store.owner_dead("o1") is False
    store.declare_owners_dead()
    assert inner.owner_dead("o1") is True


# -- the clock -------------------------------------------------------------------------------------


class Bell:
    """An alarm at given moments."""

    def __init__(self, clock: ManualClock, *moments: float) -> None:
        self._clock, self._moments = clock, sorted(moments)
        self.rung: list[float] = []

    def due(self) -> float:
        return self._moments[0] if self._moments else math.inf

    def ring(self) -> None:
        self.rung.append(self._clock.now())
        self._moments.pop(0)


def test_time_passes_only_when_told() -> None:
    clock = ManualClock(wall_ms=1000)
    assert (clock.now(), clock.boot_ms(), clock.wall_ms()) == (0, 0, 1000)
    clock.sleep(1.5)
    clock.step(timedelta(hours=-1))
    assert (clock.now(), clock.boot_ms(), clock.wall_ms()) == (1.5, 1500, 2500 - 3_600_000)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(timedelta(seconds=-1))


async def test_a_sleeper_lets_others_run() -> None:
    clock, seen = ManualClock(), list[str]()
    other = asyncio.ensure_future(_note(seen))
    await clock.sleep_async(3600)
    assert (seen, clock.now()) == (["ran"], 3600)
    await other


async def _note(seen: list[str]) -> None:
    seen.append("ran")


def test_what_is_due_is_done_in_order_each_at_its_moment() -> None:
    clock = ManualClock()
    one, other = Bell(clock, 1, 3, 9), Bell(clock, 2, 2.5)
    clock.add(one)
    clock.add(other)
    clock.advance(timedelta(seconds=5))
    assert (one.rung, other.rung, clock.now()) == ([1, 3], [2, 2.5], 5)
    clock.remove(one)
    clock.remove(one)
    clock.advance(timedelta(seconds=5))
    assert one.rung == [1, 3]


def test_an_alarm_may_itself_take_time() -> None:
    clock = ManualClock()
    bell = Bell(clock, 1, 2)
    ring = bell.ring
    bell.ring = lambda: (ring(), clock.sleep(10))[0]
    clock.add(bell)
    clock.advance(timedelta(seconds=5))
    assert (bell.rung, clock.now()) == ([1, 2], 12)


async def test_a_memory_ledger_renews_by_its_clock_and_leaves_nothing() -> None:
    clock = ManualClock()
    with memory_ledger(clock=clock, lease=timedelta(seconds=3)) as ledger:

        @ledger.effect(safety="non_idempotent", name="pay", key=itself)
        async def pay(order: str, *, effect: Any) -> list[Any]:
            clock.advance(timedelta(minutes=5))
            return [order, 0 < effect.remaining() <= 3]

        assert await pay("order-7") == ["order-7", True]
        found = await ledger.find("pay", "order-7")
        assert found is not None
        assert found.updated_at - found.created_at == timedelta(minutes=5)
    assert clock._alarms == []  # pyright: ignore[reportPrivateUsage]


# -- real processes --------------------------------------------------------------------------------

SCRIPT = """
import json, sys
from indoubt.testing import ProcessFate
fate = ProcessFate.from_environment()
for line in sys.stdin:
    with fate.call("write dispatched"):
        pass
    fate.sending(lambda: None)()
    fate.tell(json.loads(line))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT, "utf-8")
    return path


def test_a_worker_that_is_not_cut_says_what_it_is_told(script: Path) -> None:
    with Worker(script) as worker:
        for value in ({"a": [1, None]}, "é\n"):
            worker.say(value)
            assert worker.hear() == value
        with pytest.raises(TimeoutError):
            worker.hear(0.01)
        worker.kill()
        assert worker.wait() == -signal.SIGKILL


def test_a_worker_is_killed_where_it_is_cut(script: Path) -> None:
    with Worker(script, cut="F6") as worker:
        worker.say(1)
        worker.wait_cut()
        with pytest.raises(EOFError):
            worker.hear()
        assert worker.wait() == -signal.SIGKILL


def test_a_worker_is_stopped_where_it_is_cut_and_goes_on(script: Path) -> None:
    with Worker(script, cut="F1", by="stop") as worker:
        worker.say(1)
        worker.wait_cut()
        with pytest.raises(TimeoutError):
            worker.hear(0.01)
        worker.go_on()
        assert worker.hear() == 1
        worker.stop()
        worker.say(2)
        with pytest.raises(TimeoutError):
            worker.hear(0.01)
        worker.go_on()
        assert worker.hear() == 2


def test_a_worker_that_never_comes_to_its_cut(script: Path) -> None:
    with Worker(script, cut="F1") as worker, pytest.raises(RuntimeError, match="too late"):
        worker.wait_cut(0.01)
    with Worker(script, cut="F4") as worker:
        worker.say(1)
        assert worker.hear() == 1
        stdin = worker._running().stdin  # pyright: ignore[reportPrivateUsage]
        assert stdin is not None
        stdin.close()
        with pytest.raises(RuntimeError, match="not cut at F4"):
            worker.wait_cut()


@pytest.mark.parametrize("text", ["F7", "F1 stab", "f1", "F1,kill"])
def test_what_is_no_cut(text: str) -> None:
    with pytest.raises(ValueError, match="is no cut"):
        CutPlan.read(text)


@pytest.mark.parametrize("cut", CUTS)
def test_a_plan_is_read_as_it_was_written(cut: Any) -> None:
    for plan in (CutPlan(cut), CutPlan(cut, "stop"), CutPlan(cut, "kill", "http://a/faults/1")):
        assert CutPlan.read(plan.text()) == plan
    assert CutPlan.read(cut).by == "kill"


def test_no_plan_no_cut() -> None:
    fate = ProcessFate.from_environment({})
    for name in ("write dispatched", "send", "write succeeded"):
        with fate.call(name):
            assert not fate.dead


async def test_a_ledger_over_a_crash_store_is_an_ordinary_one() -> None:
    store = CrashStore(MemoryStore(), Fate())
    async with Ledger(store, allow_ledger_loss=True) as ledger:

        @ledger.effect(safety="non_idempotent", name="pay", key=itself)
        async def pay(order: str) -> str:
            return order

        assert await pay("order-7") == "order-7"
