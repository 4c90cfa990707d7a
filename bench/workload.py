"""The guarded call that every script measures: a refund with 233 bytes of arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from indoubt import EffectContext, Ledger
from indoubt.store import Batch, Conflict, Written
from indoubt.stores.memory import MemoryStore

INTEGER_BYTES = 8


def order(number: int) -> dict[str, Any]:
    """The arguments of one call; the number names the act."""
    return {
        "order": f"order-{number}",
        "customer": "cus_9s6XKzkNRiz8i3",
        "amount": 129_900,
        "currency": "eur",
        "note": "Annual plan, 12 seats, renewed by the billing agent",
        "metadata": {"source": "agent", "trace": "0af7651916cd43dd8448eb211c8031", "retry": False},
    }


def key_of(*, order: str, **_: object) -> str:
    return order


def refund(
    *,
    order: str,
    customer: str,
    amount: int,
    currency: str,
    note: str,
    metadata: dict[str, Any],
    effect: EffectContext,
) -> dict[str, Any]:
    """Do nothing, as quickly as can be."""
    del customer, currency, note, metadata
    return {"id": effect.idempotency_key, "order": order, "amount": amount}


class Effects(NamedTuple):
    """One effect for both kinds of callers."""

    blocking: Callable[..., dict[str, Any]]
    coroutine: Callable[..., Awaitable[dict[str, Any]]]


def effects(ledger: Ledger) -> Effects:
    @ledger.effect(safety="non_idempotent", key=key_of, name="coroutine")
    async def coroutine(
        *,
        order: str,
        customer: str,
        amount: int,
        currency: str,
        note: str,
        metadata: dict[str, Any],
        effect: EffectContext,
    ) -> dict[str, Any]:
        del customer, currency, note, metadata
        return {"id": effect.idempotency_key, "order": order, "amount": amount}

    blocking = ledger.effect(safety="non_idempotent", key=key_of, name="blocking")(refund)
    return Effects(blocking, coroutine)


class Recording(MemoryStore):
    """Keeps what was handed in."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Batch] = []

    def write_blocking(self, batches: Sequence[Batch]) -> Sequence[Written | Conflict]:
        self.batches.extend(batches)
        return super().write_blocking(batches)


def bytes_written() -> tuple[int, int]:
    """How many bytes of values the two commits of one call carry."""
    store = Recording()
    effects(Ledger(store, allow_ledger_loss=True)).blocking(**order(1))
    first, second = (_size(batch) for batch in store.batches)
    return first, second


def _size(batch: Batch) -> int:
    put = batch.puts[0]
    values: list[object] = [batch.write_id, *put]
    return sum(
        len(value) if isinstance(value, str | bytes) else INTEGER_BYTES
        for value in values
        if value is not None
    )
