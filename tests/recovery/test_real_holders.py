"""Real processes as holders, really killed or stopped, on one SQLite file (P1, P26, head 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.conftest import first

from indoubt import Ledger, RecordView
from indoubt.testing import FakeProvider, Worker
from indoubt.testing.provider_client import act_async

LEASE = timedelta(milliseconds=400)
SETTLE = timedelta(milliseconds=100)
POLICY: dict[str, Any] = {
    "safety": "non_idempotent",
    "name": "pay",
    "settle_time": SETTLE,
    "not_found_is_authoritative": True,
    "resend_on_proven_absence": True,
}
SCRIPT = """
import sys
from datetime import timedelta
from indoubt import Ledger
from indoubt.stores import open_store
from indoubt.testing import CrashStore
from indoubt.testing.killing import ProcessFate
from indoubt.testing.provider import act, blocking_probe

url, bank = sys.argv[1:]
fate = ProcessFate.from_environment()
ledger = Ledger(CrashStore(open_store(url), fate), lease=timedelta(milliseconds=400))
send = fate.sending(act)

@ledger.effect(safety="non_idempotent", name="pay", key=lambda order: order,
    probe=blocking_probe(bank), settle_time=timedelta(milliseconds=100),
    not_found_is_authoritative=True, resend_on_proven_absence=True)
def pay(order, *, effect):
    return send(bank, order, 1, idempotency_key=effect.idempotency_key)

fate.tell(pay("order-7"))
"""


@pytest.fixture(scope="module")
def bank() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        yield provider


class Place:
    """One file, one bank, one script."""

    def __init__(self, folder: Path, bank: FakeProvider) -> None:
        self.bank = bank
        self.url = f"sqlite:///{folder}/ledger.db"
        self._script = folder / "worker.py"
        self._script.write_text(SCRIPT.replace("order-7", self.order(folder)))
        self.key = self.order(folder)

    @staticmethod
    def order(folder: Path) -> str:
        return f"order {folder.name}"

    def worker(self, cut: Any, by: Literal["kill", "stop"]) -> Worker:
        given: dict[str, Any] = {"cut": cut, "by": by, "provider": self.bank, "key": self.key}
        return Worker(self._script, self.url, self.bank.url, **given)

    def ledger(self) -> Ledger:
        """A ledger of this process that knows the effect."""
        ledger = Ledger(self.url, lease=LEASE)
        url = self.bank.url

        @ledger.effect(**POLICY, key=first, probe=self.bank.probe)
        async def pay(order: str, *, effect: Any) -> Any:
            return await act_async(url, order, 1, idempotency_key=effect.idempotency_key)

        assert pay is not None
        return ledger


@pytest.fixture
def place(tmp_path: Path, bank: FakeProvider) -> Place:
    return Place(tmp_path, bank)


async def doubted(ledger: Ledger) -> RecordView:
    """Wait until the hold is over."""
    async with asyncio.timeout(30):
        while not (items := (await ledger.in_doubt()).items):
            pass
    return items[0]


async def settle(ledger: Ledger) -> Any:
    """Recover until nothing waits any more; each pass waits for what time alone will bring."""
    async with asyncio.timeout(30):
        while (recovery := await ledger.recover(wait=timedelta(seconds=5))).waiting:
            pass
    return recovery


@pytest.mark.parametrize("cut", ["F1", "F2"])
async def test_p26_a_killed_holder_that_sent_nothing_is_proven_absent_and_sent_again(
    place: Place, cut: str
) -> None:
    with place.worker(cut, "kill") as worker:
        worker.wait_cut()
        if worker.held:
            worker.held.drop()  # what it sent never arrives
        async with place.ledger() as ledger:
            recovery = await settle(ledger)
            assert [view.state for view in recovery.replayed] == ["succeeded"]
            assert place.bank.count(place.key) == 1


async def test_p26_a_killed_holder_that_had_sent_is_asked_about_and_adopted(place: Place) -> None:
    with place.worker("F3", "kill") as worker:
        worker.wait_cut()
        async with place.ledger() as ledger:
            recovery = await settle(ledger)
            assert [view.state for view in recovery.settled] == ["succeeded"]
            assert place.bank.count(place.key) == 1


async def test_head6_a_stopped_holder_is_never_overtaken_and_its_late_result_is_kept(
    place: Place,
) -> None:
    with place.worker("F1", "stop") as worker:
        worker.wait_cut()
        async with place.ledger() as ledger:
            await doubted(ledger)
            for _ in range(3):
                recovery = await ledger.recover(wait=timedelta(seconds=1))
                assert (recovery.replayed, recovery.settled) == ((), ())
            item = await doubted(ledger)
            assert item.state in {"in_doubt", "awaiting_decision"}
            assert not item.silent
            assert place.bank.count(place.key) == 0
            worker.go_on()  # it wakes up, finds its permit over, and sends nothing
            assert worker.wait() != 0
            assert place.bank.count(place.key) == 0


async def test_head6_a_stopped_holder_that_is_killed_is_proven_dead(place: Place) -> None:
    with place.worker("F1", "stop") as worker:
        worker.wait_cut()
        async with place.ledger() as ledger:
            await doubted(ledger)
            assert (await ledger.recover(wait=timedelta(0))).replayed == ()
            worker.kill()
            recovery = await settle(ledger)
            assert [view.state for view in recovery.replayed] == ["succeeded"]
            assert place.bank.count(place.key) == 1


async def test_a_holder_stopped_while_its_request_is_held_is_not_silent(place: Place) -> None:
    with place.worker("F2", "stop") as worker:
        worker.wait_cut()
        async with place.ledger() as ledger:
            await doubted(ledger)
            recovery = await ledger.recover(wait=timedelta(seconds=1))
            assert recovery.replayed == ()
            assert worker.held is not None
            worker.held.release()  # it lands after all
            assert place.bank.count(place.key, at_least=1) == 1
            recovery = await ledger.recover(wait=timedelta(seconds=5))
            assert [view.state for view in recovery.settled] == ["succeeded"]
            assert place.bank.count(place.key) == 1


async def test_v55_looking_never_mutates_the_provider(place: Place) -> None:
    with place.worker("F2", "kill") as worker:
        worker.wait_cut()
        assert worker.held is not None
        worker.held.drop()
        async with place.ledger() as ledger:
            await doubted(ledger)
            before = len([entry for entry in place.bank.log() if entry["mutates"]])
            record = await ledger.find("pay", place.key)
            assert record is not None
            await ledger.probe(record.ref)
            await ledger.recover(run=False, wait=timedelta(seconds=1))
            await ledger.in_doubt()
            after = [entry for entry in place.bank.log() if entry["mutates"]]
            assert len(after) == before
            looked = [entry for entry in place.bank.log() if entry["key"] == place.key]
            assert "find" in {entry["request"] for entry in looked}
