"""Opens a store by its URL. No store, and no package a store needs, is imported before that."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from .facts import Examined

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..store import Store
    from .facts import Fact
    from .schema import SchemaStatus as SchemaStatus  # its users name it from here

_FORMS: Final = (
    "sqlite:///file.db (relative), sqlite:////path/file.db (absolute), postgresql://user@server/name,"
    " redis://server, redis+cluster://server or memory:"
)


_REDIS: Final = tuple(
    f"redis{secure}{kind}" for secure in ("", "s") for kind in ("", "+cluster", "+sentinel")
)


def open_store(url: str, **options: Any) -> Store:
    """Open the store that a URL names; ``options`` are those of its class.

    Raises:
        ValueError: no such kind of store, or a garbled URL.
        TypeError: an option that this kind of store does not have.
        StoreError: it cannot be opened; see the class.
    """
    scheme, colon, rest = url.partition(":")
    opener = _OPENERS.get(scheme.lower()) if colon else None
    if opener is None:
        raise _no_such_kind(scheme)
    return opener(rest, options)


def open_existing(url: str) -> Store:
    """Open the ledger that is there, and never make one.

    An empty ledger under a mistyped name would answer that nothing is in doubt.

    Raises:
        ValueError: no such kind of store, a garbled URL, or a store that is always a new one.
        SchemaMissing: there is none.
        StoreError: it cannot be opened.
    """
    if url.partition(":")[0].lower() == "memory":
        raise ValueError("memory: is always a new, empty ledger; name one that is kept")
    return open_store(url, create=False)


def schema_status(url: str) -> SchemaStatus:
    """The schema that is there, the one this version writes, and the steps between; reads only.

    Raises:
        ValueError: no such kind of store, or one without a schema.
        StoreError: it cannot be read.
    """
    engine, place = _engine(url)
    return engine.schema_status(place)


def upgrade(url: str, progress: Callable[[int, int, str], object] | None = None) -> SchemaStatus:
    """Bring a store's schema to this version's; ``progress`` gets steps done, all, and the next.

    Raises:
        SchemaMissing: there is no ledger. SchemaTooNew: a newer version wrote it.
        ValueError, StoreError: as ``schema_status``.
    """
    engine, place = _engine(url)
    return engine.upgrade(place, progress)


def store_of_client(client: Any) -> Store | None:
    """A store over a redis client that its user has made; None for anything else."""
    if not type(client).__module__.startswith("redis."):
        return None
    from .redis import RedisStore  # noqa: PLC0415

    return RedisStore(client)


def facts_of(store: Store) -> tuple[Fact, ...]:
    """What this kind of store finds out about itself here and now (it may take a moment)."""
    return store.facts() if isinstance(store, Examined) else ()


def _engine(url: str) -> tuple[Any, Any]:
    """The engine that a URL names, and where the ledger is, in that engine's terms."""
    scheme = url.partition(":")[0].lower()
    if _OPENERS.get(scheme) is _postgres:
        from . import postgres  # noqa: PLC0415

        return postgres, postgres.place_of(url)
    if scheme in _REDIS:
        from . import redis  # noqa: PLC0415

        return redis, redis.place_of(url)
    from . import sqlite  # noqa: PLC0415

    return sqlite, _file(url)


def _file(url: str) -> str:
    scheme, _, rest = url.partition(":")
    if scheme.lower() == "sqlite":
        return os.path.realpath(_path(rest))
    if scheme.lower() in _OPENERS:
        raise ValueError(f"{scheme}: this kind of store has no schema")
    raise _no_such_kind(scheme)


def _no_such_kind(scheme: str) -> ValueError:
    # Only the scheme: what follows may hold a password.
    return ValueError(f"no kind of store called {scheme[:20]!r}: a store's URL is {_FORMS}")


def _memory(rest: str, options: dict[str, Any]) -> Store:
    from .memory import MemoryStore  # noqa: PLC0415

    if rest.strip("/"):
        raise ValueError("memory: takes no name: every memory store is a new one")
    return MemoryStore(**options)


def _sqlite(rest: str, options: dict[str, Any]) -> Store:
    from .sqlite import SQLiteStore  # noqa: PLC0415

    return SQLiteStore(_path(rest), **options)


def _postgres(rest: str, options: dict[str, Any]) -> Store:
    from .needs import needed  # noqa: PLC0415

    with needed("psycopg", "postgres"):
        from .postgres import PostgresStore  # noqa: PLC0415

    return PostgresStore(f"postgresql:{rest}", **options)


def _redis(scheme: str, rest: str, options: dict[str, Any]) -> Store:
    from .needs import needed  # noqa: PLC0415

    with needed("redis", "redis"):
        from .redis import RedisStore  # noqa: PLC0415

    return RedisStore(f"{scheme}:{rest}", **options)


def _path(rest: str) -> str:
    parts = urlsplit(f"sqlite:{rest}")
    if not rest.startswith("//") or parts.netloc:
        raise ValueError(f"a SQLite file has no host: use {_FORMS}")
    if parts.query or parts.fragment:
        raise ValueError("options are keyword arguments; ? and # in a name are %3F and %23")
    path = unquote(parts.path[1:], errors="surrogateescape")
    if not path or path.endswith("/") or "\0" in path:
        raise ValueError(f"a SQLite URL names a file: {_FORMS}")
    if path == ":memory:":
        raise ValueError("use memory: instead: several connections do not share :memory:")
    return path


_OPENERS: Final[dict[str, Callable[[str, dict[str, Any]], Store]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "postgres": _postgres,
    **{scheme: partial(_redis, scheme) for scheme in _REDIS},
}

__all__ = [
    "facts_of",
    "open_existing",
    "open_store",
    "schema_status",
    "store_of_client",
    "upgrade",
]
