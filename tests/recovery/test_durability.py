"""A store that forgets is refused for what is not safe to repeat (P18, head 12); forks (P26)."""

from __future__ import annotations

import os
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest
from tests.conftest import World, first

from indoubt import DoubtfulAttempt, ForkedHandle, Ledger, StoreNotDurable
from indoubt.store import ScanQuery
from indoubt.stores.memory import MemoryStore

UNSAFE = ("status_query_required", "non_idempotent", "human_confirmation_required")
SAFE = ("pure", "idempotent", "retry_safe")


def payer(ledger: Ledger, safety: str, calls: list[str]) -> Any:
    @ledger.effect(safety=safety, name="pay", key=first, probe=DoubtfulAttempt.unknown)
    async def pay(order: str) -> str:
        calls.append(order)
        return order

    return pay


@pytest.mark.parametrize("safety", UNSAFE)
async def test_p18_an_unsafe_effect_is_refused_before_anything_is_written(safety: str) -> None:
    store, calls = MemoryStore(), list[str]()
    pay = payer(Ledger(store), safety, calls)
    with pytest.raises(StoreNotDurable, match="allow_ledger_loss") as caught:
        await pay("order-7")
    assert safety in str(caught.value)
    assert calls == []
    assert (await store.scan(ScanQuery())).records == ()


@pytest.mark.parametrize("safety", SAFE)
async def test_p18_what_is_safe_to_repeat_needs_no_durable_store(safety: str) -> None:
    calls: list[str] = []
    assert await payer(Ledger("memory:"), safety, calls)("order-7") == "order-7"
    assert calls == ["order-7"]


@pytest.mark.parametrize("safety", UNSAFE)
async def test_p18_allow_ledger_loss_accepts_it(safety: str) -> None:
    calls: list[str] = []
    pay = payer(Ledger("memory:", allow_ledger_loss=True), safety, calls)
    assert await pay("order-7") == "order-7"


async def test_p18_registering_and_looking_are_not_refused() -> None:
    ledger = Ledger("memory:")
    pay = payer(ledger, "non_idempotent", [])
    assert (await ledger.in_doubt()).items == ()
    assert await pay.find("order-7") is None
    assert (await ledger.recover()).settled == ()


async def test_p18_sqlite_is_durable(tmp_path: Any) -> None:
    async with Ledger(f"sqlite:///{tmp_path}/a.db") as ledger:
        assert await payer(ledger, "non_idempotent", [])("order-7") == "order-7"


@pytest.mark.parametrize("wrong", [0, 1, "yes", None])
def test_p18_allow_ledger_loss_is_exactly_a_bool(wrong: Any) -> None:
    with pytest.raises(TypeError, match="allow_ledger_loss"):
        Ledger("memory:", allow_ledger_loss=wrong)


# -- forks -----------------------------------------------------------------------------------------


def in_child(act: Any) -> str:
    """What `act` says in a forked child."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child is not measured
        try:
            os.close(reader)
            try:
                said = str(act())
            except BaseException as error:  # noqa: BLE001 - told to the parent
                said = f"{type(error).__name__}: {error}"
            os.write(writer, said.encode()[:4000])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        said = answers.read().decode()
    os.waitpid(pid, 0)
    return said


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_p26_a_ledger_is_remade_after_fork(tmp_path: Any) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path}/a.db")

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    def pay(_order: str) -> str:
        return ledger.open().engine.owner.current()

    mine = pay("order-1")
    theirs = in_child(lambda: pay("order-2"))
    assert theirs.startswith("o")
    assert theirs != mine  # a forked child is another owner
    assert pay("order-2") == theirs  # answered from the record
    assert pay("order-3") == mine


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_p26_an_open_context_is_refused_in_a_forked_child(tmp_path: Any) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path}/a.db")

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    def pay(_order: str, *, effect: Any) -> str:
        return in_child(partial(effect.checkpoint, "in the child"))

    assert pay("order-7").startswith(ForkedHandle.__name__)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_p26_an_open_store_is_not_remade_after_fork() -> None:
    ledger = Ledger(MemoryStore(), allow_ledger_loss=True)

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    def pay(order: str) -> str:
        return order

    pay("order-1")
    assert in_child(lambda: pay("order-2")).startswith(ForkedHandle.__name__)
    assert pay("order-2") == "order-2"


# -- the lease -------------------------------------------------------------------------------------


async def test_g7_a_blocked_loop_does_not_lose_the_lease(tmp_path: Any) -> None:
    """The heartbeat is a thread of its own: a call that blocks the loop keeps its record."""
    import threading  # noqa: PLC0415

    url = f"sqlite:///{tmp_path}/a.db"
    short = timedelta(milliseconds=300)
    async with Ledger(url, lease=short) as ledger:
        renewed = threading.Event()
        store = ledger.open().store
        write = cast("Any", store).write_blocking
        times: list[int] = []

        def seen(batches: Any) -> Any:
            times.extend(1 for batch in batches if batch.extends)
            if len(times) >= 4:
                renewed.set()
            return write(batches)

        store.write_blocking = seen  # type: ignore[attr-defined]

        @ledger.effect(safety="non_idempotent", name="pay", key=first)
        async def pay(order: str) -> str:
            assert renewed.wait(20)  # the loop stands still, longer than a lease
            return order

        assert await pay("order-7") == "order-7"


async def test_lease_of_another_is_never_taken_while_it_is_renewed(world: World) -> None:
    import asyncio  # noqa: PLC0415

    ledger, other = world.process(), world.process()
    entered, free = asyncio.Event(), asyncio.Event()

    @ledger.effect(safety="idempotent", name="pay", key=first)
    async def slow(order: str) -> Any:
        entered.set()
        await free.wait()
        return world.bank.pay(order)

    running = asyncio.create_task(slow("order-7"))
    await entered.wait()
    for _ in range(20):
        world.pass_time(29)
        assert (await other.recover(wait=timedelta(0))).replayed == ()
    free.set()
    await running
    assert world.bank.count("order-7") == 1
