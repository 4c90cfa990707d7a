"""The decorator: a real function that looks like the one it guards (decisions U1, U7, U12).

An ``async def`` stays one, a ``def`` stays a blocking function without a thread hop. The injected
``effect`` parameter is hidden from signature and annotations, so that frameworks see what callers
pass.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from msgspec import Raw

from indoubt.core.record import Record

from .call import Performance
from .context import EffectContext, scope_of
from .definition import Definition
from .identity import check_key, check_scope, check_tenant, record_id
from .policy import milliseconds
from .sending import Call, Done, Ours

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from indoubt.engine.engine import Seen
    from indoubt.engine.requests import Request

    from .arguments import Bound
    from .runtime import Runtime

P = ParamSpec("P")
R = TypeVar("R")
WAIT = timedelta(seconds=30)


class Outcome(NamedTuple):
    """What a call came to: its receipt, and whether it was answered from the record."""

    receipt: Any
    replayed: bool
    record_id: str
    attempt: int


class Using(NamedTuple):
    """What one call sets otherwise than its surroundings."""

    key: str | None = None
    tenant_id: str | None = None
    scope: str | None = None
    wait: timedelta | None = None
    wait_for_decision: timedelta | None = None


class Effect:
    """One guarded function: how its calls become records."""

    def __init__(
        self, definition: Definition, ledger: object, opener: Callable[[], Runtime]
    ) -> None:
        self.definition = definition
        self._ledger = ledger
        self._open = opener
        definition.performer = self._perform_recorded

    def intent(self, using: Using, args: Any, kwargs: Any) -> tuple[Record, Bound]:
        """The record that this call is about, before anything is written."""
        definition = self.definition
        bound = definition.arguments.bind(args, kwargs)
        recorded = definition.arguments.record(bound)
        scope = scope_of(self._ledger)
        tenant = using.tenant_id or (scope.tenant_id if scope else None)
        place = using.scope or (scope.scope if scope else None)
        key = using.key
        if key is None and definition.declared.key is not None:
            asked = definition.arguments.ask(definition.declared.key, bound)
            key = check_key(asked, f"{definition.name}: what key= returns")
        act = record_id(tenant, definition.name, key, place, recorded.fingerprint)
        record = Record(
            id=act,
            root_id=act,
            kind=definition.kind,
            name=definition.name,
            fingerprint=recorded.fingerprint,
            tenant_id=tenant,
            scope=place,
            key=key,
            payload=Raw(recorded.text),
            redacted=recorded.redacted,
            rebuildable=recorded.rebuildable,
            policy=definition.policy,
        )
        return record, bound

    def call(self, using: Using, args: Any, kwargs: Any, *, blocking: bool) -> Call:
        """Everything that performing it takes; wrong arguments are refused here."""
        intent, bound = self.intent(using, args, kwargs)
        scope = scope_of(self._ledger)
        decision = using.wait_for_decision
        if decision is None and scope is not None:
            decision = scope.wait_for_decision
        if decision is None:
            decision = self.definition.declared.wait_for_decision
        return Call(
            definition=self.definition,
            intent=intent,
            run=functools.partial(self._run, bound.args, bound.kwargs),
            wait_s=(using.wait if using.wait is not None else WAIT).total_seconds(),
            decision_s=decision.total_seconds() if decision else 0.0,
            blocking=blocking,
            former_ids=self._former_ids(intent),
        )

    def _former_ids(self, intent: Record) -> tuple[str, ...]:
        return tuple(
            [
                record_id(intent.tenant_id, name, intent.key, intent.scope, intent.fingerprint)
                for name in self.definition.declared.formerly
            ]
        )

    def _run(self, args: Any, kwargs: Any, context: EffectContext) -> Any:
        if self.definition.arguments.injects:
            kwargs = {**kwargs, "effect": context}
        if not self.definition.plain:
            return self._run_async(args, kwargs, context)
        with context:
            called = self.definition.fn(*args, **kwargs)
        return self._await(called, context) if inspect.isawaitable(called) else called

    async def _run_async(self, args: Any, kwargs: Any, context: EffectContext) -> Any:
        with context:
            return await self.definition.fn(*args, **kwargs)

    async def _await(self, called: Awaitable[Any], context: EffectContext) -> Any:
        """A plain function may turn out to have made a coroutine, as a lambda does."""
        with context:
            return await called

    def _perform_recorded(self, seen: Seen, sent_at: float) -> Generator[Request, Any, Done]:
        """Perform what recovery dispatched, from what the record holds."""
        record = seen.record
        if record is None:
            raise LookupError("nothing to perform")
        args, kwargs = self.definition.arguments.rebuild(bytes(record.payload))
        call = Call(
            definition=self.definition,
            intent=record,
            run=functools.partial(self._run, args, kwargs),
            wait_s=0.0,
            decision_s=0.0,
            blocking=False,
        )
        return Performance(self._open(), call).go_on(Ours(seen, sent_at))

    def outcome(self, done: Done) -> Outcome:
        """The receipt as a replay would give it."""
        receipt = self.definition.receipts.give_back(done.receipt)
        return Outcome(receipt, done.replayed, done.record_id, done.attempt)

    def find(self, intent: Record) -> Any:
        """Look an act up through the ledger: awaitable for an ``async def``."""
        ledger: Any = self._ledger
        acts = (*self._former_ids(intent), intent.id)
        if self.definition.plain:
            return ledger.look_up_blocking(*acts)
        return ledger.look_up(*acts)

    async def perform(self, using: Using, args: Any, kwargs: Any) -> Outcome:
        """Perform a call on the running loop."""
        call = self.call(using, args, kwargs, blocking=False)
        runtime = self._open()
        return self.outcome(await runtime.driver.drive(Performance(runtime, call).run()))

    def perform_blocking(self, using: Using, args: Any, kwargs: Any) -> Outcome:
        """Perform a call on this thread."""
        call = self.call(using, args, kwargs, blocking=True)
        runtime = self._open()
        return self.outcome(runtime.blocking.drive(Performance(runtime, call).run()))


class Guarded:
    """What hangs on a guarded function besides the call itself: other ways to make that call."""

    def __init__(self, effect: Effect, using: Using) -> None:
        self._effect = effect
        self._using = using

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it: awaitable for an ``async def``, blocking for a ``def``."""
        if self._effect.definition.plain:
            return self._effect.perform_blocking(self._using, args, kwargs).receipt
        return self._receipt(args, kwargs)

    async def _receipt(self, args: Any, kwargs: Any) -> Any:
        return (await self._effect.perform(self._using, args, kwargs)).receipt

    def outcome(self, *args: Any, **kwargs: Any) -> Any:
        """Call it and get the ``Outcome``: receipt, replayed, record_id, attempt."""
        if self._effect.definition.plain:
            return self._effect.perform_blocking(self._using, args, kwargs)
        return self._effect.perform(self._using, args, kwargs)

    async def aio(self, *args: Any, **kwargs: Any) -> Any:
        """Call a blocking ``def`` from a coroutine: the whole call runs in a thread.

        A cancelled caller does not stop the thread; the call ends and is settled all the same.
        """
        if self._effect.definition.plain:
            done = asyncio.to_thread(self._effect.perform_blocking, self._using, args, kwargs)
            return (await done).receipt
        return await self._receipt(args, kwargs)

    def find(self, *args: Any, **kwargs: Any) -> Any:
        """The record of this very call, or None; reads only."""
        intent, _ = self._effect.intent(self._using, args, kwargs)
        return self._effect.find(intent)

    def using(
        self,
        *,
        key: str | None = None,
        tenant_id: str | None = None,
        scope: str | None = None,
        wait: timedelta | None = None,
        wait_for_decision: timedelta | None = None,
    ) -> Guarded:
        """The same function under another key, tenant, scope or patience."""
        if wait is not None:
            milliseconds(wait, "wait", zero=True)
        if wait_for_decision is not None:
            milliseconds(wait_for_decision, "wait_for_decision", zero=True)
        given = {
            "key": None if key is None else check_key(key),
            "tenant_id": check_tenant(tenant_id),
            "scope": None if scope is None else check_scope(scope),
            "wait": wait,
            "wait_for_decision": wait_for_decision,
        }
        said = {name: value for name, value in given.items() if value is not None}
        return Guarded(self._effect, self._using._replace(**said))


def guarded(effect: Effect) -> Any:
    """Make the function that callers see."""
    fn, surface = effect.definition.fn, Guarded(effect, Using())
    if effect.definition.plain:

        @functools.wraps(fn)
        def blocking(*args: Any, **kwargs: Any) -> Any:
            return effect.perform_blocking(_PLAIN, args, kwargs).receipt

        wrapper: Any = blocking
    else:

        @functools.wraps(fn)
        async def awaitable(*args: Any, **kwargs: Any) -> Any:
            return (await effect.perform(_PLAIN, args, kwargs)).receipt

        wrapper = awaitable
    effect.definition.arguments.hide(wrapper)
    wrapper.using, wrapper.outcome = surface.using, surface.outcome
    wrapper.aio, wrapper.find = surface.aio, surface.find
    return wrapper


_PLAIN = Using()
