"""Following pointers, and laying them before an act's first write (decision G11, U4).

While a rename is being deployed, code under the old and the new name may make the same first call
at once. Whoever knows both names points every id but the least to the least before it writes there;
who knows one name inserts blindly, and follows the pointer that it meets. A pointer whose record
was never made (its writer died) only says where the next call is to make it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from indoubt.core.commands import Prepare
from indoubt.core.pointers import moved, pointer, target
from indoubt.engine.engine import PATIENCE_S, Seen
from indoubt.store import Conflict

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from indoubt.core.record import Record
    from indoubt.engine.engine import Engine
    from indoubt.engine.requests import Request


def follow(engine: Engine, act: str, seen: Seen) -> Generator[Request, Any, tuple[str, Seen]]:
    """Where the pointers that begin at ``act`` end, and what is there; each is a lesser id."""
    while (to := target(seen.record)) is not None:
        act, seen = to, (yield from engine.read(to))
    return act, seen


def look_up(engine: Engine, act: str) -> Generator[Request, Any, Seen]:
    """Read the act that is recorded under this id, or where a pointer there leads."""
    return (yield from follow(engine, act, (yield from engine.read(act))))[1]


def settle_id(
    engine: Engine, intent: Record, former: Sequence[str]
) -> Generator[Request, Any, tuple[Record, Seen]]:
    """Find this act under any of its ids, or make them all lead to the least of them.

    Answers the record that was found, or the intent under the id where it is to be inserted.
    """
    ends: set[str] = set()
    seen = Seen(None, 0, engine.epoch)
    for act in (intent.id, *former):  # what is there already wins before anything is laid
        end, seen = yield from follow(engine, act, (yield from engine.read(act)))
        if seen.record is not None:
            return intent, seen
        ends.add(end)
    least = min(ends)
    for end in sorted(ends, reverse=True):
        at, found = yield from _lay(engine, intent, seen, end, least)
        if found.record is not None:
            return intent, found
        least = min(least, at)  # somebody was first, and leads further down
    return moved(intent, least), seen


def _lay(
    engine: Engine, intent: Record, nothing: Seen, act: str, least: str
) -> Generator[Request, Any, tuple[str, Seen]]:
    """Point this id to the least, unless somebody was first: his record or pointer counts."""
    seen = nothing
    while seen.record is None and act > least:
        laid = (Prepare(record=pointer(intent, act, least)),)
        deadline = engine.clock.now() + PATIENCE_S
        answer = yield from engine.apply(nothing, laid, deadline=deadline)
        if isinstance(answer, Conflict):
            act, seen = yield from follow(engine, act, engine.found(answer, nothing))
        else:
            act = least
    return act, seen
