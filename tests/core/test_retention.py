"""What may be pruned and what must stay, state by state."""

from typing import Any

import pytest
from msgspec import Raw

from indoubt.core.codec import body_of, fixed_of, record_of
from indoubt.core.commands import Decide
from indoubt.core.machine import decide
from indoubt.core.record import (
    CLOSED,
    Attempt,
    Closed,
    DecisionKind,
    Effect,
    Evidence,
    Policy,
    Record,
    State,
)
from indoubt.core.refusals import Refused
from indoubt.core.retention import Ages, Fate, fate, tombstone
from indoubt.json_values import fingerprint
from indoubt.store import Stored

NOW = 1_000_000
DAY = 1_000
AGES = Ages(after_ms=10 * DAY)
ALL = Ages(after_ms=10 * DAY, unknown_ms=20 * DAY, forget_ms=30 * DAY)


def record(state: State = State.SUCCEEDED, *, days: int = 100, **fields: Any) -> Record:
    given: dict[str, Any] = {
        "id": "rec_a",
        "root_id": "rec_a",
        "kind": "effect",
        "name": "refund",
        "fingerprint": "v1:" + "f" * 64,
        "key": "order-7",
        "updated_at_ms": NOW - days * DAY,
    }
    return Record(state=state, **(given | fields))


def judged(one: Record, ages: Ages = ALL, *, alive: bool = False) -> Fate:
    return fate(one, NOW, ages, alive=alive)


@pytest.mark.parametrize("state", sorted(State))
def test_only_what_has_ended_goes(state: State) -> None:
    expected = Fate.TOMBSTONE if state in CLOSED else Fate.KEEP
    assert judged(record(state)) is expected


@pytest.mark.parametrize("state", sorted(CLOSED - {State.UNKNOWN}))
def test_its_age_counts_from_the_last_change(state: State) -> None:
    assert judged(record(state, days=9)) is Fate.KEEP
    assert judged(record(state, days=10)) is Fate.TOMBSTONE


def test_unknown_goes_only_where_that_is_said() -> None:
    assert judged(record(State.UNKNOWN), AGES) is Fate.KEEP
    assert judged(record(State.UNKNOWN, days=19)) is Fate.KEEP
    assert judged(record(State.UNKNOWN, days=20)) is Fate.TOMBSTONE


@pytest.mark.parametrize("state", sorted(CLOSED))
def test_what_is_contradicted_stays(state: State) -> None:
    assert judged(record(state, contradicted="happened twice")) is Fate.KEEP


def test_an_act_without_a_key_leaves_nothing() -> None:
    assert judged(record(key=None)) is Fate.DELETE


def test_a_childs_key_is_its_roots_affair() -> None:
    assert judged(record(parent_id="run_1", root_id="run_1")) is Fate.DELETE


def test_a_tombstone_goes_only_where_that_is_said() -> None:
    assert judged(record(key=None, pruned=True), AGES) is Fate.KEEP
    assert judged(record(key=None, pruned=True, days=29)) is Fate.KEEP
    assert judged(record(key=None, pruned=True, days=30)) is Fate.FORGET
    assert judged(record(State.UNKNOWN, key=None, pruned=True, days=30)) is Fate.FORGET


def an_open_attempt(permit_until_ms: int, **fields: Any) -> Attempt:
    return Attempt(number=1, fence=1, owner="o1", permit_until_ms=permit_until_ms, **fields)


def test_an_open_attempt_stays_until_nothing_of_it_can_land() -> None:
    attempts = (an_open_attempt(NOW - 50),)
    late = record(attempts=attempts, policy=Policy(settle_ms=51))
    assert judged(late) is Fate.KEEP
    quiet = record(attempts=attempts, policy=Policy(settle_ms=50))
    assert judged(quiet) is Fate.TOMBSTONE
    assert judged(quiet, alive=True) is Fate.KEEP


def test_a_closed_attempt_holds_nothing_back() -> None:
    closed = an_open_attempt(NOW + 50, closed=Closed.SUCCEEDED)
    assert judged(record(attempts=(closed,)), alive=True) is Fate.TOMBSTONE


def test_the_least_age_is_that_of_whatever_goes_first() -> None:
    assert AGES.least_ms == 10 * DAY
    assert ALL.least_ms == 10 * DAY
    assert Ages(after_ms=9, unknown_ms=5, forget_ms=7).least_ms == 5


SAME = ("id", "root_id", "tenant_id", "kind", "state", "fence", "claims", "attempt")
RECEIPT = b'{"id":"rf_1","cents":1200}'
FULL = record(
    tenant_id="acme",
    scope="run-42",
    payload=Raw(b'{"order":"order-7"}'),
    fence=9_007_199_254_740_991,
    claims=7,
    attempt=5,
    receipt=Raw(RECEIPT),
    effect=Effect.POSSIBLE,
    evidence=(Evidence(source="probe", at_ms=1, status="succeeded"),),
    attempts=(an_open_attempt(5),),
)


def test_a_tombstone_keeps_who_it_was_and_how_it_ended() -> None:
    left = tombstone(FULL)
    assert left.pruned
    for name in (*SAME, "name", "fingerprint", "effect"):
        assert getattr(left, name) == getattr(FULL, name)
    assert left.digest == fingerprint({"cents": 1200, "id": "rf_1"})


def test_a_tombstone_keeps_nothing_that_was_said() -> None:
    left = tombstone(FULL)
    texts = fixed_of(left) + body_of(left)
    for secret in (b"order-7", b"rf_1", b"run-42", b"probe"):
        assert secret not in texts
    assert tombstone(record()).digest is None


@pytest.mark.parametrize("state", sorted(CLOSED))
@pytest.mark.parametrize("effect", [None, *Effect])
def test_its_body_is_small(state: State, effect: Effect | None) -> None:
    left = tombstone(record(state, effect=effect, receipt=Raw(b'"x"'), fence=2**62))
    assert len(body_of(left)) <= 128
    assert len(fixed_of(left)) <= 40 + len(left.name) + len(left.fingerprint)


def test_it_comes_back_as_it_was_written() -> None:
    left = tombstone(FULL)
    columns = {name: getattr(left, name) for name in SAME}
    empty = dict.fromkeys(Stored._fields)
    given = {"version": 12, "created_at": 1, "updated_at": 2, "cancel_requested": False}
    texts = {"body": body_of(left), "fixed": fixed_of(left), "store_epoch": 1}
    row = Stored(**(empty | columns | given | texts))  # pyright: ignore[reportArgumentType]
    read = record_of(row)
    assert (read.pruned, read.digest) == (True, left.digest)
    assert read.state is left.state


def test_nothing_can_be_decided_about_it() -> None:
    for kind in DecisionKind:
        command = Decide(kind=kind, attempt=5, decision_id="d1", actor="ana", reason="why")
        refused = decide(tombstone(FULL), (command,), NOW)
        assert isinstance(refused, Refused)
        assert refused.reason == "pruned"
