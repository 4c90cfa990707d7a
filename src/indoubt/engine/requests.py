"""What a flow may ask of the outside: the flow is a generator of these, a driver answers them.

So each flow is written once, and runs for callers with and without an event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from indoubt.store import Batch, Written

    from .engine import Seen
    from .holds import Hold


class Write(Struct, frozen=True):
    """Write one batch. Answer: ``Written | Conflict | StoreError``, the error as a value."""

    batch: Batch


class Read(Struct, frozen=True):
    """Read records. Answer: ``Snapshot``."""

    ids: Sequence[str]


class Invoke(Struct, frozen=True):
    """Call somebody else's code: a guarded function, a probe. Answer: ``Returned | Raised``.

    ``timeout``: seconds after which a coroutine is cancelled (a plain function never is).
    ``hold``: the hold whose loss cancels it. ``thread``: a plain function that must not block
    the event loop.
    """

    run: Callable[[], Any]
    timeout: float | None = None
    hold: Hold | None = None
    thread: bool = False


class Sleep(Struct, frozen=True):
    """Wait, in seconds. Answer: None."""

    seconds: float


class Wait(Struct, frozen=True):
    """Wait until one of these topics is announced, at most so many seconds. Answer: None."""

    topics: tuple[str, ...]
    seconds: float


class Returned(Struct, frozen=True):
    """The called code returned."""

    value: Any


class Raised(Struct, frozen=True):
    """The called code raised; ``ours``: because its time was over or its lease lost."""

    error: Exception
    ours: bool = False


class CallerGone(Exception):
    """Thrown into a flow whose caller is gone: record what is known, and end.

    A write that was under way is repeated by its id; ``written`` and ``seen`` are what became of
    it (None: it did not land).
    """

    written: Written | None = None
    seen: Seen | None = None


Request = Write | Read | Invoke | Sleep | Wait
