"""The write connection: any number of batches, one round trip, one commit, true answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import psycopg

from ...errors import SchemaTooNew
from ...store import Batch, Conflict, Snapshot, Written
from ..group_commit import Leasing
from ..judge import versions
from .faults import answer_lost, concerns_one_batch, trouble, uncertain
from .rows import COLUMNS, lease_of, stored, stored_from_json, work_of
from .schema import LATEST, newer
from .text import told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..group_commit import Result, Work
    from .place import Connection, Place

WRITE: Final = "SELECT * FROM indoubt_write(%s::jsonb)"
LEASE: Final = (
    f"WITH r AS MATERIALIZED (SELECT * FROM indoubt_lease(%s::jsonb))"  # noqa: S608
    f" SELECT indoubt_now(false), m.epoch, indoubt_schema(), {COLUMNS}"
    f" FROM indoubt_meta m LEFT JOIN r ON true ORDER BY r.ready_at, r.id"
)
_encode = msgspec.json.Encoder().encode


class Engine:
    """Not thread-safe: whoever calls it holds the lead of the queue before it."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._db: Connection | None = None
        self.commits = 0

    def commit(self, group: Sequence[Work]) -> list[Result]:
        """Apply every batch by itself: those that are batches share one round trip and commit."""
        batches = [work for work in group if isinstance(work, Batch)]
        answers = iter(self._write(batches) if batches else ())
        return [self._lease(work) if isinstance(work, Leasing) else next(answers) for work in group]

    def close(self) -> None:
        """The next commit opens a new connection."""
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def _write(self, batches: Sequence[Batch]) -> list[Result]:
        try:
            rows = self._execute(WRITE, _encode(work_of(batches, LATEST)).decode())
            return answers_of(batches, rows, self._place)
        except Exception as error:  # noqa: BLE001 - every failure is an answer
            return self._failed(batches, error)

    def _lease(self, work: Leasing) -> Result:
        asked = _encode(lease_of(work.query, work.lease)).decode()
        try:
            rows = self._execute(LEASE, asked)
        except Exception as error:  # noqa: BLE001
            return self._failed([None], error)[0]
        now_ms, epoch, schema = rows[0][:3]
        if schema > LATEST:
            return newer(schema, self._place)
        found = [stored(row[3:]) for row in rows if row[3] is not None]
        return Snapshot(found[0].updated_at if found else now_ms, epoch, tuple(found))

    def _execute(self, statement: str, argument: str) -> list[tuple[Any, ...]]:
        if self._db is None or self._db.closed:
            self._db = None
            self._db = self._place.connect()
        # One statement in autocommit: once its answer is here, it is committed.
        rows = self._db.execute(statement.encode(), (argument,)).fetchall()
        self.commits += 1
        return rows

    def _failed(self, batches: Sequence[Batch | None], error: Exception) -> list[Result]:
        lost = uncertain(error, self._db)
        if lost or isinstance(error, psycopg.OperationalError):
            self.close()
        if lost:
            return [answer_lost(error, self._place) for _ in batches]
        whole = [batch for batch in batches if batch is not None]
        if len(whole) > 1 and concerns_one_batch(error):
            return [answer for batch in whole for answer in self._write([batch])]
        return [trouble(error, self._place) for _ in batches]


def answers_of(
    batches: Sequence[Batch], rows: Sequence[tuple[Any, ...]], place: Place
) -> list[Result]:
    """What ``indoubt_write`` says of each batch."""
    if rows[0][2] > LATEST:
        return [newer(rows[0][2], place) for _ in batches]
    return [_answer(batch, row) for batch, row in zip(batches, rows, strict=True)]


def _answer(batch: Batch, row: tuple[Any, ...]) -> Written | Conflict:
    now_ms, epoch, _, written, repeated, superseded, bad, why, found = row
    if written:
        again = bool(repeated)
        return Written(now_ms, epoch, versions(batch), again, again and bool(superseded))
    records = {told(name): record for name, record in found.items()}
    ids = dict.fromkeys([item.id for item in (*batch.puts, *batch.extends, *batch.guards)])
    known = tuple([stored_from_json(records[name]) for name in ids if name in records])
    return Conflict(told(bad), why, Snapshot(now_ms, epoch, known))


__all__ = ["Engine", "SchemaTooNew"]
