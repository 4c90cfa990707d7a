"""Wherever a store is wanted, a ledger will do; and whoever opened a store closes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import first

from indoubt import Ledger
from indoubt.errors import StoreUnavailable
from indoubt.stores import open_store
from indoubt.sync import Ledger as SyncLedger


def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


def payer(ledger: Any) -> Any:
    @ledger.effect(name="pay", safety="non_idempotent", key=first)
    async def pay(order: str) -> str:
        return f"paid {order}"

    return pay


async def test_a_ledger_on_a_ledger_works_on_its_store(tmp_path: Path) -> None:
    one = Ledger(url(tmp_path))
    two = Ledger(one)
    assert await payer(two)("o7") == "paid o7"
    assert two.open().store is one.open().store
    assert (await payer(one).outcome("o7")).replayed
    await two.close()
    assert (await payer(one).outcome("o7")).replayed
    await one.close()


async def test_a_blocking_ledger_is_one_too(tmp_path: Path) -> None:
    blocking = SyncLedger(url(tmp_path))
    either: tuple[Any, ...] = (blocking, blocking.aio)
    for given in either:
        for ledger in (Ledger(given), SyncLedger(given).aio):
            assert ledger.open().store is blocking.aio.open().store
    await blocking.aio.close()


async def test_a_ledger_closes_the_store_that_it_opened(tmp_path: Path) -> None:
    ledger = Ledger(url(tmp_path))
    store = ledger.open().store
    await ledger.close()
    with pytest.raises(StoreUnavailable):
        await store.read(())


async def test_a_ledger_leaves_a_store_open_that_it_was_given(tmp_path: Path) -> None:
    store = open_store(url(tmp_path))
    async with Ledger(store) as ledger:
        assert await payer(ledger)("o7") == "paid o7"
    assert (await store.read(())).records == ()
    assert (await payer(Ledger(store)).outcome("o7")).replayed
    await store.close()


def test_what_is_no_store_is_refused() -> None:
    for given in (7, Ledger, object()):
        with pytest.raises(TypeError, match="a ledger"):
            Ledger(given)  # type: ignore[arg-type]
