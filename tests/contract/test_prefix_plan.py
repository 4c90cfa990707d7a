"""Looking an id up by its beginning costs the same however many records there are."""

from pathlib import Path

from indoubt.stores import open_store
from indoubt.stores.sql import statements
from indoubt.stores.sqlite.connection import Place


async def test_sqlite_searches_a_range_of_the_ids(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await open_store(f"sqlite:///{path}").close()
    sql = statements()["scan_prefix"].text
    db = Place(str(path)).connect()
    plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * 9)]
    db.close()
    assert "SEARCH record USING INDEX sqlite_autoindex_record_1 (id>? AND id<?)" in plan
    assert not [step for step in plan if "TEMP B-TREE" in step or step.startswith("SCAN record")]
