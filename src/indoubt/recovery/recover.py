"""Going through what is in doubt, a page at a time: probe, settle, and say what is left.

Nothing runs unless this is called. It never performs a first dispatch of an effect (P21): what was
never sent is listed, and closed where ``abandon_after`` or ``no_use_after`` says so.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from indoubt.core.commands import Abandon
from indoubt.core.record import State
from indoubt.engine.engine import PATIENCE_S, Seen, Transition
from indoubt.errors import IndoubtError, StoreError
from indoubt.store import ANY_TENANT, ScanQuery, Tenant

from .items import RecordView, view
from .limits import Limits
from .resolve import Kind, Resolved, Resolver

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from indoubt.engine.drivers import AsyncDriver
    from indoubt.engine.requests import Request

    from .known import Known, Registry

log = logging.getLogger("indoubt.recovery")
CONCURRENCY = 8
KINDS = ("effect",)
"""What is gone through where no kind is named: delayed effects are their workers' own."""
UNSETTLED = (
    State.PREPARED.value,
    State.DISPATCHED.value,
    State.IN_DOUBT.value,
    State.PERMITTED.value,
)


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass did, record by record.

    Attributes:
        settled: closed by this pass: adopted, closed as failed, cancelled or abandoned.
        replayed: sent again by this pass, because that is safe.
        waiting: looked at again after ``retry_after`` (or when the call is repeated).
        asked: a person must decide.
        skipped: only its function could bring it further, and this pass may not call it; a repeat
            of the call goes on. ``reason`` of each says why.
        errors: (ref, error) of records that could not be looked at; they stay listed.
        cursor: more is to come; None at the end.
    """

    settled: tuple[RecordView, ...] = ()
    replayed: tuple[RecordView, ...] = ()
    waiting: tuple[RecordView, ...] = ()
    asked: tuple[RecordView, ...] = ()
    skipped: tuple[RecordView, ...] = ()
    errors: tuple[tuple[str, str], ...] = ()
    cursor: str | None = None


class Pass:
    """One pass of ``Ledger.recover``."""

    def __init__(
        self,
        resolver: Resolver,
        driver: AsyncDriver,
        registry: Registry,
        *,
        wait_s: float,
        run: bool,
        abandon_ms: int | None,
    ) -> None:
        self._resolver = resolver
        self._engine = resolver.engine
        self._driver = driver
        self._registry = registry
        self._until = self._engine.clock.now() + wait_s
        self._run = run
        self._abandon_ms = abandon_ms
        self._found: dict[str, list[RecordView]] = {name: [] for name in LISTS}
        self._errors: list[tuple[str, str]] = []
        self._closed: set[str] = set()

    async def go(
        self,
        *,
        limit: int,
        tenant_id: Tenant = ANY_TENANT,
        kinds: Sequence[str] = (),
        cursor: str | None = None,
    ) -> Recovery:
        """Look at one page of what is not settled, several records at a time.

        Raises:
            ValueError: the cursor is garbled, or of another listing.
        """
        begun_ms, after = _position(cursor)
        page = await self._engine.store.scan(
            ScanQuery(
                view="ready",
                kinds=tuple(kinds) or KINDS,
                states=UNSETTLED,
                tenant_id=tenant_id,
                after=after,
                limit=limit,
            )
        )
        if begun_ms is None:
            begun_ms = page.now_ms
        slots = asyncio.Semaphore(CONCURRENCY)
        # A record that was let go until later stands behind the cursor again: looked at again by
        # the same walk through the pages, it would spend its whole probe budget in a moment.
        # What waits in a queue of its own is its workers': they send it, end it and retry it.
        rows = [row for row in page.records if row.updated_at <= begun_ms and row.queue == row.kind]
        self._engine.hooks.append(self._saw)
        try:
            await asyncio.gather(*(self._one(row.id, slots) for row in rows))
        finally:
            self._engine.hooks.remove(self._saw)
        found = {name: tuple(views) for name, views in self._found.items()}
        more = None if page.cursor is None else f"{begun_ms}.{page.cursor}"
        return Recovery(**found, errors=tuple(self._errors), cursor=more)

    def _saw(self, done: Transition) -> None:
        if done.after.closed:
            self._closed.add(done.after.id)

    async def _one(self, record_id: str, slots: asyncio.Semaphore) -> None:
        async with slots:
            try:
                await self._driver.drive(self._look(record_id))
            except StoreError as error:
                self._errors.append((record_id, str(error)))
            except asyncio.CancelledError as error:
                if _cancelled():
                    raise
                self._errors.append((record_id, type(error).__name__))
            except Exception as error:  # one bad record must not cost the good ones
                log.exception("%s could not be looked at; it stays listed", record_id)
                self._errors.append((record_id, type(error).__name__))

    def _look(self, record_id: str) -> Generator[Request, Any, None]:
        seen = yield from self._engine.read(record_id)
        if seen.record is None:
            return
        known = self._registry.of(seen.record)
        if self._forsaken(seen) and (yield from self._abandon(seen)):
            return
        may_call = self._run and known is not None and known.can_perform(seen.record)
        limits = Limits(until=self._until, dispatch=may_call, in_passing=True)
        resolved = yield from self._resolver.resolve(seen, known, limits)
        if resolved.kind is Kind.GO and known is not None:
            yield from self._replay(known, resolved)
        elif resolved.kind is Kind.SETTLED and record_id not in self._closed:
            return  # its holder, or somebody else, was faster
        elif resolved.kind is Kind.CALL_AGAIN:
            self._skip(resolved.seen, known)
        elif resolved.kind in _LISTED:
            self._list(_LISTED[resolved.kind], resolved.seen, resolved.retry_after_ms)

    def _replay(self, known: Known, resolved: Resolved) -> Generator[Request, Any, None]:
        record = resolved.seen.record
        try:
            yield from known.perform(resolved.seen, resolved.sent_at)
        except StoreError:
            raise
        except IndoubtError:
            pass  # the record says what became of it
        except Exception as error:  # noqa: BLE001 - a clean failure of the user's function
            self._errors.append((record.ref if record else "?", type(error).__name__))
        after = yield from self._engine.read(record.id if record else "")
        self._list("replayed", after)

    def _forsaken(self, seen: Seen) -> bool:
        record = seen.record
        return (
            self._abandon_ms is not None
            and record is not None
            and record.state is State.PREPARED
            and record.updated_at_ms + self._abandon_ms <= seen.now_ms
        )

    def _abandon(self, seen: Seen) -> Generator[Request, Any, bool]:
        """Close what nobody repeats; False: it may have been sent, or is being sent just now."""
        done = yield from self._engine.persist(
            seen,
            (Abandon(reason="abandon_after", store_epoch=seen.epoch),),
            deadline=self._engine.clock.now() + PATIENCE_S,
        )
        if not isinstance(done, Seen):
            return False
        self._list("settled", done)
        return True

    def _skip(self, seen: Seen, known: Known | None) -> None:
        if seen.record is None:
            return
        if known is None:
            why = "its code is not loaded here"
        elif not self._run:
            why = "no function is called in this pass"
        elif not known.can_perform(seen.record):
            why = "its arguments are not recorded so that it could be called again"
        else:
            why = "only its caller sends it"
        self._found["skipped"].append(replace(view(seen.record, seen.now_ms), reason=why))

    def _list(self, name: str, seen: Seen, retry_after_ms: int | None = None) -> None:
        if seen.record is not None:
            self._found[name].append(view(seen.record, seen.now_ms, retry_after_ms=retry_after_ms))


def _cancelled() -> bool:
    """Whether this task was asked to end; else a probe or function has raised it by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _position(cursor: str | None) -> tuple[int | None, str | None]:
    """When the walk through the pages began, and where the store goes on."""
    if cursor is None:
        return None, None
    begun, dot, after = cursor.partition(".") if isinstance(cursor, str) else ("", "", "")  # pyright: ignore[reportUnnecessaryIsInstance]
    if not (dot and begun.isascii() and begun.isdigit()):
        raise ValueError("cursor: not one of this listing")
    return int(begun[:18]), after


LISTS = ("settled", "replayed", "waiting", "asked", "skipped")
_LISTED = {
    Kind.SETTLED: "settled",
    Kind.ASKED: "asked",
    Kind.WAITING: "waiting",
    Kind.LISTED: "waiting",
}
