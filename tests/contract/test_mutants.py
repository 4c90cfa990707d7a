"""The contract notices wrong stores: each mutant below is one, and some test must fail on it.

A mutant is the package of the stores with one text replaced, imported beside the real one.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import itertools
import shutil
import sys
import tomllib
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import indoubt.stores
from indoubt.store import Store
from indoubt.testing.store_contract import SteeredClock, StoreContract
from indoubt.testing.store_contract.examples import Bench

PACKAGE = Path(indoubt.stores.__file__).parent
BOTH = ("memory", "sqlite")


class Mutant(NamedTuple):
    """One text of one file replaced; which stores are wrong then."""

    file: str
    old: str
    new: str
    stores: tuple[str, ...]


MUTANTS = {
    name: Mutant(**table)
    for name, table in tomllib.loads(
        Path(__file__).with_name("mutants.toml").read_text("utf-8")
    ).items()
}


class Runner(StoreContract):
    """Runs the contract's tests by hand, on the stores of one package."""

    def __init__(self, kind: str, package: Any) -> None:
        self._kind = kind
        self._open = package.open_store

    async def open_store(self, place: Path, clock: Any) -> Store:
        url = "memory:" if self._kind == "memory" else f"sqlite:///{place}/ledger.db"
        return self._open(url, clock=clock)

    async def kill_owner(self, store: Any, place: Path, owner: str) -> None:
        del place
        store.hold_owner(owner)
        (store.owners.declare_dead if self._kind == "memory" else store.release_owner)(owner)

    async def first_failure(self, folder: Path) -> str | None:
        for number, (name, values) in enumerate(cases()):
            place = folder / str(number)
            place.mkdir()
            clock = SteeredClock()
            bench = Bench(self, place, clock, await self.open_store(place, clock))
            try:
                await asyncio.wait_for(getattr(self, name)(bench, **values), 20)
            except (Exception, pytest.fail.Exception):  # noqa: BLE001
                return name
            finally:
                await bench.close()
        return None


def cases() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every test of the contract with every combination of its parameters."""
    for name in dir(StoreContract):
        if name.startswith("test_"):
            marks = getattr(getattr(StoreContract, name), "pytestmark", [])
            given = [axis(mark) for mark in marks if mark.name == "parametrize"]
            for combined in itertools.product(*given):
                yield name, {key: value for part in combined for key, value in part.items()}


def axis(mark: pytest.Mark) -> list[dict[str, Any]]:
    names = mark.args[0]
    if isinstance(names, str):
        return [{names: value} for value in mark.args[1]]
    return [dict(zip(names, values, strict=True)) for values in mark.args[1]]


@contextmanager
def imported(folder: Path) -> Generator[Any]:
    """The stores' package from another folder, in place of the real one for a while."""
    ours = {name: sys.modules.pop(name) for name in list(sys.modules) if is_ours(name)}
    place = [str(folder)]
    spec = importlib.util.spec_from_file_location(
        "indoubt.stores", folder / "__init__.py", submodule_search_locations=place
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["indoubt.stores"] = package
    try:
        spec.loader.exec_module(package)
        yield package
    finally:
        for name in [name for name in sys.modules if is_ours(name)]:
            del sys.modules[name]
        sys.modules.update(ours)


def is_ours(name: str) -> bool:
    return name == "indoubt.stores" or name.startswith("indoubt.stores.")


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, mutant in MUTANTS.items() for kind in mutant.stores]
)
def test_the_contract_kills_the_mutant(name: str, kind: str, tmp_path: Path) -> None:
    mutant = MUTANTS[name]
    copy = tmp_path / "stores"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    file = copy / mutant.file
    text = file.read_text("utf-8")
    assert mutant.old in text, "the code has changed: so must its mutant"
    file.write_text(text.replace(mutant.old, mutant.new), "utf-8")
    with imported(copy) as package:
        failed = asyncio.run(Runner(kind, package).first_failure(tmp_path))
    assert failed is not None, f"no test of the contract notices that {name}"


@pytest.mark.parametrize("kind", BOTH)
def test_without_a_mutation_the_runner_finds_nothing(kind: str, tmp_path: Path) -> None:
    """Otherwise the mutants would be killed by the runner itself."""
    assert asyncio.run(Runner(kind, indoubt.stores).first_failure(tmp_path)) is None
    assert len(list(cases())) > 200
