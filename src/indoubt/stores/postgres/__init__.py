"""The store for many machines on PostgreSQL, through psycopg 3."""

from .place import place_of
from .schema import schema_status, upgrade
from .store import PostgresStore

__all__ = ["PostgresStore", "place_of", "schema_status", "upgrade"]
