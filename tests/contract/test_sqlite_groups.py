"""Waiting writes share a commit, whoever hands them in; and who goes away disturbs nobody."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from indoubt.errors import AnswerLost, StoreBroken, StoreUnavailable
from indoubt.store import Batch, Version, Written
from indoubt.stores.group_commit import GroupCommit, Work
from indoubt.stores.sqlite import SQLiteStore
from indoubt.testing.store_contract.examples import answered, batch, events, put, refused, written


class Gate:
    """Holds up the commits of a store until it is opened, and records their groups."""

    def __init__(self, store: SQLiteStore) -> None:
        self.groups: list[int] = []
        self.entered = threading.Semaphore(0)
        self.leave = threading.Semaphore(0)
        self.commit = store._engine.commit
        store._queue._commit = self._held

    def _held(self, group: Sequence[Work]) -> list[Any]:
        self.groups.append(len(group))
        self.entered.release()
        self.leave.acquire()
        return self.commit(group)

    async def until_entered(self) -> None:
        await asyncio.to_thread(self.entered.acquire)

    def open(self, times: int = 1_000) -> None:
        for _ in range(times):
            self.leave.release()


def writer(store: SQLiteStore, name: str, into: list[Any]) -> threading.Thread:
    """A thread that writes one record; started, and its answer goes ``into`` a list."""

    def write() -> None:
        into.extend(store.write_blocking([batch(put(name))]))

    thread = threading.Thread(target=write)
    thread.start()
    return thread


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the other side is a thread, which knows no event
        await asyncio.sleep(0)


def waiting(store: SQLiteStore) -> int:
    return len(store._queue._waiting)


async def test_what_waits_during_a_commit_shares_the_next_one(store: SQLiteStore) -> None:
    gate = Gate(store)
    first = asyncio.ensure_future(written(store, put("first")))
    await gate.until_entered()
    rest = [asyncio.ensure_future(written(store, put(f"r{n}"))) for n in range(30)]
    answers: list[Any] = []
    threads = [writer(store, f"t{n}", answers) for n in range(10)]
    await until(lambda: waiting(store) == 40)
    gate.open()
    await asyncio.gather(first, *rest)
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert gate.groups == [1, 40]
    assert store.commits == 2
    assert all(isinstance(answer, Written) for answer in answers)
    assert len(answers) == 10


async def test_a_guarded_call_alone_takes_one_commit_per_write(store: SQLiteStore) -> None:
    assert isinstance(store.write_blocking([batch(put())])[0], Written)
    assert isinstance(store.write_blocking([batch(put(expected=Version(1)))])[0], Written)
    assert store.commits == 2


async def test_a_free_lead_is_taken_by_the_blocking_caller_itself(store: SQLiteStore) -> None:
    store.write_blocking([batch(put())])
    assert store._queue._writer is None


async def test_a_store_that_nobody_closed_ends_its_thread(path: str) -> None:
    store = SQLiteStore(path)
    await written(store, put())
    thread = store._queue._writer
    assert thread is not None
    assert thread.is_alive()
    del store
    gc.collect()
    await asyncio.to_thread(thread.join)
    assert not thread.is_alive()


async def test_conflicts_alone_cost_no_commit(store: SQLiteStore) -> None:
    await written(store, put())
    before = store.commits
    for _ in range(3):
        await refused(store, put())
    assert store.commits == before


async def test_a_repeat_is_committed_again(store: SQLiteStore) -> None:
    insert = batch(put())
    await written(store, insert)
    before = store.commits
    assert (await written(store, insert)).repeated
    assert store.commits == before + 1


async def test_a_cancelled_write_stays_in_the_queue(store: SQLiteStore) -> None:
    gate = Gate(store)
    first = asyncio.ensure_future(written(store, put("first")))
    await gate.until_entered()
    gone = asyncio.ensure_future(written(store, put("gone")))
    stays = asyncio.ensure_future(written(store, put("stays")))
    await until(lambda: waiting(store) == 2)
    gone.cancel()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    gate.open()
    await stays
    names = ["first", "gone", "stays"]
    assert [r.id for r in (await store.read(names)).records] == names


async def test_a_caller_whose_loop_is_gone_disturbs_nobody(store: SQLiteStore) -> None:
    gate = Gate(store)

    async def abandon() -> None:
        task = asyncio.ensure_future(written(store, put("abandoned")))
        await asyncio.sleep(0)
        task.cancel()

    thread = threading.Thread(target=asyncio.run, args=(abandon(),))
    thread.start()
    await asyncio.to_thread(thread.join)
    after = asyncio.ensure_future(written(store, put("after")))
    gate.open()
    await after
    assert len((await store.read(["abandoned", "after"])).records) == 2


class Interrupted(BaseException):
    """As Ctrl-C, at a chosen place."""


async def test_an_interrupted_leader_answers_and_hands_on(store: SQLiteStore) -> None:
    """The thread that commits for others is interrupted: they learn that they cannot know."""
    gate = Gate(store)
    commit = gate.commit
    fate: list[str] = []

    def interrupted(group: Sequence[Work]) -> list[Any]:
        if any(isinstance(item, Batch) and item.puts[0].id == "leader" for item in group):
            raise Interrupted
        return commit(group)

    first: list[Any] = []
    holder = writer(store, "first", first)
    await gate.until_entered()

    def lead() -> None:
        try:
            store.write_blocking([batch(put("leader"))])
        except Interrupted:
            fate.append("interrupted")

    leader = threading.Thread(target=lead)
    leader.start()
    await until(lambda: waiting(store) == 1)
    follower = asyncio.ensure_future(answered(store, put("follower")))
    await until(lambda: waiting(store) == 2)
    store._queue._commit = interrupted
    gate.open()
    answer = await follower
    for thread in (holder, leader):
        await asyncio.to_thread(thread.join)
    assert fate == ["interrupted"]
    assert isinstance(answer, AnswerLost)
    assert (await written(store, put("later"))).versions == (1,)


def test_a_follower_interrupted_while_it_waits_leaves_its_batch_behind() -> None:
    """Driven without threads: the states in which Ctrl-C can find a waiting caller."""
    done: list[int] = []

    def commit(group: Sequence[Work]) -> list[Any]:
        done.extend(1 for _ in group)
        return list(group)

    queue = GroupCommit(commit, lambda error: AnswerLost(repr(error)))
    queue._led = True
    for leads in (False, True):
        call = queue._enqueued([batch(put())])
        call.wake = RaisingLock()  # type: ignore[assignment]
        if leads:
            queue._waiting.remove(call)
            call.leads = True
        with pytest.raises(Interrupted):
            queue._awaited(call)
        assert call.wake is None
        assert list(queue._waiting)[0 if leads else -1] is call
    queue.close()
    assert done == [1, 1]


class RaisingLock:
    """Ctrl-C while waiting."""

    def acquire(self) -> None:
        raise Interrupted


async def test_an_unexpected_error_undoes_its_own_batch_only(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from indoubt.stores.sqlite import apply  # noqa: PLC0415

    real = apply._insert_values

    def broken(record: Any, version: int, now: int) -> Any:
        if record.id == "bad":
            raise ZeroDivisionError("a bug")
        return real(record, version, now)

    monkeypatch.setattr(apply, "_insert_values", broken)
    group = [batch(put("a")), batch(put("x"), put("bad")), batch(put("b"))]
    answers = await store.write(group)
    assert [type(answer) for answer in answers] == [Written, StoreBroken, Written]
    assert "ZeroDivisionError" in str(answers[1])
    found = await store.read(["a", "x", "bad", "b"])
    assert [record.id for record in found.records] == ["a", "b"]
    assert [n for n, _ in await events(store, "a")] == [1]


async def test_a_group_has_an_end(store: SQLiteStore) -> None:
    gate = Gate(store)
    first = asyncio.ensure_future(written(store, put("first")))
    await gate.until_entered()
    rest = [asyncio.ensure_future(written(store, put(f"r{n}"))) for n in range(600)]
    await until(lambda: waiting(store) == 600)
    gate.open()
    await asyncio.gather(first, *rest)
    assert gate.groups == [1, 512, 88]


async def test_closing_answers_what_waits_and_refuses_what_comes(store: SQLiteStore) -> None:
    gate = Gate(store)
    first = asyncio.ensure_future(written(store, put("first")))
    await gate.until_entered()
    second = asyncio.ensure_future(written(store, put("second")))
    await until(lambda: waiting(store) == 1)
    closing = [asyncio.ensure_future(store.close()) for _ in range(3)]
    await until(lambda: store._closed)
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.write([batch(put("third"))])
    with pytest.raises(StoreUnavailable, match="closed"):
        store.write_blocking([batch(put("third"))])
    with pytest.raises(StoreUnavailable, match="closed"):
        store.read_blocking(["first"])
    gate.open()
    await asyncio.gather(first, second, *closing)
