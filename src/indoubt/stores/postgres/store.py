"""A PostgreSQL database as a store: many machines, one round trip and one commit per group."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import psycopg

from ...store import Capabilities
from ..queued import QueuedStore
from .engine import Engine
from .examine import examine
from .faults import answer_lost, trouble
from .joined import JoinedStore
from .place import PATIENCE_MS, place_of
from .reader import Reader
from .schema import prepare
from .wakes import ServerWakes

if TYPE_CHECKING:
    from ..facts import Fact
    from .joined import Caller
    from .place import Place

_WHY: Final = {
    True: "PostgreSQL syncs its write-ahead log (fsync on, synchronous_commit {commit}) before it"
    " answers.",
    False: "PostgreSQL may forget what it has answered (fsync {fsync}, synchronous_commit"
    " {commit}).",
}


class PostgresStore(QueuedStore[Engine]):
    """Opens, and if need be creates, the ledger in one schema of a database.

    Args:
        url: ``postgresql://user@host[,host]/db``; in its query ``schema=`` and ``prepare=never``
            (for PgBouncer) are ours, all else is libpq's.
        create: make the tables if they are missing.
        upgrade: bring an older schema to this version's.
        patience_ms: how long one statement may take.

    Raises:
        SchemaMissing, SchemaTooOld, SchemaTooNew: not this version's schema.
        StoreUnavailable, StoreBroken: the server cannot be reached or used.
    """

    def __init__(
        self,
        url: str,
        *,
        create: bool = True,
        upgrade: bool = False,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        self.place = place_of(url, patience_ms=patience_ms)
        self.meta = prepare(self.place, create=create, upgrade=upgrade)
        self._capabilities = _capabilities(self.place)
        super().__init__(
            Engine(self.place),
            Reader(self.place, self.meta.incarnation),
            ServerWakes(self.place),
            partial(answer_lost, place=self.place),
        )

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def facts(self) -> tuple[Fact, ...]:
        """What the server says of itself, for ``indoubt doctor``.

        Raises:
            StoreBroken, StoreUnavailable: it cannot be asked.
        """
        self._usable()
        return examine(self.place)

    def join(self, connection: Caller) -> JoinedStore:
        """A view whose writes are part of the transaction that is open on ``connection``.

        What it records is committed or rolled back with the application's own rows: an intent, or
        a delayed effect. It sends nothing: a dispatch must be durable before it is one.
        """
        self._usable()
        return JoinedStore(self, connection)


def _capabilities(place: Place) -> Capabilities:
    try:
        with place.connect() as db:
            row = db.execute(
                b"SELECT current_setting('fsync'), current_setting('synchronous_commit')"
            ).fetchone()
    except psycopg.Error as error:
        raise trouble(error, place) from error
    fsync, commit = row or ("?", "?")
    durable = fsync == "on" and commit != "off"
    return Capabilities(
        durable=durable,
        durable_why=_WHY[durable].format(fsync=fsync, commit=commit),
        shared=True,
        decides_silence=False,
        joins_transaction=True,
        blocking=True,
    )
