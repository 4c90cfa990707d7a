"""What docs/delayed-effects.md shows is what happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import run_page


async def test_its_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"sent": [], "charged": [], "__name__": "shop"}
    assert await run_page("docs/delayed-effects.md", names) == 2
    assert (names["sent"], names["charged"]) == (["order-7"], ["order-7"])
    await names["ledger"].close()
