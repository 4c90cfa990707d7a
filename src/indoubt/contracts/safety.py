"""What an action promises about being repeated, from the weakest promise asked to the strictest."""

from enum import StrEnum
from typing import Final


class ExecutionSafetyClass(StrEnum):
    """An action's recovery safety. A member equals its value and is written as it (V-02, V-04)."""

    PURE = "pure"
    """Execution has no external side effects."""
    IDEMPOTENT = "idempotent"
    """Repeating execution has the same intended effect."""
    RETRY_SAFE = "retry_safe"
    """Retrying is safe under the Provider's stated contract."""
    STATUS_QUERY_REQUIRED = "status_query_required"
    """Recovery requires an external status query."""
    NON_IDEMPOTENT = "non_idempotent"
    """Repeating execution can produce additional effects."""
    HUMAN_CONFIRMATION_REQUIRED = "human_confirmation_required"
    """Recovery requires human confirmation."""


STRICTNESS: Final = (
    ExecutionSafetyClass.PURE,
    ExecutionSafetyClass.IDEMPOTENT,
    ExecutionSafetyClass.RETRY_SAFE,
    ExecutionSafetyClass.STATUS_QUERY_REQUIRED,
    ExecutionSafetyClass.NON_IDEMPOTENT,
    ExecutionSafetyClass.HUMAN_CONFIRMATION_REQUIRED,
)
"""The classes in order: the later one governs where two are named for the same action."""


def stricter(one: ExecutionSafetyClass, other: ExecutionSafetyClass) -> ExecutionSafetyClass:
    """Return the class that governs where code, record and provider name different ones.

    Raises:
        ValueError: an argument is neither a class nor the value of one.
    """
    return max(ExecutionSafetyClass(one), ExecutionSafetyClass(other), key=STRICTNESS.index)
