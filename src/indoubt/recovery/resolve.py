"""What to do about one record that is not simply done: claim, probe, take the verdict, apply it.

One flow serves a repeat of the call, ``recover`` and the live holder's own doubt. The rules are
the verdict table's; this file only carries them out. It dispatches only where its caller can call
the function.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from indoubt.core.absence import Absence, absence, wait_ms
from indoubt.core.commands import (
    Abandon,
    Ask,
    Cancel,
    Claim,
    Clear,
    Command,
    Dispatch,
    Release,
)
from indoubt.core.record import Record, State
from indoubt.core.refusals import Refused
from indoubt.core.situation import governing, situation
from indoubt.core.verdicts import Probe, Verdict, verdict
from indoubt.engine.engine import PATIENCE_S, Engine, Seen
from indoubt.engine.holds import Hold
from indoubt.engine.letting_go import let_go
from indoubt.engine.requests import CallerGone, Request, Sleep
from indoubt.store import Conflict

from .probing import Asked, ask
from .reattach import cancel_execution, reattach, reattachable
from .settlements import settlement
from .sightings import Sightings

if TYPE_CHECKING:
    from collections.abc import Generator

    from .known import Known
    from .limits import Limits

V = Verdict
BACK_OFF_MS = (500, 1_000, 2_000, 4_000, 8_000, 15_000, 30_000, 60_000)


class Kind(StrEnum):
    """How far resolving came."""

    SETTLED = "settled"
    BUSY = "busy"
    ASKED = "asked"
    WAITING = "waiting"
    CALL_AGAIN = "call_again"
    LISTED = "listed"
    GO = "go"


class Resolved(NamedTuple):
    """What became of it. GO: a new attempt is dispatched, and its function must be called now.

    ``sent_at`` is the local instant from which that attempt's permit counts.
    """

    kind: Kind
    seen: Seen
    retry_after_ms: int | None = None
    sent_at: float = 0.0


class Resolver:
    """Carries verdicts out for one engine."""

    def __init__(self, engine: Engine, *, lease_ms: int) -> None:
        self.engine = engine
        self.lease_ms = lease_ms
        self.sightings = Sightings(engine.clock)

    def resolve(
        self, seen: Seen, known: Known | None, limits: Limits
    ) -> Generator[Request, Any, Resolved]:
        """Bring a record as far as the limits allow."""
        while True:
            seen, dead = yield from self.prove_death(seen)
            record = _record(seen)
            answer = self._verdict(seen, known, mine=False, dead=dead)
            if answer in _AT_REST:
                return Resolved(_at_rest(answer, record), seen)
            if answer in {V.CANCEL, V.EXPIRE}:
                done = yield from self._close(seen, answer)
            elif answer in {V.LIST, V.SPEND}:
                if not limits.allow(record) or known is None:
                    kind = Kind.LISTED if answer is V.LIST else Kind.CALL_AGAIN
                    return Resolved(kind, seen)
                done = yield from self._dispatch(seen, known, (self.claim(seen, dead),))
            else:
                done = yield from self._doubt(seen, known, limits, self.claim(seen, dead))
            if isinstance(done, Resolved):
                return done
            seen = done

    def resolve_held(
        self, seen: Seen, known: Known, limits: Limits
    ) -> Generator[Request, Any, Resolved]:
        """The same for the live holder's own doubt: it holds the record already."""
        self.sightings.note(_record(seen))
        done = yield from self._work(seen, known, limits)
        if isinstance(done, Resolved):
            return done
        return (yield from self.resolve(done, known, limits))

    # -- steps -------------------------------------------------------------------------------

    def prove_death(self, seen: Seen) -> Generator[Request, Any, tuple[Seen, tuple[str, ...]]]:
        """Which of its owners are dead, and the record as read after that was proven.

        A proof must be older than the clock that it is stamped with.
        """
        record = _record(seen)
        dead = () if record.closed else self._dead_owners(record)
        return ((yield from self.engine.read(record.id)) if dead else seen), dead

    def _dead_owners(self, record: Record) -> tuple[str, ...]:
        loud = [a.owner for a in record.open_attempts if a.silent_at_ms is None]
        owners = {record.owner, *loud} - {None, ""}
        return tuple(sorted(o for o in owners if o and self.engine.owner.dead(o)))

    def claim(self, seen: Seen, dead: tuple[str, ...]) -> Claim:
        """Take over what nobody holds any more."""
        return Claim(
            owner=self.engine.owner.current(),
            lease_ms=self.lease_ms,
            dead_owners=dead,
            store_epoch=seen.epoch,
        )

    def _close(self, seen: Seen, answer: Verdict) -> Generator[Request, Any, Seen]:
        why = "cancel was asked" if answer is V.CANCEL else "no_use_after"
        command: Command = Abandon(reason=why, store_epoch=seen.epoch)
        if answer is V.CANCEL:
            command = Cancel(actor="indoubt", reason=why, store_epoch=seen.epoch)
        done = yield from self.engine.apply(seen, (command,), deadline=self._deadline())
        return self._after(done, seen)

    def _dispatch(
        self, seen: Seen, known: Known, before: tuple[Command, ...]
    ) -> Generator[Request, Any, Resolved | Seen]:
        record = _record(seen)
        fence = record.fence + sum(isinstance(command, Claim) for command in before)
        policy = governing(record.policy, known.policy)
        sent_at = self.engine.clock.now()
        commands = (*before, Dispatch(fence=fence, permit_ms=known.permit_ms, policy=policy))
        try:
            done = yield from self.engine.apply(seen, commands, deadline=sent_at + PATIENCE_S)
        except CallerGone as gone:
            yield from let_go(self.engine, gone.seen, fence)
            raise
        if isinstance(done, Refused) and done.reason == "attempts_exhausted":
            asked = (*before, Ask(fence=fence, reason=done.reason))
            return self._after((yield from self._write(seen, asked)), seen)
        if isinstance(done, Seen) and _record(done).fence == fence:
            return Resolved(Kind.GO, done, sent_at=sent_at)
        return self._after(done, seen)

    def _doubt(
        self, seen: Seen, known: Known | None, limits: Limits, claim: Claim
    ) -> Generator[Request, Any, Resolved | Seen]:
        """Claim what is in doubt, so that nobody else decides on what this probe finds."""
        record = _record(seen)
        self.sightings.note(record)
        if known is None and record.state is State.IN_DOUBT and self._needs_code(seen):
            return Resolved(Kind.CALL_AGAIN, seen)
        done = yield from self._write(seen, (claim,))
        if not isinstance(done, Seen) or _record(done).owner != claim.owner:
            return self._after(done, seen)
        return (yield from self._work(done, known, limits))

    def _needs_code(self, seen: Seen) -> bool:
        return self._verdict(seen, None, mine=True) in _NEEDS_CODE

    def _work(
        self, seen: Seen, known: Known | None, limits: Limits
    ) -> Generator[Request, Any, Resolved | Seen]:
        """Probe and apply under our own fence, renewing it meanwhile."""
        hold = self._hold(seen)
        self.engine.heartbeat.hold(hold)
        try:
            while True:
                step = yield from self._round(seen, known, limits)
                if isinstance(step, Resolved) or not self._ours(step, hold):
                    return step
                seen = step
        except CallerGone as gone:
            yield from let_go(self.engine, gone.seen or seen, hold.record.fence)
            raise
        finally:
            self.engine.heartbeat.drop(hold)

    def _round(
        self, seen: Seen, known: Known | None, limits: Limits
    ) -> Generator[Request, Any, Resolved | Seen]:
        answer = self._verdict(seen, known, mine=True, by_hand=limits.by_hand)
        if answer not in _NEEDS_CODE or (answer is V.REPLAY and known is not None):
            return (yield from self._carry_out(answer, seen, known, limits, None))
        if known is None or answer is not V.PROBE:
            return (yield from self._stop(seen, Kind.CALL_AGAIN, ()))
        measured = self.sightings.measured_ms(_record(seen))
        asked = yield from ask(known, _record(seen))
        if _record(seen).cancel_requested:
            asked = yield from cancel_execution(known, asked)
        found = self._absence(seen, known, measured) if asked.status is Probe.NOT_FOUND else None
        answer = self._verdict(
            seen,
            known,
            mine=True,
            probe=asked.status,
            absent=found,
            reattach=reattachable(known, asked),
            failed=asked.failed,
        )
        if answer is V.REATTACH:
            asked = yield from reattach(known, asked, limits.until - self.engine.clock.now())
            answer = V.ADOPT if asked.status is Probe.SUCCEEDED else V.WAIT
        return (yield from self._carry_out(answer, seen, known, limits, asked))

    def _carry_out(
        self,
        answer: Verdict,
        seen: Seen,
        known: Known | None,
        limits: Limits,
        asked: Asked | None,
    ) -> Generator[Request, Any, Resolved | Seen]:
        record = _record(seen)
        notes: tuple[Command, ...] = asked.notes(seen.now_ms) if asked else ()
        may_dispatch = limits.allow(record) and not record.cancel_requested
        if answer is V.WAIT:
            return (yield from self._wait(seen, known, limits, notes, asked))
        if answer in {V.REPLAY, V.CLEAR}:
            cleared = (Clear(fence=record.fence),) if answer is V.CLEAR else ()
            if may_dispatch and known is not None and not self._expired(seen):
                return (yield from self._dispatch(seen, known, (*notes, *cleared)))
            if cleared and self._expired(seen) and not record.cancel_requested:
                cleared = (*cleared, Release(fence=record.fence), Abandon(reason="no_use_after"))
            kind = Kind.LISTED if cleared else Kind.CALL_AGAIN
            return (yield from self._stop(seen, kind, (*notes, *cleared)))
        done = yield from self._write(seen, (*notes, settlement(answer, record, asked)))
        return self._after(done, seen)

    def _wait(
        self,
        seen: Seen,
        known: Known | None,
        limits: Limits,
        notes: tuple[Command, ...],
        asked: Asked | None,
    ) -> Generator[Request, Any, Resolved | Seen]:
        record = _record(seen)
        pause = BACK_OFF_MS[min(record.probes, len(BACK_OFF_MS) - 1)]
        if asked is not None and asked.status is Probe.NOT_FOUND:
            governed, measured = self._governed(seen, known), self.sightings.measured_ms(record)
            pause = wait_ms(governed, now_ms=seen.now_ms, measured_ms=measured) or pause
        if self.engine.clock.now() + pause / 1000 > limits.until:
            return (yield from self._stop(seen, Kind.WAITING, notes, after_ms=pause))
        done = yield from self._write(seen, notes)
        if isinstance(done, Seen):
            yield Sleep(pause / 1000)
            return (yield from self.engine.read(record.id))
        return self._after(done, seen)

    def _stop(
        self, seen: Seen, kind: Kind, commands: tuple[Command, ...], *, after_ms: int = 0
    ) -> Generator[Request, Any, Resolved | Seen]:
        """Let go for now; the record stays listed, and says when to look again."""
        record = _record(seen)
        release: tuple[Command, ...] = (Release(fence=record.fence, after_ms=after_ms),)
        cleared = any(isinstance(command, Clear) for command in commands)
        if cleared and (record.cancel_requested or self._expired(seen)):
            release = ()  # proven absent, and nobody will send it: these commands close it
        done = yield from self._write(seen, (*commands, *release))
        if isinstance(done, Seen):
            ended = Kind.SETTLED if _record(done).closed else kind
            return Resolved(ended, done, retry_after_ms=after_ms or None)
        return self._after(done, seen)

    def _write(
        self, seen: Seen, commands: tuple[Command, ...]
    ) -> Generator[Request, Any, Seen | Refused | Conflict]:
        if not commands:
            return seen
        return (yield from self.engine.apply(seen, commands, deadline=self._deadline()))

    def _after(self, done: Seen | Refused | Conflict, seen: Seen) -> Seen:
        """Where a write led: a lost race brings what is stored, and the verdict is taken anew."""
        if isinstance(done, Conflict):
            return self.engine.found(done, seen)
        if isinstance(done, Refused):  # the rules and the table disagree: a bug, said loudly
            raise AssertionError(  # noqa: TRY004
                f"{_record(seen).id}: verdict refused: {done.reason}"
            )
        return done

    def _verdict(
        self,
        seen: Seen,
        known: Known | None,
        *,
        mine: bool,
        probe: Probe | None = None,
        absent: Absence | None = None,
        reattach: bool = False,
        failed: bool = False,
        by_hand: bool = False,
        dead: tuple[str, ...] = (),
    ) -> Verdict:
        record = self._governed(seen, known)
        return verdict(
            situation(
                record,
                now_ms=seen.now_ms,
                permit_ms=known.permit_ms if known else 0,
                store_epoch=seen.epoch,
                mine=mine,
                dead=record.owner in dead,
                probe=probe,
                absence=absent,
                reattach=reattach,
                failed=failed,
                by_hand=by_hand,
            )
        )

    def _governed(self, seen: Seen, known: Known | None) -> Record:
        record = _record(seen)
        return replace(record, policy=governing(record.policy, known.policy if known else None))

    def _absence(self, seen: Seen, known: Known, measured_ms: int) -> Absence:
        return absence(
            self._governed(seen, known),
            began_ms=seen.now_ms,
            measured_ms=measured_ms,
            decides_silence=self.engine.store.capabilities.decides_silence,
        )

    def _expired(self, seen: Seen) -> bool:
        end = _record(seen).policy.no_use_after_ms
        return end is not None and seen.now_ms >= end

    def _hold(self, seen: Seen) -> Hold:
        return Hold(
            _record(seen),
            sent_at=self.engine.clock.now(),
            lease_ms=self.lease_ms,
            permit_ms=0,
            fixed=True,
        )

    def _ours(self, seen: Seen, hold: Hold) -> bool:
        record = seen.record
        return (
            not hold.lost
            and record is not None
            and (record.owner, record.fence) == (hold.record.owner, hold.record.fence)
            and record.state is State.IN_DOUBT
        )

    def _deadline(self) -> float:
        return self.engine.clock.now() + PATIENCE_S


_AT_REST = frozenset({V.LEAVE, V.USE})
_NEEDS_CODE = frozenset({V.PROBE, V.REPLAY})


def _at_rest(answer: Verdict, record: Record) -> Kind:
    if answer is V.USE:
        return Kind.SETTLED
    asked = record.state in {State.AWAITING_DECISION, State.PERMITTED}
    return Kind.ASKED if asked and record.owner is None else Kind.BUSY


def _record(seen: Seen) -> Record:
    if seen.record is None:
        raise LookupError("the record is gone")
    return seen.record
