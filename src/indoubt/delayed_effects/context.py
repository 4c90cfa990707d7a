"""Registering an effect from inside the call that accepts it (D-70 to D-77)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from . import checks
from .store import DelayedEffectStore

if TYPE_CHECKING:
    from .checks import Seconds
    from .values import DelayedEffectIntent

_SEPARATOR: Final = "\x1f"
_PLACES: Final = ("delayed_effects", "ledger", "redis")


def delayed_effect_store_for_context(ctx: Any) -> DelayedEffectStore:
    """The store that one durable handler registers in.

    It is ``ctx.delayed_effects`` (a store), or stands on ``ctx.ledger`` or ``ctx.redis``.

    Raises:
        RuntimeError: the context has none of them.
    """
    for name in _PLACES:
        found = getattr(ctx, name, None)
        if isinstance(found, DelayedEffectStore):
            return found
        if found is not None:
            return DelayedEffectStore(found)
    raise RuntimeError(f"this context has none of {', '.join(_PLACES)}: nothing was registered")


async def register_delayed_effect(
    ctx: Any,
    *,
    effect_type: str,
    payload: dict[str, Any],
    delay_seconds: Seconds,
    name: str | None = None,
) -> DelayedEffectIntent:
    """Durably register an effect that fires later, for the call that is active in ``ctx``.

    A replay of the call gets the same intent (CACHED). It fires also if the call fails later:
    cancel it then (D-76).

    Args:
        ctx: has ``operation_id``, and what ``delayed_effect_store_for_context`` wants.
        effect_type: which handler fires it.
        payload: a JSON object.
        delay_seconds: from now.
        name: tells several effects of one call apart (D-77).

    Raises:
        RuntimeError: no call is active, or it is over; nothing was registered.
        DelayedEffectConflict: the call has registered another effect under this name.
    """
    operation = getattr(ctx, "operation_id", None)
    if not isinstance(operation, str) or not operation.strip():
        raise RuntimeError("this context has no operation_id: nothing was registered")
    if getattr(ctx, "over", False) is True:
        raise RuntimeError("operation_id: this call is over; nothing was registered")
    if name is not None:
        operation = f"{operation}{_SEPARATOR}{checks.text(name, 'name')}"
    store = delayed_effect_store_for_context(ctx)
    tenant = getattr(ctx, "tenant_id", None)
    return await store.register(
        operation,
        effect_type,
        payload,
        delay_seconds=delay_seconds,
        tenant_id=tenant if isinstance(tenant, str) else None,
    )
