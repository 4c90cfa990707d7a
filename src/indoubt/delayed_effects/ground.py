"""What a store of delayed effects stands on: an open store, one namespace, its verbs' flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from indoubt.guard.opened import Opened

from . import checks
from .names import Names
from .transitions import Transitions
from .values import DelayedEffectIntent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from indoubt.guard.runtime import Runtime

    from .checks import Seconds
    from .transitions import Flow


class Ground:
    """See ``DelayedEffectStore`` for the arguments."""

    def __init__(
        self,
        given: Any,
        *,
        namespace: str,
        terminal_ttl_seconds: Seconds,
        execution_lease_seconds: Seconds,
        tombstone_seconds: Seconds,
    ) -> None:
        self.namespace = checks.namespace(namespace)
        self._names = Names(self.namespace)
        self._lease_ms = checks.milliseconds(
            execution_lease_seconds, "execution_lease_seconds", least=1
        )
        self._ttl_ms = checks.milliseconds(terminal_ttl_seconds, "terminal_ttl_seconds", least=1)
        self._tombstone_ms = checks.milliseconds(tombstone_seconds, "tombstone_seconds")
        self._opened = _opened(given, self._lease_ms)
        self._made: tuple[Runtime, Transitions] | None = None

    def key_for_intent(self, intent_id: str) -> str:
        """The record of an intent; on Redis, its key (D-08, D-3)."""
        return self._names.key(checks.text(intent_id, "intent_id"))

    async def park(self, intent: DelayedEffectIntent) -> DelayedEffectIntent:
        """Leave to a person what was claimed too often; only for its holder."""
        return await self._drive(self._verbs().park(held_intent(intent)))

    def runtime(self) -> Runtime:
        """The open store, its engine and drivers."""
        return self._opened.open()

    @property
    def lease_ms(self) -> int:
        """How long a claim lasts."""
        return self._lease_ms

    def queues_of(self, effect_types: Iterable[str]) -> tuple[str, ...]:
        """The queues in which these types wait: what a write announces (``Store.wait``)."""
        return tuple([self._names.queue(name) for name in effect_types])

    def _verbs(self) -> Transitions:
        runtime = self.runtime()
        if self._made is None or self._made[0] is not runtime:  # not opened yet, or forked
            verbs = Transitions(
                runtime.engine,
                self._names,
                lease_ms=self._lease_ms,
                ttl_ms=self._ttl_ms,
                tombstone_ms=self._tombstone_ms,
            )
            self._made = (runtime, verbs)
        return self._made[1]

    async def _drive(self, flow: Flow) -> DelayedEffectIntent:
        return await self.runtime().driver.drive(flow)


def _opened(given: Any, lease_ms: int) -> Opened:
    if isinstance(given, Opened):  # a ledger: its store, and its hold on it
        return given
    from indoubt.stores import open_store, store_of_client  # noqa: PLC0415 - engines load lazily

    store = given if isinstance(given, str) else store_of_client(given) or given
    return Opened(store, open_store, lease_ms=lease_ms, clock=None)


def held_intent(intent: Any) -> DelayedEffectIntent:
    if not isinstance(intent, DelayedEffectIntent):
        raise TypeError(f"intent: as claim gave it, not {type(intent).__name__}")
    return intent
