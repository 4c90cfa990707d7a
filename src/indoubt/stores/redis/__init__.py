"""The store for many machines on Redis or Valkey, standalone or Cluster, through redis-py."""

from .place import place_of
from .schema import schema_status, upgrade
from .store import RedisStore

__all__ = ["RedisStore", "place_of", "schema_status", "upgrade"]
