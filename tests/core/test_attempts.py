"""What several attempts come to: "no effect" is certain only if it is certain of each (P6, G1)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from sample_records import (
    ERROR,
    LAPSED,
    LONG_AGO,
    NOW,
    PERMIT,
    POLICY,
    RECENT,
    SETTLE,
    K,
    after,
    again,
    claim,
    decided,
    dispatch,
    doubted,
    evidence,
    intent,
    marred,
    of_class,
    released,
    sent,
    settled,
    settlement,
)

from indoubt.contracts import ExecutionSafetyClass as Safety
from indoubt.core.absence import Absence, absence, quiet_at, silent
from indoubt.core.attempts import doubtful, edit, effect_of, fold
from indoubt.core.attempts import marred as is_marred
from indoubt.core.bounds import ATTEMPTS_KEPT
from indoubt.core.commands import (
    Abandon,
    Ask,
    Cancel,
    Claim,
    Clear,
    Doubt,
    Note,
    Release,
    Reopen,
    Settle,
)
from indoubt.core.machine import decide
from indoubt.core.record import Closed, Effect, Record, State
from indoubt.core.refusals import Refused

NO, POSSIBLE = Effect.NONE, Effect.POSSIBLE
CANCEL = Cancel(actor="ada", reason="no")


def clean(record: Record) -> Settle:
    """The newest attempt was refused for certain."""
    return settlement(record, State.FAILED, NO)


def allowed(record: Record) -> Record:
    """A person allows one attempt, and it is sent."""
    return again(decided(record, K.ALLOW_ONE_ATTEMPT))


def test_a_clean_failure_of_the_only_attempt_is_certain() -> None:
    record = settled(State.FAILED, NO)
    assert (record.state, record.effect, record.error) == (State.FAILED, NO, ERROR)
    assert [a.closed for a in record.attempts] == [Closed.CLEAN_FAILURE]


def test_a_clean_failure_leaves_an_earlier_open_attempt_in_doubt_and_is_kept_as_evidence() -> None:
    record = again(released(doubted(of_class(Safety.RETRY_SAFE))))
    after_it = after(record, clean(record), at=NOW)
    assert after_it.state is State.IN_DOUBT
    assert after_it.owner is None
    assert [a.closed for a in after_it.attempts] == [None, Closed.CLEAN_FAILURE]
    kept = after_it.evidence[-1]
    assert (kept.attempt, kept.status, kept.data, kept.at_ms) == (2, "failed", ERROR, NOW)


@pytest.mark.parametrize(
    "before",
    [
        settled(State.FAILED, POSSIBLE, None),
        settled(State.PARTIAL, Effect.PARTIAL, None),
        settled(State.CANCELLED, POSSIBLE, None),
        replace(settled(State.FAILED, POSSIBLE, None), state=State.UNKNOWN),
    ],
    ids=lambda record: record.state,
)
def test_a_clean_failure_does_not_wash_a_possible_effect_away(before: Record) -> None:
    record = allowed(before)
    record = after(record, clean(record), at=NOW)
    assert (record.state, record.effect) == (State.FAILED, POSSIBLE)
    assert isinstance(decide(record, (Reopen(),), NOW), Refused)


def test_no_effect_of_a_later_attempt_leaves_the_record_as_possible_as_it_was() -> None:
    record = marred()
    cleared = after(record, Clear(fence=record.fence), at=NOW)
    assert (cleared.state, cleared.effect) == (State.FAILED, POSSIBLE)
    assert [a.closed for a in cleared.attempts] == [Closed.FAILED, Closed.ABSENT]
    cancelled = after(record, CANCEL, Clear(fence=record.fence), at=NOW)
    assert (cancelled.state, cancelled.effect) == (State.CANCELLED, POSSIBLE)


def test_a_permission_that_was_never_used_leaves_the_record_as_possible_as_it_was() -> None:
    record = allowed(settled(State.FAILED, POSSIBLE, None))
    cancelled = after(record, CANCEL, Release(fence=record.fence, never_sent=True), at=NOW)
    assert (cancelled.state, cancelled.effect) == (State.CANCELLED, POSSIBLE)
    given_back = after(record, Release(fence=record.fence, never_sent=True), at=NOW)
    assert (given_back.state, given_back.effect) == (State.PERMITTED, None)


def test_a_person_may_rule_out_what_a_probe_left_possible() -> None:
    record = marred()
    record = after(record, Ask(fence=record.fence, reason="?"), at=NOW)
    record = decided(record, K.DID_NOT_HAPPEN, at=NOW + PERMIT + SETTLE, name="d2")
    assert (record.state, record.effect) == (State.FAILED, NO)
    assert {a.closed for a in record.attempts} == {Closed.DECIDED}
    sent_anew = after(record, Reopen(), claim(), dispatch(record.fence + 1), at=NOW + 99_000)
    refused = after(sent_anew, clean(sent_anew), at=NOW + 99_000)
    assert (refused.state, refused.effect) == (State.FAILED, NO)


def test_a_settlement_about_all_closes_each_open_attempt() -> None:
    record = again(released(doubted(of_class(Safety.RETRY_SAFE))))
    record = after(record, settlement(record, State.FAILED, POSSIBLE, None), at=NOW)
    assert (record.state, record.effect) == (State.FAILED, POSSIBLE)
    assert [a.closed for a in record.attempts] == [Closed.FAILED, Closed.FAILED]


def test_a_note_closes_only_what_is_open() -> None:
    closes = Note(evidence=evidence(1), about=1, closes=Closed.FAILED)
    for record in (settled(State.SUCCEEDED, None), settled(State.FAILED, NO)):
        assert after(record, closes, at=NOW).attempts == record.attempts
    assert [a.closed for a in after(doubted(), closes, at=NOW).attempts] == [Closed.FAILED]


def test_a_replay_that_was_never_sent_goes_back_to_doubt_not_to_prepared() -> None:
    record = again(released(doubted(of_class(Safety.RETRY_SAFE))))
    record = after(record, Release(fence=record.fence, never_sent=True), at=NOW)
    assert (record.state, record.owner, record.ready_at_ms) == (State.IN_DOUBT, None, NOW)
    assert [a.closed for a in record.attempts] == [None, Closed.NEVER_SENT]


def test_a_first_dispatch_that_was_never_sent_is_prepared_again() -> None:
    record = after(sent(at=RECENT), Release(fence=1, never_sent=True), at=NOW)
    assert (record.state, record.owner, record.ready_at_ms) == (State.PREPARED, None, NOW)
    assert (record.attempt, record.doubt_since_ms) == (1, None)
    assert after(record, claim(), dispatch(2), at=NOW).attempt == 2


def test_what_the_holder_knows_of_its_doubt_is_kept() -> None:
    told = Doubt(fence=1, returned=True, evidence=evidence(1))
    assert after(sent(at=RECENT), told, at=NOW).evidence == (evidence(1),)
    silent_about_it = Doubt(fence=1, returned=True)
    assert after(sent(at=RECENT), silent_about_it, at=NOW).evidence == ()


def test_a_returned_function_ends_its_permit_unless_something_outlives_it() -> None:
    doubt = Doubt(fence=1, returned=True)
    ended = after(sent(at=RECENT), doubt, at=NOW).attempts[0]
    assert (ended.permit_until_ms, ended.silent_at_ms) == (NOW, NOW)
    kept = after(sent(replace(POLICY, detached=True), at=RECENT), doubt, at=NOW).attempts[0]
    assert (kept.permit_until_ms, kept.silent_at_ms) == (RECENT + PERMIT, None)
    alive = after(sent(at=RECENT), Doubt(fence=1, returned=False), at=NOW).attempts[0]
    assert (alive.permit_until_ms, alive.silent_at_ms) == (RECENT + PERMIT, None)


# -- folding ---------------------------------------------------------------------------------


def many(policy_safety: Safety, count: int, closed: Closed | None, *, at: int = LONG_AGO) -> Record:
    """A record with so many attempts, each silent, each closed for this reason."""
    record = intent(of_class(policy_safety))
    for number in range(1, count + 1):
        record = after(record, claim(), dispatch(record.fence + 1), at=at)
        record = after(record, Doubt(fence=record.fence, returned=True), at=at)
        record = replace(record, attempts=edit(record.attempts, number, closed=closed))
    return record


def test_attempts_without_effect_are_folded_first() -> None:
    record = many(Safety.RETRY_SAFE, ATTEMPTS_KEPT, None)
    record = replace(record, attempts=edit(record.attempts, 7, closed=Closed.ABSENT))
    kept, folded_until = fold(record)
    assert [a.number for a in kept] == [1, 2, 3, 4, 5, 6, *range(8, ATTEMPTS_KEPT + 1)]
    assert folded_until is None


@pytest.mark.parametrize("closed", [None, Closed.FAILED])
def test_a_doubtful_attempt_that_was_folded_away_stays_possible(closed: Closed | None) -> None:
    record = many(Safety.RETRY_SAFE, ATTEMPTS_KEPT, closed)
    record = after(record, claim("w9"), dispatch(record.fence + 1), at=RECENT)
    assert len(record.attempts) == ATTEMPTS_KEPT
    assert record.folded_until_ms == LONG_AGO  # its permit ended when its function returned
    rest = tuple([replace(a, closed=Closed.ABSENT) for a in record.attempts])
    assert effect_of(replace(record, attempts=rest)) is POSSIBLE
    assert doubtful(replace(record, attempts=rest))
    refused = after(
        replace(record, attempts=(*rest[:-1], record.attempts[-1])), clean(record), at=1
    )
    assert refused.state is State.IN_DOUBT
    unsent = replace(record, attempts=(*rest[:-1], record.attempts[-1]))
    unsent = after(unsent, Release(fence=record.fence, never_sent=True), at=NOW)
    assert unsent.state is State.IN_DOUBT


def test_of_an_attempt_that_was_folded_away_nobody_knows_whether_it_is_silent() -> None:
    record = many(Safety.RETRY_SAFE, 2, None)
    assert silent(record)
    assert not silent(replace(record, folded_until_ms=LONG_AGO))
    folded = replace(record, folded_until_ms=NOW)
    assert quiet_at(folded) == NOW + SETTLE
    found = absence(
        replace(record, folded_until_ms=LONG_AGO),
        began_ms=NOW,
        measured_ms=SETTLE,
        decides_silence=True,
    )
    assert found is Absence.LOUD


def test_a_settlement_about_all_speaks_about_the_folded_ones_too() -> None:
    record = replace(doubted(of_class(Safety.RETRY_SAFE)), folded_until_ms=LONG_AGO)
    closed = after(record, settlement(record, State.FAILED, POSSIBLE, None), at=NOW)
    assert (closed.state, closed.folded_until_ms) == (State.FAILED, None)


@pytest.mark.parametrize("safety", [Safety.STATUS_QUERY_REQUIRED, Safety.NON_IDEMPOTENT])
def test_a_class_that_is_not_replayed_loses_no_doubtful_attempt(safety: Safety) -> None:
    record = many(Safety.RETRY_SAFE, ATTEMPTS_KEPT, None)
    record = decided(replace(record, policy=of_class(safety)), K.ALLOW_ONE_ATTEMPT)
    command = (claim(), dispatch(record.fence + 1))
    assert decide(record, command, NOW) == Refused("attempts_exhausted")
    fewer = edit(record.attempts, 3, closed=Closed.NEVER_SENT)
    assert len(after(replace(record, attempts=fewer), *command, at=NOW).attempts) == ATTEMPTS_KEPT
    probed = edit(record.attempts, 3, closed=Closed.FAILED)
    assert decide(replace(record, attempts=probed), command, NOW) == Refused("attempts_exhausted")


def test_more_attempts_never_exceed_the_bound() -> None:
    record = many(Safety.RETRY_SAFE, 2 * ATTEMPTS_KEPT, None)
    assert len(record.attempts) == ATTEMPTS_KEPT
    assert record.attempt == record.attempts[-1].number == 2 * ATTEMPTS_KEPT


# -- who holds ---------------------------------------------------------------------------------


def test_a_claim_silences_only_the_attempts_of_the_dead() -> None:
    record = again(released(doubted(of_class(Safety.RETRY_SAFE))))
    taken = after(record, Claim(owner="w9", lease_ms=1, dead_owners=("w3", "x")), at=NOW)
    assert [a.silent_at_ms for a in taken.attempts] == [None, NOW]
    assert not silent(taken)
    both = Claim(owner="w9", lease_ms=1, dead_owners=("w1", "w3"))
    assert [a.silent_at_ms for a in after(record, both, at=NOW).attempts] == [NOW, NOW]


def test_a_proof_of_silence_is_not_made_younger_by_a_later_one() -> None:
    record = after(doubted(), Release(fence=2), at=RECENT)
    first = after(record, Claim(owner="w8", lease_ms=1, dead_owners=("w1",)), at=NOW)
    second = after(first, Claim(owner="w9", lease_ms=1, dead_owners=("w1",)), at=NOW + 10)
    assert [a.silent_at_ms for a in second.attempts] == [NOW]


def test_a_note_of_a_returned_function_is_a_proof_of_silence_unless_detached() -> None:
    told = Note(evidence=evidence(1), about=1, returned=True)
    assert after(doubted(), told, at=NOW).attempts[0].silent_at_ms == NOW
    detached = doubted(replace(POLICY, detached=True))
    assert after(detached, told, at=NOW).attempts[0].silent_at_ms is None


def test_a_note_about_an_attempt_that_is_gone_is_evidence_only() -> None:
    record = doubted()
    noted = after(record, Note(evidence=evidence(9), about=9, closes=Closed.FAILED), at=NOW)
    assert noted.attempts == record.attempts
    assert len(noted.evidence) == len(record.evidence) + 1


def test_abandoning_says_no_effect_only_of_what_was_never_sent_or_had_none() -> None:
    abandoned = after(intent(), Abandon(reason="nobody"), at=NOW)
    assert (abandoned.state, abandoned.effect) == (State.CANCELLED, NO)
    cleared = after(doubted(at=LAPSED + 30_000), Clear(fence=2), Release(fence=2), at=NOW)
    assert after(cleared, Abandon(reason="nobody"), at=NOW).effect is NO
    assert not is_marred(cleared)
