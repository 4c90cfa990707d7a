"""Effects that fire later, once, whoever restarts (seed 002).

A registered intent outlives the process that made it. Workers claim what is due under a fenced
lease, fire it, and keep its receipt; a worker whose lease expires is replaced, and what it did is
done again: at least once, for handlers that are safe to repeat. A handler that is not is a guarded
effect, and then its own record decides.
"""

from indoubt.errors import DelayedEffectConflict

from .context import delayed_effect_store_for_context, register_delayed_effect
from .steering import DelayedEffectPage
from .store import DelayedEffectStore
from .values import DelayedEffectAction, DelayedEffectIntent, DelayedEffectState
from .worker import DelayedEffectWorker, DelayedReport

__all__ = [
    "DelayedEffectAction",
    "DelayedEffectConflict",
    "DelayedEffectIntent",
    "DelayedEffectPage",
    "DelayedEffectState",
    "DelayedEffectStore",
    "DelayedEffectWorker",
    "DelayedReport",
    "delayed_effect_store_for_context",
    "register_delayed_effect",
]
