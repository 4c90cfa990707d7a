"""What a worker may do next: call first, claim, send, settle, probe, judge."""

from __future__ import annotations

from collections.abc import Callable

from indoubt.core.absence import Absence
from indoubt.core.verdicts import Probe, Verdict

from .images import GONE, PERMIT, READ_LAG, SETTLE, Rec
from .ledger import Ledger, Step
from .states import (
    IN_FLIGHT,
    KNOWN_KEY,
    LANDED,
    REJECTED,
    Next,
    Worker,
    World,
    free_cell,
    room,
    worker_set,
    written,
)

V = Verdict


class Workers:
    """The workers' steps, under the rules that are on."""

    def __init__(self, ledger: Ledger, on: dict[str, bool], *, jumps: bool, renews: bool) -> None:
        self._ledger = ledger
        self._on = on
        self._jumps = jumps
        self._renews = renews
        self._at: dict[str, Callable[[World, int, list[Next]], None]] = {
            "idle": self._idle,
            "write": self._write,
            "claim": self._claim,
            "answer": self._answer,
            "retry": self._retry,
            "check": self._check,
            "unmark": self._unmark,
            "send": self._send,
            "wait": self._wait,
            "ok": self._settle,
            "no": self._settle,
            "lost": self._doubt,
            "probe": self._probe,
            "judge": self._judge,
        }

    def next(self, s: World, i: int, out: list[Next]) -> None:
        """Append what worker ``i`` may do, its death included."""
        w = s.workers[i]
        if s.left.crash and w.pc != "idle":
            out.append((f"w{i} dies at {w.pc}", True, self._dead(s, i)))
        self._at[w.pc](s, i, out)

    def _dead(self, s: World, i: int) -> World:
        """The process is gone; another of its kind takes its place."""
        rec = s.rec
        if rec is not None:
            rec = self._ledger.owned(rec, {i: GONE})
        left = s.left._replace(crash=s.left.crash - 1)
        return worker_set(s, i, Worker())._replace(rec=rec, left=left)

    @staticmethod
    def _rest(w: Worker) -> Worker:
        """Back to idle; the process lives on, and remembers what it saw."""
        return Worker(sight=w.sight)

    def _stop(self, s: World, i: int) -> World:
        return worker_set(s, i, self._rest(s.workers[i]))

    def _apply(self, s: World, i: int, step: Step, w: Worker) -> World | None:
        """A holder's command; None: it was refused. A stranger's success breaks an invariant."""
        done = self._ledger.step(s.rec, step)
        if done.rec is None:
            return None
        after = written(s, done.rec, i, w, fenced=done.fenced)
        if s.rec is None or not s.workers[i].cur or s.rec.own != i:
            return after._replace(bad=after.bad or "O4 an old fence changed state")
        return after

    # -- to the first attempt ------------------------------------------------------------------

    def _idle(self, s: World, i: int, out: list[Next]) -> None:
        rec = s.rec
        if rec is None:
            if room(s):
                out.append((f"w{i} begins", False, self._read(s, i)))
            return
        if rec.pruned:
            return
        self._requeue(s, i, out)
        answer = self._ledger.verdict(rec, mine=False)
        if answer in {V.LEAVE, V.USE}:
            return
        if answer in {V.LIST, V.SPEND}:
            if room(s):
                out.append((f"w{i} reads ({rec.st})", False, self._read(s, i)))
            self._idle_claim(s, i, out)
        elif answer in {V.CANCEL, V.EXPIRE}:
            done = self._ledger.step(rec, ("cancel",))
            if done.rec is not None:
                out.append((f"w{i} cancels", False, written(s, done.rec, fenced=done.fenced)))
        elif self._renews:
            w = s.workers[i]._replace(pc="claim", snap=True, sight=self._sighted(s.workers[i]))
            out.append((f"w{i} reads ({rec.st}, doubt)", False, worker_set(s, i, w)))
        else:
            self._claimed(s, i, rec, out)

    def _read(self, s: World, i: int) -> World:
        w = s.workers[i]
        return worker_set(s, i, w._replace(pc="write", snap=True, dl=PERMIT))

    def _unmarked(self, s: World, i: int, out: list[Next]) -> None:
        w = Worker("send", cur=True, cell=free_cell(s), dl=PERMIT)
        out.append((f"w{i} sends before the mark", False, worker_set(s, i, w)))

    def _requeue(self, s: World, i: int, out: list[Next]) -> None:
        if s.rec is None or s.rec.st != "D" or s.rec.lease:
            return
        done = self._ledger.step(s.rec, ("requeue",))
        if done.rec is not None:
            label = f"w{i} requeues a dispatched record"
            out.append((label, False, written(s, done.rec, fenced=True)))

    def _idle_claim(self, s: World, i: int, out: list[Next]) -> None:
        """A claim whose owner dies before it dispatches (P8)."""
        if s.rec is None or s.rec.st != "Q" or not s.left.crash:
            return
        done = self._ledger.step(s.rec, ("claim", GONE))
        if done.rec is not None:
            t = written(s, done.rec, fenced=done.fenced)
            t = t._replace(left=s.left._replace(crash=s.left.crash - 1))
            out.append((f"w{i} claims, then dies before the dispatch", True, t))

    def _sighted(self, w: Worker) -> int:
        return max(w.sight, 0) if self._jumps else -1

    def _claim(self, s: World, i: int, out: list[Next]) -> None:
        """The claim's write, where a renewal may have come between."""
        w = s.workers[i]
        moved = w.img is not None
        if not w.snap or s.rec is None or (moved and self._on["free"]):
            out.append((f"w{i} claim refused: it was changed or renewed", False, self._stop(s, i)))
            return
        self._claimed(s, i, w.img or s.rec, out)

    def _claimed(self, s: World, i: int, read: Rec, out: list[Next]) -> None:
        done = self._ledger.step(read, ("claim", i))
        if done.rec is None:
            out.append((f"w{i} claim refused: {done.why}", False, self._stop(s, i)))
            return
        w = Worker("probe", cur=True, snap=True, sight=self._sighted(s.workers[i]))
        t = written(s, done.rec, i, w, fenced=done.fenced)
        out.append((f"w{i} claims, in doubt", False, t))

    def _write(self, s: World, i: int, out: list[Next]) -> None:
        w = s.workers[i]
        if not w.snap or not room(s):
            out.append((f"w{i} write refused: record changed", False, self._stop(s, i)))
            return
        step: Step = ("first", i) if s.rec is None else ("claim_send", i)
        if not self._on["durable_mark"]:
            self._unmarked(s, i, out)
            return
        done = self._dispatched(s, i, step, w.dl, "check")
        if isinstance(done, str):
            out.append((f"w{i} write refused: {done}", False, self._stop(s, i)))
            return
        out.append((f"w{i} claim+dispatch committed", False, done))
        if s.left.lost:
            lost = self._dispatched(s, i, step, w.dl, "retry")
            assert isinstance(lost, World)
            lost = lost._replace(left=s.left._replace(lost=s.left.lost - 1))
            out.append((f"w{i} claim+dispatch committed, answer lost", True, lost))

    def _dispatched(self, s: World, i: int, step: Step, dl: int, pc: str) -> World | str:
        """A write with a dispatch in it; its permit is stamped at its commit."""
        before = s.rec
        done = self._ledger.step(before, step)
        if done.rec is None:
            return done.why
        if pc == "check" and not self._on["permit_from_read"]:
            pc = "answer"
        sight = s.workers[i].sight
        w = Worker(pc, cur=True, a=len(done.rec.atts), cell=free_cell(s), dl=dl, sight=sight)
        t = written(s, done.rec, i, w, fenced=done.fenced)
        asked = before is not None and before.cancel
        return t._replace(bad="OC dispatch after cancel") if asked else t

    def _answer(self, s: World, i: int, out: list[Next]) -> None:
        w = s.workers[i]._replace(pc="check", dl=PERMIT)
        out.append((f"w{i} gets the write's answer", False, worker_set(s, i, w)))

    def _retry(self, s: World, i: int, out: list[Next]) -> None:
        w, keeps = s.workers[i], self._on["retry_keeps_deadline"]
        if w.cur:
            now = w._replace(pc="check", dl=w.dl if keeps else PERMIT)
            out.append((f"w{i} repeat recognised by its write id", False, worker_set(s, i, now)))
            return
        now = self._rest(w) if keeps else w._replace(pc="check", dl=PERMIT)
        out.append((f"w{i} repeat: superseded", False, worker_set(s, i, now)))

    # -- sending and settling ------------------------------------------------------------------

    def _check(self, s: World, i: int, out: list[Next]) -> None:
        w = s.workers[i]
        ok = w.dl > 0 or not self._on["permit_check"]
        now = w._replace(pc="send" if ok else "unmark")
        out.append((f"w{i} permit {'valid' if ok else 'over'}", False, worker_set(s, i, now)))

    def _unmark(self, s: World, i: int, out: list[Next]) -> None:
        w = s.workers[i]
        t = self._apply(s, i, ("unsent", w.cur), self._rest(w))
        if t is not None:
            out.append((f"w{i} releases, never sent", False, t))
        else:
            out.append((f"w{i} stops, fence gone", False, self._stop(s, i)))

    def _send(self, s: World, i: int, out: list[Next]) -> None:
        w = s.workers[i]
        self._renew(s, i, out)
        cells = (*s.cells[: w.cell], (IN_FLIGHT, 0), *s.cells[w.cell + 1 :])
        t = worker_set(s, i, w._replace(pc="wait", dl=0))._replace(cells=cells)
        if not w.a:
            t = t._replace(bad=t.bad or "O5 sent without a durable mark")
        out.append((f"w{i} sends request {w.cell + 1}", False, t))

    def _renew(self, s: World, i: int, out: list[Next]) -> None:
        """The heartbeat moves lease and permit; no version steps."""
        w = s.workers[i]
        if not s.left.renew or s.rec is None:
            return
        done = self._ledger.step(s.rec, ("renew", w.cur))
        if done.rec is None or (done.rec == s.rec and w.dl == PERMIT):
            return
        old = s.rec
        workers = tuple(
            [
                o._replace(img=old) if o.pc == "claim" and o.snap and o.img is None else o
                for o in s.workers
            ]
        )
        t = s._replace(workers=workers, rec=done.rec)
        t = worker_set(t, i, w._replace(dl=PERMIT))
        t = t._replace(left=s.left._replace(renew=s.left.renew - 1))
        out.append((f"w{i} renews", False, t))

    def _wait(self, s: World, i: int, out: list[Next]) -> None:
        w = s.workers[i]
        what = s.cells[w.cell][0]
        if what in {LANDED, KNOWN_KEY}:
            t = worker_set(s, i, w._replace(pc="ok"))
            out.append((f"w{i} gets the receipt", False, t))
        if what == REJECTED:
            t = worker_set(s, i, w._replace(pc="no"))
            out.append((f"w{i} gets a definite rejection", False, t))
        t = worker_set(s, i, w._replace(pc="lost"))
        out.append((f"w{i} loses the response", False, t))

    def _settle(self, s: World, i: int, out: list[Next]) -> None:
        w = s.workers[i]
        t = self._apply(s, i, (f"settle_{w.pc}", w.cur, w.a), self._rest(w)) if w.a else None
        if t is not None:
            out.append((f"w{i} settles {w.pc}", False, t))
        else:
            self._beside(s, i, "late" if w.pc == "ok" else "returned", out)

    def _doubt(self, s: World, i: int, out: list[Next]) -> None:
        w = s.workers[i]
        probing = Worker("probe", cur=True, snap=True, sight=self._sighted(w))
        t = self._apply(s, i, ("doubt", w.cur), probing) if w.a else None
        if t is not None:
            out.append((f"w{i} doubts", False, t))
        else:
            self._beside(s, i, "returned", out)

    def _beside(self, s: World, i: int, what: str, out: list[Next]) -> None:
        """It was replaced: what it knows is kept as evidence."""
        w, t = s.workers[i], None
        if s.rec is not None and w.a:
            done = self._ledger.step(s.rec, (what, w.a))
            if done.rec is not None:
                t = written(s, done.rec, i, self._rest(w), fenced=done.fenced)
        out.append((f"w{i} LeaseLost ({what})", False, t or self._stop(s, i)))

    # -- doubt ---------------------------------------------------------------------------------

    def _lost_it(self, s: World, i: int) -> bool:
        rec = s.rec
        return not s.workers[i].cur or rec is None or rec.st != "I" or rec.own != i

    def _probe(self, s: World, i: int, out: list[Next]) -> None:
        if self._lost_it(s, i) or s.rec is None:
            out.append((f"w{i} stops, fence gone", False, self._stop(s, i)))
            return
        answer = self._ledger.verdict(s.rec, mine=True)
        if answer is not V.PROBE:
            self._carry_out(s, i, answer, out)
            return
        w = s.workers[i]
        worth = self._ledger.absence(s.rec, self._measured(w))
        late = self._jumps and self._ledger.absence(s.rec, SETTLE) != Absence.EARLY
        asking = w._replace(pc="judge", snap=True)
        for res in self._observed(s):
            now = asking._replace(res=res)
            if res == Probe.NOT_FOUND:
                now = now._replace(worth=worth, late=late)
            out.append((f"w{i} probe: {res}", False, worker_set(s, i, now)))

    def _measured(self, w: Worker) -> int:
        """What its own clock says; where no clock steps, it need not be kept."""
        if w.sight < 0:
            return SETTLE
        return max(0, w.sight - PERMIT) if self._on["measured_past_permit"] else w.sight

    def _observed(self, s: World) -> list[str]:
        """What an honest provider may say now about this act."""
        landed = [age for what, age in s.cells if what == LANDED]
        seen = [age for age in landed if age >= READ_LAG and self._on["read_lag"]]
        said = ["unknown"]
        if landed:
            said.append("succeeded")
        if not seen:
            said.append("not_found")
            if any(what == REJECTED for what, _ in s.cells):
                said.append("failed")
        return said

    def _judge(self, s: World, i: int, out: list[Next]) -> None:
        w = s.workers[i]
        if self._lost_it(s, i) or s.rec is None:
            out.append((f"w{i} verdict refused: fence gone", False, self._stop(s, i)))
            return
        if not w.snap:
            anew = w._replace(pc="probe", snap=True, res="", worth="", late=False)
            again = worker_set(s, i, anew)
            out.append((f"w{i} verdict refused: record changed", False, again))
            return
        answer = self._ledger.verdict(s.rec, mine=True, probe=w.res, absent=self._worth(s, i))
        if answer is V.PROBE:
            answer = V.WAIT
        self._carry_out(s, i, answer, out)

    def _worth(self, s: World, i: int) -> str:
        """What "not found" counts for: as of the probe, unless a rule is off."""
        w = s.workers[i]
        if not w.worth or s.rec is None:
            return w.worth
        measured = self._measured(w)
        if not self._on["probe_began_quiet"]:
            return self._ledger.absence(s.rec, measured)
        if not self._on["measured_before_probe"] and w.late:
            # The probe began late enough by the store's clock; the own clock is read only now.
            return self._ledger.absence(s.rec, measured)
        return w.worth

    def _carry_out(self, s: World, i: int, answer: Verdict, out: list[Next]) -> None:
        w, rec = s.workers[i], s.rec
        assert rec is not None
        if answer in {V.REPLAY, V.CLEAR} and not room(s):
            answer = V.ASK
        names = {
            V.ADOPT: "adopt",
            V.ADOPT_LATE: "adopt_late",
            V.CLOSE: "close",
            V.WAIT: "wait",
            V.ASK: "ask",
            V.CLEAR: "clear" if rec.cancel else "clear_rest",
        }
        label = f"w{i} verdict {answer.name.lower()}" + (f" on {w.res}" if w.res else "")
        if answer in names:
            t = self._apply(s, i, (names[answer], w.cur), self._rest(w))
            assert t is not None, (label, rec, self._ledger.step(rec, (names[answer], w.cur)))
            out.append((label, False, t))
        if answer is V.REPLAY or (answer is V.CLEAR and not rec.cancel):
            step: Step = ("send" if answer is V.REPLAY else "clear_send", w.cur)
            t = self._dispatched(s, i, step, PERMIT, "check")
            if isinstance(t, World):
                out.append((label, False, t))
            else:
                raise AssertionError(f"{label} refused: {t}: {rec}")
