"""A client that the user's program has anyway serves as well as a URL, whatever its settings."""

from __future__ import annotations

from typing import Any

import pytest
import redis as driver
from tests.servers.fixtures import cluster, redis

from indoubt.stores import store_of_client
from indoubt.stores.redis import RedisStore
from indoubt.testing.store_contract.examples import put, stored, written

py: Any = driver


def client(kind: str) -> Any:
    """A client of redis-py with its defaults, retries among them."""
    alone, first = redis("valkey").port, cluster().nodes[0].port
    return {
        "blocking": lambda: py.Redis(port=alone),
        "decoding": lambda: py.Redis(port=alone, decode_responses=True, protocol=3),
        "async": lambda: py.asyncio.Redis(port=alone, decode_responses=True),
        "cluster": lambda: py.RedisCluster(host="127.0.0.1", port=first, decode_responses=True),
        "async cluster": lambda: py.asyncio.RedisCluster(host="127.0.0.1", port=first),
    }[kind]()


@pytest.mark.parametrize("kind", ["blocking", "decoding", "async", "cluster", "async cluster"])
async def test_any_client_of_the_driver_will_do(kind: str) -> None:
    given = client(kind)
    store = RedisStore(given, namespace=f"test-{kind.replace(' ', '-')}")
    record = put("rec_a", root_id="rec_a")
    await written(store, record)
    assert (await stored(store, "rec_a")).body == record.body
    await store.close()
    pinged = given.ping()  # it is its user's still
    if kind.startswith("async"):
        assert await pinged
        await given.aclose()
    else:
        assert pinged
        given.close()


def test_what_is_no_client_is_none() -> None:
    assert store_of_client(object()) is None
    with pytest.raises(TypeError, match="redis-py"):
        RedisStore(object())
