"""A result that comes in late is never state and never overlooked (P12, P30, rule 3)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from sample_records import (
    LAPSED,
    LEASE,
    NOW,
    OTHER_RECEIPT,
    PERMIT,
    RECEIPT,
    RECENT,
    K,
    after,
    again,
    claim,
    decided,
    decision,
    dispatch,
    doubted,
    late,
    of_class,
    records,
    released,
    settled,
    settlement,
)

from indoubt.contracts import ExecutionSafetyClass as Safety
from indoubt.core.commands import Clear, Doubt, Release, Reopen
from indoubt.core.decisions import choices
from indoubt.core.machine import decide
from indoubt.core.record import NO_RAW, DecisionKind, Effect, Record, State
from indoubt.core.refusals import Refused
from indoubt.core.situation import situation
from indoubt.core.verdicts import Repeat, Verdict, repeat, verdict

OPEN = (State.DISPATCHED, State.IN_DOUBT, State.AWAITING_DECISION, State.PERMITTED)
TWICE = "happened twice"


def judged(record: Record) -> Verdict:
    """What recovery makes of a record that it holds."""
    return verdict(situation(record, now_ms=NOW, permit_ms=PERMIT, store_epoch=1, mine=True))


KEPT = set(OPEN) - {State.PERMITTED}


@pytest.mark.parametrize("name", [n for n, r in records().items() if r.state is State.PERMITTED])
def test_a_success_voids_a_permission_that_was_given_without_it(name: str) -> None:
    noted = late(records()[name], 1, at=NOW)
    assert (noted.state, noted.permission) == (State.IN_DOUBT, None)
    assert judged(noted) is Verdict.ADOPT_LATE


@pytest.mark.parametrize("name", [n for n, r in records().items() if r.state in KEPT])
def test_evidence_of_a_replaced_holder_changes_neither_fence_nor_state(name: str) -> None:
    record = records()[name]
    noted = late(record, 1, at=NOW)
    assert (noted.state, noted.fence, noted.owner) == (record.state, record.fence, record.owner)
    kept = noted.attempts[0].late
    assert kept is not None
    assert (kept.receipt, kept.at_ms) == (RECEIPT, NOW)
    assert len(noted.evidence) == len(record.evidence) + 1


def test_it_is_adopted_by_whoever_holds_the_record() -> None:
    record = late(doubted(), 1)
    assert judged(record) is Verdict.ADOPT_LATE
    assert judged(doubted()) is Verdict.PROBE


def test_a_success_of_what_was_called_absent_puts_a_prepared_record_in_doubt() -> None:
    prepared = after(doubted(), Clear(fence=2), Release(fence=2), at=RECENT)
    record = late(prepared, 1, at=NOW)
    assert (record.state, record.fence, record.owner) == (State.IN_DOUBT, 2, None)
    assert (record.ready_at_ms, record.doubt_since_ms) == (RECENT, NOW)
    assert [a.closed for a in record.attempts] == [None]
    assert judged(record) is Verdict.ADOPT_LATE
    assert decide(record, (claim(), dispatch(3)), NOW) == Refused("replay_of_non_idempotent")


def test_a_success_of_what_a_person_ruled_out_counts_beside_the_next_attempt() -> None:
    denied = decided(doubted(), K.DID_NOT_HAPPEN)
    record = after(denied, Reopen(), claim("w3"), dispatch(denied.fence + 1), at=RECENT)
    record = late(record, 1)
    assert (record.state, record.attempts[0].closed) == (State.DISPATCHED, None)
    refused = after(record, settlement(record, State.FAILED, Effect.NONE), at=NOW)
    assert refused.state is State.IN_DOUBT  # not "failed, effect none"
    assert judged(replace(refused, owner="w4")) is Verdict.ADOPT_LATE
    other = replace(settlement(record, State.SUCCEEDED, None), receipt=OTHER_RECEIPT)
    assert after(record, other, at=NOW).contradicted == TWICE
    assert after(record, replace(other, receipt=RECEIPT), at=NOW).contradicted is None


def test_a_prepared_record_stays_where_nothing_of_it_is_known_any_more() -> None:
    prepared = after(doubted(), Clear(fence=2), Release(fence=2), at=RECENT)
    assert late(prepared, 9).state is State.PREPARED


@pytest.mark.parametrize(
    "name", ["failed none", "failed possible", "partial", "cancelled possible", "failed cancel"]
)
def test_it_contradicts_a_record_that_ended_otherwise(name: str) -> None:
    record = late(records()[name], 1, at=NOW)
    assert record.state is records()[name].state
    assert record.contradicted == "it happened although the record says otherwise"
    assert record.doubt_since_ms == NOW  # listed
    assert record.attempts[0].closed == records()[name].attempts[0].closed
    assert choices(record) == {K.HAPPENED}
    asked = repeat(record.state, record.effect, cancel=False, contradicted=True)
    assert asked is Repeat.UNKNOWN
    assert isinstance(decide(record, (Reopen(),), NOW), Refused)


def test_it_makes_a_given_up_record_be_looked_at_again() -> None:
    record = late(decided(doubted(), K.GIVE_UP), 1, at=NOW)
    assert (record.state, record.doubt_since_ms) == (State.UNKNOWN, NOW)
    assert record.contradicted == "its result came in after it was given up"
    mended = decided(record, K.HAPPENED, at=NOW + 1, name="d2")
    assert (mended.state, mended.contradicted, mended.doubt_since_ms) == (
        State.SUCCEEDED,
        None,
        None,
    )


def test_the_same_result_again_is_no_second_happening() -> None:
    assert late(settled(State.SUCCEEDED, None), 1).contradicted is None


def test_another_result_is() -> None:
    record = late(settled(State.SUCCEEDED, None), 1, OTHER_RECEIPT, at=NOW)
    assert (record.contradicted, record.doubt_since_ms) == (TWICE, NOW)
    assert record.receipt == RECEIPT
    assert choices(record) == {K.HAPPENED}
    told = decided(record, K.HAPPENED, at=NOW + 1)
    assert (told.state, told.contradicted) == (State.SUCCEEDED, None)


def test_a_result_beside_a_happening_whose_receipt_nobody_knows_is_the_same_happening() -> None:
    record = decided(doubted(), K.HAPPENED, receipt=NO_RAW)
    assert record.receipt_lost
    first = late(record, 1)
    assert first.contradicted is None
    second = again(decided(doubted(), K.ALLOW_ONE_ATTEMPT))
    lost = replace(settlement(second, State.SUCCEEDED, None), receipt=NO_RAW, receipt_lost=True)
    assert late(after(second, lost, at=NOW), 1).contradicted == TWICE  # of another attempt


def test_two_results_of_open_attempts_are_two_happenings_unless_they_are_equal() -> None:
    record = again(released(doubted(of_class(Safety.RETRY_SAFE))))
    settle = settlement(record, State.SUCCEEDED, None)
    assert after(late(record, 1, OTHER_RECEIPT), settle, at=NOW).contradicted == TWICE
    assert after(late(record, 1, RECEIPT), settle, at=NOW).contradicted is None
    assert after(record, settle, at=NOW).contradicted is None


@pytest.mark.parametrize("kind", [K.DID_NOT_HAPPEN, K.ALLOW_ONE_ATTEMPT])
@pytest.mark.parametrize("name", [n for n, r in records().items() if choices(r)])
def test_whoever_says_no_or_again_after_it_has_not_seen_it(name: str, kind: DecisionKind) -> None:
    record = late(records()[name], 1, OTHER_RECEIPT)
    told = decide(record, (decision(kind, record.attempt, name="new"),), NOW + 10**6)
    cancelled = kind is K.ALLOW_ONE_ATTEMPT and record.cancel_requested
    assert told == Refused("cancel_requested" if cancelled else "late_success")
    assert decided(record, K.HAPPENED, name="new").state is State.SUCCEEDED


def test_the_success_of_an_older_attempt_bars_them_too() -> None:
    record = again(decided(doubted(), K.ALLOW_ONE_ATTEMPT))
    record = late(after(record, Doubt(fence=record.fence, returned=True), at=RECENT), 1)
    assert [a.late is None for a in record.attempts] == [False, True]
    for kind in (K.DID_NOT_HAPPEN, K.ALLOW_ONE_ATTEMPT):
        told = decide(record, (decision(kind, 2, name="new"),), NOW)
        assert told == Refused("late_success")


def test_a_lease_that_ran_out_does_not_hide_it() -> None:
    record = late(after(doubted(at=LAPSED + LEASE), at=NOW), 1)
    found = situation(record, now_ms=NOW, permit_ms=PERMIT, store_epoch=1, mine=False)
    assert (found.held, found.late) == (True, True)
