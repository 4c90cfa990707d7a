"""From a record to its situation: who governs, what a key is worth, what the table is told."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from sample_records import (
    LEASE,
    NOW,
    PERMIT,
    POLICY,
    RECENT,
    SETTLE,
    after,
    claim,
    doubted,
    evidence,
    intent,
    late,
    marred,
    of_class,
    records,
    sent,
)

from indoubt.contracts import ExecutionSafetyClass as Safety
from indoubt.core.absence import Absence
from indoubt.core.attempts import edit
from indoubt.core.commands import Dispatch, Note
from indoubt.core.record import Closed, Millis, Policy, Record, Stage, State
from indoubt.core.situation import effective_safety, governing, held, in_time, situation
from indoubt.core.verdicts import Probe, Situation

RETENTION = 100_000


def read(record: Record, **changes: Any) -> Situation:
    """The situation as a holder reads it now, unless changed."""
    given: dict[str, Any] = {"now_ms": NOW, "permit_ms": PERMIT, "store_epoch": 1, "mine": True}
    return situation(record, **(given | changes))


# -- who governs -------------------------------------------------------------------------------


@pytest.mark.parametrize(("one", "other"), list(product(Safety, repeat=2)))
def test_the_stricter_class_governs(one: Safety, other: Safety) -> None:
    order = list(Safety)
    stricter = order[max(order.index(one), order.index(other))]
    assert governing(of_class(one), of_class(other)).safety is stricter


# Field, what the record says, what the code says, what governs.
GOVERNS: list[tuple[str, Any, Any, Any]] = [
    ("settle_ms", 1, 2, 2),
    ("settle_ms", 2, 1, 2),
    ("settle_ms", None, 1, None),
    ("settle_ms", 1, None, None),
    ("settle_ms", 0, None, None),
    ("key_retention_ms", 1, 2, 1),
    ("key_retention_ms", 2, 1, 1),
    ("key_retention_ms", None, 1, 1),
    ("key_retention_ms", 1, None, 1),
    ("key_retention_ms", 0, None, 0),
    ("authoritative", True, False, False),
    ("authoritative", False, True, False),
    ("authoritative", True, True, True),
    ("resend", True, False, False),
    ("resend", False, True, False),
    ("resend", True, True, True),
    ("detached", True, False, True),
    ("detached", False, True, True),
    ("detached", False, False, False),
    ("no_use_after_ms", 1, 2, 1),
    ("no_use_after_ms", None, 2, None),
    ("no_use_after_ms", 1, None, 1),
    # What the code can do is the code's to say: it is the code that probes.
    ("can_probe", True, False, False),
    ("can_probe", False, True, True),
    ("probes_max", 1, 2, 2),
    ("probes_within_ms", 2, 1, 1),
]


@pytest.mark.parametrize(("field", "recorded", "declared", "governs"), GOVERNS)
def test_where_code_and_record_differ_the_stricter_governs(
    field: str, recorded: object, declared: object, governs: object
) -> None:
    one, other = replace(POLICY, **{field: recorded}), replace(POLICY, **{field: declared})
    assert getattr(governing(one, other), field) == governs


def test_every_field_of_a_policy_has_a_rule_above() -> None:
    assert {row[0] for row in GOVERNS} | {"safety"} == set(Policy.__struct_fields__)


def test_without_code_the_record_governs() -> None:
    assert governing(POLICY, None) == POLICY
    assert governing(POLICY, POLICY) == POLICY


# -- keys ----------------------------------------------------------------------------------------


def keyed(safety: Safety = Safety.IDEMPOTENT, **changes: Any) -> Record:
    """Sent once, safe only through its key."""
    policy = of_class(safety, key_retention_ms=RETENTION)
    return replace(sent(policy, at=RECENT), **changes)


@pytest.mark.parametrize("safety", [Safety.IDEMPOTENT, Safety.RETRY_SAFE])
def test_a_resend_must_land_strictly_inside_the_keys_window(safety: Safety) -> None:
    last = RECENT + RETENTION - PERMIT - SETTLE  # it would land at the very end of the window
    falls_back = Safety.STATUS_QUERY_REQUIRED
    for now, expected in ((last - 1, safety), (last, falls_back), (last + 1, falls_back)):
        assert effective_safety(keyed(safety), now_ms=now, permit_ms=PERMIT) is expected


@given(
    now=st.integers(RECENT, RECENT + 2 * RETENTION),
    permit=st.integers(1, RETENTION),
    settle=st.none() | st.integers(0, RETENTION),
    retention=st.integers(0, 2 * RETENTION),
)
def test_a_replay_by_key_lands_before_the_provider_forgets(
    now: Millis, permit: Millis, settle: Millis | None, retention: Millis
) -> None:
    policy = of_class(Safety.IDEMPOTENT, key_retention_ms=retention, settle_ms=settle)
    record = replace(sent(policy, at=RECENT), policy=policy)
    safe = effective_safety(record, now_ms=now, permit_ms=permit) is Safety.IDEMPOTENT
    assert safe is (now + permit + (settle or 0) < RECENT + retention)


def test_an_unknown_window_is_none_and_no_window_is_safety_by_nature() -> None:
    unknown = keyed(policy=of_class(Safety.IDEMPOTENT, key_retention_ms=0))
    assert effective_safety(unknown, now_ms=RECENT, permit_ms=0) is Safety.STATUS_QUERY_REQUIRED
    natural = keyed(policy=of_class(Safety.IDEMPOTENT))
    assert effective_safety(natural, now_ms=NOW * 9, permit_ms=PERMIT) is Safety.IDEMPOTENT


def test_the_window_is_counted_from_the_first_dispatch_and_before_it_from_now() -> None:
    again = keyed(attempts=edit(keyed().attempts, 1, dispatched_at_ms=NOW * 5))
    assert effective_safety(again, now_ms=NOW * 5, permit_ms=PERMIT) is (
        Safety.STATUS_QUERY_REQUIRED
    )
    unsent = intent(of_class(Safety.IDEMPOTENT, key_retention_ms=RETENTION))
    assert effective_safety(unsent, now_ms=NOW * 5, permit_ms=PERMIT) is Safety.IDEMPOTENT
    short = intent(of_class(Safety.IDEMPOTENT, key_retention_ms=PERMIT + SETTLE))
    assert effective_safety(short, now_ms=NOW, permit_ms=PERMIT) is Safety.STATUS_QUERY_REQUIRED
    at_zero = keyed(first_dispatched_at_ms=0)
    assert effective_safety(at_zero, now_ms=RETENTION, permit_ms=1) is (
        Safety.STATUS_QUERY_REQUIRED
    )


@pytest.mark.parametrize(
    "safety", [s for s in Safety if s not in {Safety.IDEMPOTENT, Safety.RETRY_SAFE}]
)
def test_a_window_changes_no_other_class(safety: Safety) -> None:
    record = keyed(policy=of_class(safety, key_retention_ms=0))
    assert effective_safety(record, now_ms=NOW, permit_ms=PERMIT) is safety


# -- who holds -----------------------------------------------------------------------------------


def test_a_hold_ends_with_its_lease_or_with_its_owners_proven_death() -> None:
    record = sent(at=RECENT)
    until = RECENT + LEASE
    assert held(record, now_ms=until - 1, dead=False)
    assert not held(record, now_ms=until, dead=False)
    assert not held(record, now_ms=until - 1, dead=True)
    assert not held(intent(), now_ms=NOW, dead=False)
    assert not held(replace(record, lease_until_ms=None), now_ms=NOW, dead=False)
    assert read(record, mine=False).held
    assert not read(record, mine=True).held
    assert not read(record, mine=False, dead=True).held


@pytest.mark.parametrize("name", records())
def test_who_may_claim_is_who_sees_nobody_holding(name: str) -> None:
    record = records()[name]
    for now in (NOW, RECENT + LEASE, RECENT + LEASE + 1):
        if record.owner is not None:
            busy = held(record, now_ms=now, dead=False)
            taken = after(record, claim("w9"), at=now) if not busy else None
            assert busy or (taken is not None and taken.owner == "w9")


# -- what the table is told ------------------------------------------------------------------------


def test_what_is_passed_is_passed_on() -> None:
    told = read(
        doubted(),
        probe=Probe.NOT_FOUND,
        absence=Absence.LOUD,
        reattach=True,
        store_epoch=2,
        failed=True,
    )
    assert (told.probe, told.absence, told.reattach) == (Probe.NOT_FOUND, Absence.LOUD, True)
    assert (told.forgot, told.marred) == (True, True)
    plain = read(doubted())
    assert (plain.probe, plain.absence, plain.reattach) == (None, None, False)
    assert (plain.forgot, plain.marred, plain.cancel) == (False, False, False)


def test_no_use_after_ends_at_its_instant() -> None:
    record = intent(replace(POLICY, no_use_after_ms=NOW))
    assert not read(record, now_ms=NOW - 1).expired
    assert read(record).expired
    assert not read(intent()).expired


def test_flags_are_the_records() -> None:
    record = doubted(replace(POLICY, resend=True, can_probe=False))
    assert (read(record).opted_in, read(record).can_probe) == (True, False)
    assert (read(doubted()).opted_in, read(doubted()).can_probe) == (False, True)
    assert read(records()["in_doubt cancel"]).cancel
    assert read(keyed(), now_ms=NOW * 5).safety is Safety.STATUS_QUERY_REQUIRED


def test_only_an_open_attempt_is_acknowledged_or_has_a_late_result() -> None:
    acknowledged = records()["in_doubt acknowledged"]
    assert read(acknowledged).acknowledged
    closed = replace(acknowledged, attempts=edit(acknowledged.attempts, 1, closed=Closed.ABSENT))
    assert closed.attempts[0].stage is Stage.ACKNOWLEDGED
    assert not read(closed).acknowledged
    brought = late(doubted(), 1)
    assert read(brought).late
    ruled_out = replace(brought, attempts=edit(brought.attempts, 1, closed=Closed.DECIDED))
    assert not read(ruled_out).late


@pytest.mark.parametrize("name", records())
def test_a_late_result_is_a_doubts_business_only(name: str) -> None:
    record = records()[name]
    brought = late(record, 1) if record.attempts and not record.pruned else record
    doubtful = brought.state in {State.DISPATCHED, State.IN_DOUBT}
    assert read(brought).late is (doubtful and brought is not record)


def test_a_failed_probe_of_this_round_or_an_earlier_one_mars_the_record() -> None:
    assert read(marred()).marred
    assert read(doubted(), failed=True).marred
    assert not read(records()["dispatched retry"]).marred


def test_the_probe_budget_ends_by_count_and_by_time() -> None:
    told = Note(evidence=evidence(1), counts=True)
    record = doubted(replace(POLICY, probes_max=2, probes_within_ms=1_000))
    assert read(record).budget
    one = after(record, told, at=NOW)
    assert (one.probes, one.probing_since_ms) == (1, NOW)
    assert read(one, now_ms=NOW + 999).budget
    assert not read(one, now_ms=NOW + 1_000).budget
    two = after(one, told, at=NOW + 1)
    assert (two.probes, two.probing_since_ms) == (2, NOW)
    assert not read(two, now_ms=NOW + 1).budget
    assert read(two, now_ms=NOW + 1, by_hand=True).budget
    told_of = replace(told, counts=False)
    assert after(record, told_of, at=NOW).probes == 0
    assert not read(doubted(replace(POLICY, probes_max=0))).budget


def test_the_budget_begins_anew_with_each_attempt() -> None:
    record = doubted(of_class(Safety.RETRY_SAFE, probes_max=1))
    noted = after(record, Note(evidence=evidence(1), counts=True), at=NOW)
    assert not read(noted).budget
    again = after(noted, claim("w3"), at=NOW + LEASE)
    assert not read(again, now_ms=NOW + LEASE).budget


# -- what the store's clock says of an attempt that was just written -------------------------------


def replayed(landed: Millis, **policy: Any) -> Record:
    """A replay whose write landed at this instant, whenever it was decided."""
    given = of_class(Safety.IDEMPOTENT, key_retention_ms=RETENTION, **policy)
    record = after(sent(given, at=RECENT), claim("w2"), at=RECENT + LEASE)
    return after(record, Dispatch(fence=2, permit_ms=PERMIT), at=landed)


def test_a_replay_whose_write_landed_too_late_for_its_key_is_not_sent() -> None:
    last = RECENT + RETENTION - PERMIT - SETTLE
    assert in_time(replayed(last - 1))
    assert not in_time(replayed(last))
    assert in_time(replayed(last + SETTLE - 1, settle_ms=None))
    assert not in_time(replayed(last + SETTLE, settle_ms=None))


def test_what_is_no_replay_under_a_key_is_in_time() -> None:
    late_record = replayed(NOW * 5)
    permitted = records()["dispatched permission"]
    by_key = replace(permitted.policy, safety=Safety.IDEMPOTENT, key_retention_ms=0)
    assert in_time(replace(permitted, policy=by_key))  # a person allowed it
    assert in_time(keyed(policy=of_class(Safety.IDEMPOTENT, key_retention_ms=0)))  # the first one
    natural = replace(late_record.policy, key_retention_ms=None)
    assert in_time(replace(late_record, policy=natural))
    query = replace(late_record.policy, safety=Safety.STATUS_QUERY_REQUIRED)
    assert in_time(replace(late_record, policy=query))
    alone = replace(late_record, attempts=edit(late_record.attempts, 1, closed=Closed.ABSENT))
    assert in_time(alone)


def test_a_dispatch_that_landed_past_no_use_after_is_not_sent() -> None:
    until = replace(POLICY, no_use_after_ms=NOW)
    assert in_time(sent(until, at=NOW - 1))
    stamped = sent(until, at=NOW - 1)
    stamped = replace(stamped, attempts=edit(stamped.attempts, 1, dispatched_at_ms=NOW))
    assert not in_time(stamped)
