"""Wakes waiters by published messages: a connection and a thread, while somebody waits."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import RedisError

from ..wakes import WatchedWakes

if TYPE_CHECKING:
    from .partitions import Partitions

LOOK_S: Final = 0.5
"""How soon the thread notices that nobody waits any more, or that the store is closed."""


class ServerWakes(WatchedWakes):
    """Hears what is announced with PUBLISH."""

    def __init__(self, partitions: Partitions) -> None:
        super().__init__()
        self._partitions = partitions

    def _watch(self) -> None:
        with suppress(RedisError, OSError):
            self._listen()

    def _listen(self) -> None:
        keys = self._partitions.keys
        pool = self._partitions.wire.nodes.holder(keys.meta(0))
        connection = pool.get_connection()
        try:
            connection.send_command("SUBSCRIBE", keys.channel)
            while self._wanted():
                if connection.can_read(timeout=LOOK_S):
                    self._noticed(
                        connection.read_response(disable_decoding=True, push_request=True)
                    )
        finally:
            connection.disconnect()
            pool.release(connection)

    def _noticed(self, message: Any) -> None:
        if message[0] == b"message":
            self.wake([message[2].decode()])
