"""One decorated function under its policy: what recovery and its calls need to know of it."""

from __future__ import annotations

import inspect
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .arguments import Arguments, NotRebuildable
from .identity import effect_name, idempotency_key
from .policy import REPEATABLE, EffectPolicy, milliseconds
from .receipts import Receipts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from indoubt.core.record import Record
    from indoubt.engine.engine import Seen
    from indoubt.engine.requests import Request

log = logging.getLogger("indoubt.guard")


class Definition:
    """One decorated function under its policy."""

    kind = "effect"

    def __init__(self, fn: Callable[..., Any], declared: EffectPolicy) -> None:
        if isinstance(fn, type) or not callable(fn):
            raise TypeError(f"an effect guards a function, not {type(fn).__name__}")
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise TypeError("a generator returns before it has done anything: guard a function")
        self.fn = fn
        self.declared = declared
        self.name = effect_name(fn, declared.name)
        self.home = (fn.__module__, getattr(fn, "__qualname__", ""))
        self.plain = not inspect.iscoroutinefunction(fn)
        self.arguments = Arguments(fn, ignore=declared.ignore, redact=declared.redact)
        self.receipts = Receipts(fn)
        self.policy = declared.policy
        self.provider = declared.provider
        self.facts = declared.facts
        self.probe = declared.probe
        self.timeout_ms = declared.timeout_ms
        self.permit_ms = declared.timeout_ms or 0
        self.performer: Callable[[Seen, float], Generator[Request, Any, Any]] | None = None

    def can_perform(self, record: Record) -> bool:
        """Whether this recorded act can be performed from its record alone."""
        if self.performer is None or not (record.rebuildable and self.arguments.replayable):
            return False
        try:
            self.arguments.rebuild(bytes(record.payload))
        except NotRebuildable:
            return False
        return True

    @property
    def repeatable(self) -> bool:
        """Whether sending it twice does no harm, so that even a forgetful ledger will do."""
        return self.policy.safety in REPEATABLE

    def idempotency_key(self, record: Record) -> str:
        """What this record's provider is sent, one for all attempts of a series."""
        return idempotency_key(
            record.tenant_id,
            record.name,
            record.key,
            record.scope,
            record.fingerprint,
            series=record.series,
        )

    def limited(self, intent: Record, now_ms: int) -> Record:
        """The intent with ``no_use_after`` as an instant of the store's clock."""
        end = self.declared.no_use_after
        if isinstance(end, timedelta):
            end = now_ms + milliseconds(end, "no_use_after")
        return replace(intent, policy=replace(intent.policy, no_use_after_ms=end))

    def perform(self, seen: Seen, sent_at: float) -> Generator[Request, Any, Any]:
        """Perform a recorded act (recovery calls this after its dispatch)."""
        if self.performer is None:
            raise LookupError(f"{self.name} is not bound to a ledger")
        return self.performer(seen, sent_at)

    def is_clean_failure(self, error: BaseException) -> bool:
        """Whether this exception proves that nothing happened; a predicate that raises does not."""
        for clean in self.declared.clean_failures:
            if isinstance(clean, type):
                if isinstance(error, clean):
                    return True
                continue
            try:
                if clean(error) is True:
                    return True
            except Exception:
                log.exception("%s: a clean_failures predicate raised; that is no proof", self.name)
        return False
