"""An operator goes through what is in doubt: reads it, asks the bank again, decides, is corrected.

    python examples/operators_evening.py

The same verbs as ``indoubt inbox``, ``show``, ``probe`` and ``decide``, from a program.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

from indoubt import (
    AllowOneAttempt,
    AlreadyDecided,
    DidNotHappen,
    EffectContext,
    Happened,
    Ledger,
    OutcomeUnknown,
    RecordView,
    StaleDecision,
)
from indoubt.guard.function import GuardedFunction
from indoubt.testing import FakeProvider
from indoubt.testing.provider import act_async, async_probe

BY_ANA = {"actor": "ana", "reason": "seen in the bank's console"}


def guarded(ledger: Ledger, url: str) -> GuardedFunction[Coroutine[Any, Any, dict[str, Any]]]:
    """Stand for the program whose effects the operator looks after."""

    def the_order(order: str) -> str:
        return order

    @ledger.effect(safety="non_idempotent", name="refund", key=the_order, probe=async_probe(url))
    async def refund(order: str, *, effect: EffectContext) -> dict[str, Any]:
        return dict(await act_async(url, order, 1200, idempotency_key=effect.idempotency_key))

    return refund


def show(item: RecordView) -> None:
    """Print one line of the inbox, and what may be decided about it, with its risk."""
    print(f"{item.key}: {item.name}, attempt {item.attempt}, {item.reason}")
    for choice in item.choices:
        print(f"    {choice.decision}: {choice.risk}")


async def evening(ledger: Ledger, bank: FakeProvider) -> None:
    """Settle three refunds that are in doubt."""
    refund = guarded(ledger, bank.url)
    bank.fault("lookup", status="unknown")
    for order in ("order-1", "order-2", "order-3"):
        bank.next("apply_then_drop" if order != "order-3" else "drop_before_apply")
        try:
            await refund.using(wait=timedelta(0))(order)
        except OutcomeUnknown as doubt:
            print(f"{order}: {doubt.next}")
    items = {item.key: item for item in (await ledger.in_doubt()).items}
    one, two, three = items["order-1"], items["order-2"], items["order-3"]
    show(one)
    await ledger.decide(one, Happened({"id": "rf_12"}), **BY_ANA)
    try:
        await ledger.decide(one, DidNotHappen(), actor="bob", reason="a second opinion")
    except AlreadyDecided as error:
        print("bob is too late:", error.decision["kind"], "by", error.decision["actor"])
    print("asked again:", (await ledger.probe(two.ref)).evidence[-1]["status"])
    await ledger.decide(two, Happened(), **BY_ANA)
    await ledger.decide(three, AllowOneAttempt(), actor="ana", reason="the bank has no trace")
    print(f"{three.key}: paid as {(await refund('order-3'))['key']}")
    try:
        await ledger.decide(three, DidNotHappen(), **BY_ANA)  # an answer to attempt 1
    except StaleDecision as error:
        print("stale:", error.current_ref)
    for entry in await ledger.journal(three.ref):
        print(f"    {entry.sequence}. {', '.join(entry.did)} -> {entry.state}")
    print("left in doubt:", len((await ledger.in_doubt()).items))


async def main() -> None:
    """Work with a bank that takes orders and does not answer."""
    with FakeProvider() as bank, tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("INDOUBT_URL", f"sqlite:///{folder}/evening.db")
        async with Ledger(url) as ledger:
            await evening(ledger, bank)
        counts = [bank.count(f"order-{number}") for number in (1, 2, 3)]
        print("refunds that happened:", counts)


if __name__ == "__main__":
    asyncio.run(main())
