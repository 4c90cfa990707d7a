"""The recovery contracts: what an action promises about repetition, and what a provider reports.

Promises: the names, fields, defaults and errors of the recovery document, exactly; values that
nobody can change; and `check_provider` and `checked_answer` for what `isinstance` cannot see.
Nothing here calls a provider, reads a clock or decides what recovery does next.
"""

from .check import ProviderFacts, Violation, check_provider, checked_answer, violation_of
from .provider import BaseCapabilityProvider, RecoveryCapableProvider
from .result import ProviderProbeResult, ProviderProbeStatus
from .safety import STRICTNESS, ExecutionSafetyClass, stricter

__all__ = [
    "STRICTNESS",
    "BaseCapabilityProvider",
    "ExecutionSafetyClass",
    "ProviderFacts",
    "ProviderProbeResult",
    "ProviderProbeStatus",
    "RecoveryCapableProvider",
    "Violation",
    "check_provider",
    "checked_answer",
    "stricter",
    "violation_of",
]
