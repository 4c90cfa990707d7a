"""Wakes waiters by published messages: a connection and a thread, while somebody waits."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import RedisError

from ..wakes import Wakes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .partitions import Partitions

LOOK_S: Final = 0.5
"""How soon the thread notices that nobody waits any more, or that the store is closed."""
IDLE_LOOKS: Final = 4


class ServerWakes(Wakes):
    """A hint: while the connection is broken, waiters go on after their time-outs."""

    def __init__(self, partitions: Partitions) -> None:
        super().__init__()
        self._partitions = partitions
        self._count = threading.Condition()
        self._waiting = 0
        self._listening = False
        self._closed = False

    async def wait(self, topics: Sequence[str], *, timeout: float) -> bool:
        with self._count:
            self._waiting += 1
            if not self._listening and not self._closed:
                self._listening = True
                threading.Thread(target=self._run, name="indoubt-wakes", daemon=True).start()
        try:
            return await super().wait(topics, timeout=timeout)
        finally:
            with self._count:
                self._waiting -= 1

    def close(self) -> None:
        """Wake all who wait, and end the thread."""
        with self._count:
            self._closed = True
            self._count.wait_for(lambda: not self._listening)
        self.wake()

    def _run(self) -> None:
        try:
            with suppress(RedisError, OSError):
                self._listen()
        finally:
            with self._count:
                self._listening = False
                self._count.notify_all()

    def _listen(self) -> None:
        keys = self._partitions.keys
        pool = self._partitions.wire.nodes.holder(keys.meta(0))
        connection = pool.get_connection()
        try:
            connection.send_command("SUBSCRIBE", keys.channel)
            idle = 0
            while idle < IDLE_LOOKS and not self._closed:
                if connection.can_read(timeout=LOOK_S):
                    self._noticed(
                        connection.read_response(disable_decoding=True, push_request=True)
                    )
                idle = 0 if self._waiting else idle + 1
        finally:
            connection.disconnect()
            pool.release(connection)

    def _noticed(self, message: Any) -> None:
        if message[0] == b"message":
            self.wake([message[2].decode()])
