"""Places for a ledger on each kind of store, by one word: the newest server stands for its kind."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .fixtures import postgres, postgres_versions, redis, redis_versions

SERVERS: Final = ("postgresql", "redis")
KEPT: Final = ("sqlite", *SERVERS)
"""The stores that several processes can open."""
ALL: Final = ("memory", *KEPT)


@contextmanager
def place(kind: str, folder: Path) -> Generator[str]:
    """A new ledger's URL; what a server keeps of it is removed afterwards."""
    if kind == "postgresql":
        with postgres(postgres_versions()[0]).ledger() as url:
            yield url
    elif kind == "redis":
        with redis(redis_versions()[0]).ledger() as url:
            yield url
    else:
        yield {"memory": "memory:", "sqlite": f"sqlite:///{folder}/ledger.db"}[kind]
