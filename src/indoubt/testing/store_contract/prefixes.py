"""Finding records by the beginning of their id, as a person types it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ...store import ScanQuery
from .examples import Bench, put, written
from .listing import pages

if TYPE_CHECKING:
    from ...store import Store

# In another order than that of their insertion; capitals, wildcards and other planes among them.
IDS = ("rec_b", "rec_ab", "rec_a", "rec_é", "rec%c", "REC_A", "rec_a\U0001f600", "rec_a_", "s")


async def several(store: Store) -> None:
    for number, name in enumerate(IDS):
        await written(store, put(name, tenant_id=f"tenant-{number % 2}"))


async def found(store: Store, prefix: str, **query: Any) -> list[str]:
    asked = await pages(store, id_prefix=prefix, **query)
    return [record.id for page in asked for record in page.records]


class Prefixes:
    """Part of ``StoreContract``."""

    @pytest.mark.parametrize("limit", [1, 2, 100])
    @pytest.mark.parametrize(
        "prefix",
        ["r", "rec_", "rec_a", "rec_a_", "rec%", "rec_é", "R", "x", "_", "rec_ab\0", "rec_\ud7ff"],
        ids=ascii,
    )
    async def test_a_prefix_finds_what_begins_so_by_id(
        self, bench: Bench, prefix: str, limit: int
    ) -> None:
        await several(bench.store)
        expected = sorted(name for name in IDS if name.startswith(prefix))
        assert await found(bench.store, prefix, limit=limit) == expected

    async def test_the_exact_id_comes_first(self, bench: Bench) -> None:
        await several(bench.store)
        page = await bench.store.scan(ScanQuery(id_prefix="rec_a", limit=1))
        assert [record.id for record in page.records] == ["rec_a"]
        assert page.cursor is not None

    async def test_a_prefix_goes_with_the_other_filters(self, bench: Bench) -> None:
        await several(bench.store)
        mine = [name for name in IDS[::2] if name.startswith("rec_a")]
        assert await found(bench.store, "rec_a", tenant_id="tenant-0", limit=1) == sorted(mine)
        assert await found(bench.store, "rec_a", kinds=("none",)) == []

    async def test_a_cursor_belongs_to_its_prefix(self, bench: Bench) -> None:
        await several(bench.store)
        cursor = (await bench.store.scan(ScanQuery(id_prefix="rec_a", limit=1))).cursor
        for other in ("rec_", None):
            with pytest.raises(ValueError, match="cursor"):
                await bench.store.scan(ScanQuery(id_prefix=other, after=cursor))

    @pytest.mark.parametrize("query", [{"id_prefix": ""}, {"id_prefix": "a", "view": "ready"}])
    async def test_a_prefix_that_would_list_all_is_refused(
        self, bench: Bench, query: dict[str, Any]
    ) -> None:
        with pytest.raises(ValueError, match="id_prefix"):
            await bench.store.scan(ScanQuery(**query))

    @pytest.mark.parametrize("prefix", ["\ud800", "a\U0010ffff"], ids=ascii)
    async def test_a_prefix_is_text_with_text_above_it(self, bench: Bench, prefix: str) -> None:
        with pytest.raises(ValueError, match="id_prefix"):
            await bench.store.scan(ScanQuery(id_prefix=prefix))
