"""A delayed unmute: it is registered when the mute is accepted, and fires whoever restarts.

    python examples/delayed_unmute.py                              # a file of its own
    python examples/delayed_unmute.py redis://localhost            # a plain redis client
    python examples/delayed_unmute.py postgresql://me@localhost/db

To unmute somebody twice is harmless, so the handler is safe to repeat. The chat is not real: it
counts what it was asked to do.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from typing import Any

from indoubt import EffectContext, Ledger
from indoubt.delayed_effects import (
    DelayedEffectIntent,
    DelayedEffectStore,
    DelayedEffectWorker,
    register_delayed_effect,
)


class Chat:
    """A chat platform that counts what it was asked to do."""

    def __init__(self) -> None:
        self.connected = True
        self.done: Counter[str] = Counter()

    async def mute(self, group: int, user: int) -> None:
        self.done[f"mute {group}/{user}"] += 1

    async def unmute(self, group: int, user: int) -> None:
        self.done[f"unmute {group}/{user}"] += 1


chat = Chat()


async def unmute(intent: DelayedEffectIntent) -> dict[str, Any]:
    """Clear the mute; twice is harmless."""
    await chat.unmute(**intent.payload)
    return {"unmuted": intent.payload["user"]}


async def bot_connected() -> bool:
    """Asked before each pass: while the bot is away, nothing is claimed."""
    return chat.connected


def member(group: int, user: int, seconds: float) -> str:
    """One mute of a member, however long."""
    del seconds
    return f"{group}/{user}"


def given_store(url: str) -> Any:
    """What ``DelayedEffectStore`` takes first: a URL, or a client that the program has anyway."""
    if not url.startswith("redis"):
        return url
    import redis.asyncio as redis  # noqa: PLC0415 - only where it is asked for

    return redis.from_url(url)  # pyright: ignore[reportUnknownMemberType]


async def main(url: str) -> None:
    """Mute for a moment, from inside a guarded call; then see it undone."""
    store = DelayedEffectStore(given_store(url))
    ledger = Ledger(store.runtime().store, allow_ledger_loss=True)

    @ledger.effect(safety="idempotent", name="mute", key=member)
    async def mute(group: int, user: int, seconds: float, *, effect: EffectContext) -> str:
        await chat.mute(group, user)
        intent = await register_delayed_effect(
            effect,
            effect_type="unmute",
            payload={"group": group, "user": user},
            delay_seconds=seconds,
        )
        return f"muted; unmute is {intent.action.value}"

    print(await mute(1, 7, 0.2))
    handlers = {"unmute": unmute}
    async with DelayedEffectWorker(store, handlers, readiness_check=bot_connected):
        while not chat.done["unmute 1/7"]:
            await store.runtime().store.wait((), timeout=0.05)
    forgiven = await store.register("ban-9", "unmute", {"group": 1, "user": 9}, delay_seconds=3600)
    told = await store.cancel(forgiven)  # a moderator forgives: it will not be fired
    print(f"unmuted {chat.done['unmute 1/7']} time(s); the other one is {told.action.value}")
    await ledger.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if sys.argv[1:] else f"sqlite:///{folder}/chat.db"))
