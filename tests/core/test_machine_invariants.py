"""What holds after any commands in any order, by any owners, at any times.

A script is a list of writes against one record; what a write makes of it is checked against what
it was. The rules that every step keeps are the functions of RULES.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace
from sample_records import POLICY, intent, of_class

from indoubt.contracts import ExecutionSafetyClass as Safety
from indoubt.core.attempts import none
from indoubt.core.bounds import ATTEMPTS_KEPT, DECISIONS_KEPT, EVIDENCE_KEPT
from indoubt.core.commands import (
    Abandon,
    Acknowledge,
    Ask,
    Cancel,
    Checkpoint,
    Claim,
    Clear,
    Command,
    Decide,
    Dispatch,
    Doubt,
    Note,
    Postpone,
    Release,
    Renew,
    Reopen,
    Settle,
)
from indoubt.core.machine import ALLOWED, NEVER_REPLAYED, decide
from indoubt.core.record import (
    NO_RAW,
    REPLAYABLE,
    Closed,
    DecisionKind,
    Effect,
    Evidence,
    Policy,
    Record,
    State,
)
from indoubt.core.refusals import Refused

S = State
K = DecisionKind
T = TypeVar("T")
OWNERS = ("w1", "w2", "w3")
RECEIPTS = (Raw(b"1"), Raw(b"2"))
LEASE = PERMIT = 10_000


class Applied(NamedTuple):
    """A command that was allowed."""

    before: Record
    command: Command
    after: Record
    now_ms: int


class Choices:
    """One number as a source of choices."""

    def __init__(self, number: int) -> None:
        self.number = number

    def of(self, *options: T) -> T:
        """Choose one."""
        self.number, index = divmod(self.number, len(options))
        return options[index]

    def yes(self, times: int = 1, *, of: int = 2) -> bool:
        """Say yes so many times of so many."""
        self.number, index = divmod(self.number, of)
        return index < times


def commands(record: Record, now_ms: int, c: Choices) -> Command:
    """Some command, most often one that may be allowed in this state."""
    kinds = [k for k in LIKELY if record.state in ALLOWED[k]]
    kind = c.of(*kinds) if kinds and c.yes(6, of=8) else c.of(*MAKERS)
    return MAKERS[kind](record, now_ms, c)


def _fence(record: Record, c: Choices) -> int:
    return record.fence - c.of(0, 0, 0, 0, 0, 0, 0, 1)


def _about(record: Record, c: Choices) -> int:
    return c.of(*[a.number for a in record.attempts]) if record.attempts else 1


def _claim(record: Record, _now_ms: int, c: Choices) -> Command:
    return Claim(
        owner=c.of(*OWNERS),
        lease_ms=LEASE,
        dead_owners=c.of((), (), ("w1",), ("w2", "w3")),
        store_epoch=record.store_epoch + c.yes(1, of=8),
    )


def _dispatch(record: Record, _now_ms: int, c: Choices) -> Command:
    policy = c.of(None, None, of_class(Safety.RETRY_SAFE), of_class(Safety.STATUS_QUERY_REQUIRED))
    return Dispatch(fence=_fence(record, c), permit_ms=PERMIT, policy=policy)


def _settle(record: Record, _now_ms: int, c: Choices) -> Command:
    outcome = c.of(S.SUCCEEDED, S.FAILED, S.FAILED, S.PARTIAL, S.CANCELLED)
    return Settle(
        fence=_fence(record, c),
        outcome=outcome,
        effect=c.of(Effect.NONE, Effect.NONE, Effect.POSSIBLE),
        attempt=c.of(None, record.attempt, _about(record, c)),
        receipt=c.of(*RECEIPTS),
    )


def _note(record: Record, now_ms: int, c: Choices) -> Command:
    number = _about(record, c)
    told = Evidence(source="test", at_ms=now_ms, attempt=number)
    if c.yes(1, of=3):
        return Note(evidence=told, about=number, late=c.of(*RECEIPTS), returned=True)
    closes = c.of(None, None, Closed.FAILED)
    active, returned = c.yes(), c.yes()
    return Note(
        evidence=told, about=number, counts=True, closes=closes, active=active, returned=returned
    )


def _decide(record: Record, _now_ms: int, c: Choices) -> Command:
    return Decide(
        kind=c.of(K.ALLOW_ONE_ATTEMPT, K.ALLOW_ONE_ATTEMPT, *K),
        attempt=record.attempt - c.of(0, 0, 0, 1),
        decision_id=c.of(*"abcdefgh"),
        actor="ada",
        reason="saw it",
        receipt=c.of(*RECEIPTS),
        store_epoch=record.store_epoch,
    )


MAKERS: dict[type[Command], Callable[[Record, int, Choices], Command]] = {
    Claim: _claim,
    Dispatch: _dispatch,
    Acknowledge: lambda r, _, c: Acknowledge(fence=_fence(r, c), token=c.of(*RECEIPTS)),
    Checkpoint: lambda r, _, c: Checkpoint(fence=_fence(r, c), token=c.of(*RECEIPTS)),
    Renew: lambda r, _, c: Renew(fence=_fence(r, c), lease_ms=LEASE, permit_ms=c.of(PERMIT, None)),
    Settle: _settle,
    Doubt: lambda r, _, c: Doubt(fence=_fence(r, c), returned=c.yes(), keep=c.yes()),
    Release: lambda r, _, c: Release(
        fence=_fence(r, c), never_sent=c.yes(), after_ms=5, give_back=c.yes()
    ),
    Postpone: lambda _r, _n, _c: Postpone(after_ms=5),
    Clear: lambda r, _, c: Clear(fence=_fence(r, c)),
    Ask: lambda r, _, c: Ask(fence=_fence(r, c), reason="who knows"),
    Note: _note,
    Decide: _decide,
    Cancel: lambda r, _n, _c: Cancel(actor="ada", reason="no", store_epoch=r.store_epoch),
    Reopen: lambda r, _n, _c: Reopen(store_epoch=r.store_epoch),
    Abandon: lambda r, _n, _c: Abandon(reason="nobody", store_epoch=r.store_epoch),
}
# What is chosen where it may be allowed; the others do little, or end it.
LIKELY = tuple(kind for kind in MAKERS if kind not in {Cancel, Abandon, Checkpoint, Postpone})
SCRIPTS = st.lists(st.integers(0, 2**63 - 1), min_size=20, max_size=80)
POLICIES = st.sampled_from(
    [
        *(of_class(safety) for safety in Safety),
        replace(POLICY, resend=True),
        replace(POLICY, detached=True),
        replace(POLICY, no_use_after_ms=400_000),
    ]
)


def run(record: Record, script: list[int]) -> list[Applied]:
    """Apply a script; what is refused changes nothing."""
    now_ms, done = 100_000, list[Applied]()
    for number in script:
        choices = Choices(number)
        now_ms += choices.of(0, 0, 1, 5_000, 5_000, 20_000)
        command = commands(record, now_ms, choices)
        after = decide(record, (command,), now_ms)
        if not isinstance(after, Refused):
            done.append(Applied(record, command, after, now_ms))
            record = replace(after, version=after.version + 1)
    return done


# -- what every step keeps ---------------------------------------------------------------------


def fences_only_grow(s: Applied) -> bool:
    """The fence rises with each claim and decision, and with nothing else."""
    raises = isinstance(s.command, Claim | Decide)
    return s.after.fence > s.before.fence if raises else s.after.fence == s.before.fence


def attempts_only_grow(s: Applied) -> bool:
    """A dispatch takes the next number (so does what a rewound store forgot); nothing else does."""
    grown = s.after.attempt - s.before.attempt
    forgot = isinstance(s.command, Claim) and s.before.store_epoch < s.command.store_epoch
    numbers = [a.number for a in s.after.attempts]
    return grown == (isinstance(s.command, Dispatch) or forgot) and numbers == sorted(set(numbers))


def closed_stays_closed(s: Applied) -> bool:
    """Only a decision or a repeat of the call moves what has ended."""
    may = isinstance(s.command, Decide | Reopen)
    return may or not s.before.closed or s.after.state is s.before.state


def outcomes_stay(s: Applied) -> bool:
    """Receipt and error of what has ended change by a decision or a repeat only."""
    may = isinstance(s.command, Decide | Reopen) or not s.before.closed
    return may or (s.after.receipt, s.after.error, s.after.effect) == (
        s.before.receipt,
        s.before.error,
        s.before.effect,
    )


def prepared_is_certain(s: Applied) -> bool:
    """Rule 3: prepared has no open attempt, none that may have had an effect, no holder's doubt."""
    if s.after.state is not S.PREPARED:
        return True
    certain = all(none(attempt) for attempt in s.after.attempts)
    return certain and s.after.folded_until_ms is None and s.after.doubt_since_ms is None


def no_effect_is_certain(s: Applied) -> bool:
    """Rule 3: "effect none" needs every attempt closed without effect."""
    if not s.after.closed or s.after.effect is not Effect.NONE:
        return True
    return s.after.folded_until_ms is None and all(none(a) for a in s.after.attempts)


def dispatch_spends_the_permission(s: Applied) -> bool:
    """A permission is spent by the dispatch that uses it, and is for that number only."""
    if not isinstance(s.command, Dispatch):
        return True
    spent, now = s.before.permission, s.after.attempts[-1].permission
    right = spent is None or spent.attempt == s.after.attempt
    return right and now == spent and s.after.permission is None


def permitted_means_permission(s: Applied) -> bool:
    """The state and the field say the same, and the permission is for the next number."""
    permission = s.after.permission
    if (s.after.state is S.PERMITTED) is not (permission is not None):
        return False
    return permission is None or permission.attempt == s.after.attempt + 1


def permissions_come_from_decisions(s: Applied) -> bool:
    """A permission appears by a person's decision, or is given back by what was never sent."""
    if s.before.permission is not None or s.after.permission is None:
        return True
    given = isinstance(s.command, Decide) and s.command.kind is DecisionKind.ALLOW_ONE_ATTEMPT
    last = s.before.attempts[-1].permission if s.before.attempts else None
    back = isinstance(s.command, Release) and s.command.never_sent and last is not None
    return given or (
        back and last is not None and last.decision_id == s.after.permission.decision_id
    )


def no_dispatch_after_cancel(s: Applied) -> bool:
    """Where cancel was asked nothing more is sent, and nothing more is permitted."""
    if not s.before.cancel_requested:
        return True
    return (
        s.after.cancel_requested
        and not isinstance(s.command, Dispatch)
        and (s.after.permission is None or s.before.permission is not None)
    )


def no_replay_of_non_idempotent(s: Applied) -> bool:
    """What is not idempotent is never dispatched out of a doubt."""
    if not isinstance(s.command, Dispatch) or s.before.state is not S.IN_DOUBT:
        return True
    return not {s.before.policy.safety, s.after.policy.safety} & NEVER_REPLAYED


def no_use_after(s: Applied) -> bool:
    """Past ``no_use_after`` nothing is sent."""
    end = s.after.policy.no_use_after_ms
    return not isinstance(s.command, Dispatch) or end is None or s.now_ms < end


def bounds_hold(s: Applied) -> bool:
    """Attempts, evidence and decisions are bounded."""
    kept = (len(s.after.attempts), len(s.after.evidence), len(s.after.decisions))
    return all(
        n <= m for n, m in zip(kept, (ATTEMPTS_KEPT, EVIDENCE_KEPT, DECISIONS_KEPT), strict=True)
    )


def only_holders_settle(s: Applied) -> bool:
    """A command that carries a fence needs a holder under that fence."""
    fence = getattr(s.command, "fence", None)
    return fence is None or (s.before.owner is not None and fence == s.before.fence)


def notes_change_no_state(s: Applied) -> bool:
    """Evidence changes neither fence nor state; a success undoes "absent" and a permission."""
    if not isinstance(s.command, Note):
        return True
    undone = s.before.state in {S.PREPARED, S.PERMITTED} and s.command.late != NO_RAW
    same = s.after.state is s.before.state or (undone and s.after.state is S.IN_DOUBT)
    return same and (s.after.fence, s.after.owner) == (s.before.fence, s.before.owner)


def silence_needs_a_proof(s: Applied) -> bool:
    """An attempt falls silent by its holder's report or by its owner's proven death only."""
    was = {a.number for a in s.before.attempts if a.silent_at_ms is not None}
    new = [a for a in s.after.attempts if a.silent_at_ms is not None and a.number not in was]
    if isinstance(s.command, Claim):
        return all(a.owner in s.command.dead_owners for a in new)
    return not new or (isinstance(s.command, Doubt | Note) and s.command.returned)


def a_returned_function_ends_its_permit(s: Applied) -> bool:
    """The live holder's doubt ends the permit at once, unless something outlives the function."""
    if not isinstance(s.command, Doubt) or s.before.policy.detached:
        return True
    last, was = s.after.attempts[-1], s.before.attempts[-1]
    until = s.now_ms if s.command.returned else was.permit_until_ms
    return last.permit_until_ms == until


def closed_attempts_stay_closed(s: Applied) -> bool:
    """An attempt is opened again by a success that comes in late, and by nothing else."""
    was = {a.number: a.closed for a in s.before.attempts}
    opened = [a for a in s.after.attempts if a.open and was.get(a.number) is not None]
    return not opened or (isinstance(s.command, Note) and s.command.late != NO_RAW)


def succeeded_has_a_witness(s: Applied) -> bool:
    """A record succeeds by a settlement or a person's word."""
    if s.after.state is not S.SUCCEEDED or s.before.state is S.SUCCEEDED:
        return True
    said = s.command
    return (isinstance(said, Settle) and said.outcome is S.SUCCEEDED) or (
        isinstance(said, Decide) and said.kind is DecisionKind.HAPPENED
    )


def what_is_open_is_found(s: Applied) -> bool:
    """Nothing is lost from the lists: it can be found by its ready time, or it is in doubt.

    Two are found otherwise: what was only prepared, by its id, when the call is repeated; and what
    was prepared or dispatched, before the lease that stands in ``ready_at`` runs out. What is sent
    again by itself is no doubt of a person's, and ready.
    """
    if s.after.closed:
        return s.after.owner is None and s.after.ready_at_ms is None
    if s.after.state is S.IN_DOUBT and s.after.doubt_since_ms is None:
        return s.after.policy.safety in REPLAYABLE and s.after.ready_at_ms is not None
    if s.after.state in {S.IN_DOUBT, S.AWAITING_DECISION, S.PERMITTED}:
        return s.after.doubt_since_ms is not None
    return s.after.state is S.PREPARED or s.after.ready_at_ms is not None


def nobody_holds_without_a_lease(s: Applied) -> bool:
    """Owner and lease come and go together, and a holder is looked for when its lease is over."""
    if s.after.owner is None:
        return s.after.lease_until_ms is None
    lease, ready = s.after.lease_until_ms, s.after.ready_at_ms
    return lease is not None and ready is not None and ready <= lease


def what_ends_asks_nothing(s: Applied) -> bool:
    """Once a record has ended there is no question, no permission and, at first, no doubt."""
    if not s.after.closed or s.before.closed:
        return True
    told = s.after.contradicted is not None
    return (s.after.asked, s.after.permission) == (None, None) and (
        told or s.after.doubt_since_ms is None
    )


def an_effect_is_said_of_what_did_not_succeed(s: Applied) -> bool:
    """What has ended otherwise than well says what it has left."""
    effect_said = s.after.effect is not None
    return effect_said is (s.after.closed and s.after.state is not S.SUCCEEDED)


def contradictions_are_listed(s: Applied) -> bool:
    """What evidence contradicts is in the doubt list until a decision mends it."""
    if s.before.contradicted and not s.after.contradicted:
        return isinstance(s.command, Decide)
    return not s.after.contradicted or s.after.doubt_since_ms is not None


RULES: tuple[Callable[[Applied], bool], ...] = (
    fences_only_grow,
    attempts_only_grow,
    closed_stays_closed,
    outcomes_stay,
    prepared_is_certain,
    no_effect_is_certain,
    dispatch_spends_the_permission,
    permitted_means_permission,
    permissions_come_from_decisions,
    no_dispatch_after_cancel,
    no_replay_of_non_idempotent,
    no_use_after,
    bounds_hold,
    only_holders_settle,
    notes_change_no_state,
    silence_needs_a_proof,
    a_returned_function_ends_its_permit,
    closed_attempts_stay_closed,
    succeeded_has_a_witness,
    what_is_open_is_found,
    nobody_holds_without_a_lease,
    what_ends_asks_nothing,
    an_effect_is_said_of_what_did_not_succeed,
    contradictions_are_listed,
)


@settings(max_examples=1_000, deadline=None)
@given(policy=POLICIES, script=SCRIPTS)
def test_every_step_of_any_script_keeps_the_rules(policy: Policy, script: list[int]) -> None:
    for step in run(intent(policy), script):
        for rule in RULES:
            assert rule(step), f"{rule.__name__}: {rule.__doc__}\n{step}"


def test_scripts_come_to_every_command_in_every_state_that_allows_it() -> None:
    """The rules above are worth what their scripts reach."""
    reached = set[tuple[type[Command], State]]()

    @settings(max_examples=2_000, deadline=None, derandomize=True, database=None)
    @given(policy=POLICIES, script=SCRIPTS)
    def walk(policy: Policy, script: list[int]) -> None:
        reached.update((type(s.command), s.before.state) for s in run(intent(policy), script))

    walk()
    only_repeats = {(Decide, state) for state in (S.PREPARED, S.DISPATCHED, S.PERMITTED)}
    pairs = {(kind, state) for kind in MAKERS for state in ALLOWED[kind]}
    assert pairs - only_repeats - reached == set()
