"""What the fake provider does with each request: act, look up, count, and misbehave as asked.

One thread and no locks: between two awaits nothing else happens, so deduplication and counting are
exact whatever the callers do. Promises: an effect, once it happened, is counted for ever
(`provider_memory`); a request that arrived goes on when its client is gone; a lookup changes
nothing but the log; every wait but those of the test's own questions is by the provider's clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import TYPE_CHECKING, Any, NoReturn, cast

from indoubt.testing.provider_faults import FaultSpec, LiveFault, Plan
from indoubt.testing.provider_memory import Memory, is_visible, public, same_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from indoubt.testing.provider_wire import Reply, Request

Body = dict[str, Any]
MANUAL_START_MS = 1_750_000_000_000  # a manual clock must not depend on when the test runs
MAX_WAIT_S = 600.0


class DropConnection(Exception):
    """End the connection without an answer."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class Bell:
    """Wakes everybody who waits for something to become true, after anything has changed."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def ring(self) -> None:
        """Say that something has changed."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def until(self, true: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait for a condition; returns whether it holds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not true():
                    future = asyncio.get_running_loop().create_future()
                    self._waiting.add(future)
                    try:
                        await future
                    finally:
                        self._waiting.discard(future)
        return true()


class Clock:
    """The provider's own time: the machine's plus what a test skipped, or skipped time alone."""

    def __init__(self, memory: Memory, bell: Bell, *, manual: bool) -> None:
        self._memory, self._bell, self.manual = memory, bell, manual
        start = MANUAL_START_MS if manual else time.time_ns() // 1_000_000
        # After a restart with the machine's clock set back, go on from the last known moment.
        self._start_ms = start if manual else max(start, memory.last_ms - memory.skipped_ms)
        self._started = time.monotonic()

    def now(self) -> int:
        """Milliseconds; never runs backwards."""
        passed = 0 if self.manual else int((time.monotonic() - self._started) * 1000)
        return self._start_ms + passed + self._memory.skipped_ms

    async def sleep_until(self, when_ms: int) -> None:
        """Wait for a moment of this clock."""
        while (left := when_ms - self.now()) > 0:
            pause = None if self.manual else left / 1000 + 0.0005
            await self._bell.until(lambda: self.now() >= when_ms, pause)


class Provider:
    """What the service does, request by request."""

    def __init__(
        self, directory: Path, *, lag_ms: int, keep_key_ms: int | None, manual_clock: bool
    ) -> None:
        self.memory = Memory(directory / "provider.jsonl")
        self.bell = Bell()
        self.clock = Clock(self.memory, self.bell, manual=manual_clock)
        self._faults: dict[str, LiveFault] = {}
        self._lag_ms, self._keep_key_ms = lag_ms, keep_key_ms
        self._control: dict[tuple[str, str], Callable[[Request], Body]] = {
            ("GET", "/log"): self._log,
            ("GET", "/status"): lambda _: self._status(),
            ("POST", "/faults"): self._new_fault,
            ("POST", "/clock"): self._skip,
        }

    async def answer(self, request: Request) -> Reply:
        """Do what is asked.

        Raises:
            DropConnection: the client shall get no answer.
            ValueError: the request makes no sense.
        """
        if request.path.startswith("/faults/"):
            return await self._one_fault(request)
        if request.path == "/count":
            return await self._count(request.query)
        control = self._control.get((request.method, request.path))
        return await self._logged(request) if control is None else (200, control(request))

    async def land_late_effects(self) -> NoReturn:
        """Let late effects happen when they are due, for as long as the process lives."""
        while True:
            self.memory.land(self.clock.now())
            self.bell.ring()
            known = dict(self.memory.due)
            due = min(known.values(), default=None)
            sleeps = due is not None and not self.clock.manual
            pause = max(0.001, (cast("int", due) - self.clock.now()) / 1000) if sleeps else None
            await self.bell.until(lambda: self.memory.due != known, pause)  # noqa: B023

    # -- acts --------------------------------------------------------------------------------

    async def _logged(self, request: Request) -> Reply:
        asked = "other"
        if request.path == "/acts":
            asked = {"POST": "act", "GET": "find"}.get(request.method, "other")
        source = request.body if asked == "act" else request.query
        entry = {name: source.get(name) for name in ("key", "idempotency_key")}
        entry |= {"request": asked, "method": request.method, "path": request.path}
        entry |= {"at_ms": self.clock.now(), "mutates": request.mutates}
        number, did = self.memory.received(entry), list[str]()
        self.bell.ring()
        result = "failed"
        try:
            reply = await self._dispatch(asked, source, did)
            result = str(reply[0])
        except DropConnection as drop:
            result = f"dropped ({drop.how})"
            raise
        except ValueError:
            result = "400"
            raise
        finally:
            self.memory.answered(number, did, result)
            self.bell.ring()
        return reply

    async def _dispatch(self, asked: str, source: Body, did: list[str]) -> Reply:
        if asked == "act":
            return await self._act(read_act(source), did)
        if asked == "find":
            return await self._find(source.get("key"), source.get("idempotency_key"))
        return 404, {"code": "no_such_route"}

    async def _act(self, act: Body, did: list[str]) -> Reply:
        plan = await self._begin("act", act["key"])
        reply = self._perform(act, plan, did)
        self.bell.ring()
        await self._hold(plan.after)
        if plan.answer in {"rst", "fin"}:
            raise DropConnection(plan.answer)
        return (500, {"code": "internal"}) if plan.answer == "error" else reply

    def _perform(self, act: Body, plan: Plan, did: list[str]) -> Reply:
        """Everything that changes the provider, without a pause: this is the exact moment."""
        now = self.clock.now()
        known = self.memory.honoured(act["idempotency_key"], now)
        if known is not None:
            return self._repeated(known, act, did)
        keep = self._keep_key_ms if plan.keep_key_ms is None else plan.keep_key_ms
        act["forget_ms"] = None if keep is None else now + keep
        act["hide_ms"] = self._lag_ms if plan.hide_ms is None else plan.hide_ms
        if plan.unique and act["key"] in {other["key"] for other in self.memory.acts.values()}:
            return 409, {"code": "exists"}
        if plan.answer == "rejection":
            self.memory.refuse(act, plan.code, now)
            did.append(f"refused: {plan.code}")
            return 402, {"code": plan.code}
        if not plan.applies:
            return 500, {"code": "not_applied"}
        made = self.memory.accept(act, now, late_ms=plan.late_ms)
        when = "happened" if plan.late_ms is None else f"accepted, due in {plan.late_ms} ms"
        did.append(f"{made} {when}")
        return 200, public(self.memory.acts[made])

    def _repeated(self, known: Body, act: Body, did: list[str]) -> Reply:
        if not same_request(known, act):
            return 422, {"code": "idempotency_key_reused"}
        if "code" in known:
            did.append(f"repeated the refusal: {known['code']}")
            return 402, {"code": known["code"]}
        did.append(f"repeated {known['id']}")
        return 200, public(known)

    async def _find(self, key: str | None, idempotency_key: str | None) -> Reply:
        known = self.memory.honoured(idempotency_key, self.clock.now())
        plan = await self._begin("find", known["key"] if known and key is None else key)
        await self._hold(plan.after)
        if plan.status is not None:
            return _as_told(plan.status)
        # Looked up after the holds: a read answers with what is there when it is answered.
        now = self.clock.now()
        known = self.memory.honoured(idempotency_key, now)
        if known is not None and "code" in known:
            return 200, {"status": "failed", "code": known["code"]}
        if known is not None and is_visible(known, now):
            return 200, {"status": "succeeded", "acts": [public(known)]}
        acts = [public(act) for act in self.memory.visible(key, now)]
        return (200, {"status": "succeeded", "acts": acts}) if acts else _as_told("not_found")

    # -- faults ------------------------------------------------------------------------------

    async def _begin(self, on: str, key: str | None) -> Plan:
        plan = Plan()
        for fault in self._faults.values():
            if fault.take(on, key):
                plan.add(fault)
        if plan.slow_ms:
            await self.clock.sleep_until(self.clock.now() + plan.slow_ms)
        await self._hold(plan.before)
        for fault in plan.passing:
            fault.reached += 1
        return plan

    async def _hold(self, faults: list[LiveFault]) -> None:
        for fault in faults:
            fault.reached += 1
            self.bell.ring()
            await self.bell.until(lambda: fault.ended != "", None)  # noqa: B023 (awaited here)
            if fault.ended == "dropped":
                raise DropConnection("rst")

    def _new_fault(self, request: Request) -> Body:
        spec = FaultSpec.from_dict(request.body)
        fault = LiveFault(f"{os.getpid()}_{len(self._faults) + 1}", spec, spec.times)
        self._faults[fault.id] = fault
        return {"id": fault.id}

    async def _one_fault(self, request: Request) -> Reply:
        fault_id, _, verb = request.path.removeprefix("/faults/").partition("/")
        fault = self._faults.get(fault_id)
        if fault is None:
            return 404, {"code": "no_such_fault"}
        if request.method == "GET":
            wanted = int(request.query.get("requests", 1))
            await self.bell.until(lambda: fault.reached >= wanted, _wait_s(request.query))
        elif verb == "clear":
            fault.left = 0
        if verb in {"release", "drop"}:
            fault.ended = "released" if verb == "release" else "dropped"
        self.bell.ring()
        return 200, {"reached": fault.reached}

    # -- the test's side ---------------------------------------------------------------------

    async def _count(self, query: dict[str, str]) -> Reply:
        counts, key = self.memory.counts, query.get("key")
        if key is None:
            return 200, {"counts": dict(counts)}
        wanted = int(query.get("at_least", 0))
        await self.bell.until(lambda: counts[key] >= wanted, _wait_s(query))
        return 200, {"count": counts[key]}

    def _log(self, request: Request) -> Body:
        return {"entries": self.memory.requests[int(request.query.get("after", 0)) :]}

    def _skip(self, request: Request) -> Body:
        by_ms = int(request.body["advance_ms"])
        if by_ms < 0:
            raise ValueError("the provider's clock never runs backwards")
        self.memory.skip(by_ms, self.clock.now())
        self.memory.land(self.clock.now())
        self.bell.ring()
        return self._status()

    def _status(self) -> Body:
        memory = self.memory
        totals = {"requests": len(memory.requests), "mutations": memory.mutations}
        return {"pid": os.getpid(), "now_ms": self.clock.now(), **totals}


def read_act(body: Body) -> Body:
    """Check an act.

    Raises:
        ValueError: it has no business key, or a key that is not text.
    """
    key, idempotency_key = body.get("key"), body.get("idempotency_key")
    if not isinstance(key, str) or not key:
        raise ValueError("an act needs a business key")
    if idempotency_key == "" or not isinstance(idempotency_key, str | None):
        raise ValueError("an idempotency key is text")
    return {"key": key, "idempotency_key": idempotency_key, "amount": body.get("amount")}


def _as_told(status: str) -> Reply:
    if status == "drop":
        raise DropConnection("rst")
    return {"unavailable": 503, "not_found": 404}.get(status, 200), {"status": status}


def _wait_s(query: dict[str, str]) -> float:
    return min(int(query.get("wait_ms", 0)) / 1000, MAX_WAIT_S)
