"""One state of the model: the record, whoever works on it, the provider, and the faults left."""

from __future__ import annotations

from typing import NamedTuple

from .images import NOBODY, Rec
from .ledger import Ledger

CELL = tuple[int, int]
"""One request at the provider: what became of it, and for how long."""
NOT_SENT, IN_FLIGHT, LANDED, REJECTED, DROPPED, KNOWN_KEY = range(6)


class Worker(NamedTuple):
    """A process: first caller, recoverer and prober in one.

    Attributes:
        pc: idle, write, claim, answer, retry, check, unmark, send, wait, ok, no, lost, probe or
            judge.
        cur: its fence is the record's.
        snap: the record's version is as it was read.
        a: its attempt's number in the record; 0: none.
        cell: its request at the provider; -1: none.
        dl: what is left of its permit on its own clock.
        res: what the probe answered.
        worth: what the answer "not found" is worth.
        late: by the store's clock alone, the probe began late enough.
        sight: how long its own clock has run since it saw the record in doubt; -1: it has not.
        img: the record as it was read, where a renewal has moved it since; None: as it is.
    """

    pc: str = "idle"
    cur: bool = False
    snap: bool = False
    a: int = 0
    cell: int = -1
    dl: int = 0
    res: str = ""
    worth: str = ""
    late: bool = False
    sight: int = -1
    img: Rec | None = None


class Budget(NamedTuple):
    """How often what goes wrong may still go wrong; ``grants``: permissions a person may give."""

    crash: int
    lost: int
    jump: int
    cancel: int
    prune: int
    rewind: int
    renew: int
    grants: int


class World(NamedTuple):
    """Everything.

    Attributes:
        rec: the record; None: missing.
        saw: the question a person looks at (its attempt, what is left of the person's own wait).
        effects: how often it happened. allowed: how many permissions people gave.
        key: how long the provider still knows the key.
        bad: an invariant that a step has broken.
    """

    rec: Rec | None
    workers: tuple[Worker, ...]
    cells: tuple[CELL, ...]
    left: Budget
    saw: tuple[int, int] | None = None
    effects: int = 0
    allowed: int = 0
    key: int = 0
    backup: Rec | None = None
    backed_up: bool = False
    bad: str = ""


Next = tuple[str, bool, World]
"""What is done, whether it is a fault, and what it leads to."""


def worker_set(s: World, i: int, w: Worker) -> World:
    return s._replace(workers=(*s.workers[:i], w, *s.workers[i + 1 :]))


def free_cell(s: World) -> int:
    """The request that may be sent next, counted from 0."""
    sent = [k for k, (what, _) in enumerate(s.cells, 1) if what]
    return max([0, *sent, *(w.cell + 1 for w in s.workers)])


def room(s: World) -> bool:
    """Whether the model has room for one more attempt."""
    most = len(s.cells)
    return free_cell(s) < most and (s.rec is None or len(s.rec.atts) < most)


def written(s: World, rec: Rec, i: int = -1, w: Worker | None = None, *, fenced: bool) -> World:
    """A write has landed: what others have read is old, and their fence, if it has risen."""
    before = s.rec
    unsighted = rec.st != "I" or before is None or len(before.atts) != len(rec.atts)
    workers: list[Worker] = []
    for j, other in enumerate(s.workers):
        now = other
        if j == i and w is not None:
            now = w
        elif other.pc != "idle":
            now = other._replace(snap=False, img=None, cur=other.cur and not fenced)
        if unsighted and now.sight >= 0:
            now = now._replace(sight=-1)
        workers.append(now)
    return s._replace(rec=rec, workers=tuple(workers))


def canonical(s: World, ledger: Ledger) -> World:
    """Workers are interchangeable: keep one order."""
    ws = s.workers
    own = NOBODY if s.rec is None else s.rec.own
    order = sorted(range(len(ws)), key=lambda i: (ws[i][:-1], i == own))
    if order == list(range(len(ws))):
        return s
    names = {old: new for new, old in enumerate(order) if new != old}
    moved = tuple(
        [
            w if w.img is None else w._replace(img=ledger.owned(w.img, names))
            for w in (ws[i] for i in order)
        ]
    )
    rec = None if s.rec is None else ledger.owned(s.rec, names)
    return s._replace(rec=rec, workers=moved)
