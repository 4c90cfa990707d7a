"""A store that was put back has forgotten writes: what it shows may have gone on since (P19)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from sample_records import (
    LEASE,
    LONG_AGO,
    NOW,
    PERMIT,
    POLICY,
    RECENT,
    K,
    after,
    claim,
    decision,
    dispatch,
    doubted,
    intent,
    records,
    sent,
)

from indoubt.core.absence import Absence, absence, silent
from indoubt.core.bounds import FENCE_LEAP
from indoubt.core.commands import Abandon, Cancel, Claim, Prepare, Reopen
from indoubt.core.machine import decide
from indoubt.core.record import Effect, Record, State
from indoubt.core.refusals import Refused
from indoubt.core.situation import situation
from indoubt.core.verdicts import Verdict, verdict

LATER = NOW + 500_000  # every lease is over
TAKE = Claim(owner="w9", lease_ms=LEASE, store_epoch=2)
FORGETFUL = [name for name, r in records().items() if not r.closed]


def judged(record: Record, store_epoch: int = 2) -> Verdict:
    """What recovery makes of a record that nobody holds."""
    read = situation(record, now_ms=LATER, permit_ms=PERMIT, store_epoch=store_epoch, mine=False)
    return verdict(read)


@pytest.mark.parametrize("name", FORGETFUL)
def test_what_had_not_ended_counts_as_dispatched_by_somebody_unknown(name: str) -> None:
    before = records()[name]
    record = after(before, TAKE, at=LATER)
    assert (record.state, record.store_epoch) == (State.IN_DOUBT, 2)
    assert record.fence == before.fence + FENCE_LEAP  # claims that were forgotten are refused
    presumed = record.attempts[-1]
    assert presumed.number == record.attempt == before.attempt + 1
    assert (presumed.owner, presumed.open, presumed.fence) == ("", True, before.fence)
    assert presumed.permit_until_ms == LATER + LEASE
    assert (record.permission, record.asked) == (None, None)


def test_its_holder_is_never_proven_silent() -> None:
    record = after(intent(), replace(TAKE, dead_owners=("", "w1")), at=LATER)
    assert not silent(record)
    after_all = {"began_ms": LATER + 10**9, "measured_ms": 10**9}
    assert absence(record, **after_all, decides_silence=True) is Absence.LOUD
    assert absence(record, **after_all, decides_silence=False) is Absence.ASSUMED


def test_it_is_looked_at_once_not_again_in_the_same_epoch() -> None:
    record = after(intent(), TAKE, at=LATER)
    again = after(record, replace(TAKE, owner="w8"), at=LATER + LEASE)
    assert (again.attempt, again.fence) == (record.attempt, record.fence + 1)


@pytest.mark.parametrize("name", FORGETFUL)
def test_whatever_it_shows_the_verdict_is_doubt(name: str) -> None:
    record = records()[name]
    expected = {State.DISPATCHED, State.IN_DOUBT}
    if record.state in expected:
        assert judged(record) is judged(record, store_epoch=1)
    else:
        assert judged(record) is Verdict.DOUBT


def test_what_had_ended_stands() -> None:
    assert all(judged(r) is Verdict.USE for r in records().values() if r.closed)


def test_the_key_counts_from_when_it_may_first_have_been_sent() -> None:
    assert after(intent(), TAKE, at=LATER).first_dispatched_at_ms == LONG_AGO
    dispatched = sent(at=RECENT)
    assert after(dispatched, TAKE, at=LATER).first_dispatched_at_ms == RECENT


def test_a_record_that_this_very_write_inserts_was_not_forgotten() -> None:
    new = replace(intent(), version=0)
    record = decide(None, (Prepare(record=new), TAKE, dispatch(1)), NOW)
    assert isinstance(record, Record)
    assert (record.state, record.attempt, record.store_epoch) == (State.DISPATCHED, 1, 2)


def test_cancelling_does_not_make_it_certain() -> None:
    cancel = Cancel(actor="ada", reason="no", store_epoch=2)
    for name in ("prepared", "permitted"):
        asked = after(records()[name], cancel, at=NOW)
        assert (asked.state, asked.cancel_requested) == (records()[name].state, True)
        assert judged(asked) is Verdict.DOUBT
        assert after(asked, TAKE, at=LATER).cancel_requested
        assert decide(asked, (claim(), dispatch(asked.fence + 1)), NOW) == (
            Refused("cancel_requested")
        )
    assert after(intent(), replace(cancel, store_epoch=1), at=NOW).effect is Effect.NONE


def test_expiry_does_not_make_it_certain() -> None:
    record = intent(replace(POLICY, no_use_after_ms=NOW))
    assert judged(record) is Verdict.DOUBT
    assert judged(record, store_epoch=1) is Verdict.EXPIRE
    forgotten = decide(record, (Abandon(reason="no_use_after", store_epoch=2),), LATER)
    assert forgotten == Refused("store_rewound")


@pytest.mark.parametrize("name", ["in_doubt", "awaiting_decision"])
def test_a_question_asked_before_is_not_answered_after(name: str) -> None:
    record = records()[name]
    answer = replace(decision(K.DID_NOT_HAPPEN, 1), store_epoch=2)
    assert decide(record, (answer,), LATER) == Refused("store_rewound")
    assert decide(record, (TAKE, answer), LATER) == Refused("stale_question")
    assert after(record, replace(answer, store_epoch=1), at=LATER).state is State.FAILED


def test_a_repeat_after_a_recorded_no_effect_starts_in_the_present_epoch() -> None:
    failed = records()["failed none"]
    record = after(failed, Reopen(store_epoch=2), TAKE, dispatch(failed.fence + 1), at=LATER)
    assert (record.state, record.attempt) == (State.DISPATCHED, 2)
    forgotten = after(failed, Reopen(), TAKE, at=LATER)
    assert (forgotten.state, forgotten.attempt) == (State.IN_DOUBT, 2)


def test_a_live_lease_is_waited_for() -> None:
    record = doubted()
    assert decide(record, (TAKE,), NOW) == Refused("busy", until_ms=RECENT + LEASE)
