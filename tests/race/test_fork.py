"""A process forks in the middle of an effect: only the parent speaks for it."""

from __future__ import annotations

import json
from pathlib import Path

from indoubt import Ledger
from indoubt.testing import Worker

FORKER = Path(__file__).parent / "forker.py"


async def test_a_forked_child_does_not_speak_for_its_parent(tmp_path: Path) -> None:
    """Its handle is refused, its caller gets no receipt; for its own orders it is a new owner."""
    url, notes = f"sqlite:///{tmp_path}/ledger.db", tmp_path / "child.json"
    with Worker(FORKER, url, str(notes)) as worker:
        assert worker.hear() == {"told": ["forks", True]}
        assert worker.wait() == 0
    assert json.loads(notes.read_text()) == {
        "checkpoint": "ForkedHandle",
        "same order": "EffectBusy",
        "own order": ["child's own", False],
        "told": "ForkedHandle",
    }
    owners: set[str | None] = set()
    async with Ledger(url) as ledger:
        for order, by_parent in (("forks", True), ("child's own", False)):
            found = await ledger.find("pay", order)
            assert found is not None
            assert (found.state, found.receipt) == ("succeeded", [order, by_parent])
            owners |= {entry.owner for entry in await ledger.journal(found.record_id)}
    assert len(owners - {None}) == 2
