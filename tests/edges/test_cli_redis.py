"""The commands on a ledger in Redis."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from typing import Any

import pytest
from tests.servers.fixtures import cluster, redis

from indoubt import Ledger, OutcomeUnknown


@pytest.fixture
def url() -> Generator[str]:
    with redis("valkey").ledger() as found:
        yield found


def run(*words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "indoubt.cli", *words, "--json"], capture_output=True, check=False
    )
    assert done.returncode in {0, 1, 2, 3}, done.stderr
    return json.loads(done.stdout) if done.stdout else done.returncode


def itself(order: str) -> str:
    return order


async def doubt(url: str) -> str:
    """One act that nobody knows the end of; its record's id."""
    ledger = Ledger(url)

    @ledger.effect(safety="non_idempotent", key=itself, name="pay")
    async def pay(order: str) -> None:
        raise ConnectionResetError(order)

    with pytest.raises(OutcomeUnknown) as caught:
        await pay("order-1")
    await ledger.close()
    return caught.value.record_id


async def test_a_person_finds_decides_and_closes(url: str) -> None:
    record_id = await doubt(url)
    items = run("inbox", "--store", url)
    assert record_id in json.dumps(items)
    assert record_id in json.dumps(run("show", record_id[:12], "--store", url))
    run("recover", "--store", url)
    ledger = Ledger(url)
    (item,) = (await ledger.in_doubt()).items
    assert item.record_id == record_id
    words = ("happened", "--receipt", '{"id": "r1"}', "--actor", "ana", "--reason", "seen")
    run("decide", item.ref, *words, "--store", url)
    assert (await ledger.get(record_id)).state == "succeeded"
    assert (await ledger.in_doubt()).items == ()
    await ledger.close()


async def test_doctor_says_what_this_server_promises(url: str) -> None:
    await doubt(url)
    found = run("doctor", "--store", url)["findings"]
    assert found["durable"]["value"] is True
    assert found["eviction"]["value"] == ["noeviction"]
    assert found["partitions"]["value"] == 16
    assert found["replicas"]["level"] == "note"
    assert "cluster" not in found


async def test_doctor_calls_eviction_bad(url: str) -> None:
    await doubt(url)
    server = redis("valkey")
    server.configure(maxmemory_policy="allkeys-lru")
    try:
        assert run("doctor", "--store", url)["findings"]["eviction"]["level"] == "bad"
    finally:
        server.configure(maxmemory_policy="noeviction")


async def test_doctor_looks_at_every_master_of_a_cluster() -> None:
    with cluster().ledger() as url:
        await doubt(url)
        found = run("doctor", "--store", url)["findings"]
    assert found["cluster"]["value"] is True
    assert found["replicas"]["value"]["replicas"] == [1, 1, 1]


def test_db_says_which_schema_there_is(url: str) -> None:
    assert run("db", "status", "--store", url)["exit_code"] == 3
    assert run("db", "upgrade", "--store", url)["found"] == 1
    assert run("db", "status", "--store", url) == {"found": 1, "latest": 1, "pending": []}
