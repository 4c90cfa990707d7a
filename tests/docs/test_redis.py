"""What docs/redis.md shows is what happens, on a real server."""

from __future__ import annotations

from typing import Any

from tests.docs.pages import run_page
from tests.servers.fixtures import redis, redis_versions


async def test_its_code_runs() -> None:
    server = redis(redis_versions()[0])
    with server.ledger() as url:
        names: dict[str, Any] = {"REDIS_URL": url, "done": [], "__name__": "shop"}
        assert await run_page("docs/redis.md", names) == 2
    assert names["done"] == [7]
    names["administrator"].flushall()
    names["administrator"].close()
