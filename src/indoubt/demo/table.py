"""The two tables of the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from indoubt.contracts import ExecutionSafetyClass as Safety

from .kills import CUTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHORT = {
    Safety.PURE: "pure",
    Safety.IDEMPOTENT: "idempotent",
    Safety.RETRY_SAFE: "retry safe",
    Safety.STATUS_QUERY_REQUIRED: "status query",
    Safety.NON_IDEMPOTENT: "not idemp.",
    Safety.HUMAN_CONFIRMATION_REQUIRED: "human",
}
COLOURS = {"asks you": "yellow", "adopted": "green", "sent again": "cyan"}


def matrix(did: Mapping[str, str], counts: Mapping[str, int]) -> Table:
    """What recovery did with each act, and how often it has happened at the provider."""
    table = Table(
        title="what recovery did with each act, and how often it happened at the provider",
        title_justify="left",
        padding=(0, 0),
    )
    table.add_column("at")
    for name in SHORT.values():
        table.add_column(name, no_wrap=True)
    for cut in CUTS:
        table.add_row(cut, *[_cell(cut, safety, did, counts) for safety in SHORT])
    return table


def _cell(cut: str, safety: Safety, did: Mapping[str, str], counts: Mapping[str, int]) -> Text:
    key = f"{cut} {safety}"
    default = "not begun" if cut == "F0" else "recorded"
    word = did.get(key, default)
    count = "" if safety is Safety.PURE else f" {counts.get(key, 0)}"
    return Text(word + count, style=COLOURS.get(word, ""))


def final_table(counts: Mapping[str, int], classes: Sequence[Safety]) -> Table:
    """Effects at the provider, by its own count, after everything."""
    table = Table(
        title="payments at the provider in the end, by its own count", title_justify="left"
    )
    table.add_column("at")
    shown = [safety for safety in classes if safety is not Safety.PURE]
    for safety in shown:
        table.add_column(SHORT[safety], justify="right")
    for cut in CUTS:
        row = [counts.get(f"{cut} {safety}", 0) for safety in shown]
        table.add_row(cut, *[Text(str(n), style="red" if n > 1 else "") for n in row])
    return table
