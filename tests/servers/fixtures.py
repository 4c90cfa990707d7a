"""The servers of one test session, started when first asked for."""

from __future__ import annotations

import atexit
import os
from functools import cache

from . import redis as redis_servers
from .cluster import Cluster
from .postgres import Postgres, versions
from .redis import Redis


def postgres_versions() -> list[str]:
    """Majors to test on; a server that the environment names stands for all of them."""
    return ["given"] if os.environ.get("INDOUBT_TEST_POSTGRES") else list(versions())


@cache
def postgres(version: str) -> Postgres:
    """The session's server of this version."""
    server = Postgres(version)
    atexit.register(server.remove)
    server.start()
    return server


def redis_versions() -> list[str]:
    """Servers of every kind that is here."""
    return list(redis_servers.versions())


@cache
def redis(version: str) -> Redis:
    """The session's server of this kind."""
    server = Redis(version)
    atexit.register(server.remove)
    server.start()
    return server


@cache
def cluster(version: str = "valkey") -> Cluster:
    """The session's Cluster."""
    servers = Cluster(version)
    atexit.register(servers.remove)
    servers.start()
    return servers
