"""What `isinstance` cannot see: whether a provider keeps its contract, and whether its answer does.

A provider that breaks it is refused at registration, in words; an answer that breaks it becomes an
`unavailable` one, so that a broken probe can delay recovery and never permit anything.
"""

import inspect
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, cast

import msgspec

from .result import ProviderProbeResult, ProviderProbeStatus
from .safety import ExecutionSafetyClass

_FLAGS: Final = (
    "supports_status_query",
    "supports_reattach",
    "supports_resume",
    "supports_cancel_after_restart",
)
_OPTIONAL: Final = {
    "not_found_is_authoritative": bool,
    "settle_time": timedelta,
    "key_retention": timedelta,
}
_ABSENT: Final = object()


class ProviderFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider declared when it was registered; each attribute was read once, then never."""

    supports_status_query: bool
    supports_reattach: bool
    supports_resume: bool
    supports_cancel_after_restart: bool
    safety: ExecutionSafetyClass
    """The provider's `execution_safety_class`."""
    not_found_is_authoritative: bool | None = None
    """Whether a lookup that finds nothing proves that nothing arrived; None: not declared."""
    settle_time: timedelta | None = None
    """The longest a request may still land after its permit ended, plus the provider's read lag.

    None: not declared, then not_found never proves absence (V-60).
    """
    key_retention: timedelta | None = None
    """How long the provider remembers an idempotency key; zero: unknown; None: safe by nature."""


def check_provider(provider: object) -> ProviderFacts:
    """Read a provider's declarations once and refuse what `isinstance` lets pass (V-49, V-50).

    Args:
        provider: an instance with the six members of `RecoveryCapableProvider`.

    Raises:
        TypeError: a class instead of an instance; a member missing or raising; `probe_execution`
            no coroutine function of (execution_id, external_ref); a flag that is not exactly a
            bool; a safety class that is no `ExecutionSafetyClass`; an optional attribute that is
            neither None nor exactly a bool or a timedelta (a mock has every attribute).
        ValueError: a negative time, or class status_query_required "without supports_status_query":
            "recovery requires an external status query" that nobody could make (V-59).
    """
    if isinstance(provider, type):
        raise TypeError(f"pass an instance of the provider, not the class {provider.__name__}")
    owner = type(provider).__name__
    _check_probe(owner, _member(provider, "probe_execution"))
    flags = {name: _flag(owner, name, _member(provider, name)) for name in _FLAGS}
    safety = _safety(owner, _member(provider, "execution_safety_class"))
    if safety is ExecutionSafetyClass.STATUS_QUERY_REQUIRED and not flags["supports_status_query"]:
        raise ValueError(f"{owner} is {safety}, but its supports_status_query is False")
    declared = {name: _declared(owner, name, _read(provider, name)) for name in _OPTIONAL}
    return ProviderFacts(safety=safety, **flags, **declared)


class Violation(StrEnum):
    """How a probe's answer broke the contract."""

    NOT_A_RESULT = "not_a_result"
    """It is None or anything else but a `ProviderProbeResult` (V-52)."""
    WRONG_EXECUTION = "wrong_execution"
    """It speaks of another execution than the one asked for (V-54)."""


def violation_of(answer: object, execution_id: str) -> Violation | None:
    """Return how a probe's answer for `execution_id` breaks the contract, None if it keeps it."""
    if not issubclass(type(answer), ProviderProbeResult):
        return Violation.NOT_A_RESULT
    if cast("ProviderProbeResult", answer).execution_id != execution_id:
        return Violation.WRONG_EXECUTION
    return None


def checked_answer(answer: object, execution_id: str) -> ProviderProbeResult:
    """Return a probe's answer as it is, or an `unavailable` one in place of a broken answer.

    The substitute's `raw` holds `contract_violation`, a `Violation` value. Ask `violation_of` first
    where the two kinds are treated differently: an answer for another execution means that the
    probe itself is broken, and trying again will not mend it.

    Raises:
        ValueError: `execution_id` is blank.
    """
    violation = violation_of(answer, execution_id)
    if violation is None:
        return cast("ProviderProbeResult", answer)
    return ProviderProbeResult(
        ProviderProbeStatus.UNAVAILABLE, execution_id, raw={"contract_violation": violation.value}
    )


def _read(provider: object, name: str) -> Any:
    """Read one attribute, once; `_ABSENT` if it is not there."""
    try:
        return getattr(provider, name, _ABSENT)
    except Exception as error:
        message = f"{type(provider).__name__}.{name} raised {type(error).__name__}; a declaration"
        raise TypeError(f"{message} must not fail: keep I/O out of it") from error


def _member(provider: object, name: str) -> Any:
    value = _read(provider, name)
    if value is _ABSENT:
        raise TypeError(f"{type(provider).__name__} has no {name}")
    return value


def _check_probe(owner: str, probe: object) -> None:
    if not callable(probe):
        raise TypeError(f"{owner}.probe_execution must be a method, not {type(probe).__name__}")
    if not _is_async(probe):
        raise TypeError(f"{owner}.probe_execution must be an async def")
    try:
        inspect.signature(probe).bind("execution_id", None)
    except (TypeError, ValueError):
        message = f"{owner}.probe_execution must take (execution_id, external_ref)"
        raise TypeError(message) from None


def _is_async(probe: Callable[..., object]) -> bool:
    call = cast("object", getattr(type(probe), "__call__", None))  # noqa: B004 - not a test
    return inspect.iscoroutinefunction(probe) or inspect.iscoroutinefunction(call)


def _flag(owner: str, name: str, value: object) -> bool:
    if type(value) is not bool:
        hint = "; make it a property" if inspect.ismethod(value) else ""
        raise TypeError(f"{owner}.{name} must be a bool, not {type(value).__name__}{hint}")
    return value


def _safety(owner: str, value: object) -> ExecutionSafetyClass:
    if type(value) is not ExecutionSafetyClass:
        kind = type(value).__name__
        message = f"{owner}.execution_safety_class must be an ExecutionSafetyClass, not {kind}"
        raise TypeError(message)
    return value


def _declared(owner: str, name: str, value: object) -> Any:
    if value is _ABSENT or value is None:
        return None
    kind = _OPTIONAL[name]
    if type(value) is not kind:
        found = type(value).__name__
        raise TypeError(f"{owner}.{name} must be a {kind.__name__} or left out, not {found}")
    if isinstance(value, timedelta) and value < timedelta(0):
        raise ValueError(f"{owner}.{name} must not be negative")
    return value
