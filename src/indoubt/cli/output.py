"""Where a command's words go: answers to stdout, everything about them to stderr.

With ``--json`` one document goes to stdout and nothing else. Colours and tables are for terminals;
a pipe gets lines of fields between tabs. ``NO_COLOR`` is respected.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import starmap
from typing import TYPE_CHECKING, Any, TextIO, cast

from .escape import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from rich.console import Console

    from .exits import Told


class Output:
    """What one command prints."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def document(self, value: Any) -> None:
        """The answer of ``--json``; ASCII, so that no locale and no terminal can spoil it."""
        if self.as_json:
            print(json.dumps(value, indent=2))  # noqa: T201

    def line(self, text: str = "", *, style: str | None = None) -> None:
        """One line of the answer for people."""
        if not self.as_json:
            console(sys.stdout).print(visible(text), style=style, soft_wrap=True)

    def title(self, text: str) -> None:
        """What the lines below are about."""
        self.line(text, style="bold")

    def fields(self, rows: Sequence[tuple[str, str]]) -> None:
        """Names and values, one a line; nothing for empty values."""
        width = max((len(name) for name, value in rows if value), default=0)
        for name, value in rows:
            if value:
                self.line(f"{name:<{width}}  {value}")

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table on a terminal, lines of fields between tabs elsewhere."""
        if self.as_json:
            return
        if not sys.stdout.isatty():
            for row in (heads, *rows):
                print("\t".join([visible(cell) for cell in row]))  # noqa: T201
            return
        from rich.table import Table  # noqa: PLC0415 - only a terminal needs it
        from rich.text import Text  # noqa: PLC0415

        table = Table(box=None, pad_edge=False, header_style="bold")
        for number, head in enumerate(heads):
            table.add_column(head, no_wrap=number == 0, overflow="fold")
        for row in rows:
            table.add_row(*[Text(visible(cell)) for cell in row])
        console(sys.stdout).print(table)

    def note(self, text: str) -> None:
        """Something about the answer, or about getting there."""
        console(sys.stderr).print(visible(text), soft_wrap=True)

    def error(self, end: Told) -> None:
        """Why a command ended: a sentence and the next step, and the same for programs."""
        self.document({"error": _error(end), "exit_code": int(end.code)})
        self.note(f"indoubt: {end}")
        if end.next_step:
            self.note(f"  {end.next_step}")

    @contextmanager
    def progress(self, doing: str) -> Generator[Callable[[str], None]]:
        """Tell on stderr how far long work has come; a terminal shows the last word only."""
        err = console(sys.stderr)
        if sys.stderr.isatty():
            with err.status(doing) as status:
                yield lambda text: status.update(f"{doing}: {visible(text)}")
        else:
            yield lambda text: err.print(f"{doing}: {visible(text)}", soft_wrap=True)


def console(stream: TextIO) -> Console:
    """A console that shows text as it is: no markup, no emoji codes, no highlighting."""
    from rich.console import Console  # noqa: PLC0415 - half of a command's start

    return Console(
        file=stream,
        force_terminal=stream.isatty(),
        markup=False,
        emoji=False,
        highlight=False,
    )


def _error(end: Told) -> dict[str, Any]:
    facts = {name: _plain(value) for name, value in end.facts.items() if value is not None}
    return {"message": str(end), "next_step": end.next_step or None} | facts


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return dict(starmap(_named, fields.items()))
    if isinstance(value, str | int | float | bool | list):
        return cast("Any", value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _named(name: str, value: Any) -> tuple[str, Any]:
    """Instants are ISO 8601 in everything that programs read."""
    if name == "at_ms":
        return "at", datetime.fromtimestamp(value / 1000, UTC).isoformat()
    return name, value
