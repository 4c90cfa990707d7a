"""A store whose writes belong to the caller's own open transaction.

What is written here is durable only once the caller commits, and gone if it rolls back. So it may
hold intents, and nothing that says that something may have been sent (protocol P17). Its errors
are raised, unlike a store's: the server has then failed the caller's transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow, tuple_row

from ...errors import StoreUnavailable
from ...store import Absent
from ..checks import check_batches
from .engine import answers_of
from .faults import trouble
from .rows import work_of
from .schema import LATEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...store import (
        Batch,
        Capabilities,
        Conflict,
        DueQuery,
        Event,
        Lease,
        Page,
        ScanQuery,
        Snapshot,
        Written,
    )
    from .store import PostgresStore

    Caller = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]

_encode = msgspec.json.Encoder().encode
_NOT_SENT: Final = "prepared"


class JoinedStore:
    """Writes through the caller's connection; reads what is committed, through the store's own."""

    def __init__(self, store: PostgresStore, connection: Caller) -> None:
        self._store = store
        self._connection = connection

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(self._store.capabilities, blocking=False)

    async def write(self, batches: Sequence[Batch]) -> Sequence[Written | Conflict]:
        """Apply the batches inside the caller's transaction.

        Raises:
            ValueError: a batch is more than an intent, or no transaction is open; nothing was
                written.
            StoreError: the server refused; the caller's transaction has failed.
        """
        check_batches(batches)
        for batch in batches:
            _check_intent(batch)
        _check_open(self._connection)
        argument = _encode(work_of(batches, LATEST)).decode()
        place = self._store.place
        try:
            rows = await self._execute(argument)
        except psycopg.Error as error:
            raise trouble(error, place) from error
        answers = answers_of(batches, rows, place)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return cast("Sequence[Written | Conflict]", answers)

    async def _execute(self, argument: str) -> list[TupleRow]:
        # The caller's connection may look for tables elsewhere, so the schema is named.
        schema = self._store.place.schema
        names = (schema, "indoubt_write") if schema else ("indoubt_write",)
        statement = sql.SQL("SELECT * FROM {}(%s::jsonb)").format(sql.Identifier(*names))
        connection = self._connection
        if isinstance(connection, psycopg.AsyncConnection):
            asked = connection.cursor(row_factory=tuple_row)
            await asked.execute(statement, (argument,))
            return await asked.fetchall()
        cursor = connection.cursor(row_factory=tuple_row)
        return cursor.execute(statement, (argument,)).fetchall()

    async def read(self, ids: Sequence[str]) -> Snapshot:
        return await self._store.read(ids)

    async def due(self, query: DueQuery) -> Snapshot:
        return await self._store.due(query)

    async def lease(self, query: DueQuery, lease: Lease) -> Snapshot:
        """Refused: what is taken must be durable before it is used."""
        del query, lease
        raise StoreUnavailable("a joined store leases nothing: use the store itself")

    async def queues(self, prefix: str = "") -> Sequence[str]:
        return await self._store.queues(prefix)

    async def wait(self, topics: Sequence[str], *, timeout: float) -> None:
        await self._store.wait(topics, timeout=timeout)

    async def scan(self, query: ScanQuery) -> Page:
        return await self._store.scan(query)

    async def journal(self, record_id: str, *, after: int = 0, limit: int = 100) -> Sequence[Event]:
        return await self._store.journal(record_id, after=after, limit=limit)

    def hold_owner(self, owner: str) -> None:
        self._store.hold_owner(owner)

    def owner_dead(self, owner: str) -> bool | None:
        return self._store.owner_dead(owner)

    async def close(self) -> None:
        """Nothing: the connection is the caller's, and the store is open still."""


def _check_intent(batch: Batch) -> None:
    intents = all(
        put.state == _NOT_SENT and put.owner is None and isinstance(put.expected, Absent)
        for put in batch.puts
    )
    if not intents or batch.extends or batch.deletes:
        raise ValueError(
            "only new intents can join a transaction: whatever is sent must be durable first"
        )


def _check_open(connection: Caller) -> None:
    """In autocommit each write would stand by itself, whatever becomes of the caller's rows."""
    idle = connection.info.transaction_status is TransactionStatus.IDLE
    if idle and connection.autocommit:
        raise ValueError(
            "this connection is in autocommit and no transaction is open on it: use"
            " `with connection.transaction()`"
        )
