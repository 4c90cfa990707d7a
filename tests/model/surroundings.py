"""What happens around the workers: the provider, a person, the sweeper, time and the store."""

from __future__ import annotations

from .images import IN_FLIGHT as BOUND
from .images import NOBODY, PERMIT, READ_LAG, SETTLE, Rec
from .ledger import Ledger, closed
from .states import (
    CELL,
    DROPPED,
    IN_FLIGHT,
    KNOWN_KEY,
    LANDED,
    REJECTED,
    Next,
    Worker,
    World,
    room,
    written,
)
from .switches import Scenario

COUNTING = frozenset({"write", "answer", "retry", "check", "send"})


class Surroundings:
    """Everybody else's steps, under the rules that are on."""

    def __init__(self, ledger: Ledger, scenario: Scenario, on: dict[str, bool]) -> None:
        self._ledger = ledger
        self._scenario = scenario
        self._on = on

    def next(self, s: World, out: list[Next]) -> None:
        """Append what may happen next."""
        self._provider(s, out)
        self._person(s, out)
        self._tick(s, out)
        self._store(s, out)
        self._cancel(s, out)

    # -- the provider --------------------------------------------------------------------------

    def _provider(self, s: World, out: list[Next]) -> None:
        keep = self._scenario.keep
        for k, (what, _) in enumerate(s.cells):
            if what != IN_FLIGHT:
                continue
            if keep and s.key > 0:
                t = s._replace(cells=_cell(s, k, (KNOWN_KEY, 0)))
                out.append((f"provider knows the key of request {k + 1}", False, t))
            else:
                t = s._replace(cells=_cell(s, k, (LANDED, 0)), effects=s.effects + 1, key=keep)
                out.append((f"request {k + 1} lands", False, t))
                if self._scenario.reject:
                    t = s._replace(cells=_cell(s, k, (REJECTED, 0)))
                    out.append((f"provider rejects request {k + 1}", False, t))
            t = s._replace(cells=_cell(s, k, (DROPPED, 0)))
            out.append((f"request {k + 1} is lost on the way", False, t))

    # -- a person ------------------------------------------------------------------------------

    def _person(self, s: World, out: list[Next]) -> None:
        rec = s.rec
        if rec is None:
            return
        asked = rec.st == "A" or (self._on["decide_in_doubt"] and rec.st == "I")
        number = len(rec.atts)
        if asked and (s.saw is None or s.saw[0] != number):
            wait = PERMIT + SETTLE if self._scenario.jump and self._on["two_clocks"] else 0
            out.append(("person looks", False, s._replace(saw=(number, wait))))
        if s.saw is None:
            return
        if s.left.grants and room(s):
            for label, saw in (("", None), (" (a second click is under way)", s.saw)):
                self._decide(s, "allow_one_attempt", out, saw=saw, label=label)
        landed = any(what == LANDED for what, _ in s.cells)
        if landed:
            self._decide(s, "happened", out)
        elif s.saw[1] == 0 and (not self._on["silence"] or self._ledger.quiet(rec)):
            self._decide(s, "did_not_happen", out)
        self._decide(s, "give_up", out)
        if self._ledger.step(rec, ("decide", "give_up", s.saw[0])).rec is None:
            out.append(("person's click refused", False, s._replace(saw=None)))

    def _decide(
        self,
        s: World,
        kind: str,
        out: list[Next],
        *,
        saw: tuple[int, int] | None = None,
        label: str = "",
    ) -> None:
        assert s.saw is not None
        assert s.rec is not None
        done = self._ledger.step(s.rec, ("decide", kind, s.saw[0]))
        if done.rec is None:
            return
        t = written(s, done.rec, fenced=done.fenced)._replace(saw=saw)
        if s.saw[0] != len(s.rec.atts):
            t = t._replace(bad="OB a decision was applied to another question than the one seen")
        if kind == "allow_one_attempt":
            left = s.left._replace(grants=s.left.grants - 1)
            t = t._replace(allowed=s.allowed + 1, left=left)
        out.append((f"person: {kind}{label}", False, t))

    def _cancel(self, s: World, out: list[Next]) -> None:
        rec = s.rec
        if not s.left.cancel or rec is None or rec.cancel or closed(rec):
            return
        done = self._ledger.step(rec, ("cancel",))
        if done.rec is not None:
            t = written(s, done.rec, fenced=done.fenced)
            out.append(("cancel", False, t._replace(left=s.left._replace(cancel=0))))

    # -- time ----------------------------------------------------------------------------------

    def _tick(self, s: World, out: list[Next]) -> None:
        if self._on["send_prompt"] and any(w.pc == "send" and w.dl == 0 for w in s.workers):
            return
        if self._on["inflight_bound"] and any(c == (IN_FLIGHT, BOUND) for c in s.cells):
            return
        saw = s.saw and (s.saw[0], max(0, s.saw[1] - 1))
        t = s._replace(
            rec=None if s.rec is None else self._ledger.aged(s.rec),
            workers=tuple([self._older(w) for w in s.workers]),
            cells=tuple([_older_cell(cell) for cell in s.cells]),
            key=max(0, s.key - 1),
            saw=saw,
        )
        if t != s:
            out.append(("tick", False, t))

    def _older(self, w: Worker) -> Worker:
        if w.dl and w.pc in COUNTING:
            w = w._replace(dl=w.dl - 1)
        if 0 <= w.sight < PERMIT + SETTLE:
            w = w._replace(sight=w.sight + 1)
        return w if w.img is None else w._replace(img=self._ledger.aged(w.img))

    # -- the store -----------------------------------------------------------------------------

    def _store(self, s: World, out: list[Next]) -> None:
        rec = s.rec
        if rec is not None and rec.st == "D" and rec.lease == 0:
            done = self._ledger.step(rec, ("sweep",))
            if done.rec is not None:
                t = written(s, done.rec, fenced=done.fenced)
                out.append(("sweeper marks it in doubt", False, t))
        if s.left.jump and rec is not None and rec.st in "DI":
            t = s._replace(
                rec=self._ledger.aged(rec, SETTLE + 5),
                left=s.left._replace(jump=0),
            )
            out.append(("store clock jumps", True, t))
        if s.left.prune and closed(rec) and rec is not None and not rec.pruned:
            self._prune(s, rec, out)
        if s.left.rewind:
            self._rewind(s, out)

    def _prune(self, s: World, rec: Rec, out: list[Next]) -> None:
        left = s.left._replace(prune=0)
        if self._on["tombstone"]:
            done = self._ledger.step(rec, ("prune",))
            out.append(("pruned", False, s._replace(rec=done.rec)))
        else:
            label = "pruned without a trace"
            out.append((label, True, s._replace(rec=None, left=left)))
        if not self._on["generation"] and rec.st != "S":
            # Made anew, its fence starts anew as well: an old holder's is the same number.
            label = "forgotten; made, claimed and dispatched anew by another process"
            t = s._replace(rec=None, left=left)
            anew = self._ledger.step(None, ("first", 9))
            assert anew.rec is not None
            old = tuple([w._replace(cur=w.a > 0) for w in t.workers])
            t = t._replace(rec=anew.rec, workers=old)
            out.append((label, True, t))

    def _rewind(self, s: World, out: list[Next]) -> None:
        rec = s.rec
        if rec is None and not self._on["rewound_to_nothing"]:
            anew = self._ledger.step(None, ("register",))
            assert anew.rec is not None
            out.append(("registered", False, written(s, anew.rec, fenced=True)))
        worth_it = self._on["rewound_to_nothing"] if rec is None else rec.st == "P"
        if not s.backed_up and worth_it:
            kept = rec and rec._replace(own=NOBODY, lease=0)
            out.append(("backup taken", False, s._replace(backup=kept, backed_up=True)))
        if s.backed_up and s.backup != rec:
            back = s.backup
            if back is not None:
                back = back._replace(forgot=self._on["epoch"])
            left = s.left._replace(rewind=0)
            workers = tuple([w._replace(cur=False, snap=False) for w in s.workers])
            t = s._replace(
                rec=back, workers=workers, left=left, backup=None, backed_up=False, saw=None
            )
            out.append(("store put back to the backup", True, t))


def _cell(s: World, k: int, cell: CELL) -> tuple[CELL, ...]:
    return (*s.cells[:k], cell, *s.cells[k + 1 :])


def _older_cell(cell: CELL) -> CELL:
    what, age = cell
    if what == IN_FLIGHT:
        return (what, min(age + 1, BOUND))
    if what == LANDED:
        return (what, min(age + 1, READ_LAG))
    return cell
