"""Where the ledger is: a connection URL, a schema in it, and how connections of ours are made."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ...errors import StoreBroken

if TYPE_CHECKING:
    Connection = psycopg.Connection[tuple[Any, ...]]

PATIENCE_MS: Final = 10_000
"""How long a statement may take before the server gives it up."""
LOCK_MS: Final = 2_000
"""How long a write waits for rows that an application's open transaction holds."""
CONNECT_S: Final = 10
_PLANNED: Final = {"enable_bitmapscan": "off", "jit": "off"}
"""Each question of ours has its index, in its order: without statistics (after a restore, or before
the first ANALYZE) the planner would rather collect and sort the whole backlog."""
_SCHEMA: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_OURS: Final = frozenset({"schema", "prepare"})


class _Connection(psycopg.Connection[tuple[Any, ...]]):
    """Ends quietly with a store that nobody closed, as a file does."""

    def __del__(self, *_: Any) -> None:
        pass


class Place(NamedTuple):
    """One ledger: ``url`` as libpq takes it, ``schema`` within, and whether to prepare statements.

    PgBouncer in transaction mode wants ``prepare=never``: nothing is then set on a connection,
    which the next client of the pooler would inherit.
    """

    url: str
    schema: str | None = None
    prepare: bool = True
    patience_ms: int = PATIENCE_MS

    @property
    def shown(self) -> str:
        """For messages: where, without user and password."""
        known = conninfo_to_dict(self.url)
        host = str(known.get("host") or known.get("hostaddr") or "the local socket")
        where = f"{host}:{known['port']}" if known.get("port") else host
        return f"PostgreSQL {known.get('dbname') or ''} at {where}"

    def connect(self) -> Connection:
        """A connection as all of ours are.

        Raises:
            psycopg.Error: none could be made.
        """
        threshold = 0 if self.prepare else None
        known = conninfo_to_dict(self.url)
        settings = {"application_name": "indoubt", "connect_timeout": str(CONNECT_S)}
        if "," in str(known.get("host") or ""):
            settings["target_session_attrs"] = "read-write"  # of several hosts the primary
        settled = make_conninfo(self.url, **{n: v for n, v in settings.items() if n not in known})
        db = _Connection.connect(settled, autocommit=True, prepare_threshold=threshold)
        try:
            if self.prepare:
                self._settle(db)
        except BaseException:
            db.close()
            raise
        return db

    def _settle(self, db: Connection) -> None:
        settings = {"statement_timeout": self.patience_ms, "lock_timeout": LOCK_MS} | _PLANNED
        texts = [f"SET {name} = {value}" for name, value in settings.items()]
        statements = [sql.SQL(text) for text in texts]  # pyright: ignore[reportArgumentType]
        if self.schema is not None:
            statements.append(
                sql.SQL("SET search_path = {}").format(sql.Identifier(self.schema))  # pyright: ignore[reportArgumentType]
            )
        db.execute(sql.SQL("; ").join(statements), prepare=False)


def place_of(url: str, *, patience_ms: int = PATIENCE_MS) -> Place:
    """Read a URL; what is ours in its query is taken out, the rest is libpq's.

    Raises:
        ValueError: a garbled URL; it is not repeated, since it may hold a password.
    """
    parts = urlsplit(url)
    # What is libpq's stays as it was written: to libpq, "+" is no space.
    pairs = [pair.partition("=") for pair in parts.query.split("&") if pair]
    ours = {name: unquote(value) for name, _, value in pairs if name in _OURS}
    query = "&".join(["".join(pair) for pair in pairs if pair[0] not in _OURS])
    plain = urlunsplit(parts._replace(query=query))
    try:
        conninfo_to_dict(plain)
    except psycopg.Error:
        raise ValueError("PostgreSQL cannot read this URL: postgresql://user@server/name") from None
    schema = ours.get("schema")
    if schema is not None and not _SCHEMA.fullmatch(schema):
        raise ValueError("schema: a plain name, of letters, digits and _")
    prepare = ours.get("prepare", "always")
    if prepare not in {"always", "never"}:
        raise ValueError("prepare: always, or never (for PgBouncer)")
    if prepare == "never" and schema is not None:
        raise ValueError(
            "schema: not with prepare=never, where it would be set for whoever uses the pooled"
            " connection next: ALTER ROLE ... SET search_path"
        )
    return Place(plain, schema, prepare == "always", patience_ms)


def broken(place: Place, words: str) -> StoreBroken:
    """What only an operator can mend."""
    return StoreBroken(f"{place.shown}: {words}")
