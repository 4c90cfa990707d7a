"""Redis or Valkey as a store: one call of a script per batch, many of them per round trip."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ...store import Capabilities
from ..queued import QueuedStore
from .durability import durability
from .engine import Engine
from .faults import answer_lost
from .partitions import Partitions
from .place import Place, place_of, with_options
from .reader import Reader
from .schema import open_wire, prepare
from .wakes import ServerWakes

if TYPE_CHECKING:
    from ..facts import Fact
    from .wire import Wire


class RedisStore(QueuedStore[Engine]):
    """Opens, and if need be creates, a ledger in a Redis or Valkey, standalone or Cluster.

    Args:
        server: a URL (see ``place.FORMS``), or a client of redis-py, whose connections are used and
            whose own retries are not.
        create: make the ledger if it is missing.
        upgrade: bring an older one to this version's schema.
        options: ``namespace`` (what keys begin with), ``partitions`` (for a new ledger),
            ``wait_replicas`` (copies that a write waits for), ``wait_aof`` (wait for the file's
            sync, where the server knows WAITAOF), ``patience_ms`` (how long an answer may take).

    Raises:
        SchemaMissing, SchemaTooOld, SchemaTooNew: not this version's ledger.
        StoreRewound: a part of the ledger was lost.
        StoreUnavailable, StoreBroken: a server cannot be reached or used.
        ValueError, TypeError: a garbled URL, or an option that there is not.
    """

    def __init__(
        self, server: Any, *, create: bool = True, upgrade: bool = False, **options: Any
    ) -> None:
        self.place = _place(server, options)
        wire = open_wire(self.place)
        try:
            keys, self.meta = prepare(wire, create=create, upgrade=upgrade)
            self._capabilities = _capabilities(wire)
        except BaseException:
            wire.close()
            raise
        self.wire = wire
        partitions = Partitions(wire, keys, self.meta)
        lost = partial(answer_lost, place=self.place)
        super().__init__(Engine(partitions), Reader(partitions), ServerWakes(partitions), lost)

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def facts(self) -> tuple[Fact, ...]:
        """What the servers say of themselves, for ``indoubt doctor``.

        Raises:
            StoreUnavailable, StoreBroken: one cannot be asked.
        """
        from .facts import facts  # noqa: PLC0415 - only operators ask

        return facts(self)

    def _end(self) -> None:
        self.wire.close()


def _place(server: Any, options: dict[str, Any]) -> Place:
    if isinstance(server, str):
        return place_of(server, **options)
    return with_options(Place("client", (), client=server), **options)


def _capabilities(wire: Wire) -> Capabilities:
    durable, why = durability(wire)
    return Capabilities(
        durable=durable, durable_why=why, shared=True, decides_silence=False, blocking=True
    )
