"""A web shop refunds an order once, however often the customer clicks and whatever crashes.

    python examples/refund.py            # with a bank that takes the money and hangs up

`post_refund` is what an endpoint does; in a real program the bank is somebody else's HTTP API.
Set BANK_URL and INDOUBT_URL to try it against your own.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from datetime import timedelta
from typing import Any

from indoubt import DoubtfulAttempt, EffectContext, Ledger, OutcomeUnknown, ProviderProbeResult
from indoubt import ExecutionSafetyClass as Safety
from indoubt.testing import FakeProvider
from indoubt.testing.provider import ProviderRejected, act_async, find_async

ledger = Ledger(lease=timedelta(seconds=30))  # at INDOUBT_URL; opens when it is first used


class RefundRefused(Exception):
    """The bank said no, so nothing moved."""


async def find_refund(attempt: DoubtfulAttempt) -> ProviderProbeResult:
    """Ask the bank what became of a refund; reads only."""
    found = await find_async(bank_url(), attempt.key, idempotency_key=attempt.idempotency_key)
    match found.status:  # "not found" only where the bank says so: it permits another attempt
        case "succeeded":
            return attempt.succeeded(dict(found.acts[0]), external_ref=found.acts[0]["id"])
        case "not_found":
            return attempt.not_found()
        case "unavailable":
            return attempt.unavailable()
        case _:
            return attempt.unknown()


def the_order(order: str, cents: int) -> str:
    """One refund an order: a repeat with other cents is a KeyConflict."""
    del cents
    return order


@ledger.effect(
    safety=Safety.NON_IDEMPOTENT,
    key=the_order,
    probe=find_refund,
    clean_failures=(RefundRefused,),
    settle_time=timedelta(seconds=5),
    not_found_is_authoritative=True,
)
async def refund(order: str, cents: int, *, effect: EffectContext) -> dict[str, Any]:
    """Pay the customer back."""
    try:
        paid = await act_async(bank_url(), order, cents, idempotency_key=effect.idempotency_key)
    except ProviderRejected as refusal:
        raise RefundRefused(refusal.code) from refusal
    return dict(paid)


async def post_refund(order: str, cents: int, tenant: str) -> tuple[int, dict[str, Any]]:
    """Answer ``POST /orders/{order}/refund``: an HTTP status and a body."""
    with ledger.scope(tenant_id=tenant):
        try:
            return 200, await refund(order, cents)
        except RefundRefused as refusal:
            return 402, {"refused": str(refusal)}
        except OutcomeUnknown as doubt:
            return 202, {"state": "in_doubt", "ref": doubt.ref, "next": doubt.next}


def bank_url() -> str:
    """Where the bank is."""
    return os.environ["BANK_URL"]


async def main() -> None:
    """Serve three clicks; what an earlier process left in doubt is settled first."""
    async with ledger:
        await ledger.recover(limit=100)
        for order, cents in (("order-7", 1200), ("order-7", 1200), ("order-8", 500)):
            print(order, *await post_refund(order, cents, "acme"))


if __name__ == "__main__":
    with FakeProvider() as bank, tempfile.TemporaryDirectory() as folder:
        os.environ |= {"BANK_URL": bank.url, "INDOUBT_URL": f"sqlite:///{folder}/shop.db"}
        bank.next("apply_then_drop")  # the first refund happens, and its answer is lost
        bank.next("reject", key="order-8")
        asyncio.run(main())
        print("refunds of order-7 that happened:", bank.count("order-7"))
