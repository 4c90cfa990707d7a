"""A worker in a process of its own: it performs one guarded effect as often as it is told.

Its one argument is a `Job` as JSON. It is cut where the environment says (see
`indoubt.testing.killing`); nothing in the library knows about that.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from indoubt import Ledger
from indoubt.stores import open_store
from indoubt.testing import CrashStore, ProcessFate
from indoubt.testing.provider import act, act_async, async_probe

KEYED = {"pure", "idempotent", "retry_safe"}


@dataclass
class Job:
    """What the worker is to do, and how its effect is declared."""

    store: str
    bank: str
    safety: str = "non_idempotent"
    probe: bool = False
    absence: bool = False
    plain: bool = False
    orders: tuple[str, ...] = ("order-7",)
    lease_ms: int = 30_000
    timeout_ms: int = 0
    settle_ms: int = 200
    block_s: float = 0.0
    barrier: bool = False

    def text(self) -> str:
        """The job as the worker's argument."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Job:
        """Read a worker's argument."""
        return cls(**json.loads(text))


def policy(job: Job) -> dict[str, Any]:
    """The keywords of ``Ledger.effect``: the same in the worker and in whoever recovers."""
    declared: dict[str, Any] = {"safety": job.safety, "name": "pay", "key": itself}
    if job.probe:
        declared["probe"] = async_probe(job.bank)
    if job.timeout_ms:
        declared["timeout"] = timedelta(milliseconds=job.timeout_ms)
    if job.absence:
        declared["settle_time"] = timedelta(milliseconds=job.settle_ms)
        declared["not_found_is_authoritative"] = True
        declared["resend_on_proven_absence"] = job.safety == "non_idempotent"
    return declared


def itself(order: str) -> str:
    """The key of an act is its order."""
    return order


def ledger_of(job: Job, store: Any = None) -> Ledger:
    """The worker's ledger, or another process' on the same file."""
    return Ledger(store or job.store, lease=timedelta(milliseconds=job.lease_ms))


def guard(ledger: Ledger, job: Job, fate: ProcessFate | None = None) -> Any:
    """``pay(order)`` at the fake provider; keys are sent only where safety is through them."""
    fate = fate or ProcessFate()
    send, send_async = fate.sending(act), fate.sending(act_async)

    def key(effect: Any) -> str | None:
        return effect.idempotency_key if job.safety in KEYED else None

    if job.plain:

        @ledger.effect(**policy(job))
        def pay(order: str, *, effect: Any) -> dict[str, Any]:
            if job.block_s:
                time.sleep(job.block_s)  # handler under test blocks
            return dict(send(job.bank, order, 12, idempotency_key=key(effect)))

        return pay

    @ledger.effect(**policy(job))
    async def pay_async(order: str, *, effect: Any) -> dict[str, Any]:
        if job.block_s:
            time.sleep(job.block_s)  # noqa: ASYNC251  # handler under test blocks
        return dict(await send_async(job.bank, order, 12, idempotency_key=key(effect)))

    return pay_async


async def call(pay: Any, order: str) -> list[Any]:
    """What the caller of one order is told."""
    try:
        told = await pay.aio(order)
    except Exception as error:  # noqa: BLE001 - it is the answer
        return [order, "raised", type(error).__name__, str(error)]
    return [order, "returned", told]


async def main(job: Job) -> None:
    """Perform each order, or each one that is asked for by a line on standard input."""
    fate = ProcessFate.from_environment()
    pay = guard(ledger_of(job, CrashStore(open_store(job.store), fate)), job, fate)
    if job.barrier:
        fate.tell([os.getpid(), "ready"])
        await asyncio.to_thread(sys.stdin.readline)
    for told in await asyncio.gather(*(call(pay, order) for order in job.orders)):
        fate.tell(told)


if __name__ == "__main__":
    asyncio.run(main(Job.read(sys.argv[1])))
