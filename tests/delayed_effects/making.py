"""Intents as the tests make them, and the moment in which a short lease ends."""

from __future__ import annotations

import asyncio
from typing import Any

from indoubt.delayed_effects import DelayedEffectIntent, DelayedEffectStore

OP = "platform:guild-17:message-99"


async def add(store: DelayedEffectStore, name: str = OP, **given: Any) -> DelayedEffectIntent:
    values: dict[str, Any] = {"effect_type": "unmute", "payload": {"user": 7}, "delay_seconds": 0}
    return await store.register(name, **(values | given))


async def passed() -> None:
    await asyncio.sleep(0.01)  # handler under test blocks: a lease of a millisecond ends
