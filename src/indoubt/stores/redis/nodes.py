"""Which server holds a key, and connections to it: one server, one of several, or a Cluster.

Only redis-py's connections are used, never its commands: those send again by themselves.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

import redis as driver
from redis.backoff import NoBackoff
from redis.exceptions import ClusterDownError, ConnectionError, TimeoutError  # noqa: A004
from redis.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .place import Place

# The driver's own types leave much open, so they are not asked here.
py: Final[Any] = driver
CONNECTIONS_MAX: Final = 8
"""Per server and process: one that writes, the readers, and callers without a loop."""


class Nodes(Protocol):
    """Any thread may call."""

    def holder(self, key: str) -> Any:
        """The pool of the server that holds a key."""
        ...

    def at(self, host: str, port: int) -> Any:
        """The pool of a server of the Cluster that another one named."""
        ...

    def look_again(self) -> None:
        """An answer said that the servers have changed."""
        ...

    def masters(self) -> Sequence[Any]:
        """Pools of all servers that take writes."""
        ...

    def close(self) -> None: ...


class Alone:
    """One server; of several that are named, the one that is the master."""

    def __init__(self, pools: Sequence[Any], *, ours: bool) -> None:
        self._pools = pools
        self._ours = ours
        self._lock = threading.Lock()
        self._at: int | None = 0 if len(pools) == 1 else None

    def holder(self, key: str) -> Any:
        del key
        with self._lock:
            if self._at is None:
                self._at = _master(self._pools)
            return self._pools[self._at]

    def at(self, host: str, port: int) -> Any:
        raise ClusterDownError(f"not a Cluster's client: {host}:{port}")

    def look_again(self) -> None:
        for pool in self._pools:
            pool.disconnect(inuse_connections=False)
        if len(self._pools) > 1:
            with self._lock:
                self._at = None

    def masters(self) -> Sequence[Any]:
        return [self.holder("")]

    def close(self) -> None:
        if self._ours:
            for pool in self._pools:
                pool.disconnect()


class Cluster:
    """A Cluster, by redis-py's map of it."""

    def __init__(self, client: Any, *, ours: bool) -> None:
        self._client = client
        self._ours = ours

    def holder(self, key: str) -> Any:
        node = self._client.nodes_manager.get_node_from_slot(self._client.keyslot(key))
        return self._pool(node)

    def at(self, host: str, port: int) -> Any:
        node = self._client.get_node(host=host, port=port)
        if node is None:
            self.look_again()
            node = self._client.get_node(host=host, port=port)
        if node is None:
            raise ClusterDownError("a server that the Cluster's map lacks")
        return self._pool(node)

    def look_again(self) -> None:
        self._client.nodes_manager.initialize()

    def masters(self) -> Sequence[Any]:
        return [self._pool(node) for node in self._client.get_primaries()]

    def close(self) -> None:
        if self._ours:
            self._client.close()

    def _pool(self, node: Any) -> Any:
        return self._client.get_redis_connection(node).connection_pool


def nodes_of(place: Place) -> Nodes:
    """The way to a place's servers; nothing is connected yet, but for a Cluster's map.

    Raises:
        redis.RedisError: none of a Cluster's servers answers.
        TypeError: a client of another kind.
    """
    if place.client is not None:
        return _of_client(place.client, place)
    settings = place.connecting()
    if place.kind == "cluster":
        return _cluster(place.hosts, settings | _tls(place))
    if place.kind == "sentinel":
        guards = py.Sentinel(place.hosts, sentinel_kwargs=_once(_unnamed(settings)))
        pool = py.sentinel.SentinelConnectionPool(
            place.service, guards, ssl=place.tls is not None, **_once(settings), **_tls(place)
        )
        return Alone([pool], ours=True)
    return Alone([_pool(host, port, settings, place) for host, port in place.hosts], ours=True)


def _unnamed(settings: dict[str, Any]) -> dict[str, Any]:
    """A Sentinel has no database, and its users are not the servers'."""
    return {name: value for name, value in settings.items() if name.startswith("socket")}


def _once(settings: dict[str, Any]) -> dict[str, Any]:
    return settings | {"retry": Retry(NoBackoff(), 0)}


def _tls(place: Place) -> dict[str, Any]:
    return {} if place.tls is None else dict(place.tls)


def _pool(host: str, port: int, settings: dict[str, Any], place: Place) -> Any:
    kind = py.Connection if place.tls is None else py.SSLConnection
    return py.BlockingConnectionPool(
        max_connections=CONNECTIONS_MAX,
        timeout=place.patience_ms / 1_000,
        connection_class=kind,
        host=host,
        port=port,
        **_once(settings),
        **_tls(place),
    )


def _cluster(hosts: Sequence[tuple[str, int]], settings: dict[str, Any]) -> Cluster:
    nodes = [py.cluster.ClusterNode(host, port) for host, port in hosts]
    client = py.RedisCluster(
        startup_nodes=nodes,
        require_full_coverage=False,
        **_once(settings),
    )
    return Cluster(client, ours=True)


def _of_client(client: Any, place: Place) -> Nodes:
    """A user's own client. Of an asynchronous one only the settings are used."""
    if isinstance(client, py.RedisCluster):
        return Cluster(client, ours=False)
    if isinstance(client, py.Redis):
        return Alone([client.connection_pool], ours=False)
    if isinstance(client, py.asyncio.RedisCluster):
        nodes = [(node.host, int(node.port)) for node in client.startup_nodes]
        settings = _known(client.connection_kwargs, place)
        settings.pop("db", None)  # a Cluster has one
        return _cluster(nodes, settings)
    if isinstance(client, py.asyncio.Redis):
        known = client.connection_pool.connection_kwargs
        settings = _known(known, place)
        return Alone([_pool(known["host"], known["port"], settings, place)], ours=True)
    raise TypeError(f"a URL, or a client of redis-py, not {type(client).__name__}")


def _known(given: dict[str, Any], place: Place) -> dict[str, Any]:
    names = ("db", "username", "password", "credential_provider")
    settings = {name: given[name] for name in names if given.get(name)}
    return place.connecting() | settings


def _master(pools: Sequence[Any]) -> int:
    """Which of several is the master.

    Raises:
        ConnectionError: none of those that answer.
    """
    for number, pool in enumerate(pools):
        try:
            if _ask(pool, "ROLE")[0] == b"master":
                return number
        except (ConnectionError, TimeoutError):
            continue
    raise ConnectionError("none of these servers is a master")


def _ask(pool: Any, *command: str) -> Any:
    """One command that changes nothing."""
    connection = pool.get_connection()
    try:
        connection.send_command(*command)
        return connection.read_response(disable_decoding=True)
    finally:
        pool.release(connection)


ask: Final[Callable[..., Any]] = _ask
