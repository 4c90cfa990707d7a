"""The demo's six payments, one for each safety class, as anybody would write them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from indoubt.contracts import ExecutionSafetyClass as Safety
from indoubt.guard.context import EffectContext
from indoubt.testing.provider import find_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from indoubt.contracts import ProviderProbeResult
    from indoubt.ledger import Ledger
    from indoubt.recovery.probing import DoubtfulAttempt

    Send = Callable[[str, str | None], Awaitable[dict[str, Any]]]
    Look = Callable[[str], Awaitable[dict[str, Any]]]
    Pay = Callable[[str], Awaitable[dict[str, Any]]]

LEASE = timedelta(seconds=2)
SETTLE = timedelta(milliseconds=300)
AMOUNT = 1200


def guard_all(ledger: Ledger, url: str, send: Send, look: Look) -> dict[Safety, Pay]:
    """Guard one act of each class; ``send`` pays at the provider, ``look`` only reads there."""

    async def find_payment(attempt: DoubtfulAttempt) -> ProviderProbeResult:
        found = await find_async(url, attempt.key or "")
        if found.acts:
            return attempt.succeeded({"id": found.acts[0]["id"]})
        return attempt.not_found()

    asked: dict[str, Any] = {
        "probe": find_payment,
        "settle_time": SETTLE,
        "not_found_is_authoritative": True,
    }

    def effect(safety: Safety, **declared: Any) -> Any:
        return ledger.effect(safety=safety, name=f"pay ({safety})", key=_order, **declared)

    async def price(key: str) -> dict[str, Any]:
        return await look(key)

    async def pay_with_key(key: str, *, effect: EffectContext) -> dict[str, Any]:
        return await send(key, effect.idempotency_key)

    async def pay(key: str) -> dict[str, Any]:
        return await send(key, None)

    return {
        Safety.PURE: effect(Safety.PURE)(price),
        Safety.IDEMPOTENT: effect(Safety.IDEMPOTENT)(pay_with_key),
        Safety.RETRY_SAFE: effect(Safety.RETRY_SAFE)(pay_with_key),
        Safety.STATUS_QUERY_REQUIRED: effect(Safety.STATUS_QUERY_REQUIRED, **asked)(pay),
        Safety.NON_IDEMPOTENT: effect(Safety.NON_IDEMPOTENT, **asked)(pay),
        Safety.HUMAN_CONFIRMATION_REQUIRED: effect(Safety.HUMAN_CONFIRMATION_REQUIRED, **asked)(
            pay
        ),
    }


def _order(key: str) -> str:
    return key
