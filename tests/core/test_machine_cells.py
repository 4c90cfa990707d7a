"""Every state meets every command: what is allowed, what it leads to, and why the rest is refused.

A row is a sample record, a column is a command, a cell says what must come of it. Every cell was
held against the words of the protocol; who changes one does so again.

``P`` prepared, ``D`` dispatched, ``I`` in doubt, ``A`` awaiting a decision, ``M`` permitted;
closed: ``S`` succeeded, ``F`` failed, ``T`` partial, ``C`` cancelled, ``U`` unknown, with the
effect where there is one (``0`` none, ``~`` partial, ``?`` possible) and ``!`` where it is
contradicted. ``+`` after an open one: somebody holds it. Small letters and ``.`` are refusals, see
REFUSALS.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Raw
from msgspec.structs import replace
from sample_records import (
    LEASE,
    NOW,
    OTHER_RECEIPT,
    PERMIT,
    K,
    claim,
    decision,
    dispatch,
    evidence,
    intent,
    records,
    settlement,
)

import indoubt.core.machine as machine_module
from indoubt.core.commands import (
    Abandon,
    Acknowledge,
    Ask,
    Cancel,
    Checkpoint,
    Clear,
    Command,
    Decide,
    Doubt,
    Note,
    Postpone,
    Prepare,
    Release,
    Renew,
    Reopen,
)
from indoubt.core.machine import ALLOWED, decide
from indoubt.core.record import Closed, Decided, Effect, Record, State
from indoubt.core.refusals import Refused

S = State
Make = Callable[[Record], Command]


def outcome(state: State, effect: Effect | None, *, all_of_them: bool = False) -> Make:
    """A settlement by the holder, about the newest attempt or about all."""
    return lambda r: settlement(r, state, effect, None if all_of_them else r.attempt)


def choice(kind: K, **changes: int) -> Make:
    """A decision about the newest attempt, unless changed."""
    return lambda r: replace(decision(kind, r.attempt, name="new"), **changes)


# What a holder says; each carries the fence of the record.
HOLDERS: dict[str, Make] = {
    "di": lambda r: dispatch(r.fence),
    "d!": lambda r: dispatch(r.fence + 1),
    "ac": lambda r: Acknowledge(fence=r.fence, token=Raw(b"1"), external_ref="x"),
    "ck": lambda r: Checkpoint(fence=r.fence, token=Raw(b"1")),
    "re": lambda r: Renew(fence=r.fence, lease_ms=LEASE, permit_ms=PERMIT),
    "ok": outcome(S.SUCCEEDED, None),
    "no": outcome(S.FAILED, Effect.NONE),
    "f?": outcome(S.FAILED, Effect.POSSIBLE, all_of_them=True),
    "pt": outcome(S.PARTIAL, Effect.PARTIAL, all_of_them=True),
    "cc": outcome(S.CANCELLED, Effect.POSSIBLE, all_of_them=True),
    "s!": lambda r: replace(settlement(r, S.SUCCEEDED, None), fence=r.fence - 1),
    "s-": lambda r: settlement(r, S.FAILED, None),
    "su": lambda r: settlement(r, S.UNKNOWN, Effect.POSSIBLE),
    "dk": lambda r: Doubt(fence=r.fence, returned=True, keep=True, evidence=evidence()),
    "dl": lambda r: Doubt(fence=r.fence, returned=False),
    "rn": lambda r: Release(fence=r.fence, never_sent=True),
    "rl": lambda r: Release(fence=r.fence, after_ms=10),
    "cr": lambda r: Clear(fence=r.fence),
    "as": lambda r: Ask(fence=r.fence, reason="who knows"),
}
# What anybody says.
OTHERS: dict[str, Make] = {
    "pr": lambda _: Prepare(record=intent()),
    "cl": lambda _: claim("w9"),
    "cd": lambda _: claim("w9", dead_owners=("w1", "w2", "w3")),
    "ce": lambda _: claim("w9", dead_owners=("w1", "w2", "w3"), store_epoch=2),
    "ne": lambda _: Note(evidence=evidence(), counts=True),
    "nl": lambda r: Note(evidence=evidence(), about=r.attempt, late=OTHER_RECEIPT),
    "nc": lambda r: Note(evidence=evidence(), about=r.attempt, closes=Closed.FAILED),
    "ha": choice(K.HAPPENED),
    "dn": choice(K.DID_NOT_HAPPEN),
    "al": choice(K.ALLOW_ONE_ATTEMPT),
    "gu": choice(K.GIVE_UP),
    "q!": choice(K.GIVE_UP, attempt=99),
    "qe": choice(K.GIVE_UP, store_epoch=2),
    "cn": lambda _: Cancel(actor="ada", reason="no"),
    "ce2": lambda _: Cancel(actor="ada", reason="no", store_epoch=2),
    "ro": lambda _: Reopen(),
    "ab": lambda _: Abandon(reason="nobody"),
    "ae": lambda _: Abandon(reason="nobody", store_epoch=2),
    "po": lambda _: Postpone(after_ms=10),
}
REFUSALS = {
    ".": "{command}_from_{state}",
    "xs": "exists",
    "pn": "pruned",
    "sf": "stale_fence",
    "bz": "busy",
    "cx": "cancel_requested",
    "nu": "no_use_after",
    "rp": "replay_of_non_idempotent",
    "ex": "attempts_exhausted",
    "np": "no_permission",
    "em": "effect_missing",
    "ns": "not_a_settlement_unknown",
    "up": "release_without_proof",
    "sq": "stale_question",
    "rw": "store_rewound",
    "ad": "already_decided",
    "nd": "nothing_to_decide",
    "ls": "late_success",
    "te": "too_early",
    "os": "outcome_stands",
}
LETTERS = dict(
    zip(State, ("P", "D", "I", "A", "M", "S", "F", "T", "C", "U"), strict=True),
)
EFFECTS = {None: "", Effect.NONE: "0", Effect.PARTIAL: "~", Effect.POSSIBLE: "?"}


def shown(record: Record, command: Command) -> str:
    """What the machine makes of it, as the tables write it."""
    done = decide(record, (command,), NOW)
    if isinstance(done, Refused):
        name = type(command).__name__.lower()
        texts = {v.format(command=name, state=record.state): k for k, v in REFUSALS.items()}
        return texts[done.reason]
    held = "+" if done.owner is not None else ""
    return (
        LETTERS[done.state]
        + (EFFECTS[done.effect] if done.closed else held)
        + ("!" if done.contradicted else "")
    )


HOLDERS_TABLE = """
                        | di  d!  ac  ck  re  ok  no  f?  pt  cc  s!  s-  su  dk  dl  rn  rl  cr  as
prepared                | sf  sf  .   .   sf  .   .   .   .   .   .   .   .   .   .   sf  sf  .   .
prepared held           | D+  sf  .   .   P+  .   .   .   .   .   .   .   .   .   .   P   P   .   .
prepared lapsed         | D+  sf  .   .   P+  .   .   .   .   .   .   .   .   .   .   P   P   .   .
prepared expired        | nu  sf  .   .   P+  .   .   .   .   .   .   .   .   .   .   P   P   .   .
prepared cleared        | D+  sf  .   .   P+  .   .   .   .   .   .   .   .   .   .   P   P   .   .
prepared decided        | sf  sf  .   .   sf  .   .   .   .   .   .   .   .   .   .   sf  sf  .   .
dispatched              | .   .   D+  D+  D+  S   F0  F?  T~  C?  sf  em  ns  I+  I   P   up  .   .
dispatched lapsed       | .   .   D+  D+  D+  S   F0  F?  T~  C?  sf  em  ns  I+  I   P   up  .   .
dispatched cancel       | .   .   D+  D+  D+  S   F0  F?  T~  C?  sf  em  ns  I+  I   C0  up  .   .
dispatched retry        | .   .   D+  D+  D+  S   I   F?  T~  C?  sf  em  ns  I+  I   I   I   .   .
dispatched permission   | .   .   D+  D+  D+  S   I   F?  T~  C?  sf  em  ns  I+  I   M   up  .   .
in_doubt                | rp  sf  .   .   I+  S   F0  F?  T~  C?  sf  em  ns  .   .   I   I   P+  A
in_doubt free           | sf  sf  .   .   sf  sf  sf  sf  sf  sf  sf  sf  sf  .   .   sf  sf  sf  sf
in_doubt early          | sf  sf  .   .   sf  sf  sf  sf  sf  sf  sf  sf  sf  .   .   sf  sf  sf  sf
in_doubt returned       | rp  sf  .   .   I+  S   F0  F?  T~  C?  sf  em  ns  .   .   I   I   P+  A
in_doubt retry          | D+  sf  .   .   I+  S   F0  F?  T~  C?  sf  em  ns  .   .   I   I   P+  A
in_doubt cancel         | cx  sf  .   .   I+  S   F0  F?  T~  C?  sf  em  ns  .   .   I   I   C0  A
in_doubt acknowledged   | rp  sf  .   .   I+  S   F0  F?  T~  C?  sf  em  ns  .   .   I   I   P+  A
in_doubt active         | rp  sf  .   .   I+  S   F0  F?  T~  C?  sf  em  ns  .   .   I   I   P+  A
in_doubt late           | rp  sf  .   .   I+  S   F0  F?  T~  C?  sf  em  ns  .   .   I   I   P+  A
in_doubt full           | ex  sf  .   .   I+  S   I   F?  T~  C?  sf  em  ns  .   .   I   I   P+  A
awaiting_decision       | .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
awaiting_decision cancel| .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
awaiting_decision late  | .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
permitted               | sf  sf  .   .   sf  .   .   .   .   .   .   .   .   .   .   sf  sf  .   sf
permitted held          | D+  sf  .   .   M+  .   .   .   .   .   .   .   .   .   .   M   M   .   A
permitted lapsed        | D+  sf  .   .   M+  .   .   .   .   .   .   .   .   .   .   M   M   .   A
permitted another       | np  sf  .   .   M+  .   .   .   .   .   .   .   .   .   .   M   M   .   A
succeeded               | .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
succeeded twice         | .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
failed none             | .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
failed possible         | .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
failed contradicted     | .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
failed cancel           | .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
partial                 | .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
cancelled none          | .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
cancelled abandoned     | .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
cancelled possible      | .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
unknown                 | .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
unknown late            | .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
pruned                  | pn  pn  pn  pn  pn  pn  pn  pn  pn  pn  pn  pn  pn  pn  pn  pn  pn  pn  pn
"""
OTHERS_TABLE = """
                        | pr  cl  cd  ce  ne  nl  nc  ha  dn  al  gu  q!  qe  cn  ce2 ro  ab  ae  po
prepared                | xs  P+  P+  I+  P   P   P   nd  nd  nd  nd  sq  rw  C0  P   .   C0  rw  P
prepared held           | xs  bz  P+  I+  P+  P+  P+  nd  nd  nd  nd  sq  rw  C0  P+  .   bz  rw  bz
prepared lapsed         | xs  P+  P+  I+  P+  P+  P+  nd  nd  nd  nd  sq  rw  C0  P+  .   C0  rw  bz
prepared expired        | xs  bz  P+  I+  P+  P+  P+  nd  nd  nd  nd  sq  rw  C0  P+  .   bz  rw  bz
prepared cleared        | xs  bz  P+  I+  P+  I+  P+  nd  nd  nd  nd  sq  rw  C0  P+  .   bz  rw  bz
prepared decided        | xs  P+  P+  I+  P   I   P   ad  ad  ad  ad  sq  rw  C0  P   .   C0  rw  P
dispatched              | xs  bz  I+  I+  D+  D+  D+  nd  nd  nd  nd  sq  rw  D+  D+  .   .   .   .
dispatched lapsed       | xs  I+  I+  I+  D+  D+  D+  nd  nd  nd  nd  sq  rw  D+  D+  .   .   .   .
dispatched cancel       | xs  bz  I+  I+  D+  D+  D+  nd  nd  cx  nd  sq  rw  D+  D+  .   .   .   .
dispatched retry        | xs  bz  I+  I+  D+  D+  D+  nd  nd  nd  nd  sq  rw  D+  D+  .   .   .   .
dispatched permission   | xs  bz  I+  I+  D+  D+  D+  nd  nd  nd  nd  sq  rw  D+  D+  .   .   .   .
in_doubt                | xs  bz  I+  I+  I+  I+  I+  S   F0  M   U?  sq  rw  I+  I+  .   .   .   bz
in_doubt free           | xs  I+  I+  I+  I   I   I   S   F0  M   U?  sq  rw  I   I   .   .   .   I
in_doubt early          | xs  I+  I+  I+  I   I   I   S   te  te  U?  sq  rw  I   I   .   .   .   I
in_doubt returned       | xs  bz  I+  I+  I+  I+  I+  S   te  te  U?  sq  rw  I+  I+  .   .   .   bz
in_doubt retry          | xs  bz  I+  I+  I+  I+  I+  S   F0  M   U?  sq  rw  I+  I+  .   .   .   bz
in_doubt cancel         | xs  bz  I+  I+  I+  I+  I+  S   F0  cx  U?  sq  rw  I+  I+  .   .   .   bz
in_doubt acknowledged   | xs  bz  I+  I+  I+  I+  I+  S   F0  te  U?  sq  rw  I+  I+  .   .   .   bz
in_doubt active         | xs  bz  I+  I+  I+  I+  I+  S   F0  te  U?  sq  rw  I+  I+  .   .   .   bz
in_doubt late           | xs  bz  I+  I+  I+  I+  I+  S   ls  ls  U?  sq  rw  I+  I+  .   .   .   bz
in_doubt full           | xs  bz  I+  I+  I+  I+  I+  S   F0  M   U?  sq  rw  I+  I+  .   .   .   bz
awaiting_decision       | xs  .   .   I+  A   A   A   S   F0  M   U?  sq  rw  A   A   .   .   .   .
awaiting_decision cancel| xs  .   .   I+  A   A   A   S   F0  cx  U?  sq  rw  A   A   .   .   .   .
awaiting_decision late  | xs  .   .   I+  A   A   A   S   ls  ls  U?  sq  rw  A   A   .   .   .   .
permitted               | xs  M+  M+  I+  M   I   M   ad  ad  ad  ad  sq  rw  A   M   .   .   .   M
permitted held          | xs  bz  M+  I+  M+  I+  M+  ad  ad  ad  ad  sq  rw  A   M+  .   .   .   bz
permitted lapsed        | xs  M+  M+  I+  M+  I+  M+  ad  ad  ad  ad  sq  rw  A   M+  .   .   .   bz
permitted another       | xs  bz  M+  I+  M+  I+  M+  nd  nd  nd  nd  sq  rw  A   M+  .   .   .   bz
succeeded               | xs  .   .   .   S   S!  S   nd  nd  nd  nd  sq  nd  .   .   .   .   .   .
succeeded twice         | xs  .   .   .   S!  S!  S!  S   ls  ls  nd  sq  nd  .   .   .   .   .   .
failed none             | xs  .   .   .   F0  F0! F0  nd  nd  nd  nd  sq  nd  .   .   P   .   .   .
failed possible         | xs  .   .   .   F?  F?! F?  nd  nd  M   nd  sq  nd  .   .   os  .   .   .
failed contradicted     | xs  .   .   .   F0! F0! F0! S   ls  ls  ad  sq  ad  .   .   os  .   .   .
failed cancel           | xs  .   .   .   F0  F0! F0  ad  ad  cx  ad  sq  ad  .   .   os  .   .   .
partial                 | xs  .   .   .   T~  T~! T~  nd  nd  M   nd  sq  nd  .   .   .   .   .   .
cancelled none          | xs  .   .   .   C0  C0! C0  nd  nd  cx  nd  sq  nd  .   .   os  .   .   .
cancelled abandoned     | xs  .   .   .   C0  C0! C0  nd  nd  nd  nd  sq  nd  .   .   P   .   .   .
cancelled possible      | xs  .   .   .   C?  C?! C?  nd  nd  M   nd  sq  nd  .   .   os  .   .   .
unknown                 | xs  .   .   .   U?  U?! U?  S   F0  M   ad  sq  ad  .   .   .   .   .   .
unknown late            | xs  .   .   .   U?! U?! U?! S   ls  ls  ad  sq  ad  .   .   .   .   .   .
pruned                  | xs  pn  pn  pn  pn  pn  pn  pn  pn  pn  pn  pn  pn  pn  pn  pn  pn  pn  pn
"""


def expected(table: str, row: str) -> dict[str, str]:
    """One row of a table, by command."""
    head, *lines = [line.split("|") for line in table.strip("\n").splitlines()]
    found = next(cells for name, cells in lines if name.strip() == row)
    return dict(zip(head[1].split(), found.split(), strict=True))


def allowed(row: str, command: str) -> bool:
    """Whether a cell is no refusal."""
    table = HOLDERS_TABLE if command in HOLDERS else OTHERS_TABLE
    return expected(table, row)[command] not in REFUSALS


@pytest.mark.parametrize("name", records())
def test_what_holders_say(name: str) -> None:
    record = records()[name]
    assert {c: shown(record, make(record)) for c, make in HOLDERS.items()} == (
        expected(HOLDERS_TABLE, name)
    )


@pytest.mark.parametrize("name", records())
def test_what_anybody_says(name: str) -> None:
    record = records()[name]
    assert {c: shown(record, make(record)) for c, make in OTHERS.items()} == (
        expected(OTHERS_TABLE, name)
    )


def test_the_samples_are_in_every_state_and_the_commands_are_all() -> None:
    assert {record.state for record in records().values()} == set(State)
    made = {type(make(intent())) for make in (HOLDERS | OTHERS).values()}
    assert made == set(ALLOWED)


@pytest.mark.parametrize("kind", ALLOWED, ids=lambda kind: kind.__name__)
def test_a_command_happens_in_exactly_the_states_that_the_table_allows(kind: type[Command]) -> None:
    reached = {
        record.state
        for name, record in records().items()
        for command, make in (HOLDERS | OTHERS).items()
        if type(make(record)) is kind and allowed(name, command)
    }
    only_repeats = {S.PREPARED, S.DISPATCHED, S.PERMITTED} if kind is Decide else set[State]()
    assert reached == ALLOWED[kind] - only_repeats


def test_every_refusal_of_the_core_occurs_in_a_table_or_below() -> None:
    core = Path(machine_module.__file__).parent
    source = "".join(file.read_text("utf-8") for file in core.glob("*.py"))
    literal = set(re.findall(r"""Refused\(\s*["'](\w+)["']""", source))
    cells = (HOLDERS_TABLE + OTHERS_TABLE).split()
    shown_here = {text for code, text in REFUSALS.items() if code in cells}
    elsewhere = {"missing", "two_dispatches", "repeated", "claim_from_awaiting_decision"}
    assert literal - elsewhere == shown_here - {REFUSALS["."], REFUSALS["ns"]}


def test_a_record_that_is_not_there_can_only_be_prepared() -> None:
    for make in (HOLDERS | OTHERS).values():
        command = make(intent())
        if isinstance(command, Prepare):
            assert decide(None, (command,), NOW) == intent()
        else:
            assert decide(None, (command,), NOW) == Refused("missing")
    assert decide(None, (), NOW) == Refused("missing")


def test_commands_of_one_write_are_applied_in_order_or_not_at_all() -> None:
    first = (Prepare(record=intent()), claim(), dispatch(1))
    record = decide(None, first, NOW)
    assert isinstance(record, Record)
    assert (record.state, record.owner, record.fence, record.attempt) == (S.DISPATCHED, "w1", 1, 1)
    out_of_order = (Prepare(record=intent()), dispatch(1), claim())
    assert decide(None, out_of_order, NOW) == Refused("stale_fence")
    assert decide(intent(), (claim(), Ask(fence=1, reason="?")), NOW) == (
        Refused("ask_from_prepared")
    )
    assert decide(intent(), (), NOW) == intent()


def test_one_write_sends_once() -> None:
    settle = settlement(records()["dispatched"], S.FAILED, Effect.NONE)
    twice = (claim(), dispatch(1), settle, Reopen(), claim(), dispatch(2))
    assert decide(intent(), twice, NOW) == Refused("two_dispatches")


@pytest.mark.parametrize("name", records())
def test_a_decision_that_was_taken_gets_its_first_answer_in_every_state(name: str) -> None:
    taken = Decided(
        decision_id="d0", kind=K.GIVE_UP, attempt=1, actor="ada", reason="tired", at_ms=1
    )
    record = replace(records()[name], decisions=(taken,))
    answer = decide(record, (decision(K.HAPPENED, 99, name="d0"),), NOW)
    if record.pruned:
        assert answer == Refused("pruned")
    else:
        assert answer == Refused("repeated", decided=taken, again=True)


@pytest.mark.parametrize("name", records())
def test_a_refusal_says_until_when(name: str) -> None:
    record = records()[name]
    answer = decide(record, (claim("w9"),), NOW)
    if isinstance(answer, Refused) and answer.reason == "busy":
        assert answer.until_ms == record.lease_until_ms
        assert record.lease_until_ms is not None
        assert isinstance(decide(record, (claim("w9"),), record.lease_until_ms), Record)
        assert isinstance(decide(record, (claim("w9"),), record.lease_until_ms - 1), Refused)
    early = decide(record, (decision(K.DID_NOT_HAPPEN, record.attempt, name="new"),), NOW)
    if isinstance(early, Refused) and early.reason == "too_early":
        assert early.until_ms is not None
        command = (decision(K.DID_NOT_HAPPEN, record.attempt, name="new"),)
        assert isinstance(decide(record, command, early.until_ms), Record)
        assert isinstance(decide(record, command, early.until_ms - 1), Refused)
