"""What is known about a record, in a person's words: times of this place, and what comes next."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from .escape import as_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from indoubt.recovery.items import RecordView

SHORT = 8
"""Characters of an id, behind its prefix, that tell records apart on a page; more where needed."""
TEXT_MAX = 48
"""A longer key or argument is cut in a table; ``show`` has all of it."""
TIMES = "\N{MULTIPLICATION SIGN}"
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def local(when: datetime) -> str:
    """An instant as people here write it."""
    return when.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z").rstrip()


def clock(when: datetime, now: datetime) -> str:
    """An instant, without its date if that is today's."""
    here = when.astimezone()
    same_day = here.date() == now.astimezone().date()
    return here.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S")


def ago(past: timedelta) -> str:
    """How long, in one unit."""
    seconds = max(0, int(past.total_seconds()))
    unit, size = next((u for u in _UNITS if seconds >= u[1]), _UNITS[-1])
    return f"{seconds // size} {unit}"


def cut(text: str, most: int = TEXT_MAX) -> str:
    """The beginning of a long text."""
    return text if len(text) <= most else text[: most - 1] + "…"


def what(item: RecordView) -> str:
    """Which act it is: its name, and its key or its arguments."""
    if item.key is not None:
        return f"{item.name} {cut(item.key)}"
    arguments: dict[str, Any] = item.arguments or {}
    return " ".join([item.name, *[cut(as_json(value)) for value in arguments.values()][:2]])


def known(item: RecordView, now: datetime) -> str:
    """What we know: when it was sent, and what became of asking."""
    parts: list[str] = []
    if item.attempts:
        from datetime import datetime  # noqa: PLC0415 - only where something was sent

        last = item.attempts[-1]
        sent = clock(datetime.fromisoformat(last["dispatched_at"]), now)
        how = "acknowledged" if last["stage"] == "acknowledged" else "no answer"
        parts.append(f"sent {sent}, {how}")
    parts += reported(item.evidence)
    if item.contradicted:
        parts.append(item.contradicted)
    return "; ".join(parts)


def reported(evidence: Sequence[dict[str, Any]], last: int = 3) -> list[str]:
    """The newest reports; equal neighbours are counted."""
    words = [f"{e['source']}: {e.get('status') or e.get('note') or 'reported'}" for e in evidence]
    runs = [(word, len(list(run))) for word, run in groupby(words)]
    return [word if times == 1 else f"{word} {TIMES}{times}" for word, times in runs[-last:]]


def comes_next(item: RecordView) -> str:
    """Whose turn it is."""
    if item.contradicted or item.state == "awaiting_decision":
        return "a person"
    if item.state == "permitted":
        return "a repeat of the call"
    return "recover" if item.choices or item.state == "dispatched" else "-"


def short_refs(items: Sequence[RecordView]) -> list[str]:
    """Refs cut as far as they still differ from one another, for a table."""
    ids = [item.record_id for item in items]
    length = SHORT
    while len({_cut_id(i, length) for i in ids}) < len(set(ids)):
        length += 1
    return [f"{_cut_id(item.record_id, length)}.{item.attempt}" for item in items]


def _cut_id(record_id: str, length: int) -> str:
    prefix, mark, rest = record_id.partition("_")
    return f"{prefix}{mark}{rest[:length]}" if mark else record_id[: length + 4]
