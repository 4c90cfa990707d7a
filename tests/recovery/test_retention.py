"""Pruning makes room, and never makes an act that was done look like one that was not."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from indoubt import (
    AllowOneAttempt,
    GiveUp,
    Happened,
    Ledger,
    OutcomePruned,
    OutcomeUnknown,
    Pruned,
    RecordNotFound,
    Retention,
    StaleDecision,
)
from indoubt.core.codec import body_of, record_of
from indoubt.core.record import Attempt, Record, State
from indoubt.engine.puts import put_of
from indoubt.store import Batch, Conflict, ScanQuery, Store, Written
from indoubt.stores.memory import MemoryStore
from indoubt.stores.sqlite import SQLiteStore
from indoubt.testing.clock import ManualClock

DAY = timedelta(days=1)
MONTH = 30 * DAY
KEPT = Retention(after=MONTH)


class Crash(BaseException):
    """The process is gone."""


def by_order(order: str) -> str:
    return order


class World:
    """A ledger by a steered clock, and what its effect has really done."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.sent: list[str] = []
        self.lose = False
        self.ledger = self.process()

    def process(self, store: Store | None = None) -> Ledger:
        ledger = Ledger(store or self.store, clock=self.clock, allow_ledger_loss=True)
        self.pay = self._effect(ledger, name="pay", key=by_order)
        self.tell = self._effect(ledger, name="tell")
        return ledger

    def _effect(self, ledger: Ledger, **declared: Any) -> Any:
        @ledger.effect(safety="non_idempotent", **declared)
        async def act(order: str) -> dict[str, str]:
            self.sent.append(order)
            if self.lose:
                raise ConnectionResetError
            return {"done": order}

        return act

    async def doubt(self, order: str) -> str:
        self.lose = True
        with pytest.raises(OutcomeUnknown) as caught:
            await self.pay(order)
        self.lose = False
        return caught.value.ref

    async def pay_all(self, orders: Sequence[str]) -> None:
        for order in orders:
            await self.pay(order)
        with self.ledger.scope("run-1"):
            for order in orders:
                await self.tell(order)

    async def records(self) -> list[Record]:
        found: list[Record] = []
        query = ScanQuery(limit=100)
        while True:
            page = await self.store.scan(query)
            found += [record_of(row) for row in page.records]
            if page.cursor is None:
                return found
            query = query._replace(after=page.cursor)


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    clock = ManualClock()
    if request.param == "memory":
        store: Store = MemoryStore(clock=clock)
    else:
        store = SQLiteStore(tmp_path / "ledger.db", clock=clock)
    yield World(store, clock)
    await store.close()


async def test_a_repeat_of_a_pruned_key_never_runs_the_function(world: World) -> None:
    await world.pay("order-7")
    world.clock.advance(MONTH)
    assert await world.ledger.prune(KEPT) == Pruned(looked_at=1, tombstones=1)
    for _ in range(2):
        with pytest.raises(OutcomePruned, match="succeeded"):
            await world.pay("order-7")
    assert world.sent == ["order-7"]
    (left,) = await world.records()
    assert len(body_of(left)) <= 128


async def test_what_is_left_is_shown_as_pruned(world: World) -> None:
    await world.pay("order-7")
    before = await world.ledger.find("pay", "order-7")
    assert before is not None
    world.clock.advance(MONTH)
    await world.ledger.prune(KEPT)
    after = await world.ledger.get(before.record_id)
    assert (after.state, after.receipt, after.key, after.choices) == ("succeeded", None, None, ())
    assert after.ref == before.ref
    assert "pruned" in after.reason
    (entry,) = await world.ledger.journal(before.record_id)
    assert entry.did == ("prune",)
    with pytest.raises(StaleDecision):
        await world.ledger.decide(after, AllowOneAttempt(), actor="ana", reason="again")
    assert (await world.ledger.recover()).cursor is None


async def test_an_act_named_by_its_place_is_gone(world: World) -> None:
    with world.ledger.scope("run-1"):
        await world.tell("order-7")
        world.clock.advance(MONTH)
        assert await world.ledger.prune(KEPT) == Pruned(looked_at=1, deleted=1)
        assert await world.records() == []
        await world.tell("order-7")
    assert world.sent == ["order-7", "order-7"]


async def test_the_young_stay(world: World) -> None:
    await world.pay("order-7")
    world.clock.advance(MONTH - DAY)
    await world.pay("order-8")
    assert (await world.ledger.prune(KEPT)).tombstones == 0
    world.clock.advance(DAY)
    assert (await world.ledger.prune(KEPT)).tombstones == 1
    assert await world.pay("order-8") == {"done": "order-8"}


async def test_what_is_in_doubt_or_waits_for_a_person_stays(world: World) -> None:
    ref = await world.doubt("order-7")
    world.clock.advance(12 * MONTH)
    assert await world.ledger.prune(Retention(after=DAY, unknown=DAY)) == Pruned()
    await world.ledger.decide(ref, AllowOneAttempt(), actor="ana", reason="the bank says no")
    world.clock.advance(12 * MONTH)
    assert await world.ledger.prune(Retention(after=DAY, unknown=DAY)) == Pruned()
    assert await world.pay("order-7") == {"done": "order-7"}


async def test_what_a_person_gave_up_stays_unless_its_age_is_given(world: World) -> None:
    ref = await world.doubt("order-7")
    await world.ledger.decide(ref, GiveUp(), actor="ana", reason="nobody knows")
    world.clock.advance(12 * MONTH)
    assert await world.ledger.prune(Retention(after=DAY)) == Pruned(looked_at=1)
    done = await world.ledger.prune(Retention(after=DAY, unknown=DAY))
    assert done == Pruned(looked_at=1, tombstones=1)
    with pytest.raises(OutcomePruned) as caught:
        await world.pay("order-7")
    assert caught.value.outcome == "unknown"
    assert world.sent == ["order-7"]


async def test_tombstones_go_only_where_their_age_is_given(world: World) -> None:
    await world.pay("order-7")
    world.clock.advance(MONTH)
    await world.ledger.prune(KEPT)
    world.clock.advance(12 * MONTH)
    assert await world.ledger.prune(KEPT) == Pruned(looked_at=1)
    forgetting = Retention(after=MONTH, forget_after=7 * DAY)
    assert await world.ledger.prune(forgetting) == Pruned(looked_at=1, forgotten=1)
    assert await world.pay("order-7") == {"done": "order-7"}
    assert world.sent == ["order-7", "order-7"]


async def test_tenants_and_kinds_restrict_it(world: World) -> None:
    await world.pay.using(tenant_id="acme")("order-7")
    await world.pay("order-7")
    world.clock.advance(MONTH)
    assert (await world.ledger.prune(KEPT, kinds=["run"])).looked_at == 0
    assert (await world.ledger.prune(KEPT, tenant_id="other")).looked_at == 0
    assert (await world.ledger.prune(KEPT, tenant_id="acme")).tombstones == 1
    assert (await world.ledger.prune(KEPT, tenant_id=None)).tombstones == 1


async def test_whoever_read_the_record_before_writes_nothing_on_its_tombstone(
    world: World,
) -> None:
    await world.pay("order-7")
    (row,) = (await world.store.scan(ScanQuery())).records
    stale = record_of(row)
    world.clock.advance(MONTH)
    await world.ledger.prune(KEPT)
    for version in range(1, stale.version + 1):
        late = replace(stale, version=version)
        put = put_of(late, replace(late, state=State.DISPATCHED), row.updated_at, b"{}", None)
        (answer,) = await world.store.write([Batch(f"w{version}", (put,))])
        assert isinstance(answer, Conflict)
    (left,) = await world.records()
    assert (left.pruned, left.version) == (True, stale.version + 1)


async def store_record(world: World, record: Record, *, after: Record | None = None) -> None:
    put = put_of(after and replace(after, version=1), record, 0, b'{"did":[],"state":""}', None)
    (answer,) = await world.store.write([Batch(f"{record.id} {record.state}", (put,))])
    assert isinstance(answer, Written)


def of_run(record_id: str, kind: str, state: State, **fields: Any) -> Record:
    return Record(
        id=record_id,
        root_id="run_1",
        kind=kind,
        name=kind,
        fingerprint="v1:0",
        key="turn 1",
        state=state,
        **fields,
    )


async def test_a_run_and_its_calls_go_from_the_leaves(world: World) -> None:
    run = of_run("run_1", "run", State.DISPATCHED)
    await store_record(world, run)
    await store_record(world, of_run("call_1", "tool_call", State.SUCCEEDED, parent_id="run_1"))
    world.clock.advance(MONTH)
    assert await world.ledger.prune(KEPT) == Pruned(looked_at=1)
    await store_record(world, replace(run, state=State.SUCCEEDED), after=run)
    world.clock.advance(MONTH)
    assert await world.ledger.prune(KEPT) == Pruned(looked_at=2, deleted=1)
    assert await world.ledger.prune(KEPT) == Pruned(looked_at=1, tombstones=1)
    (left,) = await world.records()
    assert (left.id, left.pruned) == ("run_1", True)


async def test_an_attempt_whose_owner_lives_may_still_come_back(world: World) -> None:
    owner = world.ledger.open().engine.owner.current()
    attempts = (Attempt(number=1, fence=1, owner=owner),)
    told = of_run("run_1", "effect", State.SUCCEEDED, attempts=attempts, attempt=1)
    await store_record(world, told)
    world.clock.advance(12 * MONTH)
    assert await world.ledger.prune(KEPT) == Pruned(looked_at=1)
    if isinstance(world.store, MemoryStore):
        world.store.owners.declare_dead(owner)
    elif isinstance(world.store, SQLiteStore):
        world.store.release_owner(owner)
    assert await world.ledger.prune(KEPT) == Pruned(looked_at=1, tombstones=1)


class DyingStore:
    """Passes everything on, and dies with its ``deaths``-th write: before it, or after it."""

    def __init__(self, store: Store, deaths: int, *, after: bool) -> None:
        self._store = store
        self._left = deaths
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write(self, batches: Sequence[Batch]) -> Any:
        self._left -= 1
        if self._left < 0 or (self._left == 0 and not self._after):
            raise Crash
        answers = await self._store.write(batches)
        if self._left == 0:
            raise Crash
        return answers


@pytest.mark.parametrize("after", [False, True], ids=["before a write", "after a write"])
@pytest.mark.parametrize("deaths", [1, 2, 7, 12])
async def test_killed_half_way_it_goes_on_when_it_is_called_again(
    world: World,
    deaths: int,
    after: bool,  # noqa: FBT001
) -> None:
    orders = [f"order-{n}" for n in range(6)]
    await world.pay_all(orders)
    world.clock.advance(MONTH)
    dying: Any = DyingStore(world.store, deaths, after=after)
    with pytest.raises(Crash):
        await world.process(dying).prune(KEPT)
    world.ledger = world.process()
    again = await world.ledger.prune(KEPT)
    assert again.tombstones + again.deleted <= 12
    left = await world.records()
    assert [record.pruned for record in left] == [True] * 6
    for order in orders:
        with pytest.raises(OutcomePruned):
            await world.pay(order)
    assert world.sent == orders * 2


async def test_progress_is_told_after_each_page(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indoubt.recovery.retention.PAGE", 4)
    await world.pay_all([f"order-{n}" for n in range(5)])
    world.clock.advance(MONTH)
    told: list[Pruned] = []
    done = await world.ledger.prune(KEPT, progress=told.append)
    assert done == Pruned(looked_at=10, tombstones=5, deleted=5)
    assert [one.looked_at for one in told][:2] == [4, 8]
    assert told[-1] == done


async def test_what_changes_meanwhile_is_kept(world: World) -> None:
    ref = await world.doubt("order-7")
    await world.ledger.decide(ref, GiveUp(), actor="ana", reason="nobody knows")
    world.clock.advance(12 * MONTH)
    scan = world.store.scan

    async def and_then_a_person_corrects(query: ScanQuery) -> Any:
        page = await scan(query)
        await world.ledger.decide(ref, Happened({"id": 1}), actor="ana", reason="found it")
        return page

    store: Any = world.ledger.open().store
    store.scan = and_then_a_person_corrects
    done = await world.ledger.prune(Retention(after=DAY, unknown=DAY))
    del store.scan
    assert done == Pruned(looked_at=1)
    assert await world.pay("order-7") == {"id": 1}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"after": 30}, TypeError),
        ({"after": timedelta(0)}, ValueError),
        ({"after": -DAY}, ValueError),
        ({"after": 4_000 * DAY}, ValueError),
        ({"after": DAY, "unknown": 1.5}, TypeError),
        ({"after": DAY, "forget_after": 7 * DAY - timedelta(seconds=1)}, ValueError),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=r"after|unknown"):
        Retention(**given)


async def test_a_missing_record_is_not_found_after_its_deletion(world: World) -> None:
    with world.ledger.scope("run-1"):
        await world.tell("order-7")
    (record,) = await world.records()
    world.clock.advance(MONTH)
    await world.ledger.prune(KEPT)
    with pytest.raises(RecordNotFound):
        await world.ledger.get(record.id)
