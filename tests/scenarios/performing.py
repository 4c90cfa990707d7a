"""One guarded payment at the fake provider, declared alike in every process of a scenario.

Run as a script it is a worker: it performs each order that it is told on standard input, and tells
what its caller got. Where it is cut says the environment (see `indoubt.testing.killing`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from indoubt import EffectContext, Ledger, OutcomeUnknown
from indoubt.store import Store
from indoubt.stores import open_store
from indoubt.stores.sqlite import SQLiteStore
from indoubt.testing import CrashStore, ManualClock, ProcessFate
from indoubt.testing.clock import step_renewals
from indoubt.testing.provider import ProviderRejected, act, act_async, async_probe, find

SCRIPT = __file__


def ms(milliseconds: int) -> timedelta:
    """A duration."""
    return timedelta(milliseconds=milliseconds)


def itself(order: str, *_: object) -> str:
    """The key of an act is its order."""
    return order


@dataclass(frozen=True)
class Payment:
    """How the act is declared, and how its client behaves.

    ``keyed``: it sends the ledger's idempotency key. ``client_s``: the client's own time-out.
    ``steered``: store and ledger live by a `ManualClock` that begins where every other begins.
    ``block_s``: it blocks so long before it sends. ``two_steps``: it looks the order up and writes
    a checkpoint after it has paid, and pays a second time then.
    """

    store: str
    bank: str
    safety: str = "non_idempotent"
    probe: bool = False
    settle_ms: int | None = None
    authoritative: bool = False
    resend: bool = False
    timeout_ms: int | None = None
    key_retention_ms: int | None = None
    keyed: bool = False
    client_s: float = 10.0
    lease_ms: int = 30_000
    wait_ms: int = 0
    plain: bool = False
    steered: bool = False
    block_s: float = 0.0
    two_steps: bool = False

    def text(self) -> str:
        """Itself as a worker's argument."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Payment:
        """Read a worker's argument."""
        return cls(**json.loads(text))

    def policy(self) -> dict[str, Any]:
        """The keywords of ``Ledger.effect``."""
        durations = {
            "settle_time": self.settle_ms,
            "timeout": self.timeout_ms,
            "key_retention": self.key_retention_ms,
        }
        return {
            "name": "pay",
            "safety": self.safety,
            "key": itself,
            "probe": async_probe(self.bank) if self.probe else None,
            "not_found_is_authoritative": self.authoritative,
            "resend_on_proven_absence": self.resend,
            "clean_failures": (ProviderRejected,),
            **{name: None if value is None else ms(value) for name, value in durations.items()},
        }

    def open(self, clock: ManualClock | None = None) -> Store:
        """The store, as one more process opens it; a file may live by a clock."""
        if "://" in self.store:
            return open_store(self.store)
        return SQLiteStore(self.store, clock=clock)

    def ledger(self, store: Store | None = None, clock: ManualClock | None = None) -> Ledger:
        """A process' ledger on that store."""
        lease = ms(self.lease_ms)
        ledger = Ledger(store or self.open(clock), lease=lease, clock=clock)
        if clock is not None:
            step_renewals(ledger, clock)
        return ledger

    def request(self, order: str, effect: EffectContext) -> dict[str, Any]:
        """What is sent; where it is to block, it blocks here."""
        if self.block_s:
            time.sleep(self.block_s)  # handler under test blocks
        return {
            "url": self.bank,
            "key": order,
            "amount": 12,
            "idempotency_key": effect.idempotency_key if self.keyed else None,
            "timeout": self.client_s,
        }

    def guard(
        self,
        ledger: Ledger,
        *,
        send: Callable[..., Any] = act_async,
        send_blocking: Callable[..., Any] = act,
    ) -> Any:
        """``pay(order)``: an ``async def``, or a ``def`` where it is ``plain``."""
        if self.plain:

            @ledger.effect(**self.policy())
            def pay_blocking(order: str, *, effect: EffectContext) -> dict[str, Any]:
                paid = send_blocking(**self.request(order, effect))
                if self.two_steps:
                    find(self.bank, order, timeout=60)
                    effect.checkpoint({"paid": 1})  # the store says whose the record is
                    send_blocking(**self.request(f"{order} second", effect))
                return paid

            return pay_blocking.using(wait=ms(self.wait_ms))

        @ledger.effect(**self.policy())
        async def pay(order: str, *, effect: EffectContext) -> dict[str, Any]:
            return await send(**self.request(order, effect))

        return pay.using(wait=ms(self.wait_ms))


async def reached(true: Callable[[], Awaitable[Any]], *, seconds: float = 20.0) -> Any:
    """Look until a condition holds; nothing tells of it, so it is polled.

    Raises:
        TimeoutError: it did not hold in that many seconds.
    """
    async with asyncio.timeout(seconds):
        while not (found := await true()):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await asyncio.Event().wait()
        return found


async def told_by(pay: Any, order: str) -> list[Any]:
    """What a caller is told: ``returned`` and the receipt, or ``raised``, what, and what next."""
    try:
        return ["returned", await pay.aio(order)]
    except OutcomeUnknown as unknown:
        return ["raised", "OutcomeUnknown", unknown.next]
    except Exception as error:  # noqa: BLE001 - it is the answer
        return ["raised", type(error).__name__, str(error)]


async def main(payment: Payment) -> None:
    """Perform what standard input says, one order a line, until it ends."""
    fate = ProcessFate.from_environment()
    clock = ManualClock() if payment.steered else None
    ledger = payment.ledger(CrashStore(payment.open(clock), fate), clock)
    pay = payment.guard(ledger, send=fate.sending(act_async), send_blocking=fate.sending(act))
    while line := await asyncio.to_thread(sys.stdin.readline):
        fate.tell(await told_by(pay, json.loads(line)))


if __name__ == "__main__":
    asyncio.run(main(Payment.read(sys.argv[1])))
