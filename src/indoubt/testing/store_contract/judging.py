"""Every reason to refuse, what a refusal brings back, and how a repeat is told from it."""

from __future__ import annotations

import pytest

from ...store import Free, Guard, Version
from .examples import (
    FAR_OFF,
    ROOT,
    Bench,
    batch,
    delete,
    events,
    extend,
    put,
    refused,
    stored,
    written,
)

CONFLICTS = {
    "exists": [put("a")],
    "missing put": [put("ghost", expected=Version(1))],
    "missing free": [put("ghost", expected=Free(1, FAR_OFF))],
    "missing extend": [extend("ghost")],
    "missing delete": [delete("ghost")],
    "missing guard": [put("b"), Guard("ghost", 11)],
    "version": [put("a", expected=Version(2))],
    "version behind": [put("a", expected=Version(0))],
    "version free": [put("a", expected=Free(2, FAR_OFF))],
    "version delete": [delete("a", version=2)],
    "lease": [put("a", expected=Free(1, FAR_OFF + 1))],
    "lease none": [put("a", expected=Free(1, None))],
    "held fence": [extend("a", fence=12)],
    "held owner": [extend("a", owner="owner-2")],
    "fence": [put("b"), Guard(ROOT, 10)],
    "fence ahead": [put("b"), Guard(ROOT, 12)],
    "cancelled": [put("b"), Guard("cancelled", 11, not_cancelled=True)],
}


class Judging:
    """Part of ``StoreContract``."""

    @pytest.mark.parametrize("case", CONFLICTS)
    async def test_a_refusal_says_who_and_why(self, bench: Bench, case: str) -> None:
        await written(bench.store, put("a", lease_until=FAR_OFF), put(ROOT))
        cancelled = put("cancelled", root_id="cancelled", cancel_requested=True)
        await written(bench.store, cancelled)
        items = CONFLICTS[case]
        guarded = next((item.id for item in items if isinstance(item, Guard)), ROOT)
        moved = [i if isinstance(i, Guard) else i._replace(root_id=guarded) for i in items]
        why = case.partition(" ")[0]
        blamed = next((item.id for item in moved if isinstance(item, Guard)), moved[0].id)

        conflict = await refused(bench.store, *moved)

        assert (conflict.id, conflict.why) == (blamed, why)
        assert (await bench.store.read(["b", "ghost"])).records == ()
        assert (await stored(bench.store, "a")).version == 1

    async def test_a_refusal_brings_what_is_stored(self, bench: Bench) -> None:
        await written(bench.store, put("a"), put("b"), put(ROOT), put("c"), put("d"))
        mixed = [put("b", expected=Version(1)), put("a", expected=Version(5)), put("ghost")]
        conflict = await refused(bench.store, delete("d"), *mixed, extend("c"), Guard(ROOT, 11))
        assert (conflict.id, conflict.why) == ("a", "version")
        found = (await bench.store.read(["b", "a", "c", ROOT])).records
        assert conflict.found.records == found
        assert conflict.found.epoch >= 1
        assert conflict.found.now_ms >= found[0].updated_at

    async def test_a_guard_that_holds_lets_the_batch_pass(self, bench: Bench) -> None:
        await written(bench.store, put(ROOT))
        await written(bench.store, put("b"), Guard(ROOT, 11))
        await written(bench.store, put("c"), Guard(ROOT, 11, not_cancelled=True))
        await written(bench.store, extend("b"), Guard(ROOT, 11))
        await written(bench.store, delete("c"), Guard(ROOT, 11))
        assert (await stored(bench.store, ROOT)).version == 1

    async def test_a_guard_lets_a_cancelled_root_settle(self, bench: Bench) -> None:
        await written(bench.store, put(ROOT, cancel_requested=True))
        await written(bench.store, put("b"), Guard(ROOT, 11))
        refusal = await refused(bench.store, put("c"), Guard(ROOT, 11, not_cancelled=True))
        assert refusal.why == "cancelled"

    async def test_a_guard_judges_what_was_there_before_its_batch(self, bench: Bench) -> None:
        await written(bench.store, put(ROOT))
        claim = put(ROOT, expected=Version(1), fence=12, cancel_requested=True)
        await written(bench.store, claim, put("b"), Guard(ROOT, 11, not_cancelled=True))
        assert (await refused(bench.store, put("c"), Guard(ROOT, 11))).why == "fence"

    async def test_guards_alone_are_a_question(self, bench: Bench) -> None:
        await written(bench.store, put(ROOT))
        assert (await written(bench.store, Guard(ROOT, 11))).versions == ()
        assert (await refused(bench.store, Guard(ROOT, 12))).why == "fence"

    async def test_the_first_reason_in_order_is_given(self, bench: Bench) -> None:
        await written(bench.store, put("a"), put("b"), put(ROOT))
        wrong = [extend("b", fence=1), put("a", expected=Version(9)), delete("ghost")]
        assert (await refused(bench.store, *wrong, Guard(ROOT, 1))).why == "fence"
        assert (await refused(bench.store, *wrong)).id == "ghost"
        assert (await refused(bench.store, *wrong[:2])).id == "a"
        assert (await refused(bench.store, *wrong[:1])).id == "b"

    async def test_ending_a_hold_needs_the_lease_end_that_was_read(self, bench: Bench) -> None:
        await written(bench.store, put())
        seen = await stored(bench.store)
        await written(bench.store, extend())
        claim = put(expected=Free(seen.version, seen.lease_until), owner="owner-2", fence=12)
        conflict = await refused(bench.store, claim)
        assert (conflict.id, conflict.why) == ("a", "lease")
        (now,) = conflict.found.records
        retried = claim._replace(expected=Free(now.version, now.lease_until))
        assert (await written(bench.store, retried)).versions == (2,)
        assert (await refused(bench.store, extend())).why == "held"

    async def test_a_hold_without_lease_end_can_be_ended(self, bench: Bench) -> None:
        await written(bench.store, put(lease_until=None))
        await written(bench.store, put(expected=Free(1, None), fence=12))
        assert (await stored(bench.store)).fence == 12


class Repeating:
    """Part of ``StoreContract``."""

    async def test_the_repeat_of_an_insert_gets_the_first_answer(self, bench: Bench) -> None:
        insert = batch(put())
        await written(bench.store, insert)
        before = await stored(bench.store)
        bench.clock.step(4_000, 4_000)
        again = await written(bench.store, insert)
        assert (again.versions, again.repeated, again.superseded) == ((1,), True, False)
        assert again.now_ms > before.updated_at or not bench.steered
        assert await stored(bench.store) == before
        assert await events(bench.store) == [(1, b"event of a")]

    async def test_another_insert_of_the_same_record_is_no_repeat(self, bench: Bench) -> None:
        await written(bench.store, put())
        assert (await refused(bench.store, put())).why == "exists"

    async def test_the_repeat_of_an_update_gets_the_first_answer(self, bench: Bench) -> None:
        await written(bench.store, put())
        for update in (batch(put(expected=Version(1))), batch(put(expected=Free(2, FAR_OFF)))):
            if update.puts[0].expected == Free(2, FAR_OFF):
                await written(bench.store, extend(lease_until=FAR_OFF))
            first = await written(bench.store, update)
            again = await written(bench.store, update)
            assert again.versions == first.versions
            assert (again.repeated, again.superseded) == (True, False)
        assert [n for n, _ in await events(bench.store)] == [1, 2, 3]

    async def test_a_repeat_says_when_somebody_wrote_since(self, bench: Bench) -> None:
        insert = batch(put())
        await written(bench.store, insert)
        await written(bench.store, put(expected=Version(1), body=b"theirs"))
        again = await written(bench.store, insert)
        assert (again.versions, again.repeated, again.superseded) == ((1,), True, True)
        assert (await stored(bench.store)).body == b"theirs"

    async def test_a_renewal_since_does_not_supersede(self, bench: Bench) -> None:
        insert = batch(put())
        await written(bench.store, insert)
        await written(bench.store, extend())
        assert (await written(bench.store, insert)).superseded is False

    @pytest.mark.parametrize("changed", ["a", "b"])
    async def test_a_repeat_of_two_is_known_by_either(self, bench: Bench, changed: str) -> None:
        both = batch(put("a"), put("b"))
        await written(bench.store, both)
        await written(bench.store, put(changed, expected=Version(1)))
        again = await written(bench.store, both)
        assert (again.versions, again.repeated, again.superseded) == ((1, 1), True, True)
        versions = {r.id: r.version for r in (await bench.store.read(["a", "b"])).records}
        assert versions == {"a": 1, "b": 1} | {changed: 2}

    async def test_a_repeat_of_two_is_known_when_one_is_gone(self, bench: Bench) -> None:
        both = batch(put("a"), put("b"))
        await written(bench.store, both)
        await written(bench.store, delete("a"))
        again = await written(bench.store, both)
        assert (again.versions, again.repeated, again.superseded) == ((1, 1), True, True)
        assert (await bench.store.read(["a"])).records == ()

    async def test_a_repeat_is_known_three_writes_later(self, bench: Bench) -> None:
        insert = batch(put())
        await written(bench.store, insert)
        for version in (1, 2, 3):
            await written(bench.store, put(expected=Version(version)))
        again = await written(bench.store, insert)
        assert (again.versions, again.repeated, again.superseded) == ((1,), True, True)
        await written(bench.store, put(expected=Version(4)))
        assert (await refused(bench.store, insert)).why == "exists"
        assert (await stored(bench.store)).version == 5

    async def test_a_repeat_needs_no_guard_any_more(self, bench: Bench) -> None:
        await written(bench.store, put(ROOT))
        guarded = batch(put("b"), Guard(ROOT, 11))
        await written(bench.store, guarded)
        await written(bench.store, put(ROOT, expected=Version(1), fence=12))
        again = await written(bench.store, guarded)
        assert (again.repeated, again.superseded) == (True, False)

    async def test_the_repeat_of_a_tombstone_gets_the_first_answer(self, bench: Bench) -> None:
        await written(bench.store, put())
        bury = batch(delete(), put(body=b"tombstone"))
        await written(bench.store, bury)
        again = await written(bench.store, bury)
        assert (again.versions, again.repeated, again.superseded) == ((2,), True, False)
        assert [n for n, _ in await events(bench.store)] == [2]

    async def test_a_repeat_in_the_same_call_is_known(self, bench: Bench) -> None:
        insert = batch(put())
        answers = await bench.store.write([insert, insert])
        assert [getattr(answer, "repeated", None) for answer in answers] == [False, True]

    async def test_write_ids_of_other_records_do_not_count(self, bench: Bench) -> None:
        await written(bench.store, batch(put("a"), write_id="same"))
        await written(bench.store, put("b"))
        conflict = await refused(bench.store, batch(put("b"), write_id="same"))
        assert (conflict.id, conflict.why) == ("b", "exists")

    async def test_a_refused_write_id_may_be_written_later(self, bench: Bench) -> None:
        late = batch(put("b", expected=Version(1)))
        await refused(bench.store, late)
        await written(bench.store, put("b"))
        answer = await written(bench.store, late)
        assert (answer.versions, answer.repeated) == ((2,), False)
