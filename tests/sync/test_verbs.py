"""The blocking face of a ledger: the same verbs, answers and errors, from any thread."""

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import indoubt
from indoubt import AllowOneAttempt, DidNotHappen, Happened, OutcomeUnknown, RecordNotFound
from indoubt.contracts import ProviderProbeResult
from indoubt.recovery.probing import DoubtfulAttempt
from indoubt.sync import Ledger


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


class Bank:
    """Counts what really happened; the next call may lose its answer."""

    def __init__(self) -> None:
        self.refunds: list[str] = []
        self.lose_answer = False

    def refund(self, order: str) -> dict[str, Any]:
        self.refunds.append(order)
        if self.lose_answer:
            raise ConnectionResetError
        return {"id": f"rf_{len(self.refunds)}"}


def by_order(order: str) -> str:
    return order


def guard(ledger: Ledger, bank: Bank, **declared: Any) -> Any:
    @ledger.effect(name="refund", safety="non_idempotent", key=by_order, **declared)
    def refund(order: str) -> dict[str, Any]:
        return bank.refund(order)

    return refund


def in_doubt(ledger: Ledger, bank: Bank, order: str = "order-7") -> OutcomeUnknown:
    bank.lose_answer = True
    with pytest.raises(OutcomeUnknown) as caught:
        guard(ledger, bank)(order)
    bank.lose_answer = False
    return caught.value


def verbs(ledger: type) -> set[str]:
    return {name for name in vars(ledger) if not name.startswith("_")}


def test_every_awaitable_verb_has_a_blocking_one() -> None:
    inner = {"look_up"}  # for other edges, not for callers
    awaitable = {
        name
        for name, _ in inspect.getmembers(indoubt.Ledger, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    assert verbs(Ledger) == awaitable - inner
    for name in verbs(Ledger):
        ours, theirs = getattr(Ledger, name), getattr(indoubt.Ledger, name)
        assert not inspect.iscoroutinefunction(ours)
        assert inspect.signature(ours) == inspect.signature(theirs)
        assert ours.__doc__ == theirs.__doc__


def test_the_constructors_take_the_same() -> None:
    assert inspect.signature(Ledger) == inspect.signature(indoubt.Ledger)


def test_a_doubt_is_listed_decided_and_settled(url: str) -> None:
    bank = Bank()
    with Ledger(url) as ledger:
        doubt = in_doubt(ledger, bank)
        (item,) = ledger.in_doubt().items
        assert item.ref == doubt.ref
        decided = ledger.decide(item, Happened({"id": "rf_1"}), actor="ana", reason="seen")
        assert decided.state == "succeeded"
        assert guard(ledger, bank)("order-7") == {"id": "rf_1"}
        assert bank.refunds == ["order-7"]
        found = ledger.find("refund", "order-7")
        assert found is not None
        assert ledger.get(doubt.record_id) == found
        assert ledger.journal(doubt.record_id)[-1].actor == "ana"
        assert ledger.in_doubt().items == ()


def test_recover_cancel_and_probe(url: str) -> None:
    bank = Bank()

    def probe(attempt: DoubtfulAttempt) -> ProviderProbeResult:
        return attempt.succeeded({"id": "rf_1"})

    with Ledger(url) as ledger:
        doubt = in_doubt(ledger, bank)
        assert ledger.recover().settled == ()
        guard(ledger, bank, probe=probe)
        probed = ledger.probe(doubt.ref)
        assert probed.evidence[-1]["status"] == "succeeded"
        cancelled = ledger.cancel(doubt.ref, actor="ana", reason="no more of it")
        assert cancelled.cancel_requested


def test_errors_are_those_of_the_ledger(url: str) -> None:
    with Ledger(url) as ledger:
        with pytest.raises(RecordNotFound):
            ledger.get("rec_missing")
        with pytest.raises(ValueError, match="cursor"):
            ledger.in_doubt(cursor="nonsense")
        with pytest.raises(ValueError, match="a ref is a record id and an attempt"):
            ledger.decide("rec_bare", DidNotHappen(), actor="ana", reason="checked")


async def test_it_works_on_a_thread_that_runs_a_loop(url: str) -> None:
    bank = Bank()
    with Ledger(url) as ledger:
        doubt = in_doubt(ledger, bank)
        allowed = ledger.decide(doubt, Happened(), actor="ana", reason="seen")
        assert allowed.state == "succeeded"
        assert (await ledger.aio.get(doubt.record_id)).state == "succeeded"


def test_many_threads_share_one_ledger(url: str) -> None:
    bank = Bank()
    with Ledger(url) as ledger, ThreadPoolExecutor(8) as pool:
        refund = guard(ledger, bank)
        receipts = list(pool.map(refund, [f"order-{n % 4}" for n in range(32)]))
        views = [ledger.find("refund", f"order-{n}") for n in range(4)]
    assert sorted(bank.refunds) == [f"order-{n}" for n in range(4)]
    assert len({receipt["id"] for receipt in receipts}) == 4
    assert all(view is not None and view.state == "succeeded" for view in views)


def test_a_verb_on_indoubts_own_loop_says_so_instead_of_waiting_for_itself(url: str) -> None:
    bank, heard = Bank(), list[str]()

    async def probe(attempt: DoubtfulAttempt) -> ProviderProbeResult:
        try:
            ledger.get(attempt.execution_id)
        except RuntimeError as error:
            heard.append(str(error))
        found = await ledger.aio.get(attempt.execution_id)
        return attempt.succeeded({"id": found.key})

    with Ledger(url) as ledger:
        bank.lose_answer = True
        assert guard(ledger, bank, probe=probe)("order-7") == {"id": "order-7"}
    assert heard
    assert "ledger.aio" in heard[0]


def test_a_cancelled_wait_leaves_the_ledger_usable(url: str) -> None:
    with Ledger(url) as ledger:

        async def interrupted() -> None:
            async with asyncio.timeout(0):
                await asyncio.to_thread(ledger.in_doubt)

        with pytest.raises(TimeoutError):
            asyncio.run(interrupted())
        assert ledger.in_doubt().items == ()


def test_a_permitted_attempt_is_sent_once(url: str) -> None:
    bank = Bank()
    with Ledger(url) as ledger:
        doubt = in_doubt(ledger, bank)
        ledger.decide(doubt.ref, AllowOneAttempt(), actor="ana", reason="bank says no")
        refund = guard(ledger, bank)
        assert refund("order-7") == refund("order-7") == {"id": "rf_2"}
    assert bank.refunds == ["order-7", "order-7"]
