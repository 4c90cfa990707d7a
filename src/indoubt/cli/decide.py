"""``indoubt decide``: record what a person knows, or allows."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .access import Reached, look_up, reach
from .edge import command
from .escape import visible
from .exits import Exit, Told
from .output import Output
from .wording import comes_next

if TYPE_CHECKING:
    from indoubt.recovery.decisions import Decision


class Word(StrEnum):
    """The decisions as they are typed."""

    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did-not-happen"
    ALLOW_ONE = "allow-one"
    GIVE_UP = "give-up"


Question = Annotated[
    str,
    typer.Argument(
        metavar="REF", help="The question: a ref with its attempt, like rec_7f3a.1 (see inbox)."
    ),
]
Answer = Annotated[
    Word,
    typer.Argument(metavar="DECISION", help="happened, did-not-happen, allow-one or give-up."),
]
Receipt = Annotated[
    str | None,
    typer.Option("--receipt", metavar="JSON", help="Its result, where it happened; JSON."),
]
Actor = Annotated[str, typer.Option("--actor", metavar="NAME", help="Who decides; kept with it.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept with it.")]
DecisionId = Annotated[
    str | None,
    typer.Option(
        "--decision-id", metavar="ID", help="Names the decision: its repeat gets the first answer."
    ),
]


@command
async def decide(
    *,
    ref: Question,
    answer: Answer,
    actor: Actor,
    reason: Reason,
    receipt: Receipt = None,
    decision_id: DecisionId = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    as_json: options.AsJson = False,
) -> None:
    """Record a person's decision about one question of the inbox.

    happened: it succeeded, with the receipt you give. did-not-happen: a repeat of the call may
    send it anew. allow-one: exactly one more attempt may be sent. give-up: closed as unknown.
    It never sends anything itself, and never overrules: a question that has changed, or was
    decided already, is refused with 5 and nothing is changed.

    Example:
      indoubt decide rec_7f3a.1 happened --receipt '{"id": "rf_12"}' --actor ana --reason "bank"
    """
    decision = _decision(answer, receipt)
    output = Output(as_json=as_json)
    async with reach(store, tenant) as reached:
        question = await _question(reached, ref)
        item = await reached.ledger.decide(
            question,
            decision,
            actor=actor,
            reason=reason,
            decision_id=decision_id,
            tenant_id=reached.tenant,
        )
    output.document({"record": item.to_dict()})
    output.line(f"{question}: {answer}, by {actor}; it is {item.state} now")
    output.fields([("next", comes_next(item).strip("-"))])


def _decision(answer: Word, receipt: str | None) -> Decision:
    from indoubt.recovery.decisions import decision_from_dict  # noqa: PLC0415

    given: dict[str, Any] = {"decision": answer.value}
    if receipt is None:
        return decision_from_dict(given)
    if answer is not Word.HAPPENED:
        raise Told(Exit.USAGE, f"--receipt belongs to happened, not to {answer}")
    return decision_from_dict(given | {"receipt": _json(receipt)})


def _json(text: str) -> Any:
    import msgspec  # noqa: PLC0415

    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise Told(Exit.USAGE, f"--receipt is no JSON: {error}") from error


async def _question(reached: Reached, text: str) -> str:
    """The ref in full. A bare id is no question: another attempt may have replaced what was read.

    Raises:
        Told: a bare id, no such record, or more than one.
    """
    item = await look_up(reached, text)
    _, dot, attempt = text.partition(".")
    if not dot:
        raise Told(
            Exit.USAGE,
            f"{visible(text)} names a record, not a question; the question now is {item.ref}",
            next_step=f"read it, then decide: indoubt show {item.ref}",
            facts={"record_id": item.record_id, "current_ref": item.ref},
        )
    return f"{item.record_id}.{attempt}"
