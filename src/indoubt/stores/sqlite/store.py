"""One SQLite file as a store: durable at every answer, for any number of threads and processes."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...store import Capabilities
from ..clock import Clock, StoreTime
from ..owners import Owners
from ..queued import QueuedStore
from .connection import PATIENCE_MS, Place
from .engine import Engine
from .faults import answer_lost
from .reader import Reader
from .schema import prepare
from .turns import Turns
from .wakes import FileWakes

if TYPE_CHECKING:
    from ..facts import Fact

_DURABLE_WHY: Final = "SQLite syncs its write-ahead log (synchronous=FULL) before it answers."


class SQLiteStore(QueuedStore[Engine]):
    """Opens, and if need be creates, the ledger in one file of its own.

    Args:
        path: the file; ``<path>-owners/`` beside it holds the locks of living owners.
        create: make the file if it is missing or empty.
        upgrade: bring an older schema to this version's.
        clock: the host's clocks; tests give one that they steer.
        patience_ms: how long to wait for other processes' writes.
        vfs: name of a registered SQLite file system.

    Raises:
        SchemaMissing, SchemaTooOld, SchemaTooNew: the file does not hold this version's schema.
        StoreBroken: no database, another program's, or unusable.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        upgrade: bool = False,
        clock: Clock | None = None,
        patience_ms: int = PATIENCE_MS,
        vfs: str | None = None,
    ) -> None:
        # Two names of one file must find the same owners, also after a chdir.
        self.path = os.path.realpath(path)
        place = Place(self.path, vfs, patience_ms)
        time = StoreTime(clock)
        self.meta = prepare(place, time, create=create, upgrade=upgrade)
        self._owners = Owners(Path(self.path))
        self._turns = Turns(place, self._owners.folder / ".turn")
        super().__init__(
            Engine(place, time, self._turns),
            Reader(place, time, self.meta.incarnation),
            FileWakes(place),
            partial(answer_lost, path=self.path),
        )

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            durable=True,
            durable_why=_DURABLE_WHY,
            shared=True,
            decides_silence=self._owners.decides,
            blocking=True,
        )

    def hold_owner(self, owner: str) -> None:
        self._usable()
        self._owners.hold(owner)

    def owner_dead(self, owner: str) -> bool | None:
        self._usable()
        return self._owners.dead(owner)

    def facts(self) -> tuple[Fact, ...]:
        """What the file and its disk really are, for ``indoubt doctor``."""
        from .examine import examine  # noqa: PLC0415 - only operators ask

        return examine(self.path)

    def release_owner(self, owner: str) -> None:
        """Let the owner count as dead before the process ends; ``close`` does not.

        Only for a caller who knows that nothing of this owner's is still running.
        """
        self._usable()
        self._owners.release(owner)

    def _end(self) -> None:
        self._turns.close()
