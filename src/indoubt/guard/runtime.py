"""An open ledger, as the guard needs it: one engine, one resolver, two drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indoubt.engine.drivers import AsyncDriver, BlockingDriver
from indoubt.engine.engine import Engine
from indoubt.recovery.resolve import Resolver

if TYPE_CHECKING:
    from indoubt.engine.clock import LocalClock
    from indoubt.store import Store


class Runtime:
    """Made when a ledger first opens its store, and anew in a forked child."""

    def __init__(
        self, ledger: object, store: Store, *, lease_ms: int, clock: LocalClock | None = None
    ) -> None:
        self.ledger = ledger
        self.store = store
        self.engine = Engine(store, clock=clock)
        self.resolver = Resolver(self.engine, lease_ms=lease_ms)
        self.driver = AsyncDriver(store, self.engine.clock)
        self.blocking = BlockingDriver(store, self.engine.clock)
        self.lease_ms = lease_ms
