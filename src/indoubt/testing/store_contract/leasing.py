"""Taking what is due in one step, naming queues, and waking who waits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ...store import Becomes, DueQuery, Guard, Lane, Lease, ScanQuery, Version
from .examples import (
    FAR_OFF,
    LONG_AGO,
    ROOT,
    Bench,
    batch,
    events,
    extend,
    put,
    refused,
    stored,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...store import Snapshot, Store, Stored

SENT = (Becomes("prepared", "dispatched", sent=True),)
SOON_S = 20.0
"""More than any wake-up takes, and less than a test may."""


def lease_of(write_id: str = "lease-1", **changes: Any) -> Lease:
    """A lease by ``owner-2`` that sends what is prepared."""
    values: dict[str, Any] = {
        "owner": "owner-2",
        "lease_ms": 40_001,
        "permit_ms": 40_002,
        "becomes": SENT,
        "event": b"leased",
    }
    return Lease(write_id=write_id, **(values | changes))


async def take(
    store: Store, limit: int = 100, queue: str = "effect", lane: Lane | None = None, **changes: Any
) -> Snapshot:
    return await store.lease(DueQuery(((queue, limit),), lane), lease_of(**changes))


class Leases:
    """Part of ``StoreContract``."""

    async def test_a_lease_takes_ownership_and_nothing_else(self, bench: Bench) -> None:
        await written(bench.store, put(ready_at=LONG_AGO, lease_until=LONG_AGO + 1))
        before = await stored(bench.store)
        taken = await take(bench.store)
        (record,) = taken.records
        assert record == before._replace(
            version=2,
            owner="owner-2",
            fence=12,
            claims=13,
            lease_until=taken.now_ms + 40_001,
            ready_at=taken.now_ms + 40_001,
            updated_at=taken.now_ms,
        )
        assert await stored(bench.store) == record
        assert await events(bench.store) == [(1, b"event of a"), (2, b"leased")]

    async def test_a_claim_that_is_the_dispatch_counts_an_attempt(self, bench: Bench) -> None:
        await written(bench.store, put(state="prepared", ready_at=LONG_AGO))
        taken = await take(bench.store)
        (record,) = taken.records
        now = taken.now_ms
        assert (record.state, record.attempt) == ("dispatched", 14)
        assert (record.dispatched_at, record.permit_until) == (now, now + 40_002)
        assert record.doubt_since is None
        assert (await stored(bench.store)) == record
        assert (await bench.store.scan(ScanQuery(view="doubt"))).records == ()

    async def test_a_claim_that_is_none_leaves_it_in_doubt(self, bench: Bench) -> None:
        await written(bench.store, put(ready_at=LONG_AGO, doubt_since=None))
        doubt = (Becomes("dispatched", "in_doubt", sent=False),)
        taken = await take(bench.store, becomes=doubt)
        (record,) = taken.records
        assert (record.state, record.attempt) == ("in_doubt", 13)
        assert record.doubt_since == taken.now_ms
        assert record.dispatched_at == 1_700_000_000_004
        assert (await bench.store.scan(ScanQuery(view="doubt"))).records == (record,)

    async def test_what_is_leased_is_not_due_until_its_lease_is_over(self, bench: Bench) -> None:
        await written(bench.store, put(ready_at=LONG_AGO))
        assert len((await take(bench.store, lease_ms=1)).records) == 1
        records: Sequence[Stored] = ()
        async with asyncio.timeout(SOON_S):
            while not records:  # a server's clock goes by itself
                bench.clock.step(1, 1)
                records = (await take(bench.store, write_id="lease-2")).records
        assert [(r.fence, r.claims, r.version) for r in records] == [(13, 14, 3)]
        assert (await take(bench.store, write_id="last")).records == ()

    async def test_a_page_is_oldest_first_within_its_quotas(self, bench: Bench) -> None:
        for name, kind, ready in [
            ("a", "effect", 30),
            ("b", "run", 20),
            ("c", "effect", 10),
            ("d", "effect", 40),
            ("e", "run", 50),
        ]:
            await written(bench.store, put(name, kind=kind, ready_at=LONG_AGO + ready))
        await written(bench.store, put("f", ready_at=FAR_OFF))
        await written(bench.store, put("g", ready_at=None))
        query = DueQuery((("run", 1), ("effect", 2)))
        taken = await bench.store.lease(query, lease_of())
        assert {r.id for r in taken.records} == {"a", "b", "c"}
        again = await bench.store.lease(query, lease_of("lease-2"))
        assert {r.id for r in again.records} == {"d", "e"}
        assert (await bench.store.lease(query, lease_of("lease-3"))).records == ()
        assert [(await stored(bench.store, name)).version for name in "fg"] == [1, 1]

    async def test_lanes_share_leases_out(self, bench: Bench) -> None:
        names = [f"record-{n}" for n in range(24)]
        for name in names:
            await written(bench.store, put(name, ready_at=LONG_AGO))
        shares: list[set[str]] = []
        for index in range(3):
            taken = await take(bench.store, lane=Lane(index, 3), write_id=f"lease-{index}")
            shares.append({r.id for r in taken.records})
        assert sorted(name for share in shares for name in share) == sorted(names)
        assert all(shares)

    async def test_who_was_replaced_can_write_nothing(self, bench: Bench) -> None:
        await written(bench.store, put(ready_at=LONG_AGO))
        await take(bench.store)
        assert (await refused(bench.store, extend())).why == "held"
        assert (await refused(bench.store, put(expected=Version(1)))).why == "version"
        await written(bench.store, extend(owner="owner-2", fence=12))

    async def test_a_guard_sees_the_lease_of_its_root(self, bench: Bench) -> None:
        await written(bench.store, put(ROOT, ready_at=LONG_AGO))
        await take(bench.store)
        assert (await refused(bench.store, put("b"), Guard(ROOT, 11))).why == "fence"
        await written(bench.store, put("b"), Guard(ROOT, 12))

    async def test_many_leasing_at_once_take_each_record_once(self, bench: Bench) -> None:
        names = [f"record-{n:02}" for n in range(60)]
        for name in names:
            await written(bench.store, put(name, state="prepared", ready_at=LONG_AGO))

        async def worker(number: int) -> list[str]:
            mine: list[str] = []
            for page in range(60):
                write_id, owner = f"w{number}.{page}", f"owner-{number}"
                found = (await take(bench.store, 7, write_id=write_id, owner=owner)).records
                if not found:
                    break
                assert {r.owner for r in found} == {owner}
                mine += [r.id for r in found]
            return mine

        shares = await asyncio.gather(*(worker(number) for number in range(4)))
        assert sorted(name for share in shares for name in share) == names
        versions = {(await stored(bench.store, name)).version for name in names}
        assert versions == {2}

    async def test_a_lease_and_a_settlement_at_once_have_one_winner(self, bench: Bench) -> None:
        for n in range(20):
            name = f"record-{n}"
            await written(bench.store, put(name, ready_at=LONG_AGO))
            settled = put(name, expected=Version(1), state="succeeded", ready_at=None)
            answers, taken = await asyncio.gather(
                bench.store.write([batch(settled)]), take(bench.store, write_id=name)
            )
            landed = type(answers[0]).__name__ == "Written"
            assert landed != bool(taken.records)
            assert (await stored(bench.store, name)).version == 2

    @pytest.mark.parametrize(
        "changes",
        [{"owner": ""}, {"write_id": ""}, {"lease_ms": 0}, {"permit_ms": -1}, {"owner": "\ud800"}],
        ids=["owner", "write id", "lease", "permit", "surrogate"],
    )
    async def test_a_lease_without_sense_is_refused(
        self, bench: Bench, changes: dict[str, Any]
    ) -> None:
        await written(bench.store, put(ready_at=LONG_AGO))
        with pytest.raises(ValueError, match=r"owner|write_id|_ms"):
            await take(bench.store, **changes)
        assert (await stored(bench.store)).version == 1


class Queues:
    """Part of ``StoreContract``."""

    async def queued(self, store: Store) -> None:
        for name, queue, ready in [
            ("a", "effect", 3),
            ("b", "effect:mail", 2),
            ("c", "effect:mail", 5),
            ("d", "effect:sms", 1),
            ("e", "effectless", 4),
        ]:
            kind = queue.partition(":")[0]
            await written(store, put(name, kind=kind, queue=queue, ready_at=LONG_AGO + ready))
        await written(store, put("f", queue="effect:none", ready_at=None))

    async def test_a_queue_is_due_by_itself(self, bench: Bench) -> None:
        await self.queued(bench.store)
        for queue, ids in [("effect", "a"), ("effect:mail", "bc"), ("effect:none", "")]:
            found = await bench.store.due(DueQuery(((queue, 9),)))
            assert "".join([r.id for r in found.records]) == ids
            assert {r.queue for r in found.records} <= {queue}
            taken = await take(bench.store, queue=queue, write_id=queue)
            assert "".join([r.id for r in taken.records]) == ids

    async def test_queues_that_hold_something_are_named(self, bench: Bench) -> None:
        await self.queued(bench.store)
        everything = ["effect", "effect:mail", "effect:sms", "effectless"]
        assert list(await bench.store.queues()) == everything
        assert list(await bench.store.queues("effect:")) == everything[1:3]
        assert list(await bench.store.queues("effect:s")) == ["effect:sms"]
        assert list(await bench.store.queues("none")) == []
        done = put("d", expected=Version(1), ready_at=None)
        await written(bench.store, done)
        assert list(await bench.store.queues("effect:")) == ["effect:mail"]

    @pytest.mark.parametrize(
        ("query", "ids"),
        [
            ({}, "dbaec"),
            ({"kinds": ("effect",)}, "dbac"),
            ({"kinds": ("effectless",)}, "e"),
            ({"queues": ("effect:mail",)}, "bc"),
            ({"queues": ("effect:mail", "effectless")}, "bec"),
            ({"queues": ("effect:mail", "effectless"), "kinds": ("effect",)}, "bc"),
            ({"queues": ("effect:none",)}, ""),
        ],
        ids=["all", "kind", "other kind", "one", "two", "two of a kind", "empty"],
    )
    async def test_what_is_ready_is_listed_by_queue(
        self, bench: Bench, query: dict[str, Any], ids: str
    ) -> None:
        await self.queued(bench.store)
        for limit in (1, 2, 100):
            asked, found = ScanQuery(view="ready", limit=limit, **query), ""
            while True:
                page = await bench.store.scan(asked)
                found += "".join([r.id for r in page.records])
                if page.cursor is None:
                    break
                asked = asked._replace(after=page.cursor)
            assert found == ids

    async def test_a_cursor_belongs_to_its_queues(self, bench: Bench) -> None:
        await self.queued(bench.store)
        asked = ScanQuery(view="ready", queues=("effect:mail",), limit=1)
        cursor = (await bench.store.scan(asked)).cursor
        with pytest.raises(ValueError, match="cursor"):
            await bench.store.scan(asked._replace(after=cursor, queues=("effect",)))

    async def test_queues_of_another_view_are_refused(self, bench: Bench) -> None:
        for view in ("all", "doubt"):
            with pytest.raises(ValueError, match="queues"):
                await bench.store.scan(ScanQuery(view=view, queues=("effect",)))


class Waking:
    """Part of ``StoreContract``."""

    async def test_nothing_is_waited_for_longer_than_asked(self, bench: Bench) -> None:
        async with asyncio.timeout(SOON_S):
            await bench.store.wait(("a topic",), timeout=0)
            await bench.store.wait((), timeout=0.01)
        assert (await bench.store.read([])).records == ()

    @pytest.mark.parametrize("other", [False, True], ids=["same", "opened again"])
    async def test_a_write_wakes_who_waits_for_its_topic(
        self, bench: Bench, *, other: bool
    ) -> None:
        store = bench.store
        if other and store.capabilities.shared:
            store = await bench.again()
        waiting = asyncio.create_task(bench.store.wait(("topic-1", "topic-2"), timeout=600))
        async with asyncio.timeout(SOON_S):
            for n in range(10_000):
                # Again and again: what was announced before somebody waited may be missed.
                awake = batch(put(f"a{n}"))._replace(wakes=("topic-2",))
                await written(store, awake)
                if (await asyncio.wait({waiting}, timeout=0.01))[0]:
                    break
        assert waiting.done()
        await waiting

    async def test_a_lease_may_go_on_while_somebody_waits(self, bench: Bench) -> None:
        waiting = asyncio.create_task(bench.store.wait(("topic",), timeout=600))
        await written(bench.store, put(ready_at=LONG_AGO))
        assert len((await take(bench.store)).records) == 1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    async def test_to_wait_for_ever_is_refused(self, bench: Bench) -> None:
        for seconds in (-1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="timeout"):
                await bench.store.wait(("topic",), timeout=seconds)
