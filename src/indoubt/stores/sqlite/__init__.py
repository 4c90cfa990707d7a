"""The embedded store: SQLite through apsw, which brings a SQLite without the WAL-reset bug."""

from .schema import schema_status, upgrade
from .store import SQLiteStore

__all__ = ["SQLiteStore", "schema_status", "upgrade"]
