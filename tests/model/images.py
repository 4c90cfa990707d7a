"""A record as the model keeps it: times relative to now and clamped, fences current or not.

What the rules can tell apart stays, and nothing else, so that the states are finitely many. A real
record is rebuilt from an image before each step, and projected back after it.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Raw

from indoubt.core.record import (
    CLOSED,
    Attempt,
    Closed,
    Effect,
    Late,
    Permission,
    Policy,
    Record,
    State,
)

PERMIT, IN_FLIGHT, READ_LAG, LEASE = 1, 1, 1, 1  # in ticks; a tick is a millisecond
SETTLE = IN_FLIGHT + READ_LAG
NOW, FENCE, EPOCH = 1000, 10, 1
NOBODY, GONE = -1, 9  # owners: a worker's index, a process that is no more, none
LOUD = 9  # not silent; else the time of silence, relative to now
NEVER = 9  # no first dispatch, or none that matters

LETTERS = {
    State.PREPARED: "P",
    State.DISPATCHED: "D",
    State.IN_DOUBT: "I",
    State.AWAITING_DECISION: "A",
    State.PERMITTED: "Q",
    State.SUCCEEDED: "S",
    State.FAILED: "F",
    State.CANCELLED: "C",
    State.UNKNOWN: "U",
    State.PARTIAL: "T",
}
STATES = {letter: state for state, letter in LETTERS.items()}
ENDED = "SFCUT"
ENDS = {
    None: "",
    Closed.SUCCEEDED: "s",
    Closed.FAILED: "f",
    Closed.CLEAN_FAILURE: "n",
    Closed.ABSENT: "n",
    Closed.DECIDED: "n",
    Closed.NEVER_SENT: "n",
}
CLOSINGS = {"": None, "s": Closed.SUCCEEDED, "f": Closed.FAILED, "n": Closed.ABSENT}
EFFECTS = {None: "", Effect.NONE: "none", Effect.POSSIBLE: "possible", Effect.PARTIAL: "partial"}
EFFECT_OF = {text: effect for effect, text in EFFECTS.items()}


class Att(NamedTuple):
    """One attempt of the list; its number is its place."""

    own: int
    permit: int
    silent: int
    closed: str
    late: bool
    perm: bool


class Rec(NamedTuple):
    """What the ledger holds.

    ``perm``: 0 no permission, 1 for the next attempt, 2 for none. ``forgot``: written in an older
    store epoch than the present one.
    """

    st: str
    own: int = NOBODY
    lease: int = 0
    atts: tuple[Att, ...] = ()
    perm: int = 0
    first: int = NEVER
    cancel: bool = False
    effect: str = ""
    forgot: bool = False
    pruned: bool = False


def receipt(number: int) -> Raw:
    """What attempt ``number`` brings."""
    return Raw(str(number).encode())


def owner_name(own: int) -> str:
    return "gone" if own == GONE else f"w{own}"


def _owner_index(name: str | None) -> int:
    if not name:
        return NOBODY
    return GONE if name == "gone" else int(name[1:])


def permission(attempt: int) -> Permission:
    return Permission(attempt=attempt, decision_id="earlier", actor="person", at_ms=0)


def rebuild(rec: Rec, policy: Policy) -> Record:
    """A record of which ``rec`` is the image."""
    count = len(rec.atts)
    return Record(
        id="rec",
        root_id="rec",
        kind="effect",
        name="pay",
        fingerprint="f",
        key="k",
        version=1,
        state=STATES[rec.st],
        fence=FENCE,
        owner=None if rec.own == NOBODY else owner_name(rec.own),
        lease_until_ms=None if rec.own == NOBODY else NOW + rec.lease,
        attempt=count,
        cancel_requested=rec.cancel,
        store_epoch=EPOCH,
        policy=policy,
        attempts=tuple([_attempt(n, a) for n, a in enumerate(rec.atts, 1)]),
        first_dispatched_at_ms=None if rec.first == NEVER else NOW + rec.first,
        permission=permission(count + 1 if rec.perm == 1 else 0) if rec.perm else None,
        effect=EFFECT_OF[rec.effect],
        pruned=rec.pruned,
    )


def _attempt(number: int, att: Att) -> Attempt:
    return Attempt(
        number=number,
        fence=FENCE,
        owner="" if att.own == NOBODY else owner_name(att.own),
        permit_until_ms=NOW + att.permit,
        silent_at_ms=None if att.silent == LOUD else NOW + att.silent,
        closed=CLOSINGS[att.closed],
        late=Late(receipt=receipt(number), at_ms=NOW) if att.late else None,
        permission=permission(number) if att.perm else None,
    )


def project(record: Record, *, epoch: int, owners: bool, keep: int) -> Rec:
    """The image of a record.

    Args:
        record: as the rules have left it.
        epoch: the store's present one.
        owners: whether it can matter who holds an attempt (the store can prove a death).
        keep: how long the provider remembers a key; 0: the class does not rest on one.
    """
    letter = LETTERS[record.state]
    if record.state in CLOSED:
        return Rec(letter, effect=EFFECTS[record.effect], pruned=record.pruned)
    attempts = record.attempts
    while attempts and attempts[-1].closed is Closed.NEVER_SENT:
        attempts = attempts[:-1]  # its number may be used again, in the model only
    first = record.first_dispatched_at_ms
    allowed = record.permission
    perm = 0 if allowed is None else 1 if allowed.attempt == record.attempt + 1 else 2
    return Rec(
        letter,
        _owner_index(record.owner),
        0 if record.owner is None else max(0, (record.lease_until_ms or 0) - NOW),
        tuple([_image(a, owners=owners) for a in attempts]),
        perm,
        NEVER if first is None or not keep or not attempts else max(-keep, first - NOW),
        record.cancel_requested,
        EFFECTS[record.effect],
        record.store_epoch < epoch,
    )


def _image(attempt: Attempt, *, owners: bool) -> Att:
    if attempt.closed is not None:
        return Att(NOBODY, 0, LOUD, ENDS[attempt.closed], late=False, perm=False)
    silent = LOUD if attempt.silent_at_ms is None else max(-SETTLE, attempt.silent_at_ms - NOW)
    return Att(
        _owner_index(attempt.owner) if owners and silent == LOUD else NOBODY,
        max(-SETTLE, attempt.permit_until_ms - NOW),
        silent,
        "",
        attempt.late is not None,
        attempt.permission is not None,
    )


def aged(rec: Rec, ticks: int, keep: int) -> Rec:
    """The same record, later."""
    atts = tuple(
        [
            a._replace(
                permit=max(-SETTLE, a.permit - ticks),
                silent=a.silent if a.silent == LOUD else max(-SETTLE, a.silent - ticks),
            )
            if a.closed == ""
            else a
            for a in rec.atts
        ]
    )
    first = rec.first if rec.first == NEVER else max(-keep, rec.first - ticks)
    return rec._replace(lease=max(0, rec.lease - ticks), atts=atts, first=first)


def owned(rec: Rec, owner: dict[int, int]) -> Rec:
    """The same record with its owners renamed."""
    atts = tuple([a._replace(own=owner.get(a.own, a.own)) for a in rec.atts])
    return rec._replace(own=owner.get(rec.own, rec.own), atts=atts)
