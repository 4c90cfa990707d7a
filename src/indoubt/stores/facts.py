"""What a store finds out about itself for ``indoubt doctor``: measured here and now, not declared.

Names and values are for programs, words for people; ``level`` says whether to worry.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

Level = Literal["fine", "note", "bad"]


class Fact(NamedTuple):
    """One finding; ``value`` is plain JSON."""

    name: str
    value: Any
    words: str
    level: Level = "fine"


@runtime_checkable
class Examined(Protocol):
    """A store that can say what it finds out."""

    def facts(self) -> tuple[Fact, ...]:
        """Everything about this store; blocking."""
        ...


__all__ = ["Examined", "Fact", "Level"]
