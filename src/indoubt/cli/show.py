"""``indoubt show``: one record, with what may be decided about it, and its story."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .access import look_up, now_of, reach
from .edge import command
from .escape import as_json as on_a_line
from .output import Output
from .wording import ago, clock, comes_next, cut, local, what

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from indoubt.recovery.items import JournalEntry, RecordView

STORY = ("NO", "AT", "DID", "STATE", "ATTEMPT", "FENCE", "BY", "WHY")
STORY_FOR_A_TERMINAL = ("NO", "AT", "DID", "STATE", "TRY", "FENCE", "BY: WHY")
OWNER_CHARS = 8
WORDS = {
    "happened": "happened --receipt '{}'",
    "did_not_happen": "did-not-happen",
    "allow_one_attempt": "allow-one",
    "give_up": "give-up",
}
"""A decision as ``decide`` takes it."""
Journal = Annotated[bool, typer.Option("--journal", help="Its story too, one line for each write.")]
After = Annotated[
    int,
    typer.Option("--after", min=0, metavar="NO", help="The story from behind this number on."),
]


@command
async def show(
    *,
    ref: options.Ref,
    journal: Journal = False,
    after: After = 0,
    limit: options.Limit = 100,
    store: options.Store = None,
    tenant: options.Tenant = None,
    as_json: options.AsJson = False,
) -> None:
    """Show one record: what was intended and sent, what is known, what may be decided.

    It only reads. REF is a record's id or ref, or any beginning of it that names only one.

    Example:
      indoubt show rec_7f3a --journal
    """
    output = Output(as_json=as_json)
    story: list[JournalEntry] | None = None
    async with reach(store, tenant) as reached:
        item, now = await look_up(reached, ref), await now_of(reached)
        if journal:
            story = await reached.ledger.journal(
                item.record_id, after=after, limit=limit, tenant_id=reached.tenant
            )
    output.document({"record": item.to_dict()} | _story_json(story, limit))
    if ref.partition(".")[2] not in {"", str(item.attempt)}:
        output.note(f"{ref} is no longer the question: it is {item.ref} now")
    if not as_json:
        _show(output, item, now)
        _show_story(output, story, limit, now)


def _story_json(story: list[JournalEntry] | None, limit: int) -> dict[str, Any]:
    if story is None:
        return {}
    more = story[-1].sequence if len(story) == limit else None
    return {"journal": [entry.to_dict() for entry in story], "journal_after": more}


def _show(output: Output, item: RecordView, now: datetime) -> None:
    output.title(what(item))
    output.fields(
        [
            ("ref", item.ref),
            ("state", f"{item.state}: {item.reason}" if item.reason != item.state else item.state),
            ("effect", item.effect or ""),
            ("since", f"{local(item.since)} ({ago(now - item.since)})"),
            ("next", comes_next(item)),
            ("kind", f"{item.kind}, {item.safety}"),
            ("tenant", item.tenant_id or ""),
            ("scope", item.scope or ""),
            ("key", item.key or ""),
            ("arguments", _value(item.arguments)),
            ("receipt", "not stored" if item.receipt_lost else _value(item.receipt)),
            ("error", _value(item.error)),
            ("cancel", "asked: nothing more is sent" if item.cancel_requested else ""),
            ("quiet at", _quiet(item, now)),
        ]
    )
    _section(output, "attempts", [_attempt(attempt, now) for attempt in item.attempts])
    _section(output, "evidence, newest last", [_evidence(one, now) for one in item.evidence])
    decisions = [_decided(one, now) for one in item.decisions]
    _section(output, "decided by people, newest last", decisions)
    _section(
        output,
        "a person may decide (add --actor NAME --reason TEXT)",
        [
            f"indoubt decide {item.ref} {WORDS[choice.decision]}\n      {choice.risk}"
            for choice in item.choices
        ],
    )


def _section(output: Output, title: str, lines: Sequence[str]) -> None:
    if lines:
        output.line()
        output.title(title)
    for line in lines:
        for part in line.split("\n"):
            output.line(f"  {part}")


def _quiet(item: RecordView, now: datetime) -> str:
    if item.quiet_at is None:
        return ""
    if item.quiet_at > now:
        return f"{local(item.quiet_at)}; before that a sent request may still land"
    return local(item.quiet_at)


def _value(value: Any) -> str:
    return "" if value is None else on_a_line(value)


def _attempt(attempt: dict[str, Any], now: datetime) -> str:
    known = [
        f"{attempt['number']}: sent {_at(attempt['dispatched_at'], now)}",
        attempt["stage"] if attempt["stage"] != "sent" else "",
        f"ref {attempt['external_ref']}" if attempt["external_ref"] else "",
        f"note {on_a_line(attempt['token'])}" if attempt["token"] is not None else "",
        "a late result is on file" if attempt["late_result"] else "",
        f"closed: {attempt['closed']}" if attempt["closed"] else "open",
        "" if attempt["closed"] else _silence(attempt, now),
    ]
    return ", ".join([part for part in known if part])


def _silence(attempt: dict[str, Any], now: datetime) -> str:
    """Whether it can still be sent; an end of its permit on a clock is no proof of silence."""
    if attempt["silent"]:
        return "nobody can send it any more"
    until = _instant(attempt["permit_until"])
    if now < until:
        return f"may be sent until {clock(until, now)}"
    return "its permit is over; not proven that nobody sends it"


def _decided(one: dict[str, Any], now: datetime) -> str:
    about = f"attempt {one['attempt']}"
    words = f"by {one['actor']}: {one['reason']}"
    return "  ".join([_at(one["at"], now), about, one["decision"], words])


def _evidence(one: dict[str, Any], now: datetime) -> str:
    status = one.get("status") or one.get("note") or ""
    data = on_a_line(one["data"]) if "data" in one else ""
    about = f"attempt {one['attempt']}" if "attempt" in one else ""
    return "  ".join([p for p in (_at(one["at"], now), one["source"], about, status, data) if p])


def _at(text: str, now: datetime) -> str:
    return clock(_instant(text), now)


def _instant(text: str) -> datetime:
    from datetime import datetime  # noqa: PLC0415 - only where there is something to show

    return datetime.fromisoformat(text)


def _show_story(
    output: Output, story: list[JournalEntry] | None, limit: int, now: datetime
) -> None:
    if story is None:
        return
    output.line()
    if sys.stdout.isatty():
        output.table(STORY_FOR_A_TERMINAL, [_short_entry(entry, now) for entry in story])
    else:
        output.table(STORY, [_entry(entry) for entry in story])
    if len(story) == limit:
        output.note(f"more: the same with --after {story[-1].sequence}")


def _short_entry(entry: JournalEntry, now: datetime) -> tuple[str, ...]:
    """What 80 columns hold: no date of today, owners cut, who and why in one."""
    number, _, did, state, attempt, fence, _, why = _entry(entry)
    by = entry.actor or cut(entry.owner or "", OWNER_CHARS)
    who_and_why = ": ".join([part for part in (by, why) if part])
    words = did.replace("_", " ")
    return (number, clock(entry.at, now), words, state, attempt, fence, who_and_why)


def _entry(entry: JournalEntry) -> tuple[str, ...]:
    reports = [f"{e['source']}: {e.get('status') or e.get('note') or ''}" for e in entry.evidence]
    return (
        str(entry.sequence),
        local(entry.at),
        ", ".join(entry.did),
        entry.state,
        str(entry.attempt),
        str(entry.fence),
        entry.actor or entry.owner or "",
        "; ".join([entry.reason or "", *reports]).strip("; "),
    )
