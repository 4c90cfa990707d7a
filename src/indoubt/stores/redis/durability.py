"""Does an acknowledged write survive here? Asked of every master, and never taken for granted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import RedisError, ResponseError

from .faults import trouble
from .nodes import ask

if TYPE_CHECKING:
    from .wire import Wire

UNKNOWN: Final = "?"
NAMES: Final = ("appendonly", "appendfsync", "maxmemory-policy", "min-replicas-to-write")


def durability(wire: Wire) -> tuple[bool, str]:
    """Whether it does on all masters, and one sentence why.

    Raises:
        StoreUnavailable, StoreBroken: a server cannot be asked.
    """
    place = wire.place
    settings = [settings_of(wire, pool) for pool in masters(wire)]
    on = all(known["appendonly"] == "yes" for known in settings)
    always = all(known["appendfsync"] == "always" for known in settings)
    replicas = (
        f" Waits for {place.wait_replicas} replicas; a fail-over to another may still lose it."
        if place.wait_replicas
        else " A fail-over to a replica may lose what was acknowledged last."
    )
    if on and (always or place.wait_aof):
        how = "appendfsync always" if always else "WAITAOF behind each group of writes"
        return True, f"Redis syncs its append-only file before it answers ({how}).{replicas}"
    if any(UNKNOWN in known.values() for known in settings):
        return False, "This user may not read the server's settings (CONFIG GET), so nobody knows."
    found = ", ".join(sorted({f"{n} {k[n]}" for k in settings for n in NAMES[:2]}))
    return False, f"Redis may forget what it has answered ({found}).{replicas}"


def settings_of(wire: Wire, pool: Any) -> dict[str, str]:
    """Some settings of one server; "?" where this user may not know.

    Raises:
        StoreUnavailable, StoreBroken: it cannot be asked.
    """
    try:
        return {name: _setting(pool, name) for name in NAMES}
    except (RedisError, OSError) as error:
        raise trouble(error, wire.place) from error


def masters(wire: Wire) -> list[Any]:
    """Pools of all masters.

    Raises:
        StoreUnavailable, StoreBroken: none is known.
    """
    try:
        return list(wire.nodes.masters())
    except (RedisError, OSError) as error:
        raise trouble(error, wire.place) from error


def _setting(pool: Any, name: str) -> str:
    try:
        found = ask(pool, "CONFIG", "GET", name)
    except ResponseError:
        return UNKNOWN
    words: list[bytes] = [*found.keys(), *found.values()] if isinstance(found, dict) else found  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return words[1].decode() if words else UNKNOWN
