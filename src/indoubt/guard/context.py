"""What a guarded function can know and say while it runs, and where a call stands.

Context variables reach coroutines, their tasks and ``asyncio.to_thread``; where they do not reach
(``run_in_executor``), this module raises and never guesses.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

from indoubt.core.bounds import MESSAGE_CHARS, NAME_CHARS, TOKEN_BYTES
from indoubt.core.commands import Acknowledge
from indoubt.core.record import NO_RAW, execution_id
from indoubt.core.refusals import Refused
from indoubt.errors import EffectFailed, LeaseLost
from indoubt.json_values import detach

from .identity import check_scope, check_tenant
from .policy import milliseconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator
    from datetime import datetime, timedelta

    from indoubt.engine.engine import Seen
    from indoubt.engine.holds import Hold
    from indoubt.engine.requests import Request

    from .runtime import Runtime

_effect: ContextVar[EffectContext | None] = ContextVar("indoubt_effect", default=None)
_scope: ContextVar[Scope | Place | None] = ContextVar("indoubt_scope", default=None)


def current_effect() -> EffectContext:
    """The effect that is running here, for bodies that cannot take a parameter.

    Raises:
        RuntimeError: no guarded function runs in this context.
    """
    effect = _effect.get()
    if effect is None:
        raise RuntimeError("no guarded effect is running in this context")
    return effect


class EffectContext:
    """One attempt of one effect, from inside the function that performs it.

    Attributes:
        name: the effect's name.
        key: the text its author gave as key; None for an act named by its place.
        idempotency_key: what to send to the provider: opaque, at most 64 characters, the same for
            every attempt of a series.
        execution_id: names this attempt (record id and number).
        attempt: its number, from 1.
        fence: rises with every claim; a provider that can compare it may refuse older ones.
        tenant_id: the tenant, or None.
        operation_id: the record's id.
        permit_until: store time after which nothing may be sent (moves with each renewal where
            no ``timeout`` was given).
        ledger: the ledger that guards it.
    """

    def __init__(
        self, runtime: Runtime, seen: Seen, hold: Hold, *, idempotency_key: str, blocking: bool
    ) -> None:
        record = seen.record
        if record is None:
            raise LookupError("an effect needs its record")
        self._runtime = runtime
        self._hold = hold
        self._permit_ends = (hold.permit_until, record.attempts[-1].permit_until_ms)
        self._blocking = blocking
        self._over = False
        self.seen = seen
        self.rejection: EffectFailed | None = None
        self.record_id = record.id
        self.name = record.name
        self.key = record.key
        self.idempotency_key = idempotency_key
        self.execution_id = execution_id(record.id, record.attempt)
        self.attempt = record.attempt
        self.fence = record.fence
        self.tenant_id = record.tenant_id
        self.operation_id = record.id
        self.ledger = runtime.ledger

    @property
    def over(self) -> bool:
        """Whether the function has returned: nothing can be done in its name any more."""
        return self._over

    @property
    def permit_until(self) -> datetime:
        """Store time after which nothing may be sent."""
        from datetime import UTC, datetime, timedelta  # noqa: PLC0415 - rarely asked for

        local, store_ms = self._permit_ends
        moved = timedelta(seconds=self._hold.permit_until - local)
        return datetime.fromtimestamp(store_ms / 1000, UTC) + moved

    def remaining(self) -> float:
        """Seconds left of the permit, for a client's own time-out; never negative."""
        return max(0.0, self._hold.permit_until - self._runtime.engine.clock.now())

    def checkpoint(self, note: Any = None, *, external_ref: str | None = None) -> Awaitable[None]:
        """Record that the provider knows this attempt; from now on it is never sent blindly again.

        The note is JSON of at most 4,096 bytes; the probe gets it as ``.token``. Await it in an
        ``async def``; in a plain function it is written when the call returns.

        Raises:
            LeaseLost: somebody took over; stop.
            TypeError, ValueError: the note is no JSON, or too large.
            RuntimeError: the call is over.
        """
        if self._over:
            raise RuntimeError(f"{self.execution_id}: the call is over")
        self._hold.check_process()
        text = (
            NO_RAW
            if note is None
            else _raw(detach(note, where="checkpoint note", max_bytes=TOKEN_BYTES).text)
        )
        if external_ref is not None and (
            not isinstance(external_ref, str)  # pyright: ignore[reportUnnecessaryIsInstance]
            or len(external_ref) > NAME_CHARS
        ):
            raise TypeError(f"external_ref is text of at most {NAME_CHARS} characters")
        command = Acknowledge(fence=self.fence, token=text, external_ref=external_ref)
        flow = self._acknowledge(command)
        if not self._blocking:
            return self._runtime.driver.drive(flow)
        self._runtime.blocking.drive(flow)
        return _Done()

    def reject(self, code: str, message: str = "") -> EffectFailed:
        """Make the exception that says: the provider definitely refused, nothing happened.

        ``raise effect.reject("card_declined")``. Only the function that performs the effect can
        know this; a time-out or a lost connection is not a refusal.
        """
        for name, value in (("code", code), ("message", message)):
            if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"reject: {name} is text, not {type(value).__name__}")
        text = f"{code}: {message}" if message else code
        said = {"code": code[:NAME_CHARS], "message": text[:MESSAGE_CHARS]}
        self.rejection = EffectFailed(
            f"{self.name} ({self.execution_id}) was refused: {said['message']}",
            record_id=self.record_id,
            code=said["code"],
            error=said,
        )
        return self.rejection

    def end(self) -> None:
        """The function has returned: what it left running can no longer speak for it."""
        self._over = True

    def __enter__(self) -> Self:
        """Make it the current effect, whose record is the scope of effects inside it."""
        self._tokens: tuple[Token[Any], Token[Any]] = (
            _effect.set(self),
            _scope.set(Place(self.ledger, self.record_id, self.tenant_id, None, _scope.get())),
        )
        return self

    def __exit__(self, *_: object) -> None:
        """Restore what was current before."""
        effect, scope = self._tokens
        _effect.reset(effect)
        _scope.reset(scope)

    def _acknowledge(self, command: Acknowledge) -> Generator[Request, Any, None]:
        done = yield from self._runtime.engine.persist(
            self.seen, (command,), deadline=self._hold.lease_until
        )
        if isinstance(done, Refused):
            raise LeaseLost(
                f"{self.name} ({self.execution_id}): {done.reason}; stop",
                record_id=self.record_id,
                fence=self.fence,
            )
        self.seen = done


class _Done:
    """Awaiting what is done already."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


def _raw(text: bytes) -> Any:
    from msgspec import Raw  # noqa: PLC0415 - rarely needed

    return Raw(text)


class Place(Struct, frozen=True):
    """Where a guarded function runs: its record is the scope of the effects inside it."""

    ledger: object
    scope: str
    tenant_id: str | None
    wait_for_decision: None
    parent: Scope | Place | None


class Scope:
    """The place that names unkeyed acts, and the tenant, for a block of code (no I/O).

    Attributes:
        scope: the place; None names no place, so that effects inside need a key.
        tenant_id: the tenant of records made inside; where none is given, that of the scope around.
        wait_for_decision: how long calls inside wait for a person; likewise.
    """

    def __init__(
        self,
        ledger: object,
        *,
        scope: str | None = None,
        tenant_id: str | None = None,
        wait_for_decision: timedelta | None = None,
    ) -> None:
        if wait_for_decision is not None:
            milliseconds(wait_for_decision, "wait_for_decision", zero=True)
        self.ledger = ledger
        self.scope = None if scope is None else check_scope(scope)
        self.tenant_id = self._tenant_given = check_tenant(tenant_id)
        self.wait_for_decision = self._wait_given = wait_for_decision
        self.parent: Scope | Place | None = None
        self._token: Token[Scope | Place | None] | None = None

    def __enter__(self) -> Self:
        """Enter the scope.

        Raises:
            RuntimeError: it is entered already; each block needs a scope of its own.
        """
        if self._token is not None:
            raise RuntimeError("this scope is entered already: make one for each block")
        around = scope_of(self.ledger)
        if around is not None:
            self.tenant_id = self._tenant_given or around.tenant_id
            if self._wait_given is None:
                self.wait_for_decision = around.wait_for_decision
        self.parent = _scope.get()
        self._token = _scope.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave it."""
        if self._token is not None:
            _scope.reset(self._token)
            self._token = None
            self.tenant_id, self.wait_for_decision = self._tenant_given, self._wait_given

    async def __aenter__(self) -> Self:
        """Enter the scope; there is nothing to wait for."""
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        """Leave it."""
        self.__exit__()


def scope_of(ledger: object) -> Scope | Place | None:
    """The innermost scope of this ledger; an outer effect of another ledger names no place here."""
    scope = _scope.get()
    while scope is not None and scope.ledger is not ledger:
        scope = scope.parent
    return scope
