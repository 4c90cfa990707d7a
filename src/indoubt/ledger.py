"""The public class: opens a store when it is first used, and composes what the layers below do.

It has no rules. A ``Ledger`` is cheap, may be a module global, opens lazily, and is opened anew in
a forked child.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from indoubt.core.bounds import PAGE_MAX
from indoubt.core.codec import event as decode_event
from indoubt.errors import RecordNotFound, StoreNotDurable
from indoubt.guard.context import Scope
from indoubt.guard.definition import Definition
from indoubt.guard.effect import Effect, guarded
from indoubt.guard.identity import check_key, check_name, check_tenant, record_id
from indoubt.guard.opened import Opened
from indoubt.guard.policy import EffectOptions, EffectPolicy, flag, milliseconds, names
from indoubt.recovery.decisions import Decision, command_of, decide_flow, question
from indoubt.recovery.inbox import Inbox, read_inbox, show
from indoubt.recovery.items import JournalEntry, RecordView, entry
from indoubt.recovery.known import Known, Registry
from indoubt.recovery.on_request import cancel_flow, probe_flow
from indoubt.recovery.pointers import look_up
from indoubt.recovery.recover import Pass, Recovery
from indoubt.recovery.retention import Pruned, Pruning, Retention
from indoubt.store import ANY_TENANT, Store, Tenant

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from indoubt.engine.clock import LocalClock
    from indoubt.engine.engine import Seen
    from indoubt.engine.requests import Request
    from indoubt.errors import OutcomeUnknown
    from indoubt.guard.function import GuardedFunction
    from indoubt.guard.runtime import Runtime

R = TypeVar("R")
LEASE = timedelta(seconds=30)
WAIT = timedelta(seconds=30)


class Ledger(Opened):
    """A durable record of what was intended, sent and settled; see ``effect`` and ``recover``.

    Args:
        store: a URL (``sqlite:///path``, ``memory:``), an open store, another ledger (for its
            store), or None for the URL in ``INDOUBT_URL``. ``close`` closes what a URL opened.
        lease: how long a holder that does not renew keeps its records.
        allow_ledger_loss: accept a store that may forget (only then is a ``memory:`` ledger good
            for effects that are not safe to repeat).
        abandon_after: ``recover`` closes what was never sent and nobody repeated for so long.
    """

    def __init__(
        self,
        store: str | Store | Opened | None = None,
        *,
        lease: timedelta = LEASE,
        allow_ledger_loss: bool = False,
        abandon_after: timedelta | None = None,
        clock: LocalClock | None = None,
    ) -> None:
        lease_ms = milliseconds(lease, "lease")
        super().__init__(store, _open_url, lease_ms=lease_ms, clock=clock)
        self._abandon_ms = (
            None if abandon_after is None else milliseconds(abandon_after, "abandon_after")
        )
        self._allow_loss = flag(allow_ledger_loss, "allow_ledger_loss")
        self._registry = Registry()

    # -- the first five things a user needs ----------------------------------------------------

    @overload
    def effect(
        self, fn: Callable[..., R], /, **declared: Unpack[EffectOptions]
    ) -> GuardedFunction[R]: ...

    @overload
    def effect(
        self, /, **declared: Unpack[EffectOptions]
    ) -> Callable[[Callable[..., R]], GuardedFunction[R]]: ...

    def effect(
        self, fn: Callable[..., Any] | None = None, /, **declared: Unpack[EffectOptions]
    ) -> Any:
        """Guard a function: its intent is recorded before it is called, its outcome after.

        ``@ledger.effect(safety=..., key=..., probe=...)``; the keywords are ``EffectPolicy``'s.

        Raises:
            TypeError, ValueError: a declaration that cannot hold, when it is made.
        """
        policy = EffectPolicy(**declared)

        def decorate(fn: Callable[..., Any]) -> Any:
            definition = Definition(fn, policy)
            definition.permit_ms = definition.timeout_ms or self._lease_ms
            self._register(definition)
            return guarded(Effect(definition, self, lambda: self._open_for(definition)))

        return decorate if fn is None else decorate(fn)

    def scope(
        self,
        scope: str | None = None,
        *,
        tenant_id: str | None = None,
        wait_for_decision: timedelta | None = None,
    ) -> Scope:
        """Name the place of the calls inside, and their tenant: ``with ledger.scope("run-42"):``.

        An act without a key is named by its scope and its arguments: the same call twice in one
        scope is one act.
        """
        return Scope(self, scope=scope, tenant_id=tenant_id, wait_for_decision=wait_for_decision)

    async def in_doubt(
        self,
        *,
        tenant_id: Tenant = ANY_TENANT,
        kinds: Sequence[str] | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Inbox:
        """List what may have happened and is not settled, and what contradicts its record.

        Raises:
            ValueError: a garbled or foreign cursor, or a limit outside 1 to 1,000.
        """
        return await read_inbox(
            self.open().engine,
            tenant_id=_tenant(tenant_id),
            kinds=_kinds(kinds),
            limit=_limit(limit),
            cursor=_cursor(cursor),
        )

    async def decide(
        self,
        ref: str | RecordView | OutcomeUnknown,
        decision: Decision,
        *,
        actor: str,
        reason: str,
        decision_id: str | None = None,
        tenant_id: Tenant = ANY_TENANT,
    ) -> RecordView:
        """Record a person's answer to the question that ``ref`` names.

        Args:
            ref: of an inbox item or an ``OutcomeUnknown``; a bare record id is refused.
            decision: ``Happened(receipt)``, ``DidNotHappen()``, ``AllowOneAttempt()`` or
                ``GiveUp()``.
            actor: who decides; kept with the record.
            reason: why; kept with the record.
            decision_id: names this decision, so that its repeat gets the first answer.
            tenant_id: restricts to this tenant's records.

        Raises:
            StaleDecision: the question has changed. AlreadyDecided: somebody was first.
            TooEarly: a sent request may still land. EffectBusy: it is being performed.
            RecordNotFound: no such record for this tenant.
            TypeError, ValueError: a wrong argument; nothing was read or written.
        """
        asked = question(ref)
        command = command_of(asked, decision, actor=actor, reason=reason, decision_id=decision_id)
        runtime = self.open()
        seen = await self._seen(asked.record_id, tenant_id)
        flow = decide_flow(runtime.resolver, seen, command)
        return _shown(runtime, await runtime.driver.drive(flow))

    async def recover(
        self,
        *,
        limit: int = 100,
        tenant_id: Tenant = ANY_TENANT,
        kinds: Sequence[str] | None = None,
        cursor: str | None = None,
        wait: timedelta = WAIT,
        run: bool = True,
    ) -> Recovery:
        """Probe and settle what is in doubt, a page at a time.

        A function is called again only where the verdict is replay and it is registered here.

        Args:
            limit: records of this page, 1 to 1,000.
            tenant_id: a tenant, None for records without one, or every tenant.
            kinds: of records; default: all.
            cursor: of an earlier page.
            wait: where absence would decide, wait at most so long for it to be provable.
            run: False: application code is never called but for probes.
        """
        runtime = self.open()
        one_pass = Pass(
            runtime.resolver,
            runtime.driver,
            self._registry,
            wait_s=milliseconds(wait, "wait", zero=True) / 1000,
            run=flag(run, "run"),
            abandon_ms=self._abandon_ms,
        )
        return await one_pass.go(
            limit=_limit(limit),
            tenant_id=_tenant(tenant_id),
            kinds=_kinds(kinds),
            cursor=_cursor(cursor),
        )

    # -- more ------------------------------------------------------------------------------------

    async def get(self, ref: str, *, tenant_id: Tenant = ANY_TENANT) -> RecordView:
        """Read one record by id or ref.

        Raises:
            RecordNotFound: no such record for this tenant.
        """
        return _shown(self.open(), await self._seen(_record_id(ref), tenant_id))

    async def find(self, name: str, key: str, *, tenant_id: str | None = None) -> RecordView | None:
        """Look an act up by effect name and key; None where it was never asked for."""
        act = record_id(check_tenant(tenant_id), check_name(name), check_key(key))
        return await self.look_up(act)

    async def journal(
        self, ref: str, *, after: int = 0, limit: int = 100, tenant_id: Tenant = ANY_TENANT
    ) -> list[JournalEntry]:
        """A record's story in order, gap-free; ``after`` a sequence number.

        Raises:
            RecordNotFound: no such record for this tenant.
        """
        _whole(after, "after", 0)
        _limit(limit)
        record = (await self._seen(_record_id(ref), tenant_id)).record
        if record is None:
            return []
        events = await self.open().store.journal(record.id, after=after, limit=limit)
        return [entry(event.sequence, event.at_ms, decode_event(event.body)) for event in events]

    async def probe(self, ref: str, *, tenant_id: Tenant = ANY_TENANT) -> RecordView:
        """Ask the provider now, by hand: its answer is evidence, and settles what it may settle.

        Raises:
            RecordNotFound: no such record for this tenant.
            LookupError: the effect's code, or its probe, is not loaded here.
        """
        runtime = self.open()
        seen = await self._seen(_record_id(ref), tenant_id)
        known = None if seen.record is None else self._registry.of(seen.record)
        flow = probe_flow(runtime.resolver, seen, known)
        return _shown(runtime, await runtime.driver.drive(flow))

    async def cancel(
        self, ref: str, *, actor: str, reason: str, tenant_id: Tenant = ANY_TENANT
    ) -> RecordView:
        """Ask that nothing more is sent. What was sent stays in doubt until it is settled.

        Raises:
            StaleDecision: too late, it has ended. RecordNotFound: no such record.
        """
        runtime = self.open()
        seen = await self._seen(_record_id(ref), tenant_id)
        flow = cancel_flow(runtime.engine, seen, actor=actor, reason=reason)
        return _shown(runtime, await runtime.driver.drive(flow))

    async def prune(
        self,
        retention: Retention,
        *,
        tenant_id: Tenant = ANY_TENANT,
        kinds: Sequence[str] | None = None,
        progress: Callable[[Pruned], object] | None = None,
    ) -> Pruned:
        """Make room: remove what ended long ago, so that its repeat is still known.

        A keyed record leaves a small tombstone, and a repeat of its call raises
        ``OutcomePruned``; an act named by scope and arguments leaves nothing, and its repeat is a
        new act. Whatever is in doubt, contradicted or may still land is kept. Killed half-way, it
        has done some records and not the others: call it again.

        Args:
            retention: how long to keep what; see ``Retention``.
            tenant_id: a tenant, None for records without one, or every tenant.
            kinds: of records; default: all.
            progress: gets the counts so far after each page.
        """
        runtime = self.open()
        pruning = Pruning(runtime.engine, runtime.driver, retention)
        return await pruning.go(
            tenant_id=_tenant(tenant_id), kinds=_kinds(kinds), progress=progress
        )

    @property
    def effects(self) -> tuple[Known, ...]:
        """The effects that are registered here, by name."""
        found = (self._registry.find(name) for name in self._registry.names())
        return tuple(known for known in found if known is not None)

    async def __aenter__(self) -> Self:
        """Open the store now instead of at the first call."""
        self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    # -- inside ------------------------------------------------------------------------------------

    def _open_for(self, definition: Definition) -> Runtime:
        runtime = self.open()
        if self._allow_loss or runtime.store.capabilities.durable or definition.repeatable:
            return runtime
        raise StoreNotDurable(
            f"{definition.name} is {definition.policy.safety} and this store may forget:"
            f" {runtime.store.capabilities.durable_why}; nothing was written"
            " (Ledger(..., allow_ledger_loss=True) accepts that)"
        )

    def _register(self, definition: Definition) -> None:
        formerly = definition.declared.formerly
        for name in (definition.name, *formerly):
            known = self._registry.find(name)
            if isinstance(known, Definition) and known.home != definition.home:
                raise ValueError(f"{name} is registered already; give one of them a name=")
        self._registry.add(definition, formerly)

    async def _seen(self, act: str, tenant_id: Tenant) -> Seen:
        runtime = self.open()
        flow: Generator[Request, Any, Seen] = look_up(runtime.engine, act)
        seen = await runtime.driver.drive(flow)
        tenant = _tenant(tenant_id)
        foreign = tenant is not ANY_TENANT and seen.record and seen.record.tenant_id != tenant
        if seen.record is None or foreign:
            raise RecordNotFound(f"{act}: no such record", record_id=act)
        return seen


def _open_url(url: str) -> Store:
    from indoubt.stores import open_store  # noqa: PLC0415 - engines load when one is opened

    return open_store(url)


def _shown(runtime: Runtime, seen: Seen) -> RecordView:
    if seen.record is None:
        raise RecordNotFound("the record is gone: it was pruned meanwhile")
    return show(runtime.engine, seen.record, seen.now_ms)


def _record_id(ref: str) -> str:
    """A record id from an id or a ref."""
    if not isinstance(ref, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a record id or ref is text, not {type(ref).__name__}")
    return check_key(ref.partition(".")[0], "ref")


def _tenant(tenant_id: Tenant) -> Tenant:
    return tenant_id if tenant_id is ANY_TENANT else check_tenant(tenant_id)


def _kinds(kinds: Sequence[str] | None) -> tuple[str, ...]:
    return () if kinds is None else names(kinds, "kinds")


def _cursor(cursor: str | None) -> str | None:
    if not isinstance(cursor, str | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"cursor: of an earlier page, not {type(cursor).__name__}")
    return cursor


def _limit(limit: int) -> int:
    return _whole(limit, "limit", 1, PAGE_MAX)


def _whole(value: int, where: str, least: int, most: int = 2**63 - 1) -> int:
    if type(value) is not int:
        raise TypeError(f"{where}: a whole number")
    if not least <= value <= most:
        raise ValueError(f"{where}: {least:,} to {most:,}")
    return value
