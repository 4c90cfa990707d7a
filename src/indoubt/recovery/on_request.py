"""What a person asks for one record: probe it now, or send nothing more of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from indoubt.core.bounds import NAME_CHARS
from indoubt.core.commands import Cancel
from indoubt.core.record import State
from indoubt.core.refusals import Refused
from indoubt.engine.engine import PATIENCE_S
from indoubt.errors import StaleDecision

from .decisions import words
from .limits import Limits
from .probing import ask, can_ask

if TYPE_CHECKING:
    from collections.abc import Generator

    from indoubt.engine.engine import Engine, Seen
    from indoubt.engine.requests import Request

    from .known import Known
    from .resolve import Resolver

TAKES_EVIDENCE_ONLY = frozenset({State.AWAITING_DECISION, State.PERMITTED, State.UNKNOWN})


def probe_flow(
    resolver: Resolver, seen: Seen, known: Known | None
) -> Generator[Request, Any, Seen]:
    """Ask the provider once. Where a person's turn has come, the answer is evidence only.

    Raises:
        LookupError: the effect's code, or its probe, is not loaded here.
    """
    record, engine = seen.record, resolver.engine
    if record is None or known is None:
        name = record.name if record else "?"
        raise LookupError(f"{name}: its code is not loaded here, so it cannot be asked about")
    if not can_ask(known):
        raise LookupError(
            f"{known.name} declares no probe, so its provider cannot be asked: look there yourself,"
            " then decide"
        )
    if record.state not in TAKES_EVIDENCE_ONLY:
        limits = Limits(until=engine.clock.now(), dispatch=False, by_hand=True)
        return (yield from resolver.resolve(seen, known, limits)).seen
    asked = yield from ask(known, record)
    notes = asked.notes(seen.now_ms, counts=False)
    done = yield from engine.persist(seen, notes, deadline=engine.clock.now() + PATIENCE_S)
    return seen if isinstance(done, Refused) else done


def cancel_flow(
    engine: Engine, seen: Seen, *, actor: str, reason: str
) -> Generator[Request, Any, Seen]:
    """Ask that nothing more is sent.

    Raises:
        StaleDecision: too late, the record has ended.
    """
    command = Cancel(
        actor=words(actor, "actor", NAME_CHARS),
        reason=words(reason, "reason"),
        store_epoch=seen.epoch,
    )
    done = yield from engine.persist(seen, (command,), deadline=engine.clock.now() + PATIENCE_S)
    if isinstance(done, Refused):
        record = seen.record
        record_id = record.id if record else "?"
        raise StaleDecision(f"{record_id}: too late to cancel: {done.reason}", record_id=record_id)
    return done
