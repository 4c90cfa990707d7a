"""What a guarded function is to its callers: itself, and other ways to make the same call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from datetime import timedelta

R_co = TypeVar("R_co", covariant=True)


class GuardedFunction(Protocol[R_co]):
    """A guarded function: an ``async def`` stays one, a ``def`` stays a blocking function.

    Its parameters are those of the function without the injected ``effect``; a type cannot say
    that, so they are checked when it is called.
    """

    __name__: str

    def __call__(self, *args: Any, **kwargs: Any) -> R_co:
        """Perform it, or answer from the record."""
        ...

    def using(
        self,
        *,
        key: str | None = None,
        tenant_id: str | None = None,
        scope: str | None = None,
        wait: timedelta | None = None,
        wait_for_decision: timedelta | None = None,
    ) -> GuardedFunction[R_co]:
        """The same function under another key, tenant, scope or patience."""
        ...

    def outcome(self, *args: Any, **kwargs: Any) -> Any:
        """Call it and get the ``Outcome`` (awaitable for an ``async def``)."""
        ...

    async def aio(self, *args: Any, **kwargs: Any) -> Any:
        """Call it from a coroutine; a blocking ``def`` runs in a thread."""
        ...

    def find(self, *args: Any, **kwargs: Any) -> Any:
        """The record of this very call, or None (awaitable for an ``async def``)."""
        ...
