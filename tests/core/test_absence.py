"""What "not found" is worth, at each boundary and on both sides of it (P1 to P5, head 4 to 7)."""

from __future__ import annotations

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
    again,
    claim,
    doubted,
    intent,
    of_class,
    released,
    sent,
)

from indoubt.contracts import ExecutionSafetyClass as Safety
from indoubt.core.absence import (
    Absence,
    absence,
    permits_end,
    proof_at,
    quiet_at,
    silent,
    wait_ms,
)
from indoubt.core.attempts import edit
from indoubt.core.commands import Claim, Doubt, Renew
from indoubt.core.record import Closed, Millis, Record

A = Absence
SENT = RECENT
ENDS = SENT + PERMIT
QUIET = ENDS + SETTLE


def loud(**policy: object) -> Record:
    """One attempt in doubt, whose holder is not known to be silent."""
    return after(sent(replace(POLICY, **policy), at=SENT), claim("w2"), at=SENT + LEASE)


def worth(
    record: Record, began_ms: Millis, *, measured_ms: Millis = SETTLE, decides: bool = False
) -> Absence:
    """What a "not found" is worth."""
    return absence(record, began_ms=began_ms, measured_ms=measured_ms, decides_silence=decides)


def test_the_permits_end_is_the_latest_of_what_is_open() -> None:
    record = again(released(doubted(of_class(Safety.RETRY_SAFE))), at=NOW)
    assert permits_end(record) == NOW + PERMIT
    closed = replace(record, attempts=edit(record.attempts, 2, closed=Closed.NEVER_SENT))
    assert permits_end(closed) == record.attempts[0].permit_until_ms
    assert permits_end(replace(closed, folded_until_ms=NOW)) == NOW
    assert permits_end(replace(closed, folded_until_ms=1)) == closed.attempts[0].permit_until_ms
    assert permits_end(intent()) == 0


def test_quiet_is_the_permit_plus_the_settle_time_and_the_permit_alone_where_none_is_declared() -> (
    None
):
    assert quiet_at(loud()) == QUIET
    assert quiet_at(loud(settle_ms=None)) == ENDS
    assert quiet_at(loud(settle_ms=0)) == ENDS


@pytest.mark.parametrize("decides", [True, False])
def test_a_probe_counts_from_quiet_on_not_a_millisecond_earlier(*, decides: bool) -> None:
    counts = A.LOUD if decides else A.ASSUMED
    assert worth(loud(), QUIET - 1, decides=decides) is A.EARLY
    assert worth(loud(), QUIET, decides=decides) is counts
    assert worth(loud(), QUIET + 1, decides=decides) is counts


def test_the_settle_time_must_be_over_on_the_own_clock_too() -> None:
    late = QUIET + 10**6
    assert worth(loud(), late, measured_ms=SETTLE - 1) is A.EARLY
    assert worth(loud(), late, measured_ms=SETTLE) is A.ASSUMED
    assert worth(loud(settle_ms=0), late, measured_ms=0) is A.ASSUMED


def test_what_can_prove_nothing_is_worth_nothing_however_late() -> None:
    late = QUIET + 10**6
    for record in (loud(authoritative=False), loud(settle_ms=None)):
        for decides in (True, False):
            assert worth(record, late, decides=decides) is A.UNPROVABLE
            assert worth(record, quiet_at(record), decides=decides) is A.UNPROVABLE
            assert worth(record, quiet_at(record) - 1, decides=decides) is A.EARLY


def test_silence_makes_it_a_proof_counted_from_the_proof_of_silence() -> None:
    dead = Claim(owner="w2", lease_ms=LEASE, dead_owners=("w1",))
    proven = QUIET + 1_000
    record = after(sent(at=SENT), dead, at=proven)
    assert (silent(record), quiet_at(record), proof_at(record)) == (True, QUIET, proven + SETTLE)
    for decides in (True, False):
        assert worth(record, proven + SETTLE - 1, decides=decides) is A.EARLY
        assert worth(record, proven + SETTLE, decides=decides) is A.PROVEN


def test_silence_before_the_permit_ends_does_not_shorten_it() -> None:
    dead = Claim(owner="w2", lease_ms=LEASE, dead_owners=("w1",))
    record = after(sent(at=SENT), dead, at=SENT + 1)
    assert proof_at(record) == QUIET
    assert worth(record, QUIET - 1) is A.EARLY
    assert worth(record, QUIET) is A.PROVEN


def test_the_live_holders_report_ends_the_permit_and_is_the_proof() -> None:
    record = after(sent(at=SENT), Doubt(fence=1, returned=True), at=SENT + 7)
    assert proof_at(record) == quiet_at(record) == SENT + 7 + SETTLE
    assert worth(record, SENT + 7 + SETTLE - 1) is A.EARLY
    assert worth(record, SENT + 7 + SETTLE) is A.PROVEN


def test_a_report_after_the_permit_counts_from_the_report() -> None:
    record = after(sent(at=SENT), Doubt(fence=1, returned=True), at=QUIET + 7)
    assert worth(record, QUIET + 7 + SETTLE - 1) is A.EARLY
    assert worth(record, QUIET + 7 + SETTLE) is A.PROVEN


def test_a_permit_that_moves_with_the_lease_counts_from_the_last_renewal() -> None:
    renewed = after(sent(at=SENT), Renew(fence=1, lease_ms=LEASE, permit_ms=PERMIT), at=SENT + 9)
    fixed = after(sent(at=SENT), Renew(fence=1, lease_ms=LEASE), at=SENT + 9)
    assert quiet_at(renewed) == QUIET + 9
    assert quiet_at(fixed) == QUIET
    assert renewed.lease_until_ms == fixed.lease_until_ms == SENT + 9 + LEASE


def test_one_loud_attempt_among_silent_ones_keeps_the_record_loud() -> None:
    record = again(released(doubted(of_class(Safety.RETRY_SAFE))), at=SENT)
    one = replace(record, attempts=edit(record.attempts, 1, silent_at_ms=SENT))
    both = replace(one, attempts=edit(one.attempts, 2, silent_at_ms=QUIET))
    assert not silent(one)
    assert silent(both)
    assert worth(one, QUIET, decides=True) is A.LOUD
    assert proof_at(both) == QUIET + SETTLE
    closed = replace(one, attempts=edit(one.attempts, 2, closed=Closed.NEVER_SENT))
    assert silent(closed)


def test_what_outlives_its_function_is_never_silent() -> None:
    record = after(
        loud(detached=True), Claim(owner="w9", lease_ms=1, dead_owners=("w1",)), at=NOW * 2
    )
    assert record.attempts[0].silent_at_ms is not None
    assert not silent(record)
    assert worth(record, NOW * 3, decides=True) is A.LOUD


def test_a_record_without_an_open_attempt_is_silent() -> None:
    assert silent(intent())


def test_one_may_wait_for_a_probe_that_counts_on_both_clocks() -> None:
    record = loud()
    assert wait_ms(record, now_ms=QUIET - 3, measured_ms=SETTLE) == 3
    assert wait_ms(record, now_ms=QUIET, measured_ms=SETTLE - 4) == 4
    assert wait_ms(record, now_ms=QUIET - 3, measured_ms=SETTLE - 4) == 4
    assert wait_ms(record, now_ms=QUIET + 9, measured_ms=SETTLE + 9) == 0
    assert wait_ms(loud(settle_ms=None), now_ms=ENDS - 2, measured_ms=0) == 2


MOMENTS = st.integers(SENT - 10, QUIET + 3 * SETTLE)


@given(
    now=MOMENTS,
    silent_at=st.none() | MOMENTS,
    measured=st.integers(0, 2 * SETTLE),
    settle=st.none() | st.integers(0, 2 * SETTLE),
    authoritative=st.booleans(),
    detached=st.booleans(),
    decides=st.booleans(),
)
def test_whoever_waits_as_long_as_told_is_not_early_and_time_only_helps(
    *,
    now: Millis,
    silent_at: Millis | None,
    measured: Millis,
    settle: Millis | None,
    authoritative: bool,
    detached: bool,
    decides: bool,
) -> None:
    record = loud(settle_ms=settle, authoritative=authoritative, detached=detached)
    record = replace(record, attempts=edit(record.attempts, 1, silent_at_ms=silent_at))
    pause = wait_ms(record, now_ms=now, measured_ms=measured)

    def found(later: Millis) -> Absence:
        return worth(record, now + later, measured_ms=measured + later, decides=decides)

    assert found(pause) is not A.EARLY
    assert found(pause) is found(pause + 1)
    if pause and settle is not None and authoritative:
        assert found(pause - 1) is A.EARLY
    if found(pause) is A.PROVEN:
        assert silent(record)
        assert silent_at is not None
        assert settle is not None
        assert now + pause >= max(silent_at + settle, ENDS + settle)
