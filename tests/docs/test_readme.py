"""What the README shows is what happens: its code runs, its demo prints that table."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.docs.pages import run_page

from indoubt.testing.provider import FakeProvider, act_async, find_async

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
TABLE_ROW = re.compile(r"^│F\d│.*│$", re.MULTILINE)


class Bank:
    """The bank that the README's code talks to: the fake provider under the README's names."""

    def __init__(self, provider: FakeProvider) -> None:
        self._provider = provider

    async def refund(self, order: str, cents: int, *, idempotency_key: str) -> dict[str, Any]:
        done = await act_async(self._provider.url, order, cents, idempotency_key=idempotency_key)
        return {"id": done["id"], "order": done["key"]}

    async def look_up(self, order: str) -> dict[str, Any] | None:
        found = await find_async(self._provider.url, order)
        if found.status == "unavailable":
            raise ConnectionError(found.code)
        return {"id": found.acts[0]["id"], "order": found.acts[0]["key"]} if found.acts else None

    def count(self, order: str) -> int:
        return self._provider.count(order)

    def pays_and_hangs_up(self) -> None:
        self._provider.next("apply_then_drop", how="rst")

    def cannot_be_asked(self) -> None:
        self._provider.fault("lookup", status="unavailable")


@pytest.fixture
def bank() -> Iterator[Bank]:
    with FakeProvider() as provider:
        yield Bank(provider)


async def test_the_readmes_code_runs(
    bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"bank": bank, "__name__": "shop"}
    assert await run_page("README.md", names) >= 5
    await names["ledger"].close()
    printed = capsys.readouterr().out
    assert "probe_again" in printed
    assert "order-9" in printed
    assert bank.count("order-9") == 1


def test_the_readmes_table_is_what_the_demo_prints() -> None:
    command = [sys.executable, "-m", "indoubt.cli", "demo", "--no-input"]
    plain = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=plain)
    shown, printed = TABLE_ROW.findall(README), TABLE_ROW.findall(done.stdout)
    assert len(shown) == 7
    assert printed == shown
    assert "35 of 35 payments happened exactly once, 0 twice" in done.stdout


def test_the_demo_leaves_nothing_behind_unless_it_is_told_to(tmp_path: Path) -> None:
    temp, kept = tmp_path / "temp", tmp_path / "kept"
    temp.mkdir()
    environ = {**os.environ, "TMPDIR": str(temp)}
    command = [sys.executable, "-m", "indoubt.cli", "demo", "--no-input", "--keep", str(kept)]
    subprocess.run(command, capture_output=True, check=True, env=environ)
    assert list(temp.iterdir()) == []
    assert (kept / "ledger.db").is_file()


def test_every_page_that_the_readme_names_is_there() -> None:
    names = re.findall(r"\]\(([^)#:]+)\)", README)
    assert names
    assert [name for name in names if not (ROOT / name).exists()] == []
