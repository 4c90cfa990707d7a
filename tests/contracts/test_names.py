"""V-01 to V-04: the names, and the two enumerations."""

import importlib
import json
from enum import StrEnum
from itertools import product

import pytest

from indoubt.contracts import STRICTNESS, ExecutionSafetyClass, ProviderProbeStatus, stricter

FOUR = (
    "ExecutionSafetyClass",
    "ProviderProbeResult",
    "ProviderProbeStatus",
    "RecoveryCapableProvider",
)
CLASSES = {
    "PURE": "pure",
    "IDEMPOTENT": "idempotent",
    "RETRY_SAFE": "retry_safe",
    "STATUS_QUERY_REQUIRED": "status_query_required",
    "NON_IDEMPOTENT": "non_idempotent",
    "HUMAN_CONFIRMATION_REQUIRED": "human_confirmation_required",
}
STATUSES = {
    "ACTIVE": "active",
    "SUCCEEDED": "succeeded",
    "FAILED": "failed",
    "CANCELLED": "cancelled",
    "NOT_FOUND": "not_found",
    "UNKNOWN": "unknown",
    "UNAVAILABLE": "unavailable",
}


@pytest.mark.parametrize("name", FOUR)
@pytest.mark.parametrize("module", ["indoubt", "indoubt.recovery"])
def test_v01_the_four_names_import_from_three_modules(module: str, name: str) -> None:
    """V-01 [S] the four names import from the package, `.recovery`, `.contracts`; same objects."""
    contracts = importlib.import_module("indoubt.contracts")
    assert getattr(importlib.import_module(module), name) is getattr(contracts, name)


def test_v02_safety_classes() -> None:
    """V-02 [S] `ExecutionSafetyClass` has exactly these six; member names upper-case.

    pure, idempotent, retry_safe, status_query_required, non_idempotent,
    human_confirmation_required.
    """
    assert {c.name: c.value for c in ExecutionSafetyClass} == CLASSES


def test_v03_statuses() -> None:
    """V-03 [S] `ProviderProbeStatus` has exactly these seven.

    active, succeeded, failed, cancelled, not_found, unknown, unavailable.
    """
    assert {s.name: s.value for s in ProviderProbeStatus} == STATUSES


MEMBERS = [*ExecutionSafetyClass, *ProviderProbeStatus]


@pytest.mark.parametrize("member", MEMBERS)
def test_v04_members_are_their_values(member: StrEnum) -> None:
    """V-04 [S] both StrEnum: equal to their value, `str()`/f-string give it, JSON-dump as it."""
    value = member.value
    assert type(value) is str
    assert member == value
    assert str(member) == f"{member}" == value
    assert json.dumps({"x": member}) == json.dumps({"x": value})
    assert type(member)(value) is member


@pytest.mark.parametrize("kind", [ExecutionSafetyClass, ProviderProbeStatus])
@pytest.mark.parametrize("wrong", ["ACTIVE", "PURE", None, "bogus", ""])
def test_v04_nothing_else_is_a_member(kind: type[StrEnum], wrong: str | None) -> None:
    """V-04 [M] name "ACTIVE", None, "bogus" → ValueError."""
    with pytest.raises(ValueError, match="is not a valid"):
        kind(wrong)  # pyright: ignore[reportArgumentType]


def test_strictness_is_the_decided_order() -> None:
    """Decisions 2.3: pure < idempotent < retry_safe < status_query_required < ..."""
    assert [c.value for c in STRICTNESS] == list(CLASSES.values())


@pytest.mark.parametrize(("one", "other"), list(product(CLASSES.values(), repeat=2)))
def test_the_stricter_class_governs(one: str, other: str) -> None:
    """Decisions 2.3: where both speak, or code and record differ, the stricter governs."""
    order = list(CLASSES.values())
    expected = order[max(order.index(one), order.index(other))]
    found = stricter(ExecutionSafetyClass(one), ExecutionSafetyClass(other))
    assert found is ExecutionSafetyClass(expected)


def test_stricter_takes_no_unknown_class() -> None:
    with pytest.raises(ValueError, match="is not a valid"):
        stricter(ExecutionSafetyClass.PURE, "harmless")  # pyright: ignore[reportArgumentType]
