"""What a lease makes of a record is what the core's own Claim and Dispatch would make of it.

A lease writes columns only. Whoever decodes the row must see what a write with a body would have
left there: the attempt, its times, and none of what a dispatch spends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from sample_records import (
    LAPSED,
    LEASE,
    NOW,
    PERMIT,
    after,
    again,
    claim,
    dispatch,
    intent,
    of_class,
    records,
    released,
    row_of,
    sent,
)

from indoubt.contracts import ExecutionSafetyClass as Safety
from indoubt.core.bounds import ATTEMPTS_KEPT
from indoubt.core.codec import body_of, event, leased_event, record_of
from indoubt.core.commands import Claim, Clear, Doubt, Release, Renew
from indoubt.core.machine import LEASED
from indoubt.core.record import Record, State
from indoubt.core.situation import effective_safety
from indoubt.store import Becomes, Lease, Stored
from indoubt.stores.leasing import leased

if TYPE_CHECKING:
    from indoubt.core.record import Millis

S = State
LONG = NOW + 10 * LEASE  # every lease of the samples is over
OPEN = {name: record for name, record in records().items() if record.ready_at_ms is not None}
DUE = sorted(OPEN | {"prepared": intent()})


def lease(row: Stored, owner: str, at: Millis) -> Stored:
    """What every store does (`leasing.leased` is held to them by the contract)."""
    becomes = tuple([Becomes(*one) for one in LEASED])
    return leased(row, Lease(owner, LEASE, PERMIT, becomes, "w", leased_event(owner)), at)


def due(name: str) -> Record:
    """A sample that a lease may pick."""
    return records()[name]


def by_the_core(record: Record, owner: str, at: Millis) -> Record:
    """The same by commands."""
    sends = (dispatch(record.fence + 1),) if record.state is S.PREPARED else ()
    done = after(record, claim(owner), *sends, at=at)
    return replace(done, version=record.version + 1, updated_at_ms=at)


@pytest.mark.parametrize("name", DUE)
def test_a_lease_is_what_claim_and_dispatch_are(name: str) -> None:
    record = due(name)
    if record.policy.no_use_after_ms is not None:
        record = replace(record, policy=replace(record.policy, no_use_after_ms=LONG * 2))
    assert record_of(lease(row_of(record), "w9", LONG)) == by_the_core(record, "w9", LONG)


@pytest.mark.parametrize("name", [n for n in DUE if due(n).state is S.PREPARED])
def test_what_is_written_after_a_lease_is_read_as_it_was(name: str) -> None:
    record = record_of(lease(row_of(due(name)), "w9", LONG))
    for done in (
        record,
        after(record, Doubt(fence=record.fence, returned=True), at=LONG),
        after(record, Release(fence=record.fence, never_sent=True), at=LONG),
        after(record, claim("w8"), Clear(fence=record.fence + 1), at=LONG + LEASE),
    ):
        assert record_of(row_of(done)) == done


def test_whose_attempt_it_was_is_unknown_once_the_record_was_taken_over() -> None:
    first = lease(row_of(intent()), "w1", LAPSED)
    second = lease(first, "w2", NOW)
    third = lease(second, "w3", NOW + LEASE)
    for row, fence in ((second, 2), (third, 3)):
        record = record_of(row)
        (attempt,) = record.attempts
        assert (record.state, record.fence, record.doubt_since_ms) == (S.IN_DOUBT, fence, NOW)
        assert (attempt.owner, attempt.open, attempt.number) == ("", True, 1)
        assert (attempt.dispatched_at_ms, attempt.permit_until_ms) == (LAPSED, LAPSED + PERMIT)
        assert attempt.fence < fence
        taken = after(record, _dead("w1", "w2", ""), at=NOW + 3 * LEASE)
        assert taken.attempts[0].silent_at_ms is None


def test_a_proven_death_silences_the_attempt_of_a_lease() -> None:
    record = record_of(lease(row_of(intent()), "w1", LAPSED))
    taken = after(record, _dead("w1"), at=NOW)
    assert (record.attempts[0].owner, taken.attempts[0].silent_at_ms) == ("w1", NOW)


def test_a_renewal_of_what_was_leased_moves_its_permit() -> None:
    row = lease(row_of(intent()), "w1", LAPSED)
    record = record_of(row._replace(permit_until=NOW + 7, lease_until=NOW + 8))
    by_command = after(record_of(row), Renew(fence=1, lease_ms=8, permit_ms=7), at=NOW)
    assert record.attempts == by_command.attempts


def test_a_lease_keeps_the_times_of_what_was_sent_before() -> None:
    """P13: the provider's memory of a key is counted from the first dispatch, not the latest."""
    policy = of_class(Safety.IDEMPOTENT, key_retention_ms=3 * LEASE)
    unsent = after(sent(policy), Release(fence=1, never_sent=True), at=LAPSED + 1)
    assert unsent.state is S.PREPARED
    record = record_of(lease(row_of(unsent), "w9", NOW))
    first, second = record.attempts
    assert (first.dispatched_at_ms, first.permit_until_ms) == (LAPSED, LAPSED + PERMIT)
    assert (second.dispatched_at_ms, second.permit_until_ms) == (NOW, NOW + PERMIT)
    assert record.first_dispatched_at_ms == LAPSED
    now = LAPSED + 2 * LEASE
    assert effective_safety(record, now_ms=now, permit_ms=PERMIT) is not Safety.IDEMPOTENT


def test_what_was_never_sent_is_folded_as_at_a_dispatch() -> None:
    record = intent()
    for n in range(ATTEMPTS_KEPT + 3):
        at = LAPSED + n * 2 * LEASE
        record = record_of(lease(row_of(record), f"w{n}", at))
        record = after(record, Release(fence=record.fence, never_sent=True), at=at + 1)
    assert [a.number for a in record.attempts] == list(range(4, ATTEMPTS_KEPT + 4))
    assert (record.attempt, record.first_dispatched_at_ms) == (ATTEMPTS_KEPT + 3, LAPSED)


def test_only_what_was_never_sent_is_sent_by_a_lease() -> None:
    """What may have happened needs the body's facts: the key's window, permits, a cancel."""
    assert [before for before, _, is_sent in LEASED if is_sent] == [S.PREPARED]


def test_a_lease_over_what_was_dispatched_leaves_the_doubt_on_it() -> None:
    assert (S.DISPATCHED, S.IN_DOUBT, False) in LEASED
    replayed = again(released(records()["in_doubt retry"]))
    row = lease(row_of(replayed), "w9", LONG)
    assert (row.state, row.doubt_since) == ("in_doubt", LONG)


def test_the_times_of_what_is_prepared_are_in_its_body_and_of_nothing_else_open() -> None:
    held = [name for name in OPEN if due(name).attempts]
    kept = {name for name in held if b'"permit_until_ms":' in _last(due(name))}
    assert kept == {name for name in held if due(name).state is S.PREPARED}
    assert kept


def test_the_event_of_a_page_says_who_and_leaves_the_rest_to_the_record() -> None:
    told = event(leased_event("w9"))
    assert (told.did, told.owner) == (("lease",), "w9")
    assert (told.state, told.fence, told.attempt) == ("", 0, 0)


def _last(record: Record) -> bytes:
    return body_of(replace(record, attempts=record.attempts[-1:]))


def _dead(*owners: str) -> Claim:
    return Claim(owner="w9", lease_ms=LEASE, dead_owners=owners)
