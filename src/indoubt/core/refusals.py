"""An expected "no", as a value."""

from __future__ import annotations

from typing import NamedTuple

from .record import Decided, Millis


class Refused(NamedTuple):
    """The command may not happen now.

    ``until_ms``: the store time at which the answer may change. ``decided``: what was decided
    already; ``again`` with it: by this very decision, so its repeat gets the first answer.
    """

    reason: str
    until_ms: Millis | None = None
    decided: Decided | None = None
    again: bool = False
