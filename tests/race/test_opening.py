"""Several openers create one ledger at the same moment, and find it one and the same."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from indoubt.stores.sqlite import SQLiteStore, schema

OPENERS, FILES = 6, 30


@pytest.mark.parametrize("what", ["missing", "empty"])
async def test_many_open_a_new_file_at_once(tmp_path: Path, what: str) -> None:
    stores: list[SQLiteStore] = []
    with ThreadPoolExecutor(OPENERS) as pool:
        for number in range(FILES):
            path = tmp_path / f"{number}.db"
            if what == "empty":
                path.touch()
            together = threading.Barrier(OPENERS)

            def opened(path: Path = path, together: threading.Barrier = together) -> SQLiteStore:
                together.wait()
                return SQLiteStore(path)

            made = [future.result() for future in [pool.submit(opened) for _ in range(OPENERS)]]
            stores += made
            assert len({store.meta.incarnation for store in made}) == 1
    for store in stores:
        await store.close()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_another_makes_the_ledger_while_this_one_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Between any two questions about the file, it may become a ledger: that is no foreign file."""
    path = tmp_path / "ledger.db"
    asked, others = schema._one, list[SQLiteStore]()

    def meanwhile(db: Any, sql: str) -> int:
        monkeypatch.setattr(schema, "_one", asked)
        if when == "before":
            others.append(SQLiteStore(path))
        answer = asked(db, sql)
        if when == "after":
            others.append(SQLiteStore(path))
        return answer

    monkeypatch.setattr(schema, "_one", meanwhile)
    store = SQLiteStore(path)
    assert [other.meta for other in others] == [store.meta]
    for one in (store, *others):
        await one.close()
