"""A shop with a ledger, and an operator who looks into it with the real command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from indoubt import AllowOneAttempt, OutcomeUnknown
from indoubt.sync import Ledger

PATIENCE_S = 60
# The shop's own program: what an operator names with --app. What its bank says is in a file.
SHOP = '''
"""The shop."""
import json, os, pathlib
from datetime import timedelta
from indoubt.sync import Ledger

ledger = Ledger("sqlite:///shop.db")
BANK = pathlib.Path("bank.json")


def says(order):
    return json.loads(BANK.read_text()).get(order, {}) if BANK.exists() else {}


def by_order(order, *_):
    return order


def find(attempt):
    said = says(attempt.key)
    return attempt.succeeded({"id": said["id"]}) if "id" in said else attempt.unknown()


@ledger.effect(safety="non_idempotent", key=by_order, probe=find)
def refund(order, cents):
    raise ConnectionResetError


@ledger.effect(safety="non_idempotent")
def notify(order, text):
    raise ConnectionResetError


@ledger.effect(safety="idempotent", key=by_order)
def label(order):
    if os.environ.get("DIE"):
        os._exit(9)
    return {"label": order}


@ledger.effect(safety="non_idempotent", key=by_order, settle_time=timedelta(minutes=2))
def slow(order):
    os._exit(9)
'''


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Operator:
    """Runs commands in one directory, in this process or in one of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.url = f"sqlite:///{place}/shop.db"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("INDOUBT_")}
        self.env |= {"COLUMNS": "200", "LANG": "C.UTF-8", "TZ": "UTC"}
        self.env.pop("FORCE_COLOR", None)

    def run(self, *args: str, env: dict[str, str] | None = None) -> Ended:
        """In this process, from the shop's directory, on the shop's ledger."""
        from indoubt.cli.app import app  # noqa: PLC0415

        settings: dict[str, str | None] = {name: None for name in os.environ if "INDOUBT" in name}
        done = CliRunner().invoke(
            app, list(args), env=settings | {"INDOUBT_URL": self.url} | (env or {})
        )
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Ended(done.exit_code, done.stdout, done.stderr)

    def process(self, *args: str, env: dict[str, str] | None = None) -> Ended:
        """In a process of its own; the ledger is named by no variable."""
        done = subprocess.run(
            [sys.executable, "-m", "indoubt.cli", *args],
            cwd=self.place,
            env=self.env | (env or {}),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def shop(self, code: str, **env: str) -> int:
        """Run a line of the shop's program in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-c", f"import shop\n{code}"],
            cwd=self.place,
            env=self.env | env,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.returncode

    def bank_says(self, **orders: dict[str, str]) -> None:
        (self.place / "bank.json").write_text(json.dumps(orders), "utf-8")


class Doubts:
    """Makes what an operator has to look at."""

    def __init__(self, url: str) -> None:
        self.ledger = Ledger(url)

    def make(self, key: str | None = "order-7", **using: Any) -> str:
        """Something that may have happened; its ref."""
        using = {"key": key, **using} if key is not None else using
        with pytest.raises(OutcomeUnknown) as caught:
            self.effect().using(**using)("order", 1200)
        return caught.value.ref

    def effect(self, name: str = "refund", *, works: bool = False) -> Any:
        @self.ledger.effect(name=name, safety="non_idempotent")
        def act(order: str, cents: int) -> Any:
            if not works:
                raise ConnectionResetError
            return {"order": order, "cents": cents}

        return act

    def second_attempt(self, ref: str, key: str) -> str:
        """Allow and lose another attempt; the ref of the new question."""
        self.ledger.decide(ref, AllowOneAttempt(), actor="ana", reason="the bank says no")
        return self.make(key)

    def done(self, key: str) -> str:
        """Something that certainly happened; its record id."""
        self.effect("done", works=True).using(key=key)("order", 1200)
        found = self.ledger.find("done", key)
        assert found is not None
        return found.record_id


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    return Operator(tmp_path)


@pytest.fixture
def doubts(operator: Operator) -> Any:
    made = Doubts(operator.url)
    yield made
    made.ledger.close()
