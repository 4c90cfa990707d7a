"""``DelayedEffectWorker``: claims what is due, fires it, and settles it (seed 002)."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import msgspec

from indoubt.engine.ids import chance, owner_nonce
from indoubt.errors import StoreError
from indoubt.recovery.loop import Loop
from indoubt.store import ScanQuery

from . import checks
from .firing import Firing, Handler, ready
from .store import DelayedEffectStore
from .values import DelayedEffectAction, DelayedEffectIntent, seen_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .checks import Seconds

log = logging.getLogger("indoubt.delayed_effects")
A = DelayedEffectAction
ReadinessCheck = Any
"""``() -> bool`` for the whole pass, or ``(intent) -> bool`` for each; async or not."""
SURVIVED_S = 1.0
"""How long nothing more is claimed once an intent is fired whose last worker died."""
_STAYS = "%s: it stays claimed until its lease is over"
PARKED = "parked"
BEREAVED = "worker_died"
"""Why an intent waits whose last worker died, while another such one is being fired."""
LEAST_S = 0.02
"""Between two looks at what is due: a listing that is ahead of the claims must not spin."""
ENDING_S = 2.0
"""How long an interrupted handler may take to end before ``stop`` goes on without it."""


class DelayedReport(msgspec.Struct, frozen=True):
    """What one pass did.

    Attributes:
        claimed: how many intents were claimed.
        results: how many came to which action, or to ``parked``.
    """

    claimed: int
    results: dict[str, int]


class DelayedEffectWorker:
    """A periodic, fenced executor of registered handlers.

    At least once: a worker that dies between the effect and its completion leaves an intent that
    is fired again. So a handler sets or clears, or sends ``intent.operation_id`` as an idempotency
    key; or it is a guarded function (``@ledger.effect``), called with the payload under the
    operation's id as key: then its own record decides whether it may be sent again, and the intent
    waits while that is in doubt.

    Args:
        store: where the intents are.
        handlers: by effect type: ``(intent) -> JSON receipt``, async or not, or a guarded function.
        owner_token: who claims; default: unique to this worker (D-58).
        readiness_check: without a parameter asked once for each pass, with one for each intent.
        poll_interval_seconds: the longest wait between two passes; what becomes due wakes it.
        retry_delay_seconds: until the next try of what failed, and until what was not ready.
        batch_size: how many intents one pass claims at most.
        concurrency: how many handlers run at once; no more are claimed than can start (D-42).
        max_attempts: after so many claims an intent is parked for a person; None: never.
        backoff: seconds by attempt instead of ``retry_delay_seconds``; both get up to a quarter
            of jitter where ``backoff`` is given.
        grace_seconds: how long ``stop`` waits for running handlers.
    """

    def __init__(
        self,
        store: DelayedEffectStore,
        handlers: Mapping[str, Handler],
        *,
        owner_token: str | None = None,
        readiness_check: ReadinessCheck | None = None,
        poll_interval_seconds: Seconds = 1.0,
        retry_delay_seconds: Seconds = 5,
        batch_size: int = 32,
        concurrency: int = 1,
        max_attempts: int | None = None,
        backoff: Callable[[int], float] | None = None,
        grace_seconds: Seconds = 10,
    ) -> None:
        if not isinstance(store, DelayedEffectStore):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"store: a DelayedEffectStore, not {type(store).__name__}")
        self.owner_token = owner_nonce() if owner_token is None else _token(owner_token)
        self._store = store
        self._handlers = {checks.text(kind, "effect_type"): fn for kind, fn in handlers.items()}
        for kind, handler in self._handlers.items():
            if not callable(handler):
                raise TypeError(f"the handler of {kind} is not callable")
        self._check, self._per_intent = readiness_check, _per_intent(readiness_check)
        poll_ms = checks.milliseconds(poll_interval_seconds, "poll_interval_seconds", least=1)
        self._retry_s = checks.milliseconds(retry_delay_seconds, "retry_delay_seconds") / 1000
        self._batch = checks.limit(batch_size, "batch_size")
        self._concurrency = checks.limit(concurrency, "concurrency")
        self._max_attempts = (
            None if max_attempts is None else checks.limit(max_attempts, "max_attempts")
        )
        self._backoff = backoff
        self._grace_s = checks.milliseconds(grace_seconds, "grace_seconds") / 1000
        self._turn = 0
        self._suspect: str | None = None
        self._ready = True
        self._stopping = self._handing_over = False
        self._firing: dict[asyncio.Task[None], Firing] = {}
        self._results: Counter[str] = Counter()
        self._loop = Loop(
            self._pass, self._until, interval_s=poll_ms / 1000, name="indoubt-delayed-effects"
        )

    async def recover_once(self) -> int:
        """Claim and fire one bounded batch of what is due; how many were claimed (D-40)."""
        return (await self.run_once()).claimed

    async def run_once(self) -> DelayedReport:
        """As ``recover_once``, and say what became of them."""
        self._results.clear()
        claimed = await self._batch_of(self._batch)
        if self._firing:
            await asyncio.wait(self._firing)
        return DelayedReport(claimed, dict(self._results))

    async def start(self) -> None:
        """Begin to fire in the background; again is no error."""
        self._loop.start()

    async def stop(self) -> None:
        """Claim nothing more, let running handlers finish, and hand over those that do not."""
        self._loop.ask_to_stop()
        self._stopping = True
        try:
            await self._quiet(self._grace_s)
            self._handing_over = True
            for firing in self._firing.values():
                firing.hand_over()
            await self._quiet(ENDING_S)
        finally:
            self._stopping = self._handing_over = False
        for firing in self._firing.values():
            log.warning("%s goes on, and keeps its lease until it ends", firing.name)

    async def _quiet(self, seconds: float) -> None:
        """Wait so long for what runs, and for a pass that may be claiming just now."""
        passing = asyncio.ensure_future(self._loop.ended())
        try:
            async with asyncio.timeout(seconds):
                while self._firing or not passing.done():
                    left = {*self._firing, passing}
                    await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                    if passing.done() and self._firing:
                        await asyncio.wait(self._firing)
        except TimeoutError:
            return
        finally:
            passing.cancel()

    async def ended(self) -> None:
        """Wait until it was stopped."""
        await self._loop.ended()

    async def run(self) -> None:
        """Fire until cancelled, for a process whose only work it is; ends gracefully."""
        await self.start()
        try:
            await self.ended()
        finally:
            await self.stop()

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()

    # -- a pass ------------------------------------------------------------------------------------

    async def _pass(self) -> bool:
        claimed = await self._batch_of(self._batch)
        return claimed >= self._batch

    async def _batch_of(self, most: int) -> int:
        """Claim and start up to so many, never more at once than can run."""
        self._ready = self._check is None or self._per_intent or await ready(self._check)
        if not self._ready:
            return 0
        claimed = 0
        while claimed < most and not self._ending():
            free = min(self._concurrency - len(self._firing), most - claimed)
            sent_at = self._store.runtime().engine.clock.now()
            found = await self._claim(free) if free else []
            for intent in await self._admitted(found):
                self._begin(intent, sent_at)
            claimed += len(found)
            if self._firing and any(intent.intent_id == self._suspect for intent in found):
                # What it may take down with it should not just have been claimed.
                await asyncio.wait(self._firing, timeout=SURVIVED_S)
            if not found and free:
                break
            if len(self._firing) >= self._concurrency:
                await asyncio.wait(self._firing, return_when=asyncio.FIRST_COMPLETED)
        return claimed

    def _ending(self) -> bool:
        return self._stopping or (self._loop.running and self._loop.stopping)

    async def _claim(self, free: int) -> list[DelayedEffectIntent]:
        """Ask for as many as can start, of each type in turn, so that none waits for another."""
        kinds = sorted(self._handlers)
        found: list[DelayedEffectIntent] = []
        for _ in range(len(kinds)):
            each = max(1, free // len(kinds))
            share = kinds[self._turn % len(kinds) :][: free - len(found)]
            self._turn += len(share)
            each = min(each, (free - len(found)) // len(share))
            found += await self._store.claim_due(self.owner_token, limit=each, effect_types=share)
            if len(found) >= free or (len(share) == len(kinds) and not found):
                break
        return found

    def _begin(self, intent: DelayedEffectIntent, sent_at: float) -> None:
        firing = Firing(
            self._store,
            intent,
            self._handlers[intent.effect_type],
            retry_after=self._delay,
            defer_s=self._retry_s,
            sent_at=sent_at,
        )
        if self._handing_over:
            firing.hand_over()
        task = asyncio.create_task(self._one(intent, firing))
        self._firing[task] = firing
        task.add_done_callback(lambda done: self._firing.pop(done, None))

    async def _one(self, intent: DelayedEffectIntent, firing: Firing) -> None:
        try:
            if self._max_attempts is not None and _too_often(intent, self._max_attempts):
                await self._store.park(intent)
                self._results[PARKED] += 1
                return
            check = self._check if self._per_intent else None
            if check is not None and not await ready(check, intent):
                done = await self._store.requeue(intent, delay_seconds=self._retry_s, deferred=True)
                self._results[done.action.value] += 1
                return
            self._results[(await firing.run()).value] += 1
        except Exception:
            log.exception(_STAYS, intent.intent_id[:12])
        finally:
            if self._suspect == intent.intent_id:
                self._suspect = None

    async def _admitted(self, found: list[DelayedEffectIntent]) -> list[DelayedEffectIntent]:
        """Those to be fired now: of such whose worker died, only one at a time.

        One of them may have killed it. Fired together they would die together each time, and the
        good ones would be parked with the bad one (S23). The others are let go before it is fired,
        so that it takes none of them with it.
        """
        admitted: list[DelayedEffectIntent] = []
        for intent in found:
            if _bereaved(intent) and self._suspect is not None:
                await self._let_go(intent)
                continue
            if _bereaved(intent):
                self._suspect = intent.intent_id
            admitted.append(intent)
        return admitted

    async def _let_go(self, intent: DelayedEffectIntent) -> None:
        told = {"code": BEREAVED}
        try:
            done = await self._store.requeue(
                intent, delay_seconds=self._retry_s, error=told, deferred=True
            )
            self._results[done.action.value] += 1
        except StoreError:
            log.exception(_STAYS, intent.intent_id[:12])

    def _delay(self, attempts: int) -> float:
        if self._backoff is None:
            return self._retry_s
        return self._backoff(attempts) * (1 + chance() / 4)

    # -- waiting -----------------------------------------------------------------------------------

    async def _until(self, seconds: float) -> None:
        """Until something is registered that is due at once, or the next one falls due."""
        runtime, queues = self._store.runtime(), self._store.queues_of(self._handlers)
        if not self._ready or not queues:
            await runtime.engine.clock.sleep_async(seconds)
            return
        woken = asyncio.ensure_future(runtime.store.wait(queues, timeout=seconds))
        try:
            await asyncio.wait({woken}, timeout=LEAST_S)  # it listens before anybody looks
            page = await runtime.store.scan(ScanQuery(view="ready", queues=queues, limit=1))
            if page.records and len(self._firing) < self._concurrency:
                due_ms = (page.records[0].ready_at or 0) - page.now_ms
                seconds = min(seconds, max(due_ms / 1000, LEAST_S))
            await asyncio.wait({woken}, timeout=seconds)
            if woken.done():
                woken.result()
        finally:
            woken.cancel()


def _bereaved(intent: DelayedEffectIntent) -> bool:
    """Whether it was claimed before by somebody who said nothing of it: its worker died."""
    silent = intent.error is None or intent.error == {"code": BEREAVED}
    return intent.action is A.RECLAIMED and silent


def _too_often(intent: DelayedEffectIntent, most: int) -> bool:
    """Claimed more often than that, and not because a person allowed this very attempt."""
    seen = seen_in(intent)
    attempts = seen.record.attempts if seen and seen.record else ()
    allowed = bool(attempts) and attempts[-1].permission is not None
    return intent.attempts > most and not allowed


def _token(owner_token: Any) -> str:
    return checks.text(owner_token, "owner_token")


def _per_intent(check: ReadinessCheck | None) -> bool:
    """Whether it is asked for each intent: exactly one required positional parameter (D-5).

    Raises:
        TypeError: it asks for more, or cannot be called.
    """
    if check is None:
        return False
    if not callable(check):
        raise TypeError("readiness_check is not callable")
    try:
        parameters = inspect.signature(check).parameters.values()
    except (TypeError, ValueError):  # no signature to look at
        return False
    kinds = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    required = [p for p in parameters if p.kind in kinds and p.default is p.empty]
    if len(required) > 1:
        raise TypeError("readiness_check takes nothing, or one intent")
    return len(required) == 1
