"""What a person may decide, when, and what it does (P8, P9, head 1, G1, G2, U6)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from sample_records import (
    LAPSED,
    LEASE,
    NOW,
    PERMIT,
    RECEIPT,
    RECENT,
    SETTLE,
    K,
    after,
    again,
    claim,
    decided,
    decision,
    dispatch,
    doubted,
    evidence,
    intent,
    records,
    released,
    sent,
)

from indoubt.core.attempts import edit
from indoubt.core.bounds import DECISIONS_KEPT
from indoubt.core.commands import Ask, Cancel, Doubt, Note, Release, Reopen
from indoubt.core.decisions import choices
from indoubt.core.machine import decide
from indoubt.core.record import (
    NO_RAW,
    Closed,
    Decided,
    DecisionKind,
    Effect,
    Record,
    State,
)
from indoubt.core.refusals import Refused

S = State
ALL = set(K)
CORRECT = {K.HAPPENED, K.DID_NOT_HAPPEN}
HAPPENED = {K.HAPPENED}
NO_MORE_SENDS = {K.HAPPENED, K.GIVE_UP}
ALLOW = {K.ALLOW_ONE_ATTEMPT}
NOBODY: set[DecisionKind] = set()
CANCEL = Cancel(actor="ada", reason="no")
# What the protocol's words offer for each sample; every other one offers nothing.
CHOICES = {
    **dict.fromkeys(("in_doubt", "in_doubt free", "in_doubt early", "in_doubt returned"), ALL),
    **dict.fromkeys(("in_doubt retry", "in_doubt acknowledged", "in_doubt active"), ALL),
    **dict.fromkeys(("in_doubt full", "awaiting_decision"), ALL),
    **dict.fromkeys(("in_doubt late", "awaiting_decision late"), NO_MORE_SENDS),
    **dict.fromkeys(("in_doubt cancel", "awaiting_decision cancel"), ALL - ALLOW),
    **dict.fromkeys(("failed possible", "partial", "cancelled possible"), ALLOW),
    "unknown": CORRECT | ALLOW,
    **dict.fromkeys(("unknown late", "failed contradicted", "succeeded twice"), HAPPENED),
}


def waiting() -> Record:
    """A question that has been open for long."""
    return after(doubted(), Ask(fence=2, reason="nothing more can be asked"), at=RECENT)


def answer(record: Record, kind: DecisionKind, at: int = NOW, **changes: int) -> Record | Refused:
    """What a decision comes to."""
    command = replace(decision(kind, record.attempt, name="new"), **changes)
    return decide(record, (command,), at)


@pytest.mark.parametrize("name", records())
def test_what_is_offered_is_what_the_protocol_offers(name: str) -> None:
    assert choices(records()[name]) == CHOICES.get(name, NOBODY)


@pytest.mark.parametrize("name", records())
def test_what_is_offered_is_accepted_once_it_is_not_too_early_and_nothing_else_is(
    name: str,
) -> None:
    record = records()[name]
    for kind in K:
        done = answer(record, kind, NOW + 10**6)
        busy = kind is K.ALLOW_ONE_ATTEMPT and name in {"in_doubt acknowledged", "in_doubt active"}
        expected = kind in choices(record) and not busy and not record.pruned
        assert isinstance(done, Record) is expected, kind


# -- what each does ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", K)
@pytest.mark.parametrize("name", ["in_doubt", "awaiting_decision"])
def test_a_decision_raises_the_fence_ends_the_hold_and_is_kept(
    name: str, kind: DecisionKind
) -> None:
    before = records()[name]
    record = after(before, decision(kind, 1), at=NOW)
    assert record.fence == before.fence + 1
    assert (record.owner, record.lease_until_ms, record.asked) == (None, None, None)
    assert record.decisions[-1] == Decided(
        decision_id="d1", kind=kind, attempt=1, actor="ada", reason="saw it", at_ms=NOW
    )
    assert decide(record, (Release(fence=before.fence),), NOW) != record
    assert isinstance(decide(record, (Ask(fence=before.fence, reason="?"),), NOW), Refused)


def test_happened_succeeds_with_the_receipt_that_is_known() -> None:
    record = decided(waiting(), K.HAPPENED)
    assert (record.state, record.receipt, record.receipt_lost) == (S.SUCCEEDED, RECEIPT, False)
    assert (record.effect, record.doubt_since_ms, record.ready_at_ms) == (None, None, None)
    lost = decided(waiting(), K.HAPPENED, receipt=NO_RAW)
    assert (lost.state, lost.receipt, lost.receipt_lost) == (S.SUCCEEDED, NO_RAW, True)


def test_did_not_happen_fails_without_effect_and_a_repeat_may_try_anew() -> None:
    record = decided(waiting(), K.DID_NOT_HAPPEN)
    assert (record.state, record.effect, record.doubt_since_ms) == (S.FAILED, Effect.NONE, None)
    assert record.ready_at_ms is None  # recovery sends nothing
    assert {a.closed for a in record.attempts} == {Closed.DECIDED}
    anew = after(record, Reopen(), claim(), dispatch(record.fence + 1), at=NOW)
    assert (anew.attempt, anew.series) == (2, 1)  # the same key: it may have been received


def test_give_up_closes_as_unknown_and_leaves_its_attempts_open() -> None:
    record = decided(waiting(), K.GIVE_UP)
    assert (record.state, record.effect) == (S.UNKNOWN, Effect.POSSIBLE)
    assert (record.doubt_since_ms, record.ready_at_ms) == (None, None)
    assert [a.open for a in record.attempts] == [True]


def test_a_permission_is_for_the_next_attempt_and_leaves_the_earlier_ones_open() -> None:
    record = decided(waiting(), K.ALLOW_ONE_ATTEMPT)
    assert record.state is S.PERMITTED
    assert record.permission is not None
    assert (record.permission.attempt, record.permission.decision_id) == (2, "d1")
    assert (record.ready_at_ms, record.doubt_since_ms) == (RECENT, RECENT)
    assert [a.open for a in record.attempts] == [True]


def test_a_permission_survives_claims_that_never_dispatched() -> None:
    record = decided(waiting(), K.ALLOW_ONE_ATTEMPT)
    for owner in ("w3", "w4", "w5"):
        record = after(record, claim(owner), at=NOW)
        record = replace(record, lease_until_ms=NOW)
    assert (record.state, record.permission and record.permission.attempt) == (S.PERMITTED, 2)
    done = after(record, dispatch(record.fence), at=NOW)
    assert (done.attempt, done.permission) == (2, None)
    assert done.attempts[-1].permission == record.permission
    assert isinstance(decide(done, (Doubt(fence=done.fence, returned=True),), NOW), Record)


def test_a_permission_allows_one_attempt() -> None:
    record = again(decided(waiting(), K.ALLOW_ONE_ATTEMPT))
    doubt = Doubt(fence=record.fence, returned=True, keep=True)
    record = after(record, doubt, at=NOW)
    refused = decide(record, (dispatch(record.fence),), NOW)
    assert refused == Refused("replay_of_non_idempotent")


def test_a_permission_that_was_never_sent_is_given_back_for_the_next_number() -> None:
    record = again(decided(waiting(), K.ALLOW_ONE_ATTEMPT))
    back = after(record, Release(fence=record.fence, never_sent=True), at=NOW)
    assert back.state is S.PERMITTED
    assert back.permission is not None
    assert (back.permission.attempt, back.permission.decision_id) == (3, "d1")
    assert [a.closed for a in back.attempts] == [None, Closed.NEVER_SENT]
    assert (back.owner, back.ready_at_ms) == (None, NOW)
    assert back.doubt_since_ms is not None
    third = after(back, claim("w4"), dispatch(back.fence + 1), at=NOW)
    assert (third.attempt, third.permission) == (3, None)


def test_a_permission_that_can_be_sent_no_more_is_asked_about_again() -> None:
    end = replace(waiting().policy, no_use_after_ms=NOW)
    permitted = decided(replace(waiting(), policy=end), K.ALLOW_ONE_ATTEMPT, at=NOW - 1)
    held = after(permitted, claim("w3"), at=NOW)
    asked = after(held, Ask(fence=held.fence, reason="too late"), at=NOW)
    assert (asked.state, asked.permission, asked.owner) == (S.AWAITING_DECISION, None, None)
    assert choices(asked, NOW - 1) == ALL
    assert choices(asked, NOW) == ALL - ALLOW
    assert answer(asked, K.ALLOW_ONE_ATTEMPT) == Refused("no_use_after")
    assert {kind for kind in K if isinstance(answer(asked, kind), Record)} == ALL - ALLOW


def test_a_permission_for_which_there_is_no_room_is_asked_about_again() -> None:
    permitted = decided(records()["in_doubt full"], K.ALLOW_ONE_ATTEMPT)
    held = after(permitted, claim("w3"), at=NOW)
    assert decide(held, (dispatch(held.fence),), NOW) == Refused("attempts_exhausted")
    asked = after(held, Ask(fence=held.fence, reason="attempts_exhausted"), at=NOW)
    assert (asked.state, asked.permission) == (S.AWAITING_DECISION, None)


def test_a_cancel_voids_an_unspent_permission_and_a_spent_one_is_not_given_back() -> None:
    permitted = decided(waiting(), K.ALLOW_ONE_ATTEMPT)
    void = after(permitted, CANCEL, at=NOW)
    assert (void.state, void.permission, void.cancel_requested) == (
        S.AWAITING_DECISION,
        None,
        True,
    )
    assert void.asked == "cancelled before the permitted attempt"
    assert answer(void, K.ALLOW_ONE_ATTEMPT) == Refused("cancel_requested")
    flying = after(again(permitted), CANCEL, at=NOW)
    back = after(flying, Release(fence=flying.fence, never_sent=True), at=NOW)
    assert (back.state, back.permission) == (S.IN_DOUBT, None)  # attempt 1 is open


@pytest.mark.parametrize("name", ["failed possible", "partial", "cancelled possible", "unknown"])
def test_what_ended_with_a_possible_effect_may_be_allowed_once_more(name: str) -> None:
    record = decided(records()[name], K.ALLOW_ONE_ATTEMPT, name="d9")
    assert (record.state, record.effect) == (S.PERMITTED, None)
    assert record.doubt_since_ms is not None
    assert again(record).attempt == 2


def test_unknown_is_corrected_once() -> None:
    for kind in CORRECT:
        record = decided(decided(waiting(), K.GIVE_UP), kind, name="d2")
        assert choices(record) == NOBODY
        taken = record.decisions[-1]
        assert answer(record, K.GIVE_UP) == Refused("already_decided", decided=taken)


# -- which question ------------------------------------------------------------------------------


def test_a_decision_answers_the_question_that_was_asked() -> None:
    record = waiting()
    for attempt in (0, 2, 99):
        assert answer(record, K.GIVE_UP, attempt=attempt) == Refused("stale_question")
    second = again(decided(record, K.ALLOW_ONE_ATTEMPT))
    second = after(second, Doubt(fence=second.fence, returned=True), at=NOW)
    assert answer(second, K.GIVE_UP, attempt=1) == Refused("stale_question")
    assert isinstance(answer(second, K.GIVE_UP, attempt=2), Record)


def test_a_repeat_with_the_same_id_gets_the_first_answer_whatever_it_says() -> None:
    record = decided(waiting(), K.GIVE_UP)
    for kind in K:
        repeated = decide(record, (decision(kind, 7),), NOW)
        assert repeated == Refused("repeated", decided=record.decisions[0], again=True)


def test_a_second_person_is_told_what_was_decided() -> None:
    record = decided(waiting(), K.ALLOW_ONE_ATTEMPT)
    taken = record.decisions[-1]
    assert answer(record, K.GIVE_UP) == Refused("already_decided", decided=taken)
    succeeded = decided(waiting(), K.HAPPENED)
    told = answer(succeeded, K.DID_NOT_HAPPEN)
    assert told == Refused("already_decided", decided=succeeded.decisions[-1])


def test_nothing_is_decided_where_nothing_is_asked() -> None:
    for record in (intent(), sent(at=RECENT), records()["failed none"]):
        assert answer(record, K.HAPPENED) == Refused("nothing_to_decide")


def test_the_newest_decisions_are_kept() -> None:
    record = decided(waiting(), K.GIVE_UP, name="d0")
    for number in range(1, 2 * DECISIONS_KEPT):
        record = replace(record, state=S.UNKNOWN, contradicted=None)
        record = decided(record, K.DID_NOT_HAPPEN, name=f"d{number}")
    kept = [d.decision_id for d in record.decisions]
    assert kept == [f"d{n}" for n in range(DECISIONS_KEPT, 2 * DECISIONS_KEPT)]


# -- when ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [K.DID_NOT_HAPPEN, K.ALLOW_ONE_ATTEMPT])
def test_no_and_again_wait_until_a_sent_request_has_landed(kind: DecisionKind) -> None:
    record = after(sent(at=RECENT), claim("w2"), at=RECENT + LEASE)
    quiet = RECENT + PERMIT + SETTLE
    assert answer(record, kind, quiet - 1) == Refused("too_early", until_ms=quiet)
    assert isinstance(answer(record, kind, quiet), Record)


@pytest.mark.parametrize("kind", [K.HAPPENED, K.GIVE_UP])
def test_yes_and_nobody_knows_need_not_wait(kind: DecisionKind) -> None:
    record = after(sent(at=RECENT), Doubt(fence=1, returned=False), at=RECENT)
    assert isinstance(answer(record, kind, RECENT), Record)


def test_without_a_settle_time_the_permit_alone_is_waited_for() -> None:
    record = doubted()
    record = replace(record, policy=replace(record.policy, settle_ms=None))
    ends = LAPSED + PERMIT
    assert answer(record, K.DID_NOT_HAPPEN, ends - 1) == Refused("too_early", until_ms=ends)
    assert isinstance(answer(record, K.DID_NOT_HAPPEN, ends), Record)


def test_every_open_attempt_is_waited_for_and_no_closed_one() -> None:
    record = again(decided(waiting(), K.ALLOW_ONE_ATTEMPT), at=NOW)
    record = after(record, Doubt(fence=record.fence, returned=False), at=NOW)
    quiet = NOW + PERMIT + SETTLE
    assert answer(record, K.DID_NOT_HAPPEN, quiet - 1) == Refused("too_early", until_ms=quiet)
    closed = replace(record, attempts=edit(record.attempts, 2, closed=Closed.NEVER_SENT))
    assert isinstance(answer(closed, K.DID_NOT_HAPPEN, NOW), Record)


@pytest.mark.parametrize("name", ["in_doubt acknowledged", "in_doubt active"])
def test_nothing_is_sent_again_while_the_provider_is_at_it(name: str) -> None:
    record = records()[name]
    assert answer(record, K.ALLOW_ONE_ATTEMPT, NOW + 10**9) == Refused("too_early")
    assert isinstance(answer(record, K.DID_NOT_HAPPEN), Record)
    done = Note(evidence=evidence(1), about=1, closes=Closed.FAILED)
    assert isinstance(answer(after(record, done, at=NOW), K.ALLOW_ONE_ATTEMPT), Record)


def test_a_later_probe_that_finds_it_no_more_active_opens_the_way() -> None:
    record = after(records()["in_doubt active"], Note(evidence=evidence(1), about=1), at=NOW)
    assert isinstance(answer(record, K.ALLOW_ONE_ATTEMPT), Record)


def test_a_dispatched_record_is_decided_after_a_claim_only() -> None:
    record = sent()
    assert answer(record, K.GIVE_UP) == Refused("nothing_to_decide")
    give_up = decision(K.GIVE_UP, 1)
    assert after(record, claim("w2"), give_up, at=NOW).state is S.UNKNOWN
    alive = sent(at=RECENT)
    assert decide(alive, (claim("w2"), give_up), NOW) == Refused("busy", until_ms=RECENT + LEASE)


def test_a_cancel_leaves_the_question_but_not_another_attempt() -> None:
    for name in ("in_doubt cancel", "awaiting_decision cancel"):
        record = records()[name]
        assert answer(record, K.ALLOW_ONE_ATTEMPT) == Refused("cancel_requested")
        denied = answer(record, K.DID_NOT_HAPPEN)
        assert isinstance(denied, Record)
        assert decide(denied, (Reopen(),), NOW) == Refused("outcome_stands")
    assert choices(released(records()["in_doubt cancel"])) == ALL - ALLOW
