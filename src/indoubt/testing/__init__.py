"""The test kit for users of the library: what it takes to crash your own tools on purpose.

Every name below loads when it is first used; `StoreContract` needs pytest, the others do not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from indoubt.testing.clock import ManualClock, memory_ledger
    from indoubt.testing.crash import CUTS, Blow, Crash, CrashStore, Fate
    from indoubt.testing.killing import CutPlan, ProcessFate, Worker
    from indoubt.testing.provider import FakeProvider
    from indoubt.testing.store_contract import StoreContract

_HOMES = {
    "indoubt.testing.clock": ("ManualClock", "memory_ledger"),
    "indoubt.testing.crash": ("CUTS", "Blow", "Crash", "CrashStore", "Fate"),
    "indoubt.testing.killing": ("CutPlan", "ProcessFate", "Worker"),
    "indoubt.testing.provider": ("FakeProvider",),
    "indoubt.testing.store_contract": ("StoreContract",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "CUTS",
    "Blow",
    "Crash",
    "CrashStore",
    "CutPlan",
    "FakeProvider",
    "Fate",
    "ManualClock",
    "ProcessFate",
    "StoreContract",
    "Worker",
    "memory_ledger",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'indoubt.testing' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
