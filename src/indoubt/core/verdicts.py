"""What recovery does: an ordered table, five answers a row, the first row that matches wins.

Rule 1: every rule about what recovery does is in this file, as data, with a pure function over it.
Rule 2: no row repeats a non-idempotent effect without a person's permission or proven absence.
Rule 3: an acknowledged attempt is never sent again until the provider says that it is not there.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from .absence import Absence
from .record import CLOSED, Effect, Safety, State, Struct


class Verdict(StrEnum):
    """What shall be done next."""

    LEAVE = "leave"
    USE = "use the record"
    CANCEL = "close: cancelled, no effect"
    EXPIRE = "close: cancelled, no effect (past no_use_after)"
    DOUBT = "as in doubt"
    LIST = "a repeat of the call dispatches"
    SPEND = "dispatch once, spending the permission"
    ADOPT_LATE = "adopt the late result"
    ADOPT = "adopt the receipt"
    CLOSE = "close with effect: possible"
    REATTACH = "reattach"
    PROBE = "probe"
    WAIT = "wait"
    REPLAY = "replay"
    CLEAR = "proven absent: may be sent anew"
    ASK = "ask"


class Probe(StrEnum):
    """What the probes of all open attempts came to."""

    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    NOT_FOUND = "not_found"
    UNKNOWN = "unknown"
    UNAVAILABLE = "unavailable"
    FOREIGN = "foreign"
    """It answered for another execution: the probe is broken."""


class Situation(NamedTuple):
    """Everything a verdict depends on."""

    state: State
    safety: Safety
    held: bool = False
    expired: bool = False
    forgot: bool = False
    cancel: bool = False
    opted_in: bool = False
    late: bool = False
    acknowledged: bool = False
    marred: bool = False
    can_probe: bool = False
    budget: bool = True
    probe: Probe | None = None
    reattach: bool = False
    absence: Absence | None = None


Answers = tuple[Verdict, Verdict, Verdict, Verdict, Verdict]
COLUMNS = (
    "pure, idempotent",
    "retry_safe",
    "status_query_required",
    "non_idempotent",
    "human_confirmation_required",
)
COLUMN = {
    Safety.PURE: 0,
    Safety.IDEMPOTENT: 0,
    Safety.RETRY_SAFE: 1,
    Safety.STATUS_QUERY_REQUIRED: 2,
    Safety.NON_IDEMPOTENT: 3,
    Safety.HUMAN_CONFIRMATION_REQUIRED: 4,
}


class Row(Struct, frozen=True):
    """One row: when it applies, and what each class does then."""

    name: str
    when: Callable[[Situation], bool]
    answers: Answers


V = Verdict
S = State
P = Probe


def _same(verdict: Verdict) -> Answers:
    return (verdict, verdict, verdict, verdict, verdict)


REPLAY_OR_ASK: Answers = (V.REPLAY, V.REPLAY, V.ASK, V.ASK, V.ASK)
"""What classes come to when nothing more will be learned."""


def _doubt(s: Situation) -> bool:
    """In doubt, or dispatched by a holder who is gone (its claim makes it in doubt)."""
    return s.state in {S.DISPATCHED, S.IN_DOUBT}


def _absent(s: Situation, *which: Absence) -> bool:
    return s.probe is P.NOT_FOUND and s.absence in which


TABLE: tuple[Row, ...] = (
    Row("lease live, owner not proven dead", lambda s: s.held, _same(V.LEAVE)),
    Row("closed", lambda s: s.state in CLOSED, _same(V.USE)),
    Row(
        "prepared, permitted or awaiting_decision, written in an older store epoch",
        lambda s: s.forgot and not _doubt(s),
        _same(V.DOUBT),
    ),
    Row("awaiting_decision", lambda s: s.state is S.AWAITING_DECISION, _same(V.LEAVE)),
    Row("prepared, cancel asked", lambda s: s.state is S.PREPARED and s.cancel, _same(V.CANCEL)),
    Row(
        "prepared, past no_use_after",
        lambda s: s.state is S.PREPARED and s.expired,
        _same(V.EXPIRE),
    ),
    Row("prepared otherwise", lambda s: s.state is S.PREPARED, _same(V.LIST)),
    Row(
        "permitted, cancel asked or past no_use_after",
        lambda s: s.state is S.PERMITTED and (s.cancel or s.expired),
        _same(V.ASK),
    ),
    Row("permitted", lambda s: s.state is S.PERMITTED, _same(V.SPEND)),
    Row(
        "late result on file for an open attempt",
        lambda s: s.late,
        (V.ADOPT_LATE, V.ADOPT_LATE, V.ADOPT_LATE, V.ADOPT_LATE, V.ASK),
    ),
    Row("probe answers for another execution_id", lambda s: s.probe is P.FOREIGN, _same(V.ASK)),
    Row(
        "probe: succeeded",
        lambda s: s.probe is P.SUCCEEDED,
        (V.ADOPT, V.ADOPT, V.ADOPT, V.ADOPT, V.ASK),
    ),
    Row(
        "probe: failed / cancelled",
        lambda s: s.probe in {P.FAILED, P.CANCELLED},
        (V.CLOSE, V.CLOSE, V.CLOSE, V.CLOSE, V.ASK),
    ),
    Row(
        "probe: not_found, proven absence; another attempt has failed, effect possible",
        lambda s: _absent(s, Absence.PROVEN) and s.marred,
        (V.CLOSE, V.CLOSE, V.CLOSE, V.CLOSE, V.ASK),
    ),
    Row(
        "probe: not_found, proven absence, opted in",
        lambda s: _absent(s, Absence.PROVEN) and s.opted_in,
        (V.CLEAR, V.CLEAR, V.CLEAR, V.CLEAR, V.ASK),
    ),
    Row(
        "probe: not_found, proven absence",
        lambda s: _absent(s, Absence.PROVEN),
        (V.CLEAR, V.CLEAR, V.CLEAR, V.ASK, V.ASK),
    ),
    Row(
        "probe: not_found, assumed absence; another attempt has failed, effect possible",
        lambda s: _absent(s, Absence.ASSUMED) and s.marred,
        (V.CLOSE, V.CLOSE, V.CLOSE, V.ASK, V.ASK),
    ),
    Row(
        "probe: not_found, assumed absence",
        lambda s: _absent(s, Absence.ASSUMED),
        (V.REPLAY, V.REPLAY, V.REPLAY, V.ASK, V.ASK),
    ),
    Row(
        "probe: not_found, lookup not authoritative or no settle time declared",
        lambda s: _absent(s, Absence.UNPROVABLE),
        REPLAY_OR_ASK,
    ),
    Row(
        "probe: active, reattach supported by provider and result, budget left",
        lambda s: s.probe is P.ACTIVE and s.reattach and s.budget,
        (V.REATTACH, V.REATTACH, V.REATTACH, V.REATTACH, V.WAIT),
    ),
    Row(
        "probe: active, reattach supported by provider and result",
        lambda s: s.probe is P.ACTIVE and s.reattach,
        (V.REATTACH, V.REATTACH, V.REATTACH, V.REATTACH, V.ASK),
    ),
    Row(
        "in doubt, cannot probe, an open attempt is acknowledged",
        lambda s: not s.can_probe and s.acknowledged,
        _same(V.ASK),
    ),
    Row("in doubt, cannot probe", lambda s: not s.can_probe, REPLAY_OR_ASK),
    Row(
        "in doubt, probe budget left",
        lambda s: s.probe is None and s.budget,
        _same(V.PROBE),
    ),
    Row(
        "probe: not_found, holder not silent, budget left, opted in",
        lambda s: _absent(s, Absence.LOUD) and s.budget and s.opted_in,
        (V.REPLAY, V.REPLAY, V.WAIT, V.WAIT, V.ASK),
    ),
    Row(
        "probe: not_found, holder not silent, budget left",
        lambda s: _absent(s, Absence.LOUD) and s.budget,
        (V.REPLAY, V.REPLAY, V.WAIT, V.ASK, V.ASK),
    ),
    Row(
        "probe: active, or not_found before quiet_at; budget left",
        lambda s: s.budget and (s.probe is P.ACTIVE or _absent(s, Absence.EARLY)),
        _same(V.WAIT),
    ),
    Row(
        "probe: unavailable, error or time-out, budget left, acknowledged",
        lambda s: s.probe is P.UNAVAILABLE and s.budget and s.acknowledged,
        _same(V.WAIT),
    ),
    Row(
        "probe: unavailable, error or time-out, budget left",
        lambda s: s.probe is P.UNAVAILABLE and s.budget,
        (V.REPLAY, V.WAIT, V.WAIT, V.WAIT, V.WAIT),
    ),
    Row(
        "probe: unknown, or the budget is spent; an open attempt is acknowledged",
        lambda s: s.acknowledged and s.probe is not P.NOT_FOUND,
        _same(V.ASK),
    ),
    Row("probe: unknown, or the budget is spent", _doubt, REPLAY_OR_ASK),
)
NO_DISPATCH = {V.REPLAY: V.ASK}
"""Where cancel was asked, or ``no_use_after`` is over: what would send again asks instead."""


def verdict(situation: Situation, table: tuple[Row, ...] = TABLE) -> Verdict:
    """Answer by the first row that matches (the last one matches every doubt)."""
    row = next(row for row in table if row.when(situation))
    answer = row.answers[COLUMN[situation.safety]]
    if situation.cancel or situation.expired:
        return NO_DISPATCH.get(answer, answer)
    return answer


class Repeat(StrEnum):
    """What a repeat of the call gets from a closed record (protocol head, line 1)."""

    RECEIPT = "the receipt"
    ANEW = "a new attempt"
    FAILED = "EffectFailed"
    UNKNOWN = "OutcomeUnknown, closed"


def repeat(
    state: State, effect: Effect | None, *, cancel: bool, contradicted: bool = False
) -> Repeat:
    """Answer a repeat of the call on a closed record.

    A "no effect" that evidence contradicts is no longer known: only a decision mends it (P12).
    """
    if state is S.SUCCEEDED:
        return Repeat.RECEIPT
    if state is S.UNKNOWN or contradicted:
        return Repeat.UNKNOWN
    certain = state in {S.FAILED, S.CANCELLED} and effect is Effect.NONE
    return Repeat.ANEW if certain and not cancel else Repeat.FAILED


STATUSES = (
    P.SUCCEEDED,
    P.FOREIGN,
    P.ACTIVE,
    P.UNAVAILABLE,
    P.UNKNOWN,
    P.NOT_FOUND,
    P.FAILED,
    P.CANCELLED,
)
"""Of several attempts' answers the first in this order speaks for the record."""


def combine(answers: tuple[Probe, ...]) -> Probe:
    """One answer for all open attempts: success decides, then whatever keeps us from knowing.

    With no attempt to ask about, nothing was learned.
    """
    return min(answers, key=STATUSES.index, default=P.UNKNOWN)
