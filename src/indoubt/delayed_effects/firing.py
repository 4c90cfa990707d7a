"""Firing one claimed intent: its handler under a renewed lease, and what becomes of it.

The lease is renewed off the event loop while the handler runs. A handler whose lease was lost is
cancelled, and nothing is written for it. A result is settled under the fence of its claim only.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from typing import TYPE_CHECKING, Any, Final

from indoubt.core.bounds import MESSAGE_CHARS
from indoubt.engine.holds import Hold
from indoubt.errors import EffectBusy, EffectFailed, OutcomeUnknown, StoreError

from .values import DelayedEffectAction, DelayedEffectIntent, seen_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from .store import DelayedEffectStore

log = logging.getLogger("indoubt.delayed_effects")
A = DelayedEffectAction
Handler = Any
"""``(intent) -> receipt``, async or not, or a guarded function that takes the payload."""
NOT_JSON: Final = "receipt_not_serialisable"
INTERRUPTED: Final = "interrupted"
RETRY_S: Final = 0.2
"""Between two offers of a receipt to a store that does not answer."""
_KEPT: Final = frozenset({A.COMPLETED, A.RETRY_SCHEDULED, A.DEFERRED})


class Firing:
    """One intent in the hands of this process.

    Args:
        store: where it was claimed.
        intent: as claimed.
        handler: what fires it.
        retry_after: seconds until the next try, by the number of attempts so far.
        defer_s: seconds until it is looked at again where it could not be tried.
        sent_at: local instant before its claim was sent: its lease is counted from there.
    """

    def __init__(
        self,
        store: DelayedEffectStore,
        intent: DelayedEffectIntent,
        handler: Handler,
        *,
        retry_after: Callable[[int], float],
        defer_s: float,
        sent_at: float,
    ) -> None:
        self._store = store
        self._intent = intent
        self._handler = handler
        self._retry_after = retry_after
        self._defer_s = defer_s
        self._sent_at = sent_at
        self._guarded = hasattr(handler, "using")
        self._blocking = not _is_async(handler)
        self._lost = False
        self._handing_over = False
        self._handled: asyncio.Future[Any] | None = None

    async def run(self) -> DelayedEffectAction:
        """Fire it and settle what came of it; what the store said of that."""
        hold = self._hold()
        heartbeat = self._store.runtime().engine.heartbeat
        loop = asyncio.get_running_loop()
        hold.on_lost = lambda: loop.call_soon_threadsafe(self._lose)
        heartbeat.hold(hold)
        try:
            done = await self._fire()
        except StoreError:
            log.exception("%s: it was fired, and is not settled: it is fired again", self.name)
            return A.STALE_OWNER
        finally:
            heartbeat.drop(hold)
        if done not in _KEPT:
            log.warning("%s: %s; what it came to is not kept", self.name, done.value)
        return done

    def hand_over(self) -> None:
        """End the handler now, and let the next worker have it at once."""
        if self._blocking and self._handled is not None:
            return  # a thread cannot be ended: what it does is held until it ends
        self._handing_over = True
        if self._handled is not None:
            self._handled.cancel()

    @property
    def name(self) -> str:
        return f"{self._intent.effect_type} {self._intent.intent_id[:12]}"

    def _hold(self) -> Hold:
        seen = seen_in(self._intent)
        if seen is None or seen.record is None:
            raise LookupError("an intent is fired as it was claimed")
        ms = self._store.lease_ms
        return Hold(seen.record, sent_at=self._sent_at, lease_ms=ms, permit_ms=ms, fixed=False)

    def _lose(self) -> None:
        self._lost = True
        if self._handled is not None:
            self._handled.cancel()

    async def _fire(self) -> DelayedEffectAction:
        if self._handing_over:  # claimed while the worker was ending
            return await self._interrupted()
        self._handled = asyncio.ensure_future(self._call())
        try:
            receipt = await asyncio.shield(self._handled)
        except asyncio.CancelledError:
            return await self._interrupted()
        except (OutcomeUnknown, EffectBusy) as error:
            return await self._defer(_told(error), error.retry_after)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises
            return await self._failed(error)
        return await self._succeeded(receipt)

    async def _call(self) -> Any:
        handler: Callable[[], Any] = functools.partial(self._handler, self._intent)
        if self._guarded:  # its own record says whether it may be sent
            seen = seen_in(self._intent)
            tenant_id = seen.record.tenant_id if seen and seen.record else None
            call = self._handler.using(key=self._intent.operation_id, tenant_id=tenant_id)
            handler = functools.partial(call, **self._intent.payload)
        found = await asyncio.to_thread(handler) if self._blocking else handler()
        return await found if inspect.isawaitable(found) else found

    async def _interrupted(self) -> DelayedEffectAction:
        task = asyncio.current_task()
        if self._lost:
            return A.STALE_OWNER
        if self._handing_over:
            done = await self._store.requeue(
                self._intent, delay_seconds=0, error={"code": INTERRUPTED}, deferred=True
            )
            return done.action
        if task is not None and task.cancelling():  # the worker itself is cancelled: nothing waits
            if self._handled is not None:
                self._handled.cancel()
            raise asyncio.CancelledError
        return await self._failed(RuntimeError("the handler was cancelled"))

    async def _succeeded(self, receipt: Any) -> DelayedEffectAction:
        try:
            done = await self._told_at_last(receipt)
        except (TypeError, ValueError) as error:
            # It did happen: to try again would do it again, for ever (D-48).
            kept = {"code": NOT_JSON, "type": type(receipt).__name__, "message": _text(error)}
            done = await self._store.complete(self._intent, None, error=kept)
        return done.action

    async def _told_at_last(self, receipt: Any) -> DelayedEffectIntent:
        """Say that it happened until the store has heard it, or the lease is over."""
        clock = self._store.runtime().engine.clock
        while True:
            try:
                return await self._store.complete(self._intent, receipt)
            except StoreError:
                if self._lost:
                    raise
                await clock.sleep_async(RETRY_S)

    async def _failed(self, error: Exception) -> DelayedEffectAction:
        told = _told(error) | {"attempt": self._intent.attempts}
        if isinstance(error, EffectFailed) and error.effect != "none":
            done = await self._store.complete(self._intent, None, error=told)
            return done.action
        delay = self._retry_after(self._intent.attempts)
        done = await self._store.requeue(self._intent, delay_seconds=delay, error=told)
        return done.action

    async def _defer(self, told: dict[str, Any], retry_after: Any) -> DelayedEffectAction:
        delay = self._defer_s if retry_after is None else retry_after
        done = await self._store.requeue(
            self._intent, delay_seconds=delay, error=told, deferred=True
        )
        return done.action


def _is_async(handler: Any) -> bool:
    call = getattr(handler, "__call__", None)  # noqa: B004 - of an object with an async __call__
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


def _told(error: Exception) -> dict[str, Any]:
    """What is kept of an exception: JSON, bounded, whatever it holds (D-47)."""
    told = {"type": type(error).__name__, "message": _text(error)}
    ref = getattr(error, "ref", None) or getattr(error, "record_id", None)
    return told | ({"ref": ref} if isinstance(ref, str) else {})


def _text(error: Exception) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a message that cannot be made
        return ""
    return text[:MESSAGE_CHARS].encode("utf-8", "replace").decode()


async def ready(check: Callable[..., Any], *arguments: Any) -> bool:
    """A readiness check's answer; anything but a plain True is "not ready"."""
    try:
        answer: Any = check(*arguments)
        found: Any = await answer if inspect.isawaitable(answer) else answer
    except Exception:
        log.exception("the readiness check failed: taken for not ready")
        return False
    if not isinstance(found, bool):
        log.warning("the readiness check answered %s: taken for not ready", type(found).__name__)
    return found is True
