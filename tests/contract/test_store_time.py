"""The store's time: forwards through every step of the wall clock, in and between processes."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from indoubt.stores import clock as module
from indoubt.stores.clock import NEVER, Moment, StoreTime, SystemClock
from indoubt.stores.sqlite import SQLiteStore
from indoubt.testing.store_contract import SteeredClock
from indoubt.testing.store_contract.examples import put, written


class SteeredHost(SteeredClock, SystemClock):
    """The clocks of one host, steered: every process on it knows the same boot by name."""


def test_time_is_the_wall_clocks_while_that_goes_forwards() -> None:
    clock = SteeredClock(1_000, 0)
    time = StoreTime(clock)
    for wall in (1_000, 1_001, 5_000):
        clock.wall = wall
        assert time.now().now_ms == wall


def test_set_back_it_goes_on_with_the_clock_since_boot() -> None:
    clock = SteeredClock(100_000, 7)
    time = StoreTime(clock)
    assert time.now().now_ms == 100_000
    clock.step(-90_000, 250)
    assert time.now().now_ms == 100_250
    clock.step(0, 1)
    assert time.now().now_ms == 100_251
    clock.step(200_000, 1)
    assert time.now().now_ms == 210_000


def test_what_is_persisted_is_the_least() -> None:
    clock = SteeredClock(1_000, 500)
    time = StoreTime(clock)
    assert time.now(Moment(9_000, 400, "another boot")).now_ms == 9_000
    clock.step(10, 10)
    assert time.now(Moment(9_000, 400, "another boot")).now_ms == 9_010
    assert time.now(NEVER).now_ms == 9_010


def test_time_went_on_while_no_process_looked() -> None:
    """Set back by an hour, with short-lived processes only: leases must still run out."""
    host = SteeredHost(10_000_000, 1_000)
    first = StoreTime(host).now()
    assert first.boot
    host.step(-3_600_000, 60_000)
    assert StoreTime(host).now(first).now_ms == 10_060_000


def test_readings_of_another_boot_are_not_compared() -> None:
    host = SteeredHost(10_000_000, 1_000)
    first = StoreTime(host).now()._replace(boot="another machine")
    host.step(-3_600_000, 60_000)
    assert StoreTime(host).now(first).now_ms == 10_000_000


def test_a_steered_clock_has_no_boot_that_others_know() -> None:
    assert StoreTime(SteeredClock()).now().boot == ""


def test_the_hosts_clocks_go_forwards() -> None:
    time = StoreTime()
    first, second = time.now(), time.now(NEVER)
    assert second.now_ms >= first.now_ms > 1_700_000_000_000
    assert second.boot_ms >= first.boot_ms > 0
    assert second.boot == module._boot_id()


@given(st.lists(st.tuples(st.integers(-10_000, 10_000), st.integers(0, 10_000), st.booleans())))
def test_two_processes_never_see_time_run_back(steps: list[tuple[int, int, bool]]) -> None:
    """Whoever stamps, a stamp is never below an earlier one, and time moves as it really did."""
    host = SteeredHost(1_000_000, 1_000)
    processes = StoreTime(host), StoreTime(host)
    persisted = processes[0].now()
    for wall, boot, which in steps:
        host.step(wall, boot)
        now = processes[which].now(persisted)
        assert now.now_ms >= persisted.now_ms + boot
        assert now.now_ms >= host.wall
        persisted = now


async def test_stamps_of_two_hosts_on_one_file_go_forwards(path: str) -> None:
    clocks = SteeredClock(2_000_000_000_000, 5), SteeredClock(1_900_000_000_000, 900)
    stores = [SQLiteStore(path, clock=clock) for clock in clocks]
    seen: list[int] = []
    for n in range(6):
        store, clock = stores[n % 2], clocks[n % 2]
        clock.step(1, 1)
        seen.append((await written(store, put(f"r{n}"))).now_ms)
        seen.append((await stores[(n + 1) % 2].read([])).now_ms)
    assert seen == sorted(seen)
    assert seen[0] == 2_000_000_000_001
    for store in stores:
        await store.close()
