"""It may have happened: a durable, fenced record of what your program did to the world.

Every name below loads when it is first used; importing this package opens and starts nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from indoubt.contracts import (
        BaseCapabilityProvider,
        ExecutionSafetyClass,
        ProviderProbeResult,
        ProviderProbeStatus,
        RecoveryCapableProvider,
        check_provider,
    )
    from indoubt.errors import (
        AlreadyDecided,
        AnswerLost,
        Contended,
        CrossRootBatch,
        DelayedEffectConflict,
        EffectBusy,
        EffectFailed,
        ForkedHandle,
        IndoubtError,
        KeyConflict,
        LeaseLost,
        OutcomePruned,
        OutcomeUnknown,
        ReceiptNotStored,
        RecordNotFound,
        SchemaMissing,
        SchemaTooNew,
        SchemaTooOld,
        ScopeRequired,
        StaleDecision,
        StoreBroken,
        StoreError,
        StoreNotDurable,
        StoreRewound,
        StoreUnavailable,
        TooEarly,
    )
    from indoubt.guard.context import EffectContext, current_effect
    from indoubt.guard.effect import Outcome
    from indoubt.guard.policy import EffectPolicy, ProbeBudget
    from indoubt.json_values import NotJson
    from indoubt.ledger import Ledger
    from indoubt.recovery.decisions import (
        AllowOneAttempt,
        DidNotHappen,
        GiveUp,
        Happened,
        decision_from_dict,
    )
    from indoubt.recovery.inbox import Inbox
    from indoubt.recovery.items import JournalEntry, RecordView
    from indoubt.recovery.probing import DoubtfulAttempt
    from indoubt.recovery.recover import Recovery
    from indoubt.recovery.retention import Pruned, Retention
    from indoubt.store import ANY_TENANT
    from indoubt.worker import Worker, WorkerReport

__version__ = "0.1.0"

_HOMES = {
    "indoubt.contracts": (
        "BaseCapabilityProvider",
        "ExecutionSafetyClass",
        "ProviderProbeResult",
        "ProviderProbeStatus",
        "RecoveryCapableProvider",
        "check_provider",
    ),
    "indoubt.errors": (
        "AlreadyDecided",
        "AnswerLost",
        "Contended",
        "CrossRootBatch",
        "DelayedEffectConflict",
        "EffectBusy",
        "EffectFailed",
        "ForkedHandle",
        "IndoubtError",
        "KeyConflict",
        "LeaseLost",
        "OutcomePruned",
        "OutcomeUnknown",
        "ReceiptNotStored",
        "RecordNotFound",
        "SchemaMissing",
        "SchemaTooNew",
        "SchemaTooOld",
        "ScopeRequired",
        "StaleDecision",
        "StoreBroken",
        "StoreError",
        "StoreNotDurable",
        "StoreRewound",
        "StoreUnavailable",
        "TooEarly",
    ),
    "indoubt.guard.context": ("EffectContext", "current_effect"),
    "indoubt.guard.policy": ("EffectPolicy", "ProbeBudget"),
    "indoubt.guard.effect": ("Outcome",),
    "indoubt.json_values": ("NotJson",),
    "indoubt.ledger": ("Ledger",),
    "indoubt.recovery.decisions": (
        "AllowOneAttempt",
        "DidNotHappen",
        "GiveUp",
        "Happened",
        "decision_from_dict",
    ),
    "indoubt.recovery.inbox": ("Inbox",),
    "indoubt.recovery.items": ("JournalEntry", "RecordView"),
    "indoubt.recovery.probing": ("DoubtfulAttempt",),
    "indoubt.recovery.recover": ("Recovery",),
    "indoubt.recovery.retention": ("Pruned", "Retention"),
    "indoubt.store": ("ANY_TENANT",),
    "indoubt.worker": ("Worker", "WorkerReport"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ANY_TENANT",
    "AllowOneAttempt",
    "AlreadyDecided",
    "AnswerLost",
    "BaseCapabilityProvider",
    "Contended",
    "CrossRootBatch",
    "DelayedEffectConflict",
    "DidNotHappen",
    "DoubtfulAttempt",
    "EffectBusy",
    "EffectContext",
    "EffectFailed",
    "EffectPolicy",
    "ExecutionSafetyClass",
    "ForkedHandle",
    "GiveUp",
    "Happened",
    "Inbox",
    "IndoubtError",
    "JournalEntry",
    "KeyConflict",
    "LeaseLost",
    "Ledger",
    "NotJson",
    "Outcome",
    "OutcomePruned",
    "OutcomeUnknown",
    "ProbeBudget",
    "ProviderProbeResult",
    "ProviderProbeStatus",
    "Pruned",
    "ReceiptNotStored",
    "RecordNotFound",
    "RecordView",
    "Recovery",
    "RecoveryCapableProvider",
    "Retention",
    "SchemaMissing",
    "SchemaTooNew",
    "SchemaTooOld",
    "ScopeRequired",
    "StaleDecision",
    "StoreBroken",
    "StoreError",
    "StoreNotDurable",
    "StoreRewound",
    "StoreUnavailable",
    "TooEarly",
    "Worker",
    "WorkerReport",
    "check_provider",
    "current_effect",
    "decision_from_dict",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'indoubt' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
