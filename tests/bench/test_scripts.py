"""Every benchmark runs: with the least of everything here, and tells how to use it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
TINY = {
    "count_commits": ["--calls", "2"],
    "delayed_effects": ["--reps", "1", "--count", "5"],
    "cpu": ["--reps", "1", "--only", "sync"],
    "guarded_sqlite": ["--reps", "1", "--seconds", "0.01", "--peers", "none", "--rows", "50"],
    "import_time": ["--reps", "1", "--runs", "1"],
    "pages_sqlite": ["--reps", "1", "--seconds", "0.001", "--large", "200"],
    "two_processes": ["--reps", "1", "--seconds", "0.05"],
}


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(BENCH / f"{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_every_script_is_listed() -> None:
    scripts = {path.stem for path in BENCH.glob("*.py") if os.access(path, os.X_OK)}
    assert scripts == set(TINY)


@pytest.mark.parametrize("name", TINY)
def test_a_script_explains_itself(name: str) -> None:
    assert "usage:" in run(name, "--help")


@pytest.mark.parametrize("name", TINY)
def test_a_script_runs(name: str, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    output = run(name, *TINY[name], "--json", str(figures))
    assert "  ! " not in output, output  # how a case that broke is reported
    assert json.loads(figures.read_text("utf-8"))
