"""What is stored of a record is read back as it was, its stamped times from their columns."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace
from sample_records import (
    ERROR,
    LAPSED,
    NOW,
    RECENT,
    K,
    after,
    again,
    claim,
    decision,
    dispatch,
    doubted,
    evidence,
    intent,
    of_class,
    records,
    released,
    row_of,
    sent,
    settled,
    settlement,
)

from indoubt.contracts import ExecutionSafetyClass as Safety
from indoubt.core.codec import body_of, event, event_of, name_of, record_of
from indoubt.core.commands import (
    Abandon,
    Ask,
    Cancel,
    Checkpoint,
    Claim,
    Command,
    Dispatch,
    Doubt,
    Note,
    Prepare,
    Renew,
    Reopen,
)
from indoubt.core.record import (
    NO_RAW,
    Attempt,
    Closed,
    Decided,
    DecisionKind,
    Effect,
    Evidence,
    Late,
    Permission,
    Policy,
    Record,
    Stage,
    State,
)
from indoubt.engine.puts import landed, put_of
from indoubt.store import In, Put
from indoubt.store import Stored as Row

TEXT = st.text(max_size=12)
TIME = st.integers(1, 2**43)
MAYBE_TIME = st.none() | TIME
JSON = st.sampled_from([NO_RAW, Raw(b"null"), Raw(b"[1.50]"), Raw('{"ä":"\U0001f600"}'.encode())])
POLICY = st.builds(
    Policy,
    safety=st.sampled_from(Safety),
    can_probe=st.booleans(),
    settle_ms=MAYBE_TIME,
    authoritative=st.booleans(),
    key_retention_ms=MAYBE_TIME,
    resend=st.booleans(),
    detached=st.booleans(),
    no_use_after_ms=MAYBE_TIME,
    probes_max=st.integers(0, 100),
    probes_within_ms=TIME,
)
PERMISSION = st.builds(
    Permission, attempt=st.integers(1, 99), decision_id=TEXT, actor=TEXT, at_ms=TIME
)
ATTEMPT = st.builds(
    Attempt,
    number=st.integers(1, 99),
    fence=st.integers(0, 2**40),
    owner=TEXT,
    dispatched_at_ms=TIME,
    permit_until_ms=TIME,
    stage=st.sampled_from(Stage),
    token=JSON,
    external_ref=st.none() | TEXT,
    silent_at_ms=MAYBE_TIME,
    active=st.booleans(),
    late=st.none() | st.builds(Late, receipt=JSON.filter(lambda raw: raw != NO_RAW), at_ms=TIME),
    closed=st.none() | st.sampled_from(Closed),
    permission=st.none() | PERMISSION,
)
EVIDENCE = st.builds(
    Evidence,
    source=TEXT,
    at_ms=TIME,
    attempt=st.integers(0, 99),
    status=st.none() | TEXT,
    note=st.none() | TEXT,
    data=JSON,
)
DECIDED = st.builds(
    Decided,
    decision_id=TEXT,
    kind=st.sampled_from(DecisionKind),
    attempt=st.integers(0, 99),
    actor=TEXT,
    reason=TEXT,
    at_ms=TIME,
)
KNOWN: dict[str, st.SearchStrategy[Any]] = {
    "parent_id": st.none() | TEXT,
    "tenant_id": st.none() | TEXT,
    "scope": st.none() | TEXT,
    "key": st.none() | TEXT,
    "payload": JSON,
    "owner": st.none() | TEXT,
    "state": st.sampled_from(State),
    "lease_until_ms": MAYBE_TIME,
    "ready_at_ms": MAYBE_TIME,
    "doubt_since_ms": MAYBE_TIME,
    "policy": POLICY,
    "folded_until_ms": MAYBE_TIME,
    "permission": st.none() | PERMISSION,
    "effect": st.none() | st.sampled_from(Effect),
    "receipt": JSON,
    "error": JSON,
    "asked": st.none() | TEXT,
    "evidence": st.lists(EVIDENCE, max_size=3).map(tuple),
    "decisions": st.lists(DECIDED, max_size=2).map(tuple),
    "contradicted": st.none() | TEXT,
    "probing_since_ms": MAYBE_TIME,
    "delay_ms": MAYBE_TIME,
    "due_at_ms": MAYBE_TIME,
}


COUNTS = ("version", "fence", "claims", "attempt", "series", "probes", "store_epoch")
FLAGS = ("redacted", "cancel_requested", "pruned")
TIMES = ("created_at_ms", "updated_at_ms")


@st.composite
def any_record(draw: st.DrawFn) -> Record:
    """A record with anything in its fields that a field can hold."""
    attempts = tuple(draw(st.lists(ATTEMPT, max_size=3)))
    drawn: dict[str, Any] = {name: draw(values) for name, values in KNOWN.items()}
    drawn |= {name: draw(st.integers(0, 2**40)) for name in COUNTS}
    drawn |= {name: draw(st.booleans()) for name in FLAGS}
    drawn |= {name: draw(TIME) for name in TIMES}
    # Above the last one's: that of a leased page, which is read as an attempt of its own.
    drawn["attempt"] = min(drawn["attempt"], attempts[-1].number if attempts else 0)
    # None: a new series; the last attempt's: nothing was sent before it; else: an earlier one's.
    first = draw(MAYBE_TIME | st.sampled_from([a.dispatched_at_ms for a in attempts] or [None]))
    return Record(
        id=draw(TEXT),
        root_id=draw(TEXT),
        kind="effect",
        name=draw(TEXT),
        fingerprint=draw(TEXT),
        attempts=attempts,
        first_dispatched_at_ms=first if attempts else None,
        receipt_lost=draw(st.booleans()),
        **drawn,
    )


@settings(max_examples=300, deadline=None)
@given(any_record())
def test_what_is_read_back_is_what_was_stored(record: Record) -> None:
    assert record_of(row_of(record)) == record


@pytest.mark.parametrize("name", records())
def test_every_sample_is_read_back_as_it_was(name: str) -> None:
    assert record_of(row_of(records()[name])) == records()[name]


def test_an_empty_text_is_the_empty_text_wherever_it_comes_from() -> None:
    """Only the default is left out; another empty text would be written, as no JSON at all."""
    empty = Raw(b"")
    assert empty is not NO_RAW
    ended = replace(settlement(sent(), State.FAILED, Effect.NONE), receipt=empty, error=empty)
    told = Note(evidence=replace(evidence(1), data=empty))
    kept = Checkpoint(fence=1, token=empty)
    happened = decision(K.HAPPENED, 1, receipt=empty)
    for record in (
        after(sent(), kept, told, ended, at=NOW),
        after(doubted(), told, happened, at=NOW),
    ):
        assert record_of(row_of(record)) == record


FIELDS = {*KNOWN, *COUNTS, *FLAGS, *TIMES} | {
    *("id", "root_id", "kind", "name", "fingerprint"),
    *("attempts", "first_dispatched_at_ms", "receipt_lost"),
}


@pytest.mark.parametrize("name", sorted({*Record.__struct_fields__} - FIELDS))
def test_a_field_that_was_added_since_is_stored_too(name: str) -> None:
    """What nobody stores is lost silently: its default comes back."""
    default = getattr(intent(), name)
    other: Any = "x" if default is None else not default if isinstance(default, bool) else 7
    changed = replace(intent(), **{name: other})
    assert getattr(record_of(row_of(changed)), name) == other


def test_the_body_holds_none_of_the_times_that_the_store_stamps() -> None:
    body = msgspec.json.decode(body_of(sent(at=RECENT)))
    assert "dispatched_at_ms" not in body["attempts"][0]
    assert "permit_until_ms" not in body["attempts"][0]
    assert "first_dispatched_at_ms" not in body
    assert not {"lease_until_ms", "ready_at_ms", "doubt_since_ms"} & set(body)


def test_a_renewal_by_columns_alone_is_what_is_read() -> None:
    row = row_of(sent(at=RECENT))._replace(lease_until=NOW + 7, permit_until=NOW + 8)
    record = record_of(row)
    assert (record.lease_until_ms, record.attempts[0].permit_until_ms) == (NOW + 7, NOW + 8)


def test_earlier_attempts_keep_their_times_in_the_body() -> None:
    record = again(released(doubted(of_class(Safety.RETRY_SAFE))))
    row = row_of(record)._replace(permit_until=1, dispatched_at=2)
    first, second = record_of(row).attempts
    assert first == record.attempts[0]
    assert (second.permit_until_ms, second.dispatched_at_ms) == (1, 2)
    assert record_of(row).first_dispatched_at_ms == LAPSED


def test_the_first_dispatch_is_the_stamped_one_while_it_is_the_only_one() -> None:
    row = row_of(sent(at=RECENT))._replace(dispatched_at=NOW + 3)
    assert record_of(row).first_dispatched_at_ms == NOW + 3


def test_a_new_series_has_no_first_dispatch_until_it_is_sent() -> None:
    anew = after(settled(State.FAILED, Effect.NONE), Reopen(), at=NOW)
    assert (anew.series, anew.first_dispatched_at_ms) == (2, None)
    assert record_of(row_of(anew)).first_dispatched_at_ms is None
    sent_anew = after(anew, claim(), dispatch(2), at=NOW)
    assert record_of(row_of(sent_anew)).first_dispatched_at_ms == NOW


def applied(row: Row | None, put: Put, now_ms: int, record: Record) -> Row:
    """What a store makes of a put: stamps where it says so, keeps what it says to keep."""
    given = row_of(record)
    changes: dict[str, Any] = {}
    for name in ("lease_until", "permit_until", "ready_at", "dispatched_at", "doubt_since"):
        time = getattr(put, name)
        if isinstance(time, In):
            changes[name] = now_ms + time.ms
        elif time is None or row is None:
            changes[name] = None
        else:
            changes[name] = getattr(row, name)
    return given._replace(body=put.body or b"", updated_at=now_ms, **changes)


@pytest.mark.parametrize("late_ms", [0, 40])
def test_a_write_that_lands_later_is_read_as_its_writer_holds_it(late_ms: int) -> None:
    """Times are offsets that the store resolves; the writer's own image says the same."""
    for name, before in records().items():
        if before.closed or before.owner is None:
            continue
        commands = (Renew(fence=before.fence, lease_ms=9, permit_ms=9),)
        decided = after(before, *commands, at=NOW)
        put = put_of(before, decided, NOW, b"{}", None)
        stored = applied(row_of(before), put, NOW + late_ms, decided)
        image = landed(decided, put, version=before.version, now_ms=NOW + late_ms)
        assert record_of(stored) == image, name


# -- events ------------------------------------------------------------------------------------

EVENTS: list[tuple[Command, str]] = [
    (Prepare(record=intent()), "prepare"),
    (claim(), "claim"),
    (dispatch(1), "dispatch"),
    (Renew(fence=1, lease_ms=1), "renew"),
    (Ask(fence=1, reason="?"), "ask"),
    (Doubt(fence=1, returned=True), "doubt"),
    (Cancel(actor="ada", reason="no"), "cancel"),
    (Reopen(), "reopen"),
    (Abandon(reason="nobody"), "abandon"),
    *[(decision(kind, 1), kind.value) for kind in K],
]


@pytest.mark.parametrize(("command", "name"), EVENTS, ids=lambda value: str(value)[:20])
def test_a_command_is_named_by_its_word_and_a_decision_by_its_kind(
    command: Command, name: str
) -> None:
    assert name_of(command) == name


def test_an_event_says_what_was_done_by_whom_and_what_it_led_to() -> None:
    commands = (claim("w9"), Ask(fence=3, reason="late at night"))
    told = event(event_of(commands, after(released(doubted()), *commands, at=NOW)))
    assert told.did == ("claim", "ask")
    assert (told.state, told.fence, told.attempt, told.owner) == ("awaiting_decision", 3, 1, None)
    assert (told.actor, told.reason) == (None, "late at night")
    asked = decision(K.GIVE_UP, 1)
    told = event(event_of((asked,), after(doubted(), asked, at=NOW)))
    assert (told.did, told.actor, told.reason) == (("give_up",), "ada", "saw it")


def test_an_event_carries_all_evidence_of_its_write() -> None:
    notes = (Note(evidence=evidence(1)), Note(evidence=evidence(2)))
    told = event(event_of(notes, after(doubted(), *notes, at=NOW)))
    assert told.evidence == (evidence(1), evidence(2))


def test_a_refusal_that_settles_too_little_is_in_the_journal_too() -> None:
    record = again(released(doubted(of_class(Safety.RETRY_SAFE))))
    settle = settlement(record, State.FAILED, Effect.NONE)
    told = event(event_of((settle,), after(record, settle, at=NOW)))
    assert [(e.attempt, e.status, e.data) for e in told.evidence] == [(2, "failed", ERROR)]
    alone = sent()
    settle = settlement(alone, State.FAILED, Effect.NONE)
    assert event(event_of((settle,), after(alone, settle, at=NOW))).evidence == ()


def test_a_command_is_not_an_event_of_another_kind() -> None:
    assert name_of(Dispatch(fence=1, permit_ms=1)) != name_of(Claim(owner="w", lease_ms=1))
