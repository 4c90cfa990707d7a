"""What ``indoubt doctor`` says of a Redis: asked of every master, here and now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError, ResponseError

from ..facts import Fact
from .durability import UNKNOWN, masters, settings_of
from .faults import trouble
from .nodes import ask

if TYPE_CHECKING:
    from .store import RedisStore


def facts(store: RedisStore) -> tuple[Fact, ...]:
    """Versions, what happens when memory is full, copies, and a Cluster's state.

    Raises:
        StoreUnavailable, StoreBroken: a server cannot be asked.
    """
    wire = store.wire
    pools = masters(wire)
    settings = [settings_of(wire, pool) for pool in pools]
    try:
        infos = [_info(pool) for pool in pools]
        cluster = _cluster(pools[0])
    except (RedisError, OSError) as error:
        raise trouble(error, wire.place) from error
    found = [
        _versions(infos),
        _eviction({known["maxmemory-policy"] for known in settings}),
        _copies(infos, {known["min-replicas-to-write"] for known in settings}),
        Fact("partitions", store.meta.partitions, f"{store.meta.partitions} partitions"),
    ]
    return (*found, cluster) if cluster else tuple(found)


def _info(pool: Any) -> dict[str, str]:
    """INFO as text; empty where this user may not know."""
    try:
        text = ask(pool, "INFO")
    except ResponseError:
        return {}
    lines = [line.partition(":") for line in text.decode("utf-8", "replace").splitlines()]
    return {name: value for name, colon, value in lines if colon}


def _versions(infos: list[dict[str, str]]) -> Fact:
    named = sorted(
        {info.get("valkey_version") or info.get("redis_version", UNKNOWN) for info in infos}
    )
    return Fact("server", named, f"{len(infos)} masters, version {', '.join(named)}")


def _eviction(policies: set[str]) -> Fact:
    named = sorted(policies)
    if policies == {"noeviction"}:
        return Fact("eviction", named, "none: where memory is full, writes are refused")
    if policies == {UNKNOWN}:
        return Fact("eviction", named, "not known: this user may not read the settings", "note")
    words = f"maxmemory-policy {', '.join(named)}: records may vanish; set it to noeviction"
    return Fact("eviction", named, words, "bad")


def _copies(infos: list[dict[str, str]], least: set[str]) -> Fact:
    counts = [int(info.get("connected_slaves", 0)) for info in infos]
    value = {"replicas": counts, "min_replicas_to_write": sorted(least)}
    if not any(counts):
        return Fact("replicas", value, "none: the data is as safe as this machine", "note")
    words = (
        f"{min(counts)} or more per master, min-replicas-to-write {', '.join(sorted(least))}: a"
        " fail-over may lose what was acknowledged last"
    )
    return Fact("replicas", value, words, "note")


def _cluster(pool: Any) -> Fact | None:
    """The Cluster's state; None of a server alone."""
    try:
        text = ask(pool, "CLUSTER", "INFO").decode()
    except ResponseError:
        return None
    fine = "cluster_state:ok" in text
    words = "all slots are served" if fine else "some slots are not served"
    return Fact("cluster", fine, words, "fine" if fine else "bad")
