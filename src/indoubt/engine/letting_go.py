"""Ending a hold whose flow ends: what was dispatched and never sent is said to be so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from indoubt.core.commands import Release
from indoubt.core.record import State

from .engine import PATIENCE_S, Engine, Seen

if TYPE_CHECKING:
    from collections.abc import Generator

    from .requests import Request


def let_go(engine: Engine, seen: Seen | None, fence: int) -> Generator[Request, Any, None]:
    """Release what this flow holds under ``fence``, if it still does.

    Only for flows that have not called the function: a dispatch is certified as never sent.
    """
    if seen is None or seen.record is None or seen.record.fence != fence:
        return
    release = Release(fence=fence, never_sent=seen.record.state is State.DISPATCHED)
    yield from engine.persist(seen, (release,), deadline=engine.clock.now() + PATIENCE_S)
