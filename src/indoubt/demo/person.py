"""Who decides: the person at the terminal, or a stand-in who looks at the provider's own list."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.prompt import Prompt

from indoubt.recovery.decisions import AllowOneAttempt, Decision, DidNotHappen, GiveUp, Happened

if TYPE_CHECKING:
    from rich.console import Console

    from indoubt.recovery.items import RecordView

AT_KEYBOARD = "you"
STAND_IN = "stand-in"
ANSWERS = {"h": "happened", "n": "did not happen", "a": "allow one attempt", "g": "give up"}


class Person:
    """Answers the inbox, one item after the other.

    Attributes:
        excused: by key, what a person said about an act that the provider's own list shows, so
            that it may happen twice.
    """

    def __init__(self, console: Console, *, ask: bool) -> None:
        self._console = console
        self._asks = ask and sys.stdin.isatty() and console.is_terminal
        self.name = AT_KEYBOARD if self._asks else STAND_IN
        self.excused: dict[str, str] = {}

    def decide(self, item: RecordView, count: int) -> tuple[Decision, str]:
        """Show what is known, and take the answer."""
        probe = [one for one in item.evidence if one.get("source") == "probe"]
        known = f"probe: {probe[-1]['status']}" if probe else "no probe"
        self._console.print(
            f"  [bold]{escape(item.key or '')}[/] ({known})  [dim]{escape(item.ref)}[/]",
            no_wrap=True,
            overflow="ellipsis",
        )
        if not self._asks:
            return self._look_up(count)
        answer = self._ask(count, default="h" if count else "n")
        if answer in {"a", "n"} and count:
            self.excused[item.key or ""] = f"you said '{ANSWERS[answer]}', the list showed {count}"
        decisions: dict[str, Decision] = {
            "h": Happened({"seen": count}),
            "n": DidNotHappen(),
            "a": AllowOneAttempt(),
            "g": GiveUp(),
        }
        return decisions[answer], f"{ANSWERS[answer]}, said at the terminal"

    def _ask(self, count: int, *, default: str) -> str:
        try:
            return Prompt.ask(
                f"    the provider's own list shows [bold]{count}[/]."
                " [b]h[/]appened, did [b]n[/]ot happen, [b]a[/]llow one attempt, [b]g[/]ive up",
                choices=list(ANSWERS),
                default=default,
                console=self._console,
            )
        except EOFError:  # nobody is there any more
            return default

    def _look_up(self, count: int) -> tuple[Decision, str]:
        if count:
            self._console.print("    the stand-in finds it in the provider's own list: happened")
            return Happened({"seen": count}), "seen in the provider's own list"
        self._console.print("    the stand-in does not find it there: did not happen")
        return DidNotHappen(), "not in the provider's own list"
