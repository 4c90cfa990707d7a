"""Real ``kill -9`` at each cut point, for each safety class, with and without a probe.

Seven workers die on one file, one at each point; then this process recovers, by ``recover`` and by
repeating the calls. The provider's own count is the judge.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.race.conftest import WORKER, eventually
from tests.race.worker import KEYED, Job, call, guard, ledger_of

from indoubt import DidNotHappen, Happened, Ledger, RecordView, TooEarly
from indoubt.recovery.decisions import Decision
from indoubt.testing import FakeProvider, Worker
from indoubt.testing.crash import CUTS, Cut

CELLS = [
    *((safety, False) for safety in sorted(KEYED)),
    ("non_idempotent", False),
    ("human_confirmation_required", False),
    *((safety, True) for safety in sorted(KEYED)),
    ("status_query_required", True),
    ("non_idempotent", True),
    ("human_confirmation_required", True),
]
SENT: dict[Cut, int] = {"F0": 0, "F1": 0, "F2": 0, "F3": 1, "F4": 1, "F5": 1, "F6": 1}
SETTLED = {"F5", "F6"}
DOUBTFUL: tuple[Cut, ...] = ("F1", "F2", "F3", "F4")


def orders_of(job: Job) -> dict[Cut, str]:
    return {cut: f"{job.orders[0]}-{cut}" for cut in CUTS}


def kill_one_at_each_cut(bank: FakeProvider, job: Job) -> None:
    """Seven workers, each dead at its own point. The held request of F2 is lost."""
    with ExitStack() as stack:
        workers = {
            cut: stack.enter_context(
                Worker(
                    WORKER, replace(job, orders=(order,)).text(), cut=cut, provider=bank, key=order
                )
            )
            for cut, order in orders_of(job).items()
        }
        for worker in workers.values():
            worker.wait_cut()
        for worker in workers.values():
            if worker.held is not None:
                worker.held.drop()
    assert {cut: bank.count(order) for cut, order in orders_of(job).items()} == SENT


def states(views: tuple[RecordView, ...], job: Job) -> dict[str, str]:
    """The states of what is listed, by cut."""
    cuts = {order: cut for cut, order in orders_of(job).items()}
    return {cuts[view.key or ""]: view.state for view in views}


@pytest.mark.parametrize(("safety", "probe"), CELLS)
async def test_kill_at_each_cut(bank: FakeProvider, job: Job, safety: str, probe: bool) -> None:  # noqa: FBT001
    resend = safety == "status_query_required"
    job = replace(job, safety=safety, probe=probe, absence=resend, timeout_ms=1500)
    await asyncio.to_thread(kill_one_at_each_cut, bank, job)
    ledger = ledger_of(job)
    pay = guard(ledger, job)
    box = await ledger.in_doubt()
    assert sorted(states(box.items, job)) == list(DOUBTFUL), "dispatch may have occurred"
    recovery = await ledger.recover(wait=timedelta(seconds=10))
    assert recovery.errors == ()
    await check_recovered(ledger, bank, job)
    for order in orders_of(job).values():
        await finish(ledger, pay, bank, order)
    assert {cut: bank.count(order) for cut, order in orders_of(job).items()} == dict.fromkeys(
        CUTS, 1
    )
    assert (await ledger.in_doubt()).items == ()
    await ledger.close()


async def check_recovered(ledger: Ledger, bank: FakeProvider, job: Job) -> None:
    """After one ``recover``, before anybody repeats a call."""
    asks = not job.probe or job.safety == "human_confirmation_required"
    for cut, order in orders_of(job).items():
        found = await ledger.find("pay", order)
        if cut == "F0":
            assert found is None
            continue
        assert found is not None
        sent, again = SENT[cut], job.safety in KEYED or job.safety == "status_query_required"
        if cut in SETTLED or again:
            expected = ("succeeded", 1)
        elif sent and not asks:
            expected = ("succeeded", 1)  # asked, and found
        else:
            expected = ("awaiting_decision", sent)
        assert (found.state, bank.count(order)) == expected, cut


async def finish(ledger: Ledger, pay: object, bank: FakeProvider, order: str) -> None:
    """Repeat the call; where a person is asked, the person looks at the provider."""
    answer = await call(pay, order)
    if answer[1:3] == ["raised", "OutcomeUnknown"]:
        found = await ledger.find("pay", order)
        assert found is not None
        decision = Happened({"id": "seen"}) if bank.count(order) else DidNotHappen()
        await eventually(lambda: decided(ledger, found.ref, decision))
        answer = await call(pay, order)
    assert answer[1] == "returned", answer


async def decided(ledger: Ledger, ref: str, decision: Decision) -> bool | None:
    """A person's "no" is accepted when a sent request can land no more."""
    try:
        await ledger.decide(ref, decision, actor="ana", reason="looked it up")
    except TooEarly:
        return None
    return True
