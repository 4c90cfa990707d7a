"""The demo on a given store: the same kills, the same table, and nobody else's ledger touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.test_readme import README, TABLE_ROW
from tests.servers.places import SERVERS, place

from indoubt import Ledger

PATIENCE_S = 100


def demo(store: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "indoubt.cli", "demo", "--no-input", "--store", store]
    plain = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=plain, timeout=PATIENCE_S
    )


@pytest.mark.parametrize("kind", SERVERS)
def test_the_demo_on_a_server_is_the_readmes(kind: str, tmp_path: Path) -> None:
    with place(kind, tmp_path) as url:
        done = demo(url)
        assert (done.returncode, done.stderr) == (0, "")
        assert TABLE_ROW.findall(done.stdout) == TABLE_ROW.findall(README)
        assert "35 of 35 payments happened exactly once, 0 twice" in done.stdout
        assert url not in done.stdout  # it may hold a password
        again = demo(url)
        assert again.returncode == 2
        assert "already" in again.stderr
        assert again.stdout == ""


async def test_the_demo_leaves_a_ledger_that_is_there_alone(tmp_path: Path) -> None:
    with place("sqlite", tmp_path) as url:
        ledger = Ledger(url)
        ledger.open()
        await ledger.close()
        before = (tmp_path / "ledger.db").read_bytes()
        done = demo(url)
        assert (done.returncode, done.stdout) == (2, "")
        assert (tmp_path / "ledger.db").read_bytes() == before


def test_the_demo_refuses_a_store_that_other_processes_cannot_see() -> None:
    done = demo("memory:")
    assert (done.returncode, done.stdout) == (2, "")
    assert "memory:" in done.stderr
