"""``indoubt effects``: the delayed effects of a ledger, and what a person may do about one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .access import reach
from .edge import command
from .escape import visible
from .exits import Exit, Told
from .output import Output
from .wording import cut, local

if TYPE_CHECKING:
    from indoubt.delayed_effects import DelayedEffectIntent, DelayedEffectStore

    from .access import Reached

NAMESPACE = "sg:delayed_effect:v1"
HEADS = ("INTENT", "TYPE", "OPERATION", "STATE", "DUE", "ATTEMPTS", "ERROR")
SHOWN = 12
"""Characters of an intent's id in a table; the whole id goes to a pipe."""
PREFIX_MIN = 2
"""Of an id: its first two characters say where it is kept."""

effects = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look at delayed effects, and steer them.",
)
Namespace = Annotated[
    str, typer.Option("--namespace", metavar="NS", help="Of the store of delayed effects.")
]
Types = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="TYPE", help="Only what waits of this type; repeatable."),
]
Named = Annotated[
    str,
    typer.Argument(metavar="INTENT", help="An intent's id, or a beginning that names only one."),
]
Actor = Annotated[str, typer.Option("--actor", metavar="NAME", help="Who decides; kept.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept.")]


@command
async def list_(
    *,
    types: Types = None,
    limit: options.Limit = 100,
    cursor: options.Cursor = None,
    namespace: Namespace = NAMESPACE,
    store: options.Store = None,
    tenant: options.Tenant = None,
    as_json: options.AsJson = False,
) -> Exit:
    """List delayed effects, a page at a time.

    With --type what waits or runs of these types, by due time; without it all there is, ended
    ones too, by id. It only reads.

    Example:
      indoubt effects list --type unmute --json
    """
    output = Output(as_json=as_json)
    async with reach(store, tenant) as reached:
        page = await _store(reached, namespace).scan(
            effect_types=types, tenant_id=reached.tenant, limit=limit, cursor=cursor
        )
    output.document({"items": [_plain(item) for item in page.items], "cursor": page.cursor})
    if not as_json:
        if page.items:
            output.table(HEADS, [_row(item) for item in page.items])
        else:
            output.note("there are no delayed effects here")
        if page.cursor is not None:
            output.note(f"more: the same with --cursor {page.cursor}")
    return Exit.DONE


@command
async def show(
    *,
    intent: Named,
    namespace: Namespace = NAMESPACE,
    store: options.Store = None,
    tenant: options.Tenant = None,
    as_json: options.AsJson = False,
) -> Exit:
    """Show one delayed effect, with its payload, receipt and error.

    Its record's ref, which `indoubt show` and `indoubt decide` take, is shown too. It only reads.

    Example:
      indoubt effects show 2c26b46b68ff
    """
    output = Output(as_json=as_json)
    async with reach(store, tenant) as reached:
        found = await _found(reached, _store(reached, namespace), intent)
        record = await _store(reached, namespace).record(found.intent_id)
    document = _plain(found) | {"record": None if record is None else record.to_dict()}
    output.document({"effect": document})
    rows = [(name, _text(value)) for name, value in _plain(found).items()]
    output.fields([*rows, ("ref", "" if record is None else record.ref)])
    return Exit.DONE


@command
async def cancel(
    *,
    intent: Named,
    namespace: Namespace = NAMESPACE,
    store: options.Store = None,
    tenant: options.Tenant = None,
    as_json: options.AsJson = False,
) -> Exit:
    """Fire it no more. What runs just now is asked to be the last.

    It ends with 5 where it is running (asked) or has ended. Nothing that was done is undone.

    Example:
      indoubt effects cancel 2c26b46b68ff
    """
    output = Output(as_json=as_json)
    async with reach(store, tenant) as reached:
        delayed = _store(reached, namespace)
        done = await delayed.cancel((await _found(reached, delayed, intent)).intent_id)
    words = {"COMPLETED": "cancelled", "BUSY": "it runs just now: asked to be the last"}
    return _steered(output, done, words.get(done.action.value, "too late: it has ended"))


@command
async def release(
    *,
    intent: Named,
    actor: Actor,
    reason: Reason,
    namespace: Namespace = NAMESPACE,
    store: options.Store = None,
    tenant: options.Tenant = None,
    as_json: options.AsJson = False,
) -> Exit:
    """Allow a parked delayed effect one more attempt: a worker fires it, and may park it again.

    What waits is made due now. Nothing is fired by this command. It ends with 5, and changes
    nothing, where it runs, has ended, or an earlier attempt may still land.

    Example:
      indoubt effects release 2c26b46b68ff --actor ana --reason "the gateway is back"
    """
    from indoubt.recovery.decisions import AllowOneAttempt  # noqa: PLC0415 - `--help` needs none

    output = Output(as_json=as_json)
    async with reach(store, tenant) as reached:
        delayed = _store(reached, namespace)
        found = await _found(reached, delayed, intent)
        record = await delayed.record(found.intent_id)
        if record is not None and record.state == "awaiting_decision":
            await reached.ledger.decide(
                record.ref,
                AllowOneAttempt(),
                actor=actor,
                reason=reason,
                tenant_id=reached.tenant,
            )
            return _steered(output, await delayed.get(found.intent_id), "one more attempt", ok=True)
        done = await delayed.reschedule(found.intent_id, delay_seconds=0)
    words = {"DEFERRED": "due now", "BUSY": "it runs just now"}
    return _steered(output, done, words.get(done.action.value, "too late: it has ended"))


def _steered(output: Output, done: DelayedEffectIntent, words: str, *, ok: bool = False) -> Exit:
    output.document({"effect": _plain(done)})
    output.line(f"{done.intent_id[:SHOWN]} {done.effect_type}: {words}")
    return Exit.DONE if ok or done.action.value in {"COMPLETED", "DEFERRED"} else Exit.REFUSED


def _store(reached: Reached, namespace: str) -> DelayedEffectStore:
    from indoubt.delayed_effects import DelayedEffectStore  # noqa: PLC0415 - `--help` needs none

    return DelayedEffectStore(reached.ledger, namespace=namespace)


async def _found(reached: Reached, delayed: DelayedEffectStore, prefix: str) -> DelayedEffectIntent:
    """The one intent whose id begins so, if the tenant may see it.

    Raises:
        Told: there is none, or more than one.
    """
    from indoubt.store import ScanQuery  # noqa: PLC0415

    if len(prefix) < PREFIX_MIN:
        raise Told(Exit.USAGE, f"INTENT: at least {PREFIX_MIN} characters of an id")
    query = ScanQuery(id_prefix=delayed.key_for_intent(prefix), tenant_id=reached.tenant, limit=2)
    rows = (await reached.ledger.open().store.scan(query)).records
    if len(rows) == 0:
        raise Told(
            Exit.NOT_FOUND,
            f"{visible(prefix)}: no such delayed effect",
            next_step="list what there is: indoubt effects list",
        )
    if len(rows) > 1:
        raise Told(
            Exit.USAGE,
            f"{visible(prefix)} names more than one delayed effect",
            next_step="give more of the id",
        )
    found = await delayed.get(rows[0].id.rpartition(":")[2])
    if found.state is None:
        raise Told(Exit.NOT_FOUND, f"{visible(prefix)}: it has ended, and is told of no more")
    return found


def _plain(item: DelayedEffectIntent) -> dict[str, Any]:
    return {
        "intent_id": item.intent_id,
        "operation_id": item.operation_id,
        "effect_type": item.effect_type,
        "state": None if item.state is None else item.state.value,
        "action": item.action.value,
        "due_at": _when(item.due_at_ms).isoformat(),
        "created_at": _when(item.created_at_ms).isoformat(),
        "attempts": item.attempts,
        "fence": item.fence,
        "owner_token": item.owner_token,
        "payload": item.payload,
        "receipt": item.receipt,
        "error": item.error,
    }


def _row(item: DelayedEffectIntent) -> tuple[str, ...]:
    return (
        item.intent_id,
        item.effect_type,
        cut(item.operation_id),
        "" if item.state is None else item.state.value,
        local(_when(item.due_at_ms)),
        str(item.attempts),
        "" if item.error is None else cut(_text(item.error)),
    )


def _text(value: Any) -> str:
    from .escape import as_json  # noqa: PLC0415

    if value is None or value == "":
        return ""
    return value if isinstance(value, str) else as_json(value)


def _when(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


effects.command("list")(list_)
for one in (show, cancel, release):
    effects.command()(one)
