"""Due records, listings, cursors and journals: what is in them, in which order, and how much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ...store import ANY_TENANT, DueQuery, Lane, ScanQuery, Version
from .examples import FAR_OFF, LONG_AGO, ROOT, Bench, delete, events, put, refused, stored, written

if TYPE_CHECKING:
    from ...store import Page, Store, View

VIEWS: tuple[View, ...] = ("all", "ready", "doubt")
CHANGES: dict[str, dict[str, Any]] = {
    "view": {"view": "ready"},
    "kinds": {"kinds": ("run",)},
    "states": {"states": ("in_doubt",)},
    "tenant": {"tenant_id": "tenant-1"},
    "no tenant": {"tenant_id": None},
    "parent": {"parent_id": "parent-1"},
    "id prefix": {"id_prefix": "c"},
}


async def several(store: Store) -> None:
    """Seven records; ids, insertion, ready times and doubts each order them differently."""
    rows = [
        ("c", "effect", "dispatched", "tenant-1", None, 30, 5),
        ("a", "run", "in_doubt", "tenant-2", None, 10, 6),
        ("g", "effect", "in_doubt", None, "p", 20, 4),
        ("b", "run", "dispatched", "tenant-1", "p", None, 3),
        ("f", "tool_call", "succeeded", "tenant-1", "q", 25, None),
        ("d", "effect", "in_doubt", "tenant-1", "p", 10, 7),
        ("e", "effect", "dispatched", None, None, None, None),
    ]
    for name, kind, state, tenant, parent, ready, doubt in rows:
        record = put(name, kind=kind, state=state, tenant_id=tenant, parent_id=parent)
        times = {"ready_at": ready and LONG_AGO + ready, "doubt_since": doubt and LONG_AGO + doubt}
        await written(store, record._replace(**times))


async def ids(store: Store, **query: Any) -> str:
    """Ids of all pages of a listing, joined."""
    return "".join([r.id for page in await pages(store, **query) for r in page.records])


async def pages(store: Store, **query: Any) -> list[Page]:
    asked = ScanQuery(**query)
    found = [await store.scan(asked)]
    while cursor := found[-1].cursor:
        found.append(await store.scan(asked._replace(after=cursor)))
    return found


async def due(store: Store, *quotas: tuple[str, int], lane: Lane | None = None) -> str:
    return "".join([r.id for r in (await store.due(DueQuery(quotas, lane))).records])


class Listing:
    """Part of ``StoreContract``."""

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ({"view": "all"}, "cagbfde"),
            ({"view": "ready"}, "adgfc"),
            ({"view": "doubt"}, "bgcad"),
        ],
        ids=["all", "ready", "doubt"],
    )
    async def test_each_view_has_its_order(
        self, bench: Bench, query: dict[str, Any], expected: str, limit: int
    ) -> None:
        await several(bench.store)
        assert await ids(bench.store, **query, limit=limit) == expected

    @pytest.mark.parametrize("limit", [1, 100])
    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ({"kinds": ("run",)}, ("ab", "a", "ba")),
            ({"kinds": ("run", "effect")}, ("cagbde", "adgc", "bgcad")),
            ({"kinds": ("none",)}, ("", "", "")),
            ({"states": ("in_doubt",)}, ("agd", "adg", "gad")),
            ({"states": ("in_doubt", "succeeded")}, ("agfd", "adgf", "gad")),
            ({"tenant_id": "tenant-1"}, ("cbfd", "dfc", "bcd")),
            ({"tenant_id": None}, ("ge", "g", "g")),
            ({"tenant_id": ANY_TENANT}, ("cagbfde", "adgfc", "bgcad")),
            ({"tenant_id": "tenant-3"}, ("", "", "")),
            ({"parent_id": "p"}, ("gbd", "dg", "bgd")),
            ({"parent_id": "q"}, ("f", "f", "")),
            ({"parent_id": "p", "tenant_id": "tenant-1"}, ("bd", "d", "bd")),
            (
                {
                    "parent_id": "p",
                    "tenant_id": "tenant-1",
                    "kinds": ("effect",),
                    "states": ("in_doubt",),
                },
                ("d", "d", "d"),
            ),
            ({"kinds": ("effect",), "states": ("dispatched",)}, ("ce", "c", "c")),
        ],
    )
    async def test_filters_restrict_every_view(
        self, bench: Bench, query: dict[str, Any], expected: tuple[str, str, str], limit: int
    ) -> None:
        await several(bench.store)
        found = [await ids(bench.store, view=view, limit=limit, **query) for view in VIEWS]
        assert tuple(found) == expected

    async def test_a_page_brings_whole_records_and_the_time(self, bench: Bench) -> None:
        await several(bench.store)
        page = await bench.store.scan(ScanQuery(limit=2))
        assert page.records == (await bench.store.read(["c", "a"])).records
        assert page.cursor is not None
        assert page.now_ms >= page.records[0].updated_at
        assert page.epoch == (await bench.store.read([])).epoch

    async def test_the_last_page_has_no_cursor_even_when_full(self, bench: Bench) -> None:
        await several(bench.store)
        assert [len(page.records) for page in await pages(bench.store, limit=4)] == [4, 3]
        assert [len(page.records) for page in await pages(bench.store, limit=7)] == [7]
        assert (await bench.store.scan(ScanQuery(kinds=("none",)))).cursor is None

    async def test_equal_times_are_ordered_by_id_and_none_is_lost(self, bench: Bench) -> None:
        for name in "dacb":
            await written(bench.store, put(name, ready_at=LONG_AGO, doubt_since=LONG_AGO))
        for view in ("ready", "doubt"):
            assert await ids(bench.store, view=view, limit=1) == "abcd"

    async def test_a_cursor_goes_on_after_its_record_is_gone(self, bench: Bench) -> None:
        await several(bench.store)
        ways: list[tuple[View, str, str]] = [("all", "cag", "bfde"), ("ready", "adg", "fc")]
        for view, first, rest in ways:
            query = ScanQuery(view=view, limit=3)
            page = await bench.store.scan(query)
            assert "".join(r.id for r in page.records) == first
            if view == "ready":
                await written(bench.store, delete("g"))
            later = await bench.store.scan(query._replace(after=page.cursor))
            assert "".join(r.id for r in later.records)[:2] == rest[:2]

    @pytest.mark.parametrize("change", CHANGES)
    async def test_a_cursor_of_another_query_is_refused(self, bench: Bench, change: str) -> None:
        await several(bench.store)
        cursor = (await bench.store.scan(ScanQuery(limit=1))).cursor
        with pytest.raises(ValueError, match="cursor"):
            await bench.store.scan(ScanQuery(**CHANGES[change], after=cursor))

    async def test_a_cursor_does_not_mind_page_size_and_order_of_names(self, bench: Bench) -> None:
        await several(bench.store)
        query = ScanQuery(kinds=("run", "effect"), states=("in_doubt", "dispatched"), limit=1)
        cursor = (await bench.store.scan(query)).cursor
        same = ScanQuery(kinds=query.kinds[::-1], states=query.states[::-1], after=cursor)
        assert len((await bench.store.scan(same)).records) == 5

    async def test_a_garbled_cursor_is_refused(self, bench: Bench) -> None:
        await several(bench.store)
        cursor = (await bench.store.scan(ScanQuery(limit=1))).cursor
        assert cursor is not None
        assert cursor.isascii()
        assert cursor.replace("-", "").replace("_", "").isalnum()
        garbled = ["", "x", "é", "\0", "\ud800", "=", cursor[:-2], cursor[2:], cursor[::-1]]
        for text in (*garbled, cursor + "AAAA", "A" * 5_000):
            with pytest.raises(ValueError, match="cursor"):
                await bench.store.scan(ScanQuery(after=text))

    @pytest.mark.parametrize("limit", [0, -1, 1_001])
    async def test_a_page_has_bounds(self, bench: Bench, limit: int) -> None:
        with pytest.raises(ValueError, match="1000"):
            await bench.store.scan(ScanQuery(limit=limit))
        with pytest.raises(ValueError, match="1000"):
            await bench.store.journal("a", limit=limit)
        if limit:
            with pytest.raises(ValueError, match="1000"):
                await bench.store.due(DueQuery((("effect", limit),)))

    async def test_a_record_follows_its_changes_through_the_views(self, bench: Bench) -> None:
        await written(bench.store, put(ready_at=None, doubt_since=None))
        assert [await ids(bench.store, view=v) for v in VIEWS] == ["a", "", ""]
        await written(bench.store, put(expected=Version(1), ready_at=5, doubt_since=6))
        assert [await ids(bench.store, view=v) for v in VIEWS] == ["a"] * 3
        await written(bench.store, put(expected=Version(2), ready_at=None, doubt_since=None))
        assert [await ids(bench.store, view=v) for v in VIEWS] == ["a", "", ""]


class Due:
    """Part of ``StoreContract``."""

    async def test_due_gives_each_kind_its_quota_oldest_first(self, bench: Bench) -> None:
        await several(bench.store)
        assert await due(bench.store, ("effect", 10)) == "dgc"
        assert await due(bench.store, ("effect", 2)) == "dg"
        assert await due(bench.store, ("run", 10), ("effect", 10)) == "adgc"
        assert await due(bench.store, ("effect", 1), ("run", 1), ("tool_call", 1)) == "adf"
        assert await due(bench.store, ("effect", 0), ("none", 10)) == ""
        assert await due(bench.store) == ""

    async def test_due_brings_whole_records(self, bench: Bench) -> None:
        await several(bench.store)
        answer = await bench.store.due(DueQuery((("run", 9),)))
        assert answer.records == (await stored(bench.store, "a"),)
        assert answer.now_ms >= answer.records[0].updated_at
        assert answer.epoch == (await bench.store.read([])).epoch

    async def test_what_is_not_ready_is_not_due(self, bench: Bench) -> None:
        await written(bench.store, put("never", ready_at=None), put("later", ready_at=FAR_OFF))
        answer = await written(bench.store, put("now", ready_at=LONG_AGO, lease_until=FAR_OFF))
        assert await due(bench.store, ("effect", 10)) == "now"
        if bench.steered:
            await written(bench.store, put("soon", ready_at=answer.now_ms + 1_000))
            bench.clock.step(999, 999)
            assert await due(bench.store, ("effect", 10)) == "now"
            bench.clock.step(1, 1)
            assert await due(bench.store, ("effect", 10)) == "nowsoon"

    async def test_a_settled_record_is_no_longer_due(self, bench: Bench) -> None:
        await written(bench.store, put(ready_at=LONG_AGO))
        await written(bench.store, put(expected=Version(1), ready_at=None))
        assert await due(bench.store, ("effect", 10)) == ""

    @pytest.mark.parametrize("count", [1, 2, 3, 8])
    async def test_lanes_share_all_records_out(self, bench: Bench, count: int) -> None:
        names = [f"record-{n}" for n in range(40)]
        await written(bench.store, *(put(name, ready_at=LONG_AGO) for name in names))
        lanes = [Lane(index, count) for index in range(count)]
        shares = [
            {r.id for r in (await bench.store.due(DueQuery((("effect", 100),), lane))).records}
            for lane in lanes
        ]
        assert sum(len(share) for share in shares) == len(names)
        assert set().union(*shares) == set(names)
        assert all(len(share) < len(names) for share in shares) == (count > 1)

    async def test_a_lane_fills_its_quota_past_the_records_of_others(self, bench: Bench) -> None:
        names = [f"record-{n:02}" for n in range(40)]
        records = [put(name, ready_at=LONG_AGO + n) for n, name in enumerate(names)]
        await written(bench.store, *records)
        for index in range(4):
            quota = DueQuery((("effect", 3),), Lane(index, 4))
            everything = DueQuery((("effect", 40),), Lane(index, 4))
            few = (await bench.store.due(quota)).records
            assert len(few) == 3
            assert few == (await bench.store.due(everything)).records[:3]

    @pytest.mark.parametrize(
        "query",
        [
            DueQuery((("effect", 1), ("effect", 2))),
            DueQuery((("effect", -1),)),
            DueQuery((("effect", 1),), Lane(2, 2)),
            DueQuery((("effect", 1),), Lane(-1, 2)),
            DueQuery((("effect", 1),), Lane(0, 0)),
        ],
    )
    async def test_a_due_query_without_sense_is_refused(
        self, bench: Bench, query: DueQuery
    ) -> None:
        with pytest.raises(ValueError, match=r"queue|between|lane"):
            await bench.store.due(query)


class Journals:
    """Part of ``StoreContract``."""

    async def test_every_version_has_one_event_and_no_gap(self, bench: Bench) -> None:
        times = [(await written(bench.store, put(event=b"1"))).now_ms]
        for version in range(1, 30):
            bench.clock.step(7, 7)
            update = put(expected=Version(version), event=str(version + 1).encode())
            times.append((await written(bench.store, update)).now_ms)
        journal = await bench.store.journal("a")
        assert [event.sequence for event in journal] == list(range(1, 31))
        assert [event.body for event in journal] == [str(n).encode() for n in range(1, 31)]
        assert [event.at_ms for event in journal] == times
        assert (await stored(bench.store)).version == 30

    async def test_a_journal_is_read_in_pages(self, bench: Bench) -> None:
        await written(bench.store, put(), put("b"))
        for version in range(1, 10):
            await written(bench.store, put(expected=Version(version)))
        first = await bench.store.journal("a", limit=4)
        rest = await bench.store.journal("a", after=first[-1].sequence, limit=100)
        assert [event.sequence for event in (*first, *rest)] == list(range(1, 11))
        assert list(await bench.store.journal("a", after=10)) == []
        assert list(await bench.store.journal("ghost")) == []

    async def test_a_refused_write_leaves_no_event(self, bench: Bench) -> None:
        await written(bench.store, put(ROOT))
        for wrong in (put(ROOT, expected=Version(3)), put(ROOT)):
            await refused(bench.store, wrong, put("b"))
        assert await events(bench.store, ROOT) == [(1, b"event of root")]
        assert await events(bench.store, "b") == []
