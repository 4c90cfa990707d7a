"""What recovery knows about an effect from the code that is loaded here.

A record outlives the code that made it: where no such code is registered, recovery uses what the
record itself holds, and never more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from indoubt.contracts import ProviderFacts, RecoveryCapableProvider
    from indoubt.core.record import Policy, Record
    from indoubt.engine.engine import Seen
    from indoubt.engine.requests import Request


class Known(Protocol):
    """One registered effect (a protocol, so that recovery needs no guard)."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def policy(self) -> Policy: ...

    @property
    def permit_ms(self) -> int: ...

    @property
    def provider(self) -> RecoveryCapableProvider | None: ...

    @property
    def facts(self) -> ProviderFacts | None: ...

    @property
    def probe(self) -> Callable[[Any], Any] | None: ...

    def can_perform(self, record: Record) -> bool:
        """Whether the function can be called from what the record holds."""
        ...

    def idempotency_key(self, record: Record) -> str: ...

    def perform(self, seen: Seen, sent_at: float) -> Generator[Request, Any, Any]:
        """Call the function for a dispatch that was just written, and settle it."""
        ...


class Registry:
    """Effects by name; a renamed one is also found by its former names."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}
        self._formerly: dict[str, Known] = {}

    def add(self, known: Known, formerly: Iterable[str] = ()) -> None:
        """Register; the caller has checked that the name is free."""
        self._known[known.name] = known
        for name in formerly:
            self._formerly[name] = known

    def find(self, name: str) -> Known | None:
        """The registered effect of this name, or of this former name."""
        return self._known.get(name) or self._formerly.get(name)

    def of(self, record: Record) -> Known | None:
        """What is registered for this record: another kind's records may have the same names."""
        known = self.find(record.name)
        return known if known is not None and known.kind == record.kind else None

    def names(self) -> tuple[str, ...]:
        """All registered names."""
        return tuple(sorted(self._known))
