"""What was declared about one effect, checked when it is declared and frozen then."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from indoubt.contracts import ExecutionSafetyClass, ProviderFacts, check_provider, stricter
from indoubt.core.bounds import DURATION_MS_MAX
from indoubt.core.record import Policy, Record

from .arguments import Arguments, NotRebuildable
from .identity import effect_name, idempotency_key
from .receipts import Receipts

if TYPE_CHECKING:
    from collections.abc import Generator

    from indoubt.contracts import RecoveryCapableProvider
    from indoubt.engine.engine import Seen
    from indoubt.engine.requests import Request

log = logging.getLogger("indoubt.guard")
Safety = ExecutionSafetyClass
REPEATABLE = frozenset({Safety.PURE, Safety.IDEMPOTENT, Safety.RETRY_SAFE})
CleanFailure = type[BaseException] | Callable[[BaseException], bool]


class ProbeBudget:
    """How often and how long a doubt is probed before a person is asked.

    Args:
        count: probes that did not settle it.
        within: counted from the first of them.
    """

    def __init__(self, count: int = 10, within: timedelta = timedelta(minutes=10)) -> None:
        if type(count) is not int or count < 1:
            raise ValueError("probe_budget: count is a whole number from 1")
        self.count = count
        self.within_ms = milliseconds(within, "probe_budget.within")


class EffectPolicy:
    """Everything that may be declared about an effect: ``Ledger.effect``'s keywords.

    Args:
        safety: its class; may be left out where a provider is given. Where both speak, the
            stricter governs.
        name: how its acts are found; default: the function's qualified name.
        key: from the call's arguments to the text that names the act, whatever the scope.
        probe: a function from a ``DoubtfulAttempt`` to a ``ProviderProbeResult``.
        provider: a ``RecoveryCapableProvider``.
        clean_failures: exception types, or predicates of an exception, that prove that nothing
            happened.
        timeout: how long one attempt may take; an ``async def`` is cancelled at it.
        settle_time: the longest a request may still land after that, plus the read lag.
        not_found_is_authoritative: "not found" is about this very act, not a cache.
        key_retention: it is safe only through its key, and for so long.
        resend_on_proven_absence: a non_idempotent effect may be sent again where its absence is
            proven.
        detached: it starts something that outlives it.
        no_use_after: after this time, or this long after the first call, no attempt is sent.
        ignore: parameters that are neither recorded nor part of the act.
        redact: parameters whose value is not stored.
        formerly: names under which older records were made.
        wait_for_decision: how long a call waits for a person.
        probe_budget: see ``ProbeBudget``.
    """

    def __init__(
        self,
        *,
        safety: Safety | str | None = None,
        name: str | None = None,
        key: Callable[..., str] | None = None,
        probe: Any = None,
        provider: RecoveryCapableProvider | None = None,
        clean_failures: Sequence[CleanFailure] = (),
        timeout: timedelta | None = None,
        settle_time: timedelta | None = None,
        not_found_is_authoritative: bool | None = None,
        key_retention: timedelta | None = None,
        resend_on_proven_absence: bool = False,
        detached: bool = False,
        no_use_after: datetime | timedelta | None = None,
        ignore: Sequence[str] = (),
        redact: Sequence[str] = (),
        formerly: Sequence[str] = (),
        wait_for_decision: timedelta | None = None,
        probe_budget: ProbeBudget | None = None,
    ) -> None:
        _exactly_bool(
            resend_on_proven_absence=resend_on_proven_absence,
            detached=detached,
        )
        if provider is None and hasattr(probe, "probe_execution"):
            provider, probe = probe, None
        if provider is not None and probe is not None:
            raise TypeError("give a probe function or a provider, not both")
        if probe is not None and not callable(probe):
            raise TypeError(f"probe: {type(probe).__name__} is neither a function nor a provider")
        if key is not None and not callable(key):
            raise TypeError("key: a function of the call's arguments")
        self.name = name
        self.key = key
        self.probe = probe
        self.provider = provider
        self.facts = None if provider is None else check_provider(provider)
        self.safety = _safety(safety, self.facts)
        self.clean_failures = _clean(clean_failures)
        self.timeout_ms = _optional(timeout, "timeout")
        self.ignore = tuple(ignore)
        self.redact = tuple(redact)
        self.formerly = tuple(formerly)
        self.wait_for_decision = wait_for_decision
        self.no_use_after = _no_use_after(no_use_after)
        budget = probe_budget or ProbeBudget()
        self.policy = Policy(
            safety=self.safety,
            can_probe=self._can_probe(),
            settle_ms=_optional(
                _first(settle_time, self.facts and self.facts.settle_time), "settle_time", zero=True
            ),
            authoritative=_authoritative(not_found_is_authoritative, self.facts),
            key_retention_ms=_optional(
                _first(key_retention, self.facts and self.facts.key_retention),
                "key_retention",
                zero=True,
            ),
            resend=resend_on_proven_absence,
            detached=detached,
            probes_max=budget.count,
            probes_within_ms=budget.within_ms,
        )
        self._check_together()

    def _can_probe(self) -> bool:
        if self.facts is not None:
            return self.facts.supports_status_query
        return self.probe is not None

    def _check_together(self) -> None:
        if self.safety is Safety.STATUS_QUERY_REQUIRED and not self.policy.can_probe:
            raise ValueError("status_query_required needs a probe or a provider that can be asked")
        if self.policy.resend and self.safety is not Safety.NON_IDEMPOTENT:
            raise ValueError(f"resend_on_proven_absence is for non_idempotent, not {self.safety}")


class Definition:
    """One decorated function under its policy."""

    kind = "effect"

    def __init__(self, fn: Callable[..., Any], declared: EffectPolicy) -> None:
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
        if self.performer is None or not self.arguments.replayable:
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


def milliseconds(value: object, where: str, *, zero: bool = False) -> int:
    """A duration at the edge to whole milliseconds, rounded up so that it never becomes none.

    Raises:
        TypeError: not a timedelta. ValueError: negative, zero, or above ten years.
    """
    if not isinstance(value, timedelta):
        raise TypeError(f"{where}: a timedelta, not {type(value).__name__}")
    ms = -(-value // timedelta(milliseconds=1))
    if ms < 0 or (ms == 0 and not zero) or ms > DURATION_MS_MAX:
        raise ValueError(f"{where}: {'from zero' if zero else 'above zero'} to ten years")
    return ms


def _optional(value: object, where: str, *, zero: bool = False) -> int | None:
    return None if value is None else milliseconds(value, where, zero=zero)


def _first(given: object, declared: object) -> object:
    return declared if given is None else given


def _safety(given: Safety | str | None, facts: ProviderFacts | None) -> Safety:
    if given is None:
        if facts is None:
            raise TypeError("safety: give a class, or a provider that has one")
        return facts.safety
    safety = Safety(given)
    if facts is None or facts.safety is safety:
        return safety
    governs = stricter(safety, facts.safety)
    log.warning("safety: code says %s, provider says %s; %s governs", safety, facts.safety, governs)
    return governs


def _authoritative(given: bool | None, facts: ProviderFacts | None) -> bool:  # noqa: FBT001
    if given is not None and type(given) is not bool:
        raise TypeError("not_found_is_authoritative: exactly True or False")
    if given is None and facts is not None:
        given = facts.not_found_is_authoritative
    return bool(given)


def _exactly_bool(**flags: object) -> None:
    for name, flag in flags.items():
        if type(flag) is not bool:
            raise TypeError(f"{name}: exactly True or False, not {type(flag).__name__}")


def _clean(given: Sequence[CleanFailure]) -> tuple[CleanFailure, ...]:
    for clean in given:
        if not (isinstance(clean, type) and issubclass(clean, BaseException)) and (
            isinstance(clean, type) or not callable(clean)
        ):
            raise TypeError("clean_failures: exception types, or predicates of an exception")
    return tuple(given)


def _no_use_after(given: datetime | timedelta | None) -> int | timedelta | None:
    """An instant as milliseconds; a duration stays one, counted from the first call."""
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise ValueError("no_use_after: a datetime needs a time zone")
        return int(given.timestamp() * 1000)
    if given is not None:
        milliseconds(given, "no_use_after")
    return given
