"""The write connection: any number of batches, one COMMIT, and a true answer for each of them.

Before COMMIT every failure is certain: nothing was written. A failure of COMMIT itself is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..clock import Moment, StoreTime
from ..sql import statements
from .apply import Applier
from .connection import close
from .faults import answer_lost, concerns_one_batch, trouble
from .schema import check_not_newer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..group_commit import Result, Work
    from .connection import Connection, Place
    from .turns import Turns

_SQL: Final = statements()
_CLOCK: Final = _SQL["clock"].text
_TICK: Final = _SQL["tick"].text


class Engine:
    """Not thread-safe: whoever calls it holds the lead of the queue before it."""

    def __init__(self, place: Place, store_time: StoreTime, turns: Turns) -> None:
        self._place = place
        self._time = store_time
        self._turns = turns
        self._db: Connection | None = None
        self._wary = False
        self.commits = 0

    def commit(self, group: Sequence[Work]) -> list[Result]:
        """Apply every batch by itself; all that can be applied share one COMMIT."""
        try:
            db = self._begin()
            answers, dirty = self._apply(db, group)
        except Exception as error:  # noqa: BLE001 - every failure is an answer
            return self._failed(group, error)
        except BaseException:
            self.close()
            raise
        if not dirty:  # conflicts only: nothing to keep, so no wait for the disk
            self._undo()
            return answers
        return self._commit(db, answers)

    def _begin(self) -> Connection:
        if self._db is None:
            self._db = self._place.connect()
            self._db.set_busy_handler(self._turns.wait)
            if self._wary:
                # After a failed sync the log may be right in the kernel's memory and wrong on the
                # disk, where a second sync writes nothing. A checkpoint writes it elsewhere.
                self._db.execute("PRAGMA wal_checkpoint").fetchall()
        self._turns.give_way()
        try:
            # At once the write lock: a transaction that read first could not get it any more
            # once another process has written, however long it waited.
            self._db.execute("BEGIN IMMEDIATE").fetchall()
        finally:
            self._turns.taken()
        return self._db

    def _apply(self, db: Connection, group: Sequence[Work]) -> tuple[list[Result], bool]:
        found, epoch = read_clock(db, self._place.path)
        moment = self._time.now(found)
        applier = Applier(db, moment.now_ms, epoch)
        answers: list[Result] = [applier.apply(batch) for batch in group]
        if applier.dirty:
            db.execute(_TICK, moment).fetchall()
            if self._wary:
                # Writes all but the commit itself, so that a disk that is still full is found
                # full before COMMIT: certain, not in doubt.
                db.cache_flush()
        return answers, applier.dirty

    def _commit(self, db: Connection, answers: list[Result]) -> list[Result]:
        try:
            db.execute("COMMIT").fetchall()
        except Exception as error:  # noqa: BLE001
            self._wary = True
            self.close()
            return [answer_lost(error, self._place.path) for _ in answers]
        except BaseException:
            self.close()
            raise
        self._wary = False
        self.commits += 1
        return answers

    def _failed(self, group: Sequence[Work], error: Exception) -> list[Result]:
        self._undo()
        if len(group) > 1 and concerns_one_batch(error):
            return [answer for batch in group for answer in self.commit([batch])]
        return [trouble(error, self._place.path) for _ in group]

    def _undo(self) -> None:
        """End the transaction if SQLite did not; a connection that cannot is thrown away."""
        try:
            if self._db is not None and self._db.in_transaction:
                self._db.execute("ROLLBACK").fetchall()
        except Exception:  # noqa: BLE001
            self.close()

    def close(self) -> None:
        """The next commit opens a new connection."""
        db, self._db = self._db, None
        if db is not None:
            close(db)


def read_clock(db: Connection, path: str) -> tuple[Moment, int]:
    """The store's persisted time and its epoch, as this transaction sees them.

    Raises:
        SchemaTooNew: the file was upgraded under this store; nothing is written any more.
    """
    now_ms, boot_ms, boot, epoch, schema = db.execute(_CLOCK).fetchall()[0]
    check_not_newer(schema, path)
    return Moment(now_ms, boot_ms, boot), epoch
