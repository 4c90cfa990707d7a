"""The rules of the protocol, each of which can be switched off, and the scenarios that show why.

A rule of the record is switched off by a faulty ``decide``, ``absence``, ``situation`` or table
that the model is given in place of the real one; a worker's own rule by a flag that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from indoubt.core.absence import Absence, absence
from indoubt.core.commands import (
    Ask,
    Cancel,
    Claim,
    Command,
    Decide,
    Dispatch,
    Release,
    Settle,
)
from indoubt.core.machine import decide
from indoubt.core.record import Closed, Effect, Record, Safety, State
from indoubt.core.refusals import Refused
from indoubt.core.situation import situation
from indoubt.core.verdicts import TABLE, Row, Situation, Verdict

from .images import SETTLE, permission

ASSUMPTIONS = {
    "send_prompt": "no process stands still between its permit check and its send past the permit",
    "inflight_bound": "a sent request lands within the in-flight bound or never",
    "read_lag": "a landed effect is visible to the probe within the read lag",
}
WORKERS = {
    "durable_mark": "the dispatch mark is durable before the request leaves",
    "permit_check": "the holder checks its permit, on its own clock, before it sends",
    "permit_from_read": "the local permit runs from before the write (the store stamps its own when"
    " it writes), not from the write's answer",
    "retry_keeps_deadline": "a command repeated after a lost answer keeps the first deadline",
    "probe_began_quiet": "not_found counts only if the probe began after quiet_at",
    "measured_before_probe": "the own clock's measure ends when the probe is sent, too",
    "measured_past_permit": "the own clock's measure starts where a permit that ran at the first"
    " sight of the doubt is over",
    "epoch": "after the store was put back, 'prepared' no longer proves 'never sent'",
    "tombstone": "pruning leaves a tombstone: a repeat of the key finds it",
    "generation": "what was forgotten and made anew is no record of an older holder's (here: nobody"
    " is paused for as long as tombstones are kept)",
    "free": "ending another's hold needs the version and the lease end that were read",
}
MACHINE = {
    "fence_on_settle": "a settle from an old fence changes no state",
    "settle_wait": "not_found before quiet_at proves nothing",
    "opt_in_only": "non_idempotent is sent again on absence only where the effect opted in",
    "closed_all": "failed, effect none needs every attempt closed, not just the rejected one",
    "person_fences": "a decision raises the fence (a prober or holder of the old one is out)",
    "bound_to_pause": "a decision counts only for the question the person saw",
    "spent_at_dispatch": "a permission is spent in the write of the dispatch that uses it",
    "perm_by_attempt": "a permission is bound to the attempt number: it survives idle claims",
    "person_waits_quiet": "'did not happen' and 'allow' are refused before quiet_at",
    "prepared_history": "cancelling what an earlier attempt may have done is not 'effect none'",
    "release_history": "releasing an unsent replay leads back to in doubt while another is open",
    "cancel_guard": "no dispatch and no permission once cancel was asked for",
    "two_clocks": "settle time must have passed on the recoverer's own clock, too",
    "retention_margin": "a replay by key must land before the provider forgets the key",
    "requeue_needs_proof": "only its live holder may call a dispatch never sent",
}
RULES = {**ASSUMPTIONS, **WORKERS, **MACHINE}
EXTRA = {
    "silence": "the store can prove an owner dead, and absence waits for every holder's silence",
    "decide_in_doubt": "people decide while the record is in doubt, too",
    "rewound_to_nothing": "the store may be put back to before the record existed",
}
NEED_NOT_SHOW = {
    "opt_in_only": "under the assumptions a proven absence is true; the opt-in guards against"
    " assumptions that fail",
    "person_fences": "the state and the fence of the next claim suffice",
}
STRICTER_THAN_THE_LIBRARY = {
    "measured_past_permit": "Sightings count from the sight; absence() asks for settle_ms alone",
}
WHERE = {  # where a rule that is off shows first; the others: "non"
    "permit_check": "optin",
    "permit_from_read": "optin",
    "retry_keeps_deadline": "optin",
    "probe_began_quiet": "query",
    "settle_wait": "query",
    "opt_in_only": "non_opt",
    "prepared_history": "non_cancel",
    "release_history": "key",
    "cancel_guard": "non_cancel",
    "tombstone": "prune",
    "generation": "prune",
    "epoch": "rewind",
    "two_clocks": "query_jump",
    "measured_before_probe": "query_jump",
    "retention_margin": "key",
    "free": "renew",
    "send_prompt": "query",
    "measured_past_permit": "query_jump",
    "inflight_bound": "query",
    "read_lag": "query",
}


class Scenario(NamedTuple):
    """A class of effect, what its provider does, and how often what goes wrong."""

    safety: Safety
    resend: bool = False
    reject: bool = False
    keep: int = 0
    attempts: int = 3
    workers: int = 2
    crash: int = 1
    lost: int = 0
    grants: int = 0
    jump: int = 0
    cancel: int = 0
    prune: int = 0
    rewind: int = 0
    renew: int = 0


NON, QUERY = Safety.NON_IDEMPOTENT, Safety.STATUS_QUERY_REQUIRED
SCENARIOS = {
    "non": Scenario(NON, reject=True, lost=1, grants=1),
    "non_cancel": Scenario(NON, grants=1, cancel=1),
    "non_3w": Scenario(NON, grants=1, workers=3),
    "optin": Scenario(NON, resend=True, reject=True, lost=1),
    "query": Scenario(QUERY, reject=True, lost=1),
    "query_jump": Scenario(QUERY, jump=1),
    "key": Scenario(Safety.IDEMPOTENT, keep=5),
    "prune": Scenario(NON, prune=1),
    "rewind": Scenario(NON, rewind=1),
    "renew": Scenario(QUERY, crash=0, renew=1),
}

Deciding = Callable[[Record | None, Sequence[Command], int], Record | Refused]


class Core(NamedTuple):
    """The rules that the model runs on."""

    decide: Deciding = decide
    absence: Callable[..., Absence] = absence
    situation: Callable[..., Situation] = situation
    table: tuple[Row, ...] = TABLE


# -- faulty rules ------------------------------------------------------------------------------


def _as_held(record: Record) -> Record:
    return record if record.owner else replace(record, owner="w0")


def _fence_on_settle(record: Record | None, commands: Sequence[Command], now_ms: int) -> Any:
    if record and isinstance(commands[0], Settle):
        commands = (replace(commands[0], fence=record.fence),)
        record = _as_held(record)
    return decide(record, commands, now_ms)


def _closed_all(record: Record | None, commands: Sequence[Command], now_ms: int) -> Any:
    return decide(record, [_of_all(c) for c in commands], now_ms)


def _of_all(command: Command) -> Command:
    clean = isinstance(command, Settle) and command.closes is Closed.CLEAN_FAILURE
    return replace(command, attempt=None) if clean else command


def _person_fences(record: Record | None, commands: Sequence[Command], now_ms: int) -> Any:
    after = decide(record, commands, now_ms)
    if record is None or isinstance(after, Refused) or not isinstance(commands[0], Decide):
        return after
    return replace(after, fence=record.fence)


def _bound_to_pause(record: Record | None, commands: Sequence[Command], now_ms: int) -> Any:
    if record and isinstance(commands[0], Decide):
        commands = (replace(commands[0], attempt=record.attempt),)
    return decide(record, commands, now_ms)


def _spent_at_dispatch(record: Record | None, commands: Sequence[Command], now_ms: int) -> Any:
    after = decide(record, commands, now_ms)
    if record is None or isinstance(after, Refused) or record.permission is None:
        return after
    if isinstance(commands[-1], Dispatch):
        return replace(after, permission=permission(after.attempt + 1))
    if isinstance(commands[-1], Ask):  # the stored approval is found again
        return replace(after, state=State.PERMITTED)
    return after


def _perm_by_attempt(record: Record | None, commands: Sequence[Command], now_ms: int) -> Any:
    after = decide(record, commands, now_ms)
    if isinstance(after, Refused) or after.permission is None:
        return after
    if isinstance(commands[-1], Claim):  # bound to a fence that has gone by
        return replace(after, permission=permission(0))
    return after


def _person_waits_quiet(record: Record | None, commands: Sequence[Command], now_ms: int) -> Any:
    later = now_ms + 1000 if isinstance(commands[0], Decide) else now_ms
    return decide(record, commands, later)


def _prepared_history(record: Record | None, commands: Sequence[Command], now_ms: int) -> Any:
    allowed = record is not None and record.state is State.PERMITTED
    if record is None or not isinstance(commands[0], Cancel) or not allowed:
        return decide(record, commands, now_ms)
    after = decide(replace(record, state=State.PREPARED, permission=None), commands, now_ms)
    return after if isinstance(after, Refused) else replace(after, effect=Effect.NONE)


def _release_history(record: Record | None, commands: Sequence[Command], now_ms: int) -> Any:
    after = decide(record, commands, now_ms)
    if isinstance(after, Refused) or not isinstance(commands[0], Release):
        return after
    unsent = commands[0].never_sent and after.state is State.IN_DOUBT
    return replace(after, state=State.PREPARED) if unsent else after


def _cancel_guard(record: Record | None, commands: Sequence[Command], now_ms: int) -> Any:
    asked = record is not None and record.cancel_requested
    if record is None or not asked or not isinstance(commands[-1], Dispatch | Decide):
        return decide(record, commands, now_ms)
    after = decide(replace(record, cancel_requested=False), commands, now_ms)
    return after if isinstance(after, Refused) else replace(after, cancel_requested=True)


def _requeue_needs_proof(record: Record | None, commands: Sequence[Command], now_ms: int) -> Any:
    if record and isinstance(commands[0], Release) and record.state is State.DISPATCHED:
        commands = (replace(commands[0], never_sent=True),)
    return decide(record, commands, now_ms)


DECIDE: dict[str, Deciding] = {
    "fence_on_settle": _fence_on_settle,
    "closed_all": _closed_all,
    "person_fences": _person_fences,
    "bound_to_pause": _bound_to_pause,
    "spent_at_dispatch": _spent_at_dispatch,
    "perm_by_attempt": _perm_by_attempt,
    "person_waits_quiet": _person_waits_quiet,
    "prepared_history": _prepared_history,
    "release_history": _release_history,
    "cancel_guard": _cancel_guard,
    "requeue_needs_proof": _requeue_needs_proof,
}


def _never_early(record: Record, **asked: Any) -> Absence:
    found = absence(record, **asked)
    return Absence.ASSUMED if found is Absence.EARLY else found


def _one_clock(record: Record, **asked: Any) -> Absence:
    asked["measured_ms"] = SETTLE
    return absence(record, **asked)


def _uncancelled(record: Record, **asked: Any) -> Situation:
    return situation(replace(record, cancel_requested=False), **asked)


def _to_the_last_moment(record: Record, **asked: Any) -> Situation:
    asked["permit_ms"] = -SETTLE
    return situation(record, **asked)


def _resent(row: Row) -> Row:
    """The row, if absence counted for non_idempotent as it counts for a class one step safer.

    The machine refuses its replay in any case, so it sends anew what counts as absent.
    """
    one, two, three, four, five = row.answers
    anew = Verdict.CLEAR if three in {Verdict.CLEAR, Verdict.REPLAY} else four
    return Row(row.name, row.when, (one, two, three, anew, five))


def core(off: Sequence[str] = ()) -> Core:
    """The real rules, or one faulty one in its place."""
    made = Core()
    for rule in off:
        made = made._replace(decide=DECIDE.get(rule, made.decide))
        if rule == "settle_wait":
            made = made._replace(absence=_never_early)
        elif rule == "two_clocks":
            made = made._replace(absence=_one_clock)
        elif rule == "cancel_guard":
            made = made._replace(situation=_uncancelled)
        elif rule == "retention_margin":
            made = made._replace(situation=_to_the_last_moment)
        elif rule == "opt_in_only":
            made = made._replace(table=tuple([_resent(row) for row in TABLE]))
    return made
