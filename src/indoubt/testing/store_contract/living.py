"""What a store declares of itself, its time, its owners, its callers, and its end."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise

import pytest

from ...errors import StoreUnavailable
from ...store import ANY_TENANT, BlockingStore, DueQuery, Put, ScanQuery, Version, Written
from .examples import Bench, answered, batch, events, extend, put, refused, stored, written

CALLERS = 16


class Living:
    """Part of ``StoreContract``."""

    async def test_a_durable_store_remembers(self, bench: Bench) -> None:
        await written(bench.store, put())
        before = await stored(bench.store)
        await bench.store.close()
        again = await bench.again()
        capabilities = again.capabilities
        assert len(capabilities.durable_why.split()) > 3
        if capabilities.durable:
            assert await stored(again) == before
            assert await events(again) == [(1, b"event of a")]
            assert (await refused(again, put())).why == "exists"
        elif not capabilities.shared:
            assert (await again.read(["a"])).records == ()

    async def test_a_shared_store_is_one_store(self, bench: Bench) -> None:
        other = await bench.again()
        await written(bench.store, put())
        seen = (await other.read(["a"])).records
        if bench.store.capabilities.shared:
            assert seen == (await bench.store.read(["a"])).records
            await written(other, put(expected=Version(1), body=b"other"))
            assert (await stored(bench.store)).body == b"other"
            assert (await refused(bench.store, put(expected=Version(1)))).why == "version"
        else:
            assert seen == ()

    async def test_a_blocking_store_answers_without_a_loop(self, bench: Bench) -> None:
        store = bench.store
        assert isinstance(store, BlockingStore) == store.capabilities.blocking
        if isinstance(store, BlockingStore):
            insert = batch(put())
            (first,) = await asyncio.to_thread(store.write_blocking, [insert])
            assert isinstance(first, Written)
            (again,) = store.write_blocking([insert])
            assert isinstance(again, Written)
            assert again.repeated
            assert store.read_blocking(["a", "b"]).records == (await store.read(["a"])).records

    async def test_where_silence_is_decided_a_lock_decides_it(self, bench: Bench) -> None:
        store = bench.store
        store.hold_owner("owner-1")
        store.hold_owner("owner-1")
        if store.capabilities.decides_silence:
            assert store.owner_dead("owner-1") is False
            assert store.owner_dead("nobody-knows") is None
            await bench.kill_owner("owner-2")
            assert store.owner_dead("owner-2") is True
            assert store.owner_dead("owner-1") is False
        else:
            assert [store.owner_dead(o) for o in ("owner-1", "nobody-knows")] == [None, None]

    async def test_a_name_that_is_no_owners_decides_nothing(self, bench: Bench) -> None:
        for name in ("", ".", "..", "../x", "a/b", "/etc/passwd", "\0", "é", "x" * 300):
            assert bench.store.owner_dead(name) is None

    async def test_time_never_runs_backwards_and_never_stands_still(self, bench: Bench) -> None:
        seen: list[int] = []
        for n, (wall, boot) in enumerate([(0, 0), (3_600_000, 10), (-7_200_000, 20), (5, 30)]):
            bench.clock.step(wall, boot)
            seen.append((await written(bench.store, put(f"a{n}"))).now_ms)
            bench.clock.step(-1_000, 1)
            seen.append((await bench.store.read([])).now_ms)
            bench.clock.step(-1_000, 1)
            seen.append((await bench.store.due(DueQuery((("effect", 1),)))).now_ms)
            bench.clock.step(-1_000, 1)
            seen.append((await bench.store.scan(ScanQuery())).now_ms)
            bench.clock.step(-1_000, 1)
            seen.append((await refused(bench.store, put("a0"))).found.now_ms)
        compare = int.__lt__ if bench.steered else int.__le__
        assert all(compare(before, after) for before, after in pairwise(seen)), seen

    async def test_time_goes_on_where_another_process_left_it(self, bench: Bench) -> None:
        first = (await written(bench.store, put())).now_ms
        await bench.store.close()
        bench.clock.step(-3_600_000, 10)
        again = await bench.again()
        if again.capabilities.durable:
            assert (await again.read([])).now_ms >= first
            assert (await written(again, put("b"))).now_ms >= first

    async def test_a_megabyte_is_kept_exactly(self, bench: Bench) -> None:
        body, fixed, event = (bytes([n, 255 - n, 0]) * 350_000 for n in (1, 2, 3))
        await written(bench.store, put(body=body, fixed=fixed, event=event))
        record = await stored(bench.store)
        assert (record.body, record.fixed) == (body, fixed)
        assert await events(bench.store) == [(1, event)]
        await written(bench.store, put(expected=Version(1), body=fixed))
        assert (await stored(bench.store)).body == fixed

    @pytest.mark.parametrize(
        "text", ["nul\0inside", "\0", "\U0001f4a3", "e\u0301", "\u00e9", " ", "%_'\"\\", "{}:a?1"]
    )
    async def test_any_text_is_kept_exactly(self, bench: Bench, text: str) -> None:
        names = {"tenant_id": text, "parent_id": text, "kind": text, "state": text}
        odd = put(text, owner=text, ready_at=1, doubt_since=2, **names)
        await written(bench.store, batch(odd, write_id=text))
        record = await stored(bench.store, text)
        assert (record.id, record.owner) == (text, text)
        assert {name: getattr(record, name) for name in names} == names
        for query in (ScanQuery(tenant_id=text), ScanQuery(view="doubt", tenant_id=text)):
            assert (await bench.store.scan(query)).records == (record,)
            nobody = query._replace(tenant_id=text + "\0")
            assert (await bench.store.scan(nobody)).records == ()
        assert (await bench.store.scan(ScanQuery(parent_id=text))).records == (record,)
        assert (await bench.store.due(DueQuery(((text, 9),)))).records == (record,)
        filtered = ScanQuery(view="ready", kinds=(text,), states=(text,), tenant_id=ANY_TENANT)
        assert (await bench.store.scan(filtered)).records == (record,)
        assert (await written(bench.store, extend(text, owner=text))).versions == ()
        assert (await written(bench.store, batch(odd, write_id=text))).repeated

    async def test_reading_keeps_the_order_asked_for(self, bench: Bench) -> None:
        await written(bench.store, put("a"), put("b"), put("c"))
        found = await bench.store.read(["c", "ghost", "a", "c", "b", "a"])
        assert [record.id for record in found.records] == ["c", "a", "b"]
        assert (await bench.store.read([])).records == ()
        with pytest.raises(ValueError, match="1000"):
            await bench.store.read(["x"] * 1_001)


class Racing:
    """Part of ``StoreContract``."""

    async def test_of_many_inserts_one_wins(self, bench: Bench) -> None:
        stores = [bench.store, await bench.again()]
        if not bench.store.capabilities.shared:
            stores = [bench.store]
        racing = [put(body=str(n).encode()) for n in range(CALLERS)]
        answers = await asyncio.gather(
            *(answered(stores[n % len(stores)], record) for n, record in enumerate(racing))
        )
        (won,) = [n for n, answer in enumerate(answers) if isinstance(answer, Written)]
        assert (await stored(bench.store)).body == str(won).encode()
        assert {answer.why for n, answer in enumerate(answers) if n != won} == {"exists"}
        assert len(await events(bench.store)) == 1

    async def test_of_many_updates_one_wins(self, bench: Bench) -> None:
        await written(bench.store, put())
        racing = [put(expected=Version(1), body=str(n).encode()) for n in range(CALLERS)]
        answers = await asyncio.gather(*(answered(bench.store, record) for record in racing))
        (won,) = [n for n, answer in enumerate(answers) if isinstance(answer, Written)]
        assert (await stored(bench.store)).body == str(won).encode()
        losers = [answer for n, answer in enumerate(answers) if n != won]
        assert {loser.found.records[0].version for loser in losers} == {2}

    async def test_batches_over_the_same_records_never_mix(self, bench: Bench) -> None:
        await written(bench.store, put("a"), put("b"))

        def both(n: int) -> list[Put]:
            body = str(n).encode()
            pair = [put(name, expected=Version(1), body=body) for name in ("a", "b")]
            return pair[:: 1 if n % 2 else -1]

        answers = await asyncio.gather(*(answered(bench.store, *both(n)) for n in range(CALLERS)))
        assert sum(isinstance(answer, Written) for answer in answers) == 1
        first, second = (await bench.store.read(["a", "b"])).records
        assert (first.body, first.version) == (second.body, second.version)

    async def test_threads_and_loops_race_fairly(self, bench: Bench) -> None:
        store = bench.store
        if not isinstance(store, BlockingStore):
            return
        won: list[str] = []

        def claim(name: str) -> None:
            (answer,) = store.write_blocking([batch(put(body=name.encode()))])
            if isinstance(answer, Written):
                won.append(name)

        threads = [threading.Thread(target=claim, args=(f"t{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        answers = await asyncio.gather(*(answered(store, put(body=b"loop")) for _ in range(8)))
        for thread in threads:
            await asyncio.to_thread(thread.join)
        won += ["loop" for answer in answers if isinstance(answer, Written)]
        assert [name.encode() for name in won] == [(await stored(store)).body]

    async def test_several_event_loops_share_one_store(self, bench: Bench) -> None:
        async def work(n: int) -> None:
            await asyncio.gather(*(written(bench.store, put(f"r{n}.{i}")) for i in range(10)))

        threads = [threading.Thread(target=asyncio.run, args=(work(n),)) for n in range(4)]
        for thread in threads:
            thread.start()
        await work(4)
        for thread in threads:
            await asyncio.to_thread(thread.join)
        names = [f"r{n}.{i}" for n in range(5) for i in range(10)]
        assert len((await bench.store.read(names)).records) == 50

    async def test_a_cancelled_caller_leaves_the_store_whole(self, bench: Bench) -> None:
        callers = [asyncio.ensure_future(answered(bench.store, put(f"c{n}"))) for n in range(8)]
        await asyncio.sleep(0)
        for caller in callers[::2]:
            caller.cancel()
        done = await asyncio.gather(*callers, return_exceptions=True)
        assert all(isinstance(answer, Written) for answer in done[1::2])
        await written(bench.store, put("after"))
        found = (await bench.store.read([f"c{n}" for n in range(8)])).records
        assert {record.id for record in found} >= {"c1", "c3", "c5", "c7"}
        for record in found:
            assert len(await events(bench.store, record.id)) == 1


class Closing:
    """Part of ``StoreContract``."""

    async def test_a_closed_store_says_so(self, bench: Bench) -> None:
        store = bench.store
        await written(store, put())
        await store.close()
        await store.close()
        for call in (
            lambda: store.read(["a"]),
            lambda: store.write([batch(put("b"))]),
            lambda: store.due(DueQuery(())),
            lambda: store.scan(ScanQuery()),
            lambda: store.journal("a"),
        ):
            with pytest.raises(StoreUnavailable, match="closed"):
                await call()

    async def test_closing_waits_for_what_was_handed_in(self, bench: Bench) -> None:
        store = bench.store
        callers = [asyncio.ensure_future(answered(store, put(f"c{n}"))) for n in range(20)]
        await asyncio.sleep(0)
        await store.close()
        assert all(isinstance(answer, Written) for answer in await asyncio.gather(*callers))
        if store.capabilities.durable:
            again = await bench.again()
            assert len((await again.read([f"c{n}" for n in range(20)])).records) == 20
