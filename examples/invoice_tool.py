"""A tool that a model may call again and again: one invoice is paid once, and the model is told so.

    python examples/invoice_tool.py

Frameworks read a tool's signature: the guarded function shows ``invoice`` and ``cents``, and hides
``effect``. `call_tool` is what a server answers a model with.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import tempfile
from typing import Any

from indoubt import DoubtfulAttempt, EffectContext, Ledger, OutcomeUnknown, ProviderProbeResult
from indoubt import ExecutionSafetyClass as Safety
from indoubt.testing import FakeProvider
from indoubt.testing.provider import act_async, find_async

ledger = Ledger()


async def find_payment(attempt: DoubtfulAttempt) -> ProviderProbeResult:
    """Look the payment up at the bank."""
    url, key = os.environ["BANK_URL"], attempt.idempotency_key
    found = await find_async(url, attempt.key, idempotency_key=key)
    match found.status:
        case "succeeded":
            return attempt.succeeded(dict(found.acts[0]))
        case "not_found":
            return attempt.not_found()
        case _:
            return attempt.unknown()


def the_invoice(invoice: str, cents: int) -> str:
    """One payment an invoice."""
    del cents
    return invoice


@ledger.effect(safety=Safety.NON_IDEMPOTENT, key=the_invoice, probe=find_payment)
async def pay_invoice(invoice: str, cents: int, *, effect: EffectContext) -> dict[str, Any]:
    """Pay one invoice. A repeat of the same invoice returns the first receipt."""
    url, key = os.environ["BANK_URL"], effect.idempotency_key
    return dict(await act_async(url, invoice, cents, idempotency_key=key))


async def pay_invoice_state(invoice: str) -> dict[str, Any]:
    """Say what is known about a payment, without acting."""
    record = await ledger.find("pay_invoice", invoice)
    if record is None:
        return {"state": "never asked for"}
    return {"state": record.state, "receipt": record.receipt, "evidence": list(record.evidence)}


async def call_tool(invoice: str, cents: int) -> dict[str, Any]:
    """Answer a model: its receipt, or one fixed text."""
    try:
        return {"receipt": await pay_invoice(invoice, cents)}
    except OutcomeUnknown as doubt:
        told = "The payment may have happened. Do not call this tool again for this invoice."
        return {"isError": True, "ref": doubt.ref, "retry": False, "text": told}


async def main() -> None:
    """Let a model pay two invoices; the bank cannot say what became of the second."""
    print("the model sees:", inspect.signature(pay_invoice))
    async with ledger:
        for invoice in ("inv-1", "inv-1", "inv-2"):
            print(invoice, await call_tool(invoice, 900))
        for invoice in ("inv-1", "inv-2", "inv-3"):
            print(invoice, (await pay_invoice_state(invoice))["state"])


if __name__ == "__main__":
    with FakeProvider() as bank, tempfile.TemporaryDirectory() as folder:
        os.environ |= {"BANK_URL": bank.url, "INDOUBT_URL": f"sqlite:///{folder}/tool.db"}
        bank.next("apply_then_drop", key="inv-2")
        bank.fault("lookup", key="inv-2", status="unknown")
        asyncio.run(main())
