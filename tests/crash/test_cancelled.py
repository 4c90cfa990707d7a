"""The caller is cancelled at every request of a call: before it, while it is under way, after it.

Cancelling makes nothing of the past certain. The caller gets its CancelledError at once; what is
left of the call is recorded behind it: never sent, in doubt, or done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeVar

import pytest
from tests.crash.bank import ORDER, Request
from tests.crash.histories import Opener, World, in_memory, on_sqlite
from tests.crash.processes import CASES, LEASE, Case, fate_of, named

from indoubt import DoubtfulAttempt, EffectContext, Ledger, ProviderProbeResult
from indoubt.store import Batch, ScanQuery, Snapshot
from indoubt.testing import Blow, Crash, CrashStore, Fate, ManualClock
from indoubt.testing.clock import step_renewals
from indoubt.testing.crash import name_of

Side = Literal["before", "during", "after"]
Start = Literal["first", "lost", "repeat"]
SIDES: tuple[Side, ...] = ("before", "during", "after")
T = TypeVar("T")


class Canceller:
    """Cancels one task at its chosen request."""

    def __init__(self, at: int, side: Side) -> None:
        self.calls: list[str] = []
        self.caller: asyncio.Task[Any] | None = None
        self._at, self._side = at, side
        self._left: set[asyncio.Future[Any]] = set()

    async def around(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls.append(name)
        side = self._side if len(self.calls) == self._at else None
        if side == "before":
            await self._cancel()
        if side == "during":  # handed in: it goes on without its caller
            under_way = asyncio.ensure_future(call())
            self._left.add(under_way)
            await self._cancel()
        answer = await call()
        if side == "after":
            await self._cancel()
        return answer

    async def _cancel(self) -> None:
        assert self.caller is not None
        self.caller.cancel()
        await asyncio.sleep(0)

    async def rest(self) -> None:
        """What was under way is over."""
        await asyncio.gather(*self._left, return_exceptions=True)


class CancellingStore(CrashStore):
    """A store whose callers may be cancelled while they wait for it."""

    def __init__(self, inner: Any, canceller: Canceller) -> None:
        super().__init__(inner, Fate())
        self._canceller = canceller

    async def read(self, ids: Sequence[str]) -> Snapshot:
        return await self._canceller.around("read", lambda: super(CancellingStore, self).read(ids))

    async def write(self, batches: Sequence[Batch]) -> Any:
        write = super().write
        return await self._canceller.around(name_of(batches), lambda: write(batches))

    async def scan(self, query: ScanQuery) -> Any:
        scan = super().scan
        return await self._canceller.around("scan", lambda: scan(query))


class CancellingClock:
    """The engine's clock, whose sleepers may be cancelled."""

    def __init__(self, clock: ManualClock, canceller: Canceller) -> None:
        self._clock, self._canceller = clock, canceller

    def now(self) -> float:
        return self._clock.now()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        await self._canceller.around("sleep", lambda: self._clock.sleep_async(seconds))


class Caller:
    """A process whose one caller is cancelled."""

    def __init__(self, world: World, canceller: Canceller, *, lost: bool) -> None:
        self.canceller = canceller
        bank, policy = world.bank, world.case.policy(world.bank)
        self.store = CancellingStore(world.open(), canceller)
        clock = CancellingClock(world.clock, canceller)
        self.ledger = Ledger(self.store, lease=LEASE, allow_ledger_loss=True, clock=clock)
        self.beat = step_renewals(self.ledger, world.clock)
        if "probe" in policy:

            async def probe(attempt: DoubtfulAttempt) -> ProviderProbeResult:
                return await canceller.around("probe", lambda: bank.probe(attempt))

            policy["probe"] = probe

        @self.ledger.effect(name="pay", **policy)
        async def pay(order: str, *, effect: EffectContext) -> dict[str, Any]:
            world.saw_mark(effect)
            request = Request(order, effect.idempotency_key, effect.execution_id)

            async def send() -> dict[str, Any]:
                return bank.act(request)

            answer = await canceller.around("send", send)
            if lost and len(bank.requests) == 1:
                raise ConnectionResetError("no answer came")
            return answer

        self.pay = pay

    async def cancelled_call(self) -> bool:
        """Call, and say whether the caller was cancelled."""
        self.canceller.caller = asyncio.ensure_future(self.pay(ORDER))
        await asyncio.wait([self.canceller.caller])
        await self.canceller.rest()
        await self.ledger.open().driver.settle_aftermath()
        if not self.canceller.caller.cancelled():
            self.canceller.caller.exception()
        return self.canceller.caller.cancelled()


async def start(case: Case, opener: Opener, how: Start) -> World:
    """A world, in which an earlier process may have died."""
    world = World(case, opener)
    if how == "repeat":
        first = world.process(fate_of(Blow(name="send", how="before"), clock=world.clock))
        with pytest.raises(Crash):
            await world.live(first, "call")
        await world.end(first, "proven")
    return world


async def cancel_at(case: Case, opener: Opener, how: Start, at: int, side: Side) -> int:
    """One cancellation, and how many requests there were."""
    world = await start(case, opener, how)
    caller = Caller(world, Canceller(at, side), lost=how == "lost")
    try:
        cancelled = await caller.cancelled_call()
        calls = len(caller.canceller.calls)
        assert cancelled or calls < at, "the caller was not told at once"
        await world.check()
        await world.mend()
    except BaseException as error:
        error.add_note(f"{case} {how} {side} {at} {caller.canceller.calls}")
        raise
    finally:
        world.clock.remove(caller.beat)
        caller.store.declare_owners_dead()
        await world.close()
    return calls


@pytest.mark.parametrize("how", ["first", "lost", "repeat"])
@pytest.mark.parametrize("case", CASES, ids=named)
async def test_a_caller_is_cancelled_at_every_request(case: Case, how: Start) -> None:
    opener = in_memory()
    for side in SIDES:
        at = 1
        while await cancel_at(case, opener, how, at, side) >= at:
            at += 1
        assert at > 2


@pytest.mark.parametrize("side", SIDES)
async def test_a_caller_is_cancelled_on_a_file(
    side: Side, tmp_path_factory: pytest.TempPathFactory
) -> None:
    opener = on_sqlite(tmp_path_factory.mktemp("files"))
    case, at = Case("non_idempotent", "resend"), 1
    while await cancel_at(case, opener, "first", at, side) >= at:
        at += 1
    assert at > 3


@pytest.mark.parametrize(
    ("at", "side", "state", "sent"),
    [
        (1, "before", "prepared", 0),  # nobody can tell whether it was recorded: so it is, and
        (1, "during", "prepared", 0),  # then released, as certainly not sent
        (1, "after", "prepared", 0),
        (2, "before", "in_doubt", 0),  # in the function: only its author could know
        (2, "during", "in_doubt", 1),
        (2, "after", "in_doubt", 1),
        (3, "before", "succeeded", 1),  # it happened, and that is recorded whoever waits for it
        (3, "during", "succeeded", 1),
        (3, "after", "succeeded", 1),
    ],
)
async def test_what_is_left_of_a_cancelled_call(at: int, side: Side, state: str, sent: int) -> None:
    world = await start(Case("non_idempotent", "none"), in_memory(), "first")
    caller = Caller(world, Canceller(at, side), lost=False)
    assert await caller.cancelled_call()
    found = await caller.ledger.find("pay", ORDER)
    assert found is not None
    assert found.state == state
    assert world.bank.count() == sent
    world.clock.remove(caller.beat)
