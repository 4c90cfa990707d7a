"""Inserts, updates, renewals and removals: what is kept of them, and what is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from ...errors import CrossRootBatch
from ...store import KEEP, Absent, Batch, Free, Guard, In, Stored, Version
from .examples import (
    FAR_OFF,
    LONG_AGO,
    ROOT,
    Bench,
    answered,
    batch,
    delete,
    events,
    extend,
    put,
    refused,
    stored,
    written,
)

MOVED = ("lease_until", "permit_until", "ready_at")
TIMES = (*MOVED, "dispatched_at", "doubt_since")


class Writing:
    """Part of ``StoreContract``."""

    async def test_every_field_of_an_insert_is_read_back(self, bench: Bench) -> None:
        answer = await written(bench.store, put(queue="effect:queue-1"))
        now = answer.now_ms
        assert await stored(bench.store) == Stored(
            id="a",
            root_id=ROOT,
            tenant_id="tenant-1",
            parent_id="parent-1",
            kind="effect",
            version=1,
            state="dispatched",
            owner="owner-1",
            fence=11,
            claims=12,
            attempt=13,
            cancel_requested=False,
            store_epoch=14,
            lease_until=now + 60_001,
            permit_until=now + 60_002,
            ready_at=now + 60_003,
            dispatched_at=1_700_000_000_004,
            doubt_since=1_700_000_000_005,
            created_at=now,
            updated_at=now,
            body=b"body of a",
            fixed=b"fixed part of a",
            queue="effect:queue-1",
        )
        assert (answer.versions, answer.repeated, answer.superseded) == ((1,), False, False)

    async def test_what_may_be_none_is_none(self, bench: Bench) -> None:
        none = dict.fromkeys((*TIMES, "tenant_id", "parent_id", "owner", "body", "fixed"))
        await written(bench.store, put(**none))
        record = await stored(bench.store)
        assert {name: getattr(record, name) for name in none} == none | {"body": b"", "fixed": b""}

    async def test_every_field_of_an_update_is_read_back(self, bench: Bench) -> None:
        first = await written(bench.store, put())
        bench.clock.step(1_000, 1_000)
        changes: dict[str, Any] = {
            "state": "in_doubt",
            "owner": "owner-2",
            "fence": 21,
            "claims": 22,
            "attempt": 23,
            "cancel_requested": True,
            "store_epoch": 24,
            "lease_until": In(70_001),
            "permit_until": In(70_002),
            "ready_at": In(70_003),
            "dispatched_at": In(-70_004),
            "doubt_since": In(0),
            "body": b"second body",
        }
        before = await stored(bench.store)
        answer = await written(bench.store, put(expected=Version(1), **changes))
        now = answer.now_ms
        assert answer.versions == (2,)
        assert await stored(bench.store) == before._replace(
            **changes
            | {"version": 2, "created_at": first.now_ms, "updated_at": now}
            | {"lease_until": now + 70_001, "permit_until": now + 70_002}
            | {"ready_at": now + 70_003, "dispatched_at": now - 70_004, "doubt_since": now}
        )

    async def test_identity_and_fixed_part_are_written_once(self, bench: Bench) -> None:
        await written(bench.store, put())
        before = await stored(bench.store)
        others = {"tenant_id": "tenant-2", "parent_id": "parent-2", "kind": "run"}
        other = put(expected=Version(1), root_id="root-2", fixed=b"other", **others)
        await written(bench.store, other)
        after = await stored(bench.store)
        for name in ("root_id", "tenant_id", "parent_id", "kind", "fixed", "created_at"):
            assert getattr(after, name) == getattr(before, name), name

    async def test_a_body_of_none_leaves_the_body(self, bench: Bench) -> None:
        await written(bench.store, put())
        await written(bench.store, put(expected=Version(1), body=None, state="in_doubt"))
        record = await stored(bench.store)
        assert (record.body, record.state, record.version) == (b"body of a", "in_doubt", 2)

    async def test_an_empty_body_is_not_none(self, bench: Bench) -> None:
        await written(bench.store, put())
        await written(bench.store, put(expected=Version(1), body=b""))
        assert (await stored(bench.store)).body == b""

    @pytest.mark.parametrize("kept", TIMES)
    async def test_a_kept_time_stays_and_only_that(self, bench: Bench, kept: str) -> None:
        await written(bench.store, put())
        before = await stored(bench.store)
        times: dict[str, Any] = {name: FAR_OFF + n for n, name in enumerate(TIMES)}
        times[kept] = KEEP
        await written(bench.store, put(expected=Version(1), **times))
        after = await stored(bench.store)
        assert {name: getattr(after, name) for name in TIMES} == times | {
            kept: getattr(before, kept)
        }

    async def test_a_time_that_was_never_set_is_kept_as_none(self, bench: Bench) -> None:
        await written(bench.store, put(doubt_since=None))
        await written(bench.store, put(expected=Version(1), doubt_since=KEEP))
        assert (await stored(bench.store)).doubt_since is None

    async def test_several_records_are_written_together(self, bench: Bench) -> None:
        await written(bench.store, put(ROOT, root_id=ROOT))
        answer = await written(bench.store, put("b"), put(ROOT, expected=Version(1)), put("c"))
        assert answer.versions == (1, 2, 1)
        snapshot = await bench.store.read(["c", ROOT, "b"])
        assert [(r.id, r.version) for r in snapshot.records] == [("c", 1), (ROOT, 2), ("b", 1)]
        assert {r.body for r in snapshot.records} == {b"body of b", b"body of root", b"body of c"}

    async def test_batches_of_one_call_are_judged_each_by_itself(self, bench: Bench) -> None:
        await written(bench.store, put("taken"))
        answers = await bench.store.write(
            [batch(put("x")), batch(put("y"), put("taken")), batch(put("z")), batch(put("x"))]
        )
        assert [type(answer).__name__ for answer in answers] == [
            "Written",
            "Conflict",
            "Written",
            "Conflict",
        ]
        found = await bench.store.read(["x", "y", "z", "taken"])
        assert [(r.id, r.version) for r in found.records] == [("x", 1), ("z", 1), ("taken", 1)]

    async def test_later_batches_of_one_call_build_on_earlier_ones(self, bench: Bench) -> None:
        answers = await bench.store.write(
            [batch(put()), batch(put(expected=Version(1), body=b"second"))]
        )
        assert [getattr(answer, "versions", None) for answer in answers] == [(1,), (2,)]
        assert (await stored(bench.store)).body == b"second"

    async def test_no_batches_give_no_answers(self, bench: Bench) -> None:
        assert list(await bench.store.write([])) == []

    async def test_an_empty_batch_is_written(self, bench: Bench) -> None:
        assert (await written(bench.store, batch())).versions == ()

    async def test_a_batch_of_two_roots_is_refused_whole(self, bench: Bench) -> None:
        mixed = [batch(put("fine")), batch(put("b"), put("c", root_id="root-2"))]
        with pytest.raises(CrossRootBatch, match="root-2"):
            await bench.store.write(mixed)
        with pytest.raises(CrossRootBatch):
            await answered(bench.store, put("b"), Guard("root-2", 1))
        assert (await bench.store.read(["fine", "b", "c"])).records == ()

    @pytest.mark.parametrize(
        "wrong",
        [
            batch(put("fine"), put("a", fence=2**63)),
            batch(put("a", claims=-(2**63) - 1)),
            batch(put("a", attempt=2**64)),
            batch(put("a", lease_until=2**63)),
            batch(put("a", ready_at=In(2**63))),
            batch(put("a", expected=Version(2**63))),
            batch(put("a", expected=Free(1, 2**63))),
            batch(put("a", tenant_id="\ud800")),
            batch(put("\udfff")),
            batch(put("a", doubt_since=KEEP)),
            batch(put("a"), put("a")),
            batch(put("a", expected=Version(1)), extend("a")),
            batch(delete("a"), delete("a")),
            batch(delete("a"), extend("a")),
            batch(put("a"), write_id="\ud800"),
            batch(put("a"))._replace(write_id=""),
        ],
    )
    async def test_what_no_store_could_hold_is_refused_before_writing(
        self, bench: Bench, wrong: Batch
    ) -> None:
        with pytest.raises(ValueError, match=r"\w+ "):
            await bench.store.write([batch(put("before")), wrong])
        assert (await bench.store.read(["before", "fine", "a"])).records == ()

    async def test_the_greatest_numbers_are_exact(self, bench: Bench) -> None:
        big = 2**63 - 1
        await written(bench.store, put(fence=big, claims=-big, attempt=2**53 + 1, ready_at=big))
        record = await stored(bench.store)
        assert (record.fence, record.claims) == (big, -big)
        assert (record.attempt, record.ready_at) == (2**53 + 1, big)


class Renewing:
    """Part of ``StoreContract``."""

    async def test_a_renewal_moves_its_times_and_nothing_else(self, bench: Bench) -> None:
        await written(bench.store, put())
        before = await stored(bench.store)
        bench.clock.step(5_000, 5_000)
        answer = await written(bench.store, extend())
        assert answer.versions == ()
        now = answer.now_ms
        assert await stored(bench.store) == before._replace(
            lease_until=now + 90_001, permit_until=now + 90_002, ready_at=now + 90_003
        )
        assert await events(bench.store) == [(1, b"event of a")]

    @pytest.mark.parametrize("kept", MOVED)
    async def test_a_renewal_keeps_a_time_and_clears_another(self, bench: Bench, kept: str) -> None:
        await written(bench.store, put())
        before = await stored(bench.store)
        times: dict[str, Any] = dict.fromkeys(MOVED)
        times[kept] = KEEP
        await written(bench.store, extend(**times))
        assert await stored(bench.store) == before._replace(**times | {kept: getattr(before, kept)})

    async def test_a_renewal_does_not_break_the_holders_next_write(self, bench: Bench) -> None:
        await written(bench.store, put())
        await written(bench.store, extend())
        assert (await written(bench.store, put(expected=Version(1)))).versions == (2,)

    async def test_a_renewal_may_be_repeated(self, bench: Bench) -> None:
        await written(bench.store, put())
        renewal = batch(extend())
        assert (await written(bench.store, renewal)).repeated is False
        assert (await written(bench.store, renewal)).repeated is False

    async def test_a_renewal_lands_together_with_a_write_or_not_at_all(self, bench: Bench) -> None:
        await written(bench.store, put(), put("b"))
        before = await stored(bench.store)
        await refused(bench.store, extend(), put("b", expected=Version(7)))
        assert await stored(bench.store) == before
        await written(bench.store, extend(), put("b", expected=Version(1)))
        assert await stored(bench.store) != before


class Removing:
    """Part of ``StoreContract``."""

    async def test_a_deleted_record_is_gone_with_its_journal(self, bench: Bench) -> None:
        await written(bench.store, put(), put("b"))
        answer = await written(bench.store, delete())
        assert answer.versions == ()
        assert (await bench.store.read(["a"])).records == ()
        assert await events(bench.store) == []
        assert (await stored(bench.store, "b")).version == 1
        assert await events(bench.store, "b") == [(1, b"event of b")]

    async def test_after_a_deletion_the_id_may_be_used_anew(self, bench: Bench) -> None:
        await written(bench.store, put(ready_at=LONG_AGO))
        await written(bench.store, delete())
        await written(bench.store, put(body=b"new", event=b"new"))
        assert (await stored(bench.store)).body == b"new"
        assert await events(bench.store) == [(1, b"new")]

    async def test_a_tombstone_replaces_its_record_and_counts_on(self, bench: Bench) -> None:
        first = await written(bench.store, put())
        await written(bench.store, put(expected=Version(1), event=b"second"))
        bench.clock.step(9_000, 9_000)
        tombstone = put(
            kind="tombstone", tenant_id="tenant-2", body=b"t", fixed=b"f", event=b"e", fence=77
        )
        answer = await written(bench.store, delete(version=2), tombstone)
        assert answer.versions == (3,)
        record = await stored(bench.store)
        assert (record.version, record.kind, record.tenant_id) == (3, "tombstone", "tenant-2")
        assert (record.body, record.fixed, record.fence) == (b"t", b"f", 77)
        assert record.created_at == record.updated_at == answer.now_ms
        assert record.created_at >= first.now_ms
        assert await events(bench.store) == [(3, b"e")]

    async def test_a_tombstone_lands_only_on_the_version_it_saw(self, bench: Bench) -> None:
        await written(bench.store, put())
        conflict = await refused(bench.store, delete(version=2), put(body=b"t"))
        assert (conflict.id, conflict.why) == ("a", "version")
        assert (await stored(bench.store)).body == b"body of a"
        assert await events(bench.store) == [(1, b"event of a")]

    async def test_after_its_deletion_a_record_is_not_there_to_be_changed(
        self, bench: Bench
    ) -> None:
        await written(bench.store, put())
        conflict = await refused(bench.store, delete(), put(expected=Version(1)))
        assert conflict.why == "missing"
        assert (await stored(bench.store)).version == 1

    async def test_several_are_deleted_together_or_none(self, bench: Bench) -> None:
        await written(bench.store, put(), put("b"))
        assert (await refused(bench.store, delete(), delete("b", 9))).id == "b"
        assert len((await bench.store.read(["a", "b"])).records) == 2
        await written(bench.store, delete(), delete("b"))
        assert (await bench.store.read(["a", "b"])).records == ()

    async def test_absent_means_absent(self, bench: Bench) -> None:
        assert (await refused(bench.store, put(expected=Version(0)))).why == "missing"
        assert (await written(bench.store, put(expected=Absent()))).versions == (1,)
