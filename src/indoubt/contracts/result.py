"""What a provider observed of an interrupted execution: one frozen value, checked when it is made.

A value that exists is valid: ids are not blank, statuses and facts fit together, all nested data is
frozen JSON. Equality is Python's (1 == True); sameness of JSON is the fingerprint's business.
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self, cast

from indoubt.json_values import FrozenMap, freeze, thaw


class ProviderProbeStatus(StrEnum):
    """What a provider says of an execution. A member equals its value (V-03, V-04)."""

    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    NOT_FOUND = "not_found"
    UNKNOWN = "unknown"
    UNAVAILABLE = "unavailable"


_NO_RESULT: Final = frozenset(
    {
        ProviderProbeStatus.FAILED,
        ProviderProbeStatus.NOT_FOUND,
        ProviderProbeStatus.UNKNOWN,
        ProviderProbeStatus.UNAVAILABLE,
    }
)
_NO_ERROR: Final = frozenset(
    {
        ProviderProbeStatus.SUCCEEDED,
        ProviderProbeStatus.NOT_FOUND,
        ProviderProbeStatus.UNKNOWN,
        ProviderProbeStatus.UNAVAILABLE,
    }
)
_INVISIBLE: Final = frozenset({"Cc", "Cf"})
"""Control and format characters: zero-width ones are among them, and `strip` keeps them (V-11)."""


@dataclass(frozen=True, slots=True)
class ProviderProbeResult:
    """Provider-observed fact about an interrupted execution.

    "execution_id must be non-blank; result, error, and raw are deeply frozen JSON-compatible data"
    (V-11, V-21). "succeeded cannot include error. failed cannot include a successful result.
    not_found, unknown, and unavailable cannot include result or error" (V-14); an empty mapping
    counts as included (V-15).

    Raises:
        TypeError: a field is of another type, or its data is not JSON (`NotJson`).
        ValueError: an unknown status, a blank execution_id, or facts that the status excludes.
    """

    status: ProviderProbeStatus
    """Provider-observed status; its plain string is accepted and becomes the member (V-13)."""
    execution_id: str
    """Execution being probed; kept letter by letter (V-12)."""
    external_ref: str | None = None
    """Provider/backend correlation reference."""
    result: Mapping[str, Any] | None = None
    """JSON-compatible successful result facts."""
    error: Mapping[str, Any] | None = None
    """JSON-compatible failure facts."""
    supports_reattach: bool = False
    """Whether this observed operation can be reattached."""
    supports_cancel_after_restart: bool = False
    """Whether it can be cancelled after restart."""
    raw: Mapping[str, Any] = field(default_factory=FrozenMap, repr=False)
    """Additional observation data; never in the repr, it may hold a backend's secrets (V-47)."""

    def __post_init__(self) -> None:
        # Types before values (V-38). object.__setattr__, as super() fails under slots (V-09).
        _require_text("status", self.status)
        object.__setattr__(self, "execution_id", _text("execution_id", self.execution_id))
        if self.external_ref is not None:
            object.__setattr__(self, "external_ref", _text("external_ref", self.external_ref))
        for name in ("result", "error"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _frozen_map(name, getattr(self, name)))
        object.__setattr__(self, "raw", _frozen_map("raw", self.raw))
        _require_bool("supports_reattach", self.supports_reattach)
        _require_bool("supports_cancel_after_restart", self.supports_cancel_after_restart)
        object.__setattr__(self, "status", _status(self.status))
        self._check_values()

    def _check_values(self) -> None:
        if _is_blank(self.execution_id):
            raise ValueError("execution_id must not be blank")
        if self.result is not None and self.status in _NO_RESULT:
            raise ValueError(f"{self.status} cannot include a result")
        if self.error is not None and self.status in _NO_ERROR:
            raise ValueError(f"{self.status} cannot include an error")

    def to_dict(self) -> dict[str, Any]:
        """Return all eight fields as plain JSON, for the caller to keep (V-33, V-34, V-35).

        "to_dict() returns enum values as strings and thaws JSON mappings."
        """
        return {
            "status": self.status.value,
            "execution_id": self.execution_id,
            "external_ref": self.external_ref,
            "result": _thawed(self.result),
            "error": _thawed(self.error),
            "supports_reattach": self.supports_reattach,
            "supports_cancel_after_restart": self.supports_cancel_after_restart,
            "raw": _thawed(self.raw),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the result that `to_dict` described; keys it does not know are left (V-41).

        "from_dict() reconstructs the result, defaulting omitted support flags to False and omitted
        raw to an empty mapping" (V-37); omitted external_ref, result and error are None.

        Raises:
            KeyError: "required fields are missing": status or execution_id (V-38).
            ValueError: "unknown status or invalid combinations", or a blank execution_id (V-39).
            TypeError: "non-JSON data" (V-40), a field of another type, or `data` is no mapping.
        """
        _require_mapping("data", data)
        return cls(
            status=data["status"],
            execution_id=data["execution_id"],
            external_ref=data.get("external_ref"),
            result=data.get("result"),
            error=data.get("error"),
            supports_reattach=data.get("supports_reattach", False),
            supports_cancel_after_restart=data.get("supports_cancel_after_restart", False),
            raw=data.get("raw", FrozenMap()),
        )


def _status(value: str) -> ProviderProbeStatus:
    # Not the enum's own message: that would repeat what may be anything.
    try:
        return ProviderProbeStatus(value)
    except ValueError:
        known = ", ".join(ProviderProbeStatus)
        raise ValueError(f"status must be one of {known}") from None


def _is_blank(text: str) -> bool:
    return all(char.isspace() or unicodedata.category(char) in _INVISIBLE for char in text)


def _text(name: str, value: object) -> str:
    _require_text(name, value)
    return cast("str", freeze(value, where=name))  # plain str, and no lone surrogates


def _frozen_map(name: str, value: object) -> FrozenMap:
    _require_mapping(name, value)
    return cast("FrozenMap", freeze(value, where=name))


def _thawed(value: object) -> Any:
    return thaw(cast("FrozenMap | None", value))


def _require_text(name: str, value: object) -> None:
    if not issubclass(type(value), str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")


def _require_mapping(name: str, value: object) -> None:
    if not issubclass(type(value), Mapping):
        raise TypeError(f"{name} must be a mapping, not {type(value).__name__}")


def _require_bool(name: str, value: object) -> None:
    # 0, 1 and "false" are refused: the first two are not facts, the last is truthy (V-18).
    if type(value) is not bool:
        raise TypeError(f"{name} must be True or False, not {type(value).__name__}")
