"""The ledger of the model: every step of a record is the real rules', taken once and remembered.

A step is a short tuple, such as ("settle_ok", fence is current, attempt); it stands for the real
commands that a worker, a person or the sweeper writes there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec.structs import replace

from indoubt.core.absence import Absence, proof_at, silent
from indoubt.core.bounds import FENCE_LEAP
from indoubt.core.commands import (
    Ask,
    Cancel,
    Claim,
    Clear,
    Command,
    Decide,
    Dispatch,
    Doubt,
    Note,
    Prepare,
    Release,
    Renew,
    Settle,
)
from indoubt.core.record import (
    Closed,
    DecisionKind,
    Effect,
    Evidence,
    Policy,
    Record,
    State,
)
from indoubt.core.refusals import Refused
from indoubt.core.retention import tombstone
from indoubt.core.verdicts import Probe, Verdict, verdict

from .images import (
    ENDED,
    EPOCH,
    FENCE,
    GONE,
    LEASE,
    LOUD,
    NOW,
    PERMIT,
    SETTLE,
    Rec,
    aged,
    owned,
    owner_name,
    project,
    rebuild,
    receipt,
)
from .switches import Core, Scenario

Step = tuple[Any, ...]


class Stepped(NamedTuple):
    """What a step led to; ``rec`` None: it was refused. ``fenced``: its fence has risen."""

    rec: Rec | None
    fenced: bool
    why: str


class Ledger:
    """One record's store, and the rules it is under."""

    def __init__(self, scenario: Scenario, rules: Core, *, decides_silence: bool) -> None:
        self._rules = rules
        self._keep = scenario.keep
        self._decides_silence = decides_silence
        self._policy = Policy(
            safety=scenario.safety,
            can_probe=True,
            settle_ms=SETTLE,
            authoritative=True,
            key_retention_ms=scenario.keep or None,
            resend=scenario.resend,
        )
        self._steps: dict[tuple[Rec | None, Step], Stepped] = {}
        self._verdicts: dict[tuple[Rec, bool, str, str], Verdict] = {}
        self._absences: dict[tuple[Rec, int], str] = {}
        self._aged: dict[tuple[Rec, int], Rec] = {}
        self._owned: dict[tuple[Rec, tuple[tuple[int, int], ...]], Rec] = {}
        self._quiet: dict[Rec, bool] = {}

    def step(self, rec: Rec | None, step: Step) -> Stepped:
        """Decide on a record, as the real rules do."""
        key = (rec, step)
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = self._decide(rec, step)
        return found

    def verdict(self, rec: Rec, *, mine: bool, probe: str = "", absent: str = "") -> Verdict:
        """What shall be done next, by the table."""
        key = (rec, mine, probe, absent)
        found = self._verdicts.get(key)
        if found is None:
            now = self._rules.situation(
                self._record(rec),
                now_ms=NOW,
                permit_ms=PERMIT,
                store_epoch=EPOCH + rec.forgot,
                mine=mine,
                dead=self._decides_silence and rec.own == GONE,
                probe=Probe(probe) if probe else None,
                absence=Absence(absent) if absent else None,
            )
            found = self._verdicts[key] = verdict(now, self._rules.table)
        return found

    def absence(self, rec: Rec, measured: int) -> str:
        """What a "not found" of a probe that begins now will be worth."""
        key = (rec, measured)
        found = self._absences.get(key)
        if found is None:
            found = self._absences[key] = self._rules.absence(
                self._record(rec),
                began_ms=NOW,
                measured_ms=measured,
                decides_silence=self._decides_silence,
            ).value
        return found

    def quiet(self, rec: Rec) -> bool:
        """Whether the record shows a person that every holder is silent, and for long enough."""
        found = self._quiet.get(rec)
        if found is None:
            record = self._record(rec)
            found = self._quiet[rec] = silent(record) and proof_at(record) <= NOW
        return found

    def aged(self, rec: Rec, ticks: int = 1) -> Rec:
        """The record after some time."""
        key = (rec, ticks)
        found = self._aged.get(key)
        if found is None:
            found = self._aged[key] = aged(rec, ticks, self._keep)
        return found

    def owned(self, rec: Rec, owner: dict[int, int]) -> Rec:
        """The record with its owners renamed."""
        key = (rec, tuple(owner.items()))
        found = self._owned.get(key)
        if found is None:
            found = self._owned[key] = owned(rec, owner)
        return found

    # -- the real rules --------------------------------------------------------------------------

    def _record(self, rec: Rec) -> Record:
        return rebuild(rec, self._policy)

    def _decide(self, rec: Rec | None, step: Step) -> Stepped:
        epoch = EPOCH + (rec is not None and rec.forgot)
        record = None if rec is None else self._record(rec)
        if step[0] == "prune":
            assert record is not None
            after: Record | Refused = tombstone(record)
        else:
            after = self._rules.decide(record, self._commands(rec, step, epoch), NOW)
        if isinstance(after, Refused):
            return Stepped(None, fenced=False, why=after.reason)
        image = project(after, epoch=epoch, owners=self._decides_silence, keep=self._keep)
        return Stepped(image, fenced=record is None or after.fence != FENCE, why="")

    def _commands(self, rec: Rec | None, step: Step, epoch: int) -> tuple[Command, ...]:
        name, arguments = step[0], step[1:]
        if name in {"first", "register"}:
            return self._created(name, *arguments)
        rec = rec or Rec("P")  # where none is there any more, the rules refuse all the same
        if name in {"claim", "claim_send", "sweep"}:
            claim = self._claim(rec, GONE if name == "sweep" else arguments[0], epoch)
            after = FENCE + (FENCE_LEAP if rec.forgot else 1)
            last = {"claim": (), "claim_send": (_dispatch(after),), "sweep": (_let_go(after),)}
            return (claim, *last[name])
        if name == "decide":
            return (_decision(*arguments, epoch=epoch),)
        if name == "cancel":
            return (Cancel(actor="anybody", reason="no longer wanted", store_epoch=epoch),)
        if name in {"late", "returned"}:
            return (_beside(name, *arguments),)
        return _held(name, rec, *arguments)

    def _created(self, name: str, own: int = GONE) -> tuple[Command, ...]:
        prepare = Prepare(record=replace(self._record(Rec("P")), version=0, fence=0))
        if name == "register":
            return (prepare,)
        return (prepare, self._claim(Rec("P"), own, EPOCH), _dispatch(1))

    def _claim(self, rec: Rec, own: int, epoch: int) -> Claim:
        loud = any(a.own == GONE and a.silent == LOUD and not a.closed for a in rec.atts)
        dead = ("gone",) if self._decides_silence and (rec.own == GONE or loud) else ()
        return Claim(owner=owner_name(own), lease_ms=LEASE, dead_owners=dead, store_epoch=epoch)


def _dispatch(fence: int) -> Dispatch:
    return Dispatch(fence=fence, permit_ms=PERMIT)


def _let_go(fence: int, *, never_sent: bool = False) -> Release:
    return Release(fence=fence, never_sent=never_sent)


def _beside(name: str, attempt: int) -> Note:
    evidence = Evidence(source="holder", at_ms=NOW, attempt=attempt)
    if name == "returned":
        return Note(evidence=evidence, about=attempt, returned=True)
    return Note(evidence=evidence, about=attempt, returned=True, late=receipt(attempt))


def _decision(kind: str, attempt: int, *, epoch: int) -> Decide:
    return Decide(
        kind=DecisionKind(kind),
        attempt=attempt,
        decision_id="this",
        actor="person",
        reason="looked",
        store_epoch=epoch,
    )


def _held(name: str, rec: Rec, current: bool = True, attempt: int = 0) -> tuple[Command, ...]:  # noqa: FBT001, FBT002
    """What the holder of a fence writes, be it its record's or an old one."""
    fence = FENCE if current else FENCE - 1
    probed = Note(evidence=Evidence(source="probe", at_ms=NOW, attempt=attempt), counts=True)
    newest = max([n for n, a in enumerate(rec.atts, 1) if not a.closed], default=None)
    late = next((n for n, a in enumerate(rec.atts, 1) if a.late and not a.closed), None)
    return {
        "settle_ok": lambda: (_succeeded(fence, attempt),),
        "settle_no": lambda: (_refused(fence, attempt),),
        "doubt": lambda: (Doubt(fence=fence, returned=True, keep=True),),
        "unsent": lambda: (_let_go(fence, never_sent=True),),
        "renew": lambda: (Renew(fence=fence, lease_ms=LEASE, permit_ms=PERMIT),),
        "requeue": lambda: (_let_go(fence),),
        "send": lambda: (probed, _dispatch(fence)),
        "clear": lambda: (probed, Clear(fence=fence)),
        "clear_send": lambda: (probed, Clear(fence=fence), _dispatch(fence)),
        "clear_rest": lambda: (probed, Clear(fence=fence), _let_go(fence)),
        "wait": lambda: (probed, _let_go(fence)),
        "ask": lambda: (probed, Ask(fence=fence, reason="unknown")),
        "adopt": lambda: (probed, _succeeded(fence, newest)),
        "adopt_late": lambda: (_succeeded(fence, late),),
        "close": lambda: (probed, _possible(fence)),
    }[name]()


def _succeeded(fence: int, attempt: int | None) -> Settle:
    found = receipt(attempt or 0)
    return Settle(fence=fence, outcome=State.SUCCEEDED, attempt=attempt, receipt=found)


def _refused(fence: int, attempt: int) -> Settle:
    return Settle(
        fence=fence,
        outcome=State.FAILED,
        effect=Effect.NONE,
        attempt=attempt,
        closes=Closed.CLEAN_FAILURE,
    )


def _possible(fence: int) -> Settle:
    return Settle(fence=fence, outcome=State.FAILED, effect=Effect.POSSIBLE, closes=Closed.FAILED)


def closed(rec: Rec | None) -> bool:
    """Whether the record has ended."""
    return rec is not None and rec.st in ENDED
