"""A Cluster of masters and replicas, put together by plain commands."""

from __future__ import annotations

import itertools
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import redis as driver

from .processes import free_port, wait_for
from .redis import Redis

MASTERS = 3
SLOTS = 16_384
NODE_TIMEOUT_MS = 1_000
_names = itertools.count(1)
map_of: Any = driver.RedisCluster


class Cluster:
    """Three masters with a replica each."""

    def __init__(self, version: str = "valkey", *, replicas: bool = True) -> None:
        count = MASTERS * (2 if replicas else 1)
        self.nodes = [
            Redis(
                version,
                cluster_enabled="yes",
                cluster_port=str(free_port()),
                cluster_node_timeout=str(NODE_TIMEOUT_MS),
                cluster_require_full_coverage="no",
            )
            for _ in range(count)
        ]

    @property
    def masters(self) -> list[Redis]:
        """Those that were masters at the beginning."""
        return self.nodes[:MASTERS]

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        for number, node in enumerate(self.nodes, 1):
            node.administer("CLUSTER", "SET-CONFIG-EPOCH", number)
        first = self.nodes[0]
        for node in self.nodes[1:]:
            bus = node.command[node.command.index("--cluster-port") + 1]
            first.administer("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        for number, node in enumerate(self.masters):
            low, high = number * SLOTS // MASTERS, (number + 1) * SLOTS // MASTERS - 1
            node.administer("CLUSTER", "ADDSLOTSRANGE", low, high)
        wait_for("the Cluster", lambda: all(self._joined(node) for node in self.nodes))
        for number, node in enumerate(self.nodes[MASTERS:]):
            master = self.masters[number].administer("CLUSTER", "MYID")
            wait_for("a replica", lambda n=node, m=master: _follow(n, str(m)))
        wait_for("all replicas", lambda: all(n.is_copied() for n in self.nodes[MASTERS:]))

    def _joined(self, node: Redis) -> bool:
        info = str(node.administer("CLUSTER", "INFO"))
        return "cluster_state:ok" in info and f"cluster_known_nodes:{len(self.nodes)}" in info

    def holder(self, key: str) -> Redis:
        """Whichever holds a key's slot."""
        slot = int(self.masters[0].administer("CLUSTER", "KEYSLOT", key))
        low = next(n for n in range(MASTERS) if slot < (n + 1) * SLOTS // MASTERS)
        return self.masters[low]

    def remove(self) -> None:
        for node in self.nodes:
            node.remove()

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join([node.address for node in self.nodes])

    @contextmanager
    def ledger(self, **options: str | int) -> Generator[str]:
        """A place for a ledger, as a URL; removed afterwards."""
        given = {"namespace": f"test-{os.getpid()}-{next(_names)}"} | options
        query = "&".join([f"{name}={value}" for name, value in given.items()])
        yield f"{self.url}?{query}"
        with map_of(host="127.0.0.1", port=self.nodes[0].port) as client:
            for key in client.scan_iter(match=f"{given['namespace']}:*", count=1_000):
                client.delete(key)


def _follow(node: Redis, master: str) -> bool:
    try:
        node.administer("CLUSTER", "REPLICATE", master)
    except driver.ResponseError:  # the new node does not know its master yet
        return False
    return True
