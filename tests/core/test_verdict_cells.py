"""Every situation that can occur, each of them judged: none is sampled.

EXPECTED is written from the protocol's words (design, section 3, as protocol.md and its head mend
it), not from the code: each line says from where it comes. The table in ``verdicts.py`` must give
the same answer in every situation.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from indoubt.contracts import ExecutionSafetyClass as Safety
from indoubt.core.absence import Absence
from indoubt.core.record import CLOSED, Effect, State
from indoubt.core.verdicts import (
    COLUMN,
    COLUMNS,
    TABLE,
    Probe,
    Repeat,
    Row,
    Situation,
    Verdict,
    combine,
    repeat,
    verdict,
)

S, P, A = State, Probe, Absence
DOCS = Path(__file__).parents[2] / "docs"
SENDS = frozenset({Verdict.LIST, Verdict.SPEND, Verdict.REPLAY, Verdict.CLEAR})
WORDS = {
    "leave": Verdict.LEAVE,
    "use": Verdict.USE,
    "cancel": Verdict.CANCEL,
    "expire": Verdict.EXPIRE,
    "doubt": Verdict.DOUBT,
    "list": Verdict.LIST,
    "spend": Verdict.SPEND,
    "late": Verdict.ADOPT_LATE,
    "adopt": Verdict.ADOPT,
    "close": Verdict.CLOSE,
    "reattach": Verdict.REATTACH,
    "probe": Verdict.PROBE,
    "wait": Verdict.WAIT,
    "replay": Verdict.REPLAY,
    "clear": Verdict.CLEAR,
    "ask": Verdict.ASK,
}


@dataclass(frozen=True)
class Line:
    """One line of what is expected, and where it is said."""

    when: Callable[[Situation], bool]
    answers: str
    said: str


def absent(s: Situation, worth: Absence) -> bool:
    """The provider has not found it, and that is worth so much."""
    return s.probe is P.NOT_FOUND and s.absence is worth


def in_state(*states: State) -> Callable[[Situation], bool]:
    """The record is in one of these states."""
    return lambda s: s.state in states


EXPECTED: tuple[Line, ...] = (
    Line(lambda s: s.held, "leave", "design 1; G3"),
    Line(in_state(*CLOSED), "use", "design 2"),
    Line(
        lambda s: s.forgot and s.state in {S.PREPARED, S.PERMITTED, S.AWAITING_DECISION},
        "doubt",
        "P19: whatever is not terminal counts as dispatch possible, before design 3",
    ),
    Line(lambda s: s.state is S.PREPARED and s.cancel, "cancel", "design 6; P22"),
    Line(lambda s: s.state is S.PREPARED and s.expired, "expire", "design 3"),
    Line(in_state(S.PREPARED), "list", "design 5; head 9"),
    Line(in_state(S.AWAITING_DECISION), "leave", "design 7; G3"),
    Line(
        lambda s: s.state is S.PERMITTED and (s.cancel or s.expired),
        "ask",
        "design 6, head 21: never dispatched; O3: every state can still end",
    ),
    Line(in_state(S.PERMITTED), "spend", "design 8; G3"),
    # From here on the record is in doubt.
    Line(lambda s: s.late, "late late late late ask", "P12: first row of the in-doubt block"),
    Line(lambda s: s.probe is P.FOREIGN, "ask", "design 21; P14"),
    Line(lambda s: s.probe is P.SUCCEEDED, "adopt adopt adopt adopt ask", "design 13; P31"),
    Line(
        lambda s: s.probe in {P.FAILED, P.CANCELLED},
        "close close close close ask",
        "design 14; G1: effect possible",
    ),
    Line(
        lambda s: absent(s, A.PROVEN) and s.marred,
        "close close close close ask",
        "G1: one attempt failed, effect possible, the others are absent: as design 14",
    ),
    Line(
        lambda s: absent(s, A.PROVEN) and s.opted_in,
        "clear clear clear clear ask",
        "design 18; head 20: the record is prepared",
    ),
    Line(lambda s: absent(s, A.PROVEN), "clear clear clear ask ask", "design 18; head 20"),
    Line(
        lambda s: absent(s, A.ASSUMED) and s.marred,
        "close close close ask ask",
        "G1, as above, where design 17 would replay",
    ),
    Line(lambda s: absent(s, A.ASSUMED), "replay replay replay ask ask", "design 17"),
    Line(lambda s: absent(s, A.UNPROVABLE), "replay replay ask ask ask", "design 19; head 17"),
    Line(
        lambda s: s.probe is P.ACTIVE and s.reattach and s.budget,
        "reattach reattach reattach reattach wait",
        "design 15",
    ),
    Line(
        lambda s: s.probe is P.ACTIVE and s.reattach,
        "reattach reattach reattach reattach ask",
        "design 15: wait, then ask",
    ),
    Line(lambda s: not s.can_probe and s.acknowledged, "ask", "design 10; P11"),
    Line(lambda s: not s.can_probe, "replay replay ask ask ask", "design 11"),
    Line(lambda s: s.probe is None and s.budget, "probe", "design 12"),
    Line(lambda s: s.probe is P.ACTIVE and s.budget, "wait", "design 15"),
    Line(lambda s: absent(s, A.EARLY) and s.budget, "wait", "design 16"),
    Line(
        lambda s: absent(s, A.LOUD) and s.budget and s.opted_in,
        "replay replay wait wait ask",
        "head 6: it waits for silence",
    ),
    Line(
        lambda s: absent(s, A.LOUD) and s.budget,
        "replay replay wait ask ask",
        "head 6; design 17 and 18: who would ask on the proof asks now",
    ),
    Line(
        lambda s: s.probe is P.UNAVAILABLE and s.budget and s.acknowledged,
        "wait",
        "design 20; P11: never dispatched before the provider says so",
    ),
    Line(
        lambda s: s.probe is P.UNAVAILABLE and s.budget,
        "replay wait wait wait wait",
        "design 20; P14: replay for pure and idempotent, back-off for the rest",
    ),
    Line(lambda s: s.acknowledged and s.probe is not P.NOT_FOUND, "ask", "design 10; P11"),
    Line(lambda _: True, "replay replay ask ask ask", "design 19 and 20; P14: the budget ends"),
)


def expected(s: Situation) -> Verdict:
    """What the words say."""
    line = next(line for line in EXPECTED if line.when(s))
    words = line.answers.split()
    word = words[0] if len(words) == 1 else words[COLUMN[s.safety]]
    if word == "replay" and (s.cancel or s.expired):
        word = "ask"  # P22 and head 21: nothing is sent any more
    return WORDS[word]


YES_NO = (False, True)


def _answers() -> Iterator[dict[str, Any]]:
    """What a round of probes may have come to."""
    yield {"can_probe": False}
    yield {"can_probe": True}  # nobody was asked yet
    for probe in Probe:
        if probe is P.NOT_FOUND:
            yield from ({"can_probe": True, "probe": probe, "absence": worth} for worth in A)
        elif probe is P.ACTIVE:
            yield from ({"can_probe": True, "probe": probe, "reattach": may} for may in YES_NO)
        else:
            yield {"can_probe": True, "probe": probe}


@cache
def situations() -> tuple[Situation, ...]:
    """Every situation that can occur.

    What was probed, brought in late, acknowledged or marred is about a record in doubt, whose own
    probes nobody but its holder takes. Other states differ in the rest only.
    """
    found = list[Situation]()
    for state, safety in product(State, Safety):
        doubtful = state in {S.DISPATCHED, S.IN_DOUBT}
        for held, expired, forgot, cancel, opted in product(YES_NO, repeat=5):
            base = Situation(
                state, safety, held=held, expired=expired, forgot=forgot, cancel=cancel,
                opted_in=opted,
            )  # fmt: skip
            if not doubtful:
                found.append(base)
                continue
            for late, ack, marred, budget in product(YES_NO, repeat=4):
                known = base._replace(late=late, acknowledged=ack, marred=marred, budget=budget)
                answers = list(_answers())[:2] if held else _answers()
                found.extend(known._replace(**changes) for changes in answers)
    return tuple(found)


def first(s: Situation) -> Row:
    """The row that decides."""
    return next(row for row in TABLE if row.when(s))


def test_every_cell_is_what_the_protocol_says() -> None:
    assert len(situations()) > 50_000
    wrong = [s for s in situations() if verdict(s) is not expected(s)]
    assert not wrong, f"{len(wrong)}, first: {wrong[0]}: {verdict(wrong[0])}"


def test_every_row_is_reached_in_every_column() -> None:
    reached = {(first(s).name, COLUMN[s.safety]) for s in situations()}
    assert reached == {(row.name, column) for row in TABLE for column in range(len(COLUMNS))}


def test_every_line_of_the_words_is_reached() -> None:
    reached = {next(n for n, line in enumerate(EXPECTED) if line.when(s)) for s in situations()}
    assert reached == set(range(len(EXPECTED)))


def test_every_verdict_occurs() -> None:
    assert {verdict(s) for s in situations()} == set(Verdict)


def test_rows_have_names_of_their_own() -> None:
    assert len({row.name for row in TABLE}) == len(TABLE)


def test_rule_2_nothing_that_is_not_idempotent_is_repeated_without_permission_or_proof() -> None:
    strict = {Safety.NON_IDEMPOTENT, Safety.HUMAN_CONFIRMATION_REQUIRED}
    for s in situations():
        if s.safety in strict and verdict(s) in SENDS:
            first_attempt = s.state is S.PREPARED and verdict(s) is Verdict.LIST
            permitted = s.state is S.PERMITTED and verdict(s) is Verdict.SPEND
            proven = absent(s, A.PROVEN) and s.opted_in and s.safety is Safety.NON_IDEMPOTENT
            assert first_attempt or permitted or proven, s


def test_a_status_query_is_repeated_on_absence_only() -> None:
    for s in situations():
        if s.safety is Safety.STATUS_QUERY_REQUIRED and verdict(s) in {
            Verdict.REPLAY,
            Verdict.CLEAR,
        }:
            assert absent(s, A.PROVEN) or absent(s, A.ASSUMED), s


def test_rule_3_an_acknowledged_attempt_is_sent_again_only_where_it_is_not_found() -> None:
    for s in situations():
        if s.acknowledged and verdict(s) in SENDS:
            assert s.probe is P.NOT_FOUND, s


def test_nothing_is_sent_after_a_cancel_or_past_no_use_after() -> None:
    for s in situations():
        if s.cancel or s.expired:  # a cleared record is closed by the machine, or by expiry
            assert verdict(s) not in SENDS - {Verdict.CLEAR}, s


def test_no_effect_is_certified_only_by_proof_or_where_nothing_was_sent() -> None:
    for s in situations():
        if verdict(s) is Verdict.CLEAR:
            assert absent(s, A.PROVEN), s
            assert not s.marred, s
        if verdict(s) in {Verdict.CANCEL, Verdict.EXPIRE}:
            assert s.state is S.PREPARED, s
            assert not s.forgot, s


def test_what_somebody_holds_is_left_alone() -> None:
    assert all(verdict(s) is Verdict.LEAVE for s in situations() if s.held)


def test_every_doubt_ends_waiting_is_bounded_by_the_budget() -> None:
    waits = {Verdict.WAIT, Verdict.PROBE}
    assert not [s for s in situations() if verdict(s) in waits and not s.budget]


def test_a_late_result_is_used_whatever_the_probes_say() -> None:
    for s in situations():
        if s.late and not s.held:
            human = s.safety is Safety.HUMAN_CONFIRMATION_REQUIRED
            assert verdict(s) is (Verdict.ASK if human else Verdict.ADOPT_LATE), s


def test_a_stricter_class_never_does_more_by_itself() -> None:
    """What a stricter class sends again, every weaker one sends too."""
    order = list(Safety)
    for s in situations():
        if verdict(s) in {Verdict.REPLAY, Verdict.CLEAR}:
            for weaker in order[: order.index(s.safety)]:
                assert verdict(s._replace(safety=weaker)) in {Verdict.REPLAY, Verdict.CLEAR}, s


def test_a_table_may_be_passed() -> None:
    wait = Verdict.WAIT
    row = Row("always", lambda _: True, (wait, wait, wait, wait, wait))
    assert verdict(situations()[0], (row,)) is Verdict.WAIT


@pytest.mark.parametrize("state", CLOSED)
@pytest.mark.parametrize("effect", [None, *Effect])
@pytest.mark.parametrize("cancel", YES_NO)
@pytest.mark.parametrize("contradicted", YES_NO)
def test_repeats_of_what_has_ended(
    state: State, effect: Effect | None, *, cancel: bool, contradicted: bool
) -> None:
    answer = repeat(state, effect, cancel=cancel, contradicted=contradicted)
    if state is S.SUCCEEDED:
        assert answer is Repeat.RECEIPT
    elif state is S.UNKNOWN or contradicted:
        assert answer is Repeat.UNKNOWN
    elif state in {S.FAILED, S.CANCELLED} and effect is Effect.NONE and not cancel:
        assert answer is Repeat.ANEW  # head 1 and 20
    else:
        assert answer is Repeat.FAILED


def test_several_answers_come_to_one() -> None:
    # Success decides; then whatever keeps us from knowing; then the least certain "no".
    order = (P.SUCCEEDED, P.FOREIGN, P.ACTIVE, P.UNAVAILABLE, P.UNKNOWN, P.NOT_FOUND)
    order += (P.FAILED, P.CANCELLED)
    for higher, lower in product(range(len(order)), repeat=2):
        assert combine((order[higher], order[lower])) is order[min(higher, lower)]
    assert set(order) == set(Probe)
    assert combine(()) is P.UNKNOWN


def test_the_page_in_the_docs_is_the_table() -> None:
    script = runpy.run_path(str(DOCS / "verdict_table.py"))
    page = (DOCS / "verdicts.md").read_text("utf-8")
    assert page == script["page"](), "run: python docs/verdict_table.py"
    assert all(f"| {row.name} |" in page for row in TABLE)
