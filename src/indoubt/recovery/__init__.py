"""Recovery: the contract by which a provider is asked (seed 000), and what is done about doubt.

The four names of the contract are re-exported here; importing this module opens no store.
"""

from indoubt.contracts import (
    ExecutionSafetyClass,
    ProviderProbeResult,
    ProviderProbeStatus,
    RecoveryCapableProvider,
)

__all__ = [
    "ExecutionSafetyClass",
    "ProviderProbeResult",
    "ProviderProbeStatus",
    "RecoveryCapableProvider",
]
