"""How a command ends: one table of exit codes, and which error ends with which.

Scripts may rely on the numbers: they never change their meaning.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from indoubt.errors import (
    AlreadyDecided,
    EffectBusy,
    IndoubtError,
    RecordNotFound,
    SchemaMissing,
    SchemaTooNew,
    SchemaTooOld,
    StaleDecision,
    StoreBroken,
    StoreUnavailable,
    TooEarly,
)

from .wording import local

if TYPE_CHECKING:
    from collections.abc import Mapping


class Exit(IntEnum):
    """What a command's exit code says."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    IN_DOUBT = 4
    REFUSED = 5
    UPGRADE = 6
    INTERRUPTED = 130


EXITS: dict[Exit, str] = {
    Exit.DONE: "done",
    Exit.ERROR: "an error; stderr says which, and what to do now",
    Exit.USAGE: "wrong use: an option, an argument, a bare record id in the place of a ref",
    Exit.NOT_FOUND: "not found: no such record for this tenant, or no ledger at that URL",
    Exit.IN_DOUBT: "something is in doubt (`inbox --check`, for monitors)",
    Exit.REFUSED: "refused, and nothing was changed: stale, decided already, too early, or busy",
    Exit.UPGRADE: "the store's schema is not this version's: run `indoubt db upgrade`",
    Exit.INTERRUPTED: "interrupted (Ctrl-C); what was written is kept",
}


class Told(Exception):
    """Ends a command with one sentence, the next step and an exit code."""

    def __init__(
        self,
        code: Exit,
        sentence: str,
        *,
        next_step: str = "",
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(sentence)
        self.code = code
        self.next_step = next_step
        self.facts = dict(facts or {})


class Ending(NamedTuple):
    """How one kind of error ends a command; ``next_step`` may name the error's own fields."""

    code: Exit
    next_step: str = ""


# The first class that fits counts, so narrow ones stand before wide ones.
ENDINGS: tuple[tuple[type[BaseException], Ending], ...] = (
    (RecordNotFound, Ending(Exit.NOT_FOUND, "list what there is: indoubt inbox")),
    (
        SchemaMissing,
        Ending(Exit.NOT_FOUND, "check --store; a program makes its ledger when it first uses it"),
    ),
    (
        StaleDecision,
        Ending(Exit.REFUSED, "read it as it is now, then decide: indoubt show {record_id}"),
    ),
    (AlreadyDecided, Ending(Exit.REFUSED, "see what became of it: indoubt show {record_id}")),
    (
        TooEarly,
        Ending(Exit.REFUSED, "decide {later}; `happened` and `give-up` need no waiting"),
    ),
    (EffectBusy, Ending(Exit.REFUSED, "wait until its holder is done, then look again")),
    (SchemaTooOld, Ending(Exit.UPGRADE, "run: indoubt db upgrade")),
    (SchemaTooNew, Ending(Exit.UPGRADE, "use a newer indoubt")),
    (StoreUnavailable, Ending(Exit.ERROR, "nothing is lost: run it again")),
    (StoreBroken, Ending(Exit.ERROR, "look at the store: indoubt doctor")),
    (IndoubtError, Ending(Exit.ERROR)),
    (ValueError, Ending(Exit.USAGE)),
)
UNEXPECTED = Ending(Exit.ERROR, "INDOUBT_DEBUG=1 shows where")


def _later(error: BaseException) -> str:
    """When a refused decision may be taken, on the clocks of this place."""
    until = getattr(error, "until", None)
    return "once the provider has answered" if until is None else f"after {local(until)}"


def told(error: BaseException) -> Told:
    """The error as a command's end."""
    if isinstance(error, Told):
        return error
    facts = {"type": type(error).__name__, **vars(error)}
    for kind, ending in ENDINGS:
        if isinstance(error, kind):
            step = ending.next_step.format_map(
                {"record_id": "REF", "later": _later(error), **facts}
            )
            return Told(ending.code, str(error), next_step=step, facts=facts)
    sentence = f"{facts['type']}: {error}"
    return Told(UNEXPECTED.code, sentence, next_step=UNEXPECTED.next_step, facts=facts)
