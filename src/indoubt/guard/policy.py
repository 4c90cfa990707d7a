"""What may be declared about an effect, checked when it is declared and frozen then."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack, cast

from indoubt.contracts import (
    ExecutionSafetyClass,
    ProviderFacts,
    RecoveryCapableProvider,
    check_provider,
    stricter,
)
from indoubt.core.bounds import DURATION_MS_MAX
from indoubt.core.record import Policy

from .identity import check_name

log = logging.getLogger("indoubt.guard")
Safety = ExecutionSafetyClass
REPEATABLE = frozenset({Safety.PURE, Safety.IDEMPOTENT, Safety.RETRY_SAFE})
CleanFailure = type[Exception] | Callable[[BaseException], bool]


PROBES_MAX = 1_000_000


class ProbeBudget:
    """How often and how long a doubt is probed before a person is asked.

    Args:
        count: probes that did not settle it.
        within: counted from the first of them.
    """

    def __init__(self, count: int = 10, within: timedelta = timedelta(minutes=10)) -> None:
        if type(count) is not int:
            raise TypeError("probe_budget: count is a whole number")
        if not 1 <= count <= PROBES_MAX:
            raise ValueError(f"probe_budget: count is from 1 to {PROBES_MAX:,}")
        self.count = count
        self.within_ms = milliseconds(within, "probe_budget.within")


class EffectOptions(TypedDict, total=False):
    """The keywords of ``Ledger.effect`` and ``EffectPolicy``."""

    safety: Safety | str | None
    name: str | None
    key: Callable[..., str] | None
    probe: Any
    provider: RecoveryCapableProvider | None
    clean_failures: Sequence[CleanFailure]
    timeout: timedelta | None
    settle_time: timedelta | None
    not_found_is_authoritative: bool | None
    key_retention: timedelta | None
    resend_on_proven_absence: bool
    detached: bool
    no_use_after: datetime | timedelta | None
    ignore: Sequence[str]
    redact: Sequence[str]
    formerly: Sequence[str]
    wait_for_decision: timedelta | None
    probe_budget: ProbeBudget | None


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

    def __init__(self, **given: Unpack[EffectOptions]) -> None:
        unknown = given.keys() - EffectOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"an effect has no {sorted(unknown)}")
        self.name = given.get("name")
        self.key = _callable(given.get("key"), "key")
        self.provider, self.probe = _who_is_asked(given.get("provider"), given.get("probe"))
        self.facts = None if self.provider is None else _facts(self.provider)
        self.safety = _safety(given.get("safety"), self.facts)
        self.clean_failures = _clean(given.get("clean_failures", ()))
        self.timeout_ms = _optional(given.get("timeout"), "timeout")
        self.ignore = names(given.get("ignore", ()), "ignore")
        self.redact = names(given.get("redact", ()), "redact")
        self.formerly = names(given.get("formerly", ()), "formerly")
        self.wait_for_decision = given.get("wait_for_decision")
        _optional(self.wait_for_decision, "wait_for_decision", zero=True)
        self.no_use_after = _no_use_after(given.get("no_use_after"))
        self.policy = self._policy(given)
        self._check_together()

    def _policy(self, given: EffectOptions) -> Policy:
        """What the record keeps of it; the keywords win over the provider's attributes."""
        facts, budget = self.facts, _budget(given.get("probe_budget"))
        settle = _first(given.get("settle_time"), facts and facts.settle_time)
        retention = _first(given.get("key_retention"), facts and facts.key_retention)
        return Policy(
            safety=self.safety,
            can_probe=self._can_probe(),
            settle_ms=_optional(settle, "settle_time", zero=True),
            authoritative=_authoritative(given.get("not_found_is_authoritative"), facts),
            key_retention_ms=_optional(retention, "key_retention", zero=True),
            resend=flag(given.get("resend_on_proven_absence", False), "resend_on_proven_absence"),
            detached=flag(given.get("detached", False), "detached"),
            probes_max=budget.count,
            probes_within_ms=budget.within_ms,
        )

    def _can_probe(self) -> bool:
        if self.facts is not None:
            return self.facts.supports_status_query
        return self.probe is not None

    def _check_together(self) -> None:
        if self.safety is Safety.STATUS_QUERY_REQUIRED and not self.policy.can_probe:
            raise ValueError("status_query_required needs a probe or a provider that can be asked")
        if self.policy.resend and self.safety is not Safety.NON_IDEMPOTENT:
            raise ValueError(f"resend_on_proven_absence is for non_idempotent, not {self.safety}")
        settle_ms, within_ms = self.policy.settle_ms or 0, self.policy.probes_within_ms
        if self.policy.can_probe and settle_ms > within_ms:
            log.warning(
                "settle_time (%d ms) is longer than probe_budget.within (%d ms): a person is asked"
                " before absence can be proven",
                settle_ms,
                within_ms,
            )


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
    if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"safety: a class or its name, not {type(given).__name__}")
    if given not in set(Safety):
        raise ValueError(f"safety: one of {', '.join(Safety)}")
    safety = Safety(given)
    if facts is None or facts.safety is safety:
        return safety
    governs = stricter(safety, facts.safety)
    log.warning("safety: code says %s, provider says %s; %s governs", safety, facts.safety, governs)
    return governs


def _facts(provider: RecoveryCapableProvider) -> ProviderFacts:
    try:
        return check_provider(provider)
    except (TypeError, ValueError) as error:
        raise type(error)(f"provider: {error}") from error


def _budget(given: ProbeBudget | None) -> ProbeBudget:
    if not isinstance(given, ProbeBudget | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"probe_budget: a ProbeBudget, not {type(given).__name__}")
    return given or ProbeBudget()


def _authoritative(given: bool | None, facts: ProviderFacts | None) -> bool:  # noqa: FBT001
    if given is not None and type(given) is not bool:
        raise TypeError("not_found_is_authoritative: exactly True or False")
    if given is None and facts is not None:
        given = facts.not_found_is_authoritative
    return bool(given)


def flag(value: object, where: str) -> bool:
    """Take exactly a bool; raises TypeError naming what it is."""
    if type(value) is not bool:
        raise TypeError(f"{where}: exactly True or False, not {type(value).__name__}")
    return value


def _callable(given: Callable[..., str] | None, where: str) -> Callable[..., str] | None:
    if given is not None and (not callable(given) or inspect.iscoroutinefunction(given)):
        raise TypeError(f"{where}: a plain function of the call's arguments")
    return given


def _who_is_asked(
    provider: RecoveryCapableProvider | None, probe: Any
) -> tuple[RecoveryCapableProvider | None, Any]:
    if provider is None and hasattr(probe, "probe_execution"):
        provider, probe = probe, None
    if provider is not None and probe is not None:
        raise TypeError("give a probe function or a provider, not both")
    if probe is not None and not callable(probe):
        raise TypeError(f"probe: {type(probe).__name__} is neither a function nor a provider")
    return provider, probe


def _clean(given: object) -> tuple[CleanFailure, ...]:
    several = _several(given, "clean_failures", "exception types, or predicates of an exception")
    for clean in several:
        kind = isinstance(clean, type)
        if not (issubclass(clean, Exception) if kind else callable(clean)):
            raise TypeError("clean_failures: exception types, or predicates of an exception")
    return cast("tuple[CleanFailure, ...]", several)


def names(given: object, where: str) -> tuple[str, ...]:
    """Take several names, not one text; raises TypeError or ValueError naming what they are."""
    return tuple([check_name(name, where) for name in _several(given, where, "names")])


def _several(given: object, where: str, what: str) -> tuple[object, ...]:
    if not isinstance(given, list | tuple | set | frozenset):
        raise TypeError(f"{where}: a sequence of {what}, not {type(given).__name__}")
    return tuple(cast("Sequence[object]", given))


def _no_use_after(given: datetime | timedelta | None) -> int | timedelta | None:
    """An instant as milliseconds; a duration stays one, counted from the first call."""
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise ValueError("no_use_after: a datetime needs a time zone")
        return int(given.timestamp() * 1000)
    if given is not None:
        milliseconds(given, "no_use_after")
    return given
