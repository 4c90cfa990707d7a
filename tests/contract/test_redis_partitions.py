"""Sixteen partitions, alone and on a Cluster, answer as one store; nothing leaves its slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from tests.servers.fixtures import cluster, redis

from indoubt.errors import SchemaMissing
from indoubt.store import (
    Absent,
    Becomes,
    Conflict,
    DueQuery,
    Lease,
    Put,
    ScanQuery,
    Store,
    Version,
    View,
    Written,
)
from indoubt.stores import open_existing, open_store, schema_status, upgrade
from indoubt.stores.memory import MemoryStore
from indoubt.testing.store_contract.examples import LONG_AGO, batch, events, extend, put, written

COUNT = 60
TAGGED = "sg:delayed_effect:v1:{07}:intent:" + "ab" * 32
PLACES = {"alone": lambda: redis("valkey"), "cluster": cluster}
SENT = (Becomes("prepared", "dispatched", sent=True),)


@pytest.fixture(params=list(PLACES))
def url(request: pytest.FixtureRequest) -> Any:
    with PLACES[request.param]().ledger() as found:
        yield found


@pytest.fixture
async def store(url: str) -> AsyncGenerator[Store]:
    opened = open_store(url)
    yield opened
    await opened.close()


def root(n: int) -> Put:
    """A record that is its own root; each has times and a tenant of its own."""
    name = f"rec_{n * 7919 % 1000:03}"
    return put(
        name,
        root_id=name,
        kind="effect" if n % 3 else "run",
        queue="" if n % 3 or n % 2 else "run:mail",
        state="prepared",
        tenant_id=f"tenant-{n % 2}",
        parent_id=f"parent-{n % 4}" if n % 4 else None,
        ready_at=LONG_AGO + n % 10 if n % 5 else None,
        doubt_since=LONG_AGO + n % 7 if n % 2 else None,
    )


async def both(store: Store) -> Store:
    """The same records in ``store`` and in memory, in the same order of insertion."""
    plain = MemoryStore()
    for n in range(COUNT):
        for one in (store, plain):
            await written(one, root(n))
    return plain


async def listing(store: Store, query: ScanQuery) -> list[str]:
    found: list[str] = []
    while True:
        page = await store.scan(query)
        found += [record.id for record in page.records]
        if page.cursor is None:
            return found
        query = query._replace(after=page.cursor)


QUERIES: dict[str, dict[str, Any]] = {
    "everything": {},
    "kind": {"kinds": ("run",)},
    "tenant": {"tenant_id": "tenant-1"},
    "parent": {"parent_id": "parent-2"},
}


async def test_listings_are_merged_in_order(store: Store) -> None:
    plain = await both(store)
    views: tuple[View, ...] = ("ready", "doubt", "all")
    for view in views:
        for limit in (1, 7, 1000):
            for filters in QUERIES.values():
                query = ScanQuery(view=view, limit=limit, **filters)
                found, expected = await listing(store, query), await listing(plain, query)
                if view == "all":  # of one millisecond, partitions do not know who was first
                    found, expected = sorted(found), sorted(expected)
                assert found == expected, query
    prefix = ScanQuery(id_prefix="rec_1", limit=3)
    assert await listing(store, prefix) == await listing(plain, prefix)
    queues = ScanQuery(view="ready", queues=("run:mail", "effect"), limit=4)
    assert await listing(store, queues) == await listing(plain, queues)
    assert list(await store.queues("run")) == list(await plain.queues("run"))


async def test_what_is_due_is_the_oldest_of_all(store: Store) -> None:
    plain = await both(store)
    for quotas in ((("effect", 5),), (("run", 100), ("effect", 9)), (("run:mail", 2),)):
        found = [(await one.due(DueQuery(quotas))).records for one in (store, plain)]
        assert [r.id for r in found[0]] == [r.id for r in found[1]]


async def test_leases_take_each_record_once_and_fill_their_page(store: Store) -> None:
    names = {f"one-{n}" for n in range(COUNT)}
    for name in sorted(names):
        await written(store, put(name, root_id=name, state="prepared", ready_at=LONG_AGO))

    async def worker(number: int) -> list[str]:
        mine: list[str] = []
        for page in range(COUNT):
            lease = Lease(f"owner-{number}", 40_000, 40_000, SENT, f"{number}.{page}", b"leased")
            taken = (await store.lease(DueQuery((("effect", 7),)), lease)).records
            assert {r.owner for r in taken} <= {f"owner-{number}"}
            if not taken:
                break
            mine += [r.id for r in taken]
        return mine

    alone = await store.lease(
        DueQuery((("effect", 7),)), Lease("o", 40_000, 40_000, SENT, "first", b"leased")
    )
    assert len(alone.records) == 7
    shares = [[r.id for r in alone.records], *await asyncio.gather(*map(worker, range(3)))]
    taken = [name for share in shares for name in share]
    assert (len(taken), set(taken)) == (COUNT, names)
    assert {r.version for r in (await store.read(sorted(names))).records} == {2}
    for name in taken[:3]:
        assert await events(store, name) == [(1, b"event of " + name.encode()), (2, b"leased")]


async def test_a_batch_of_a_root_and_its_children_is_one(store: Store) -> None:
    pair = [put("rec_a", root_id="rec_a"), put("rec_a/1", root_id="rec_a")]
    await written(store, *pair)
    both_moved = [one._replace(expected=Version(1), state="succeeded") for one in pair]
    await written(store, *both_moved)
    await written(store, extend("rec_a/1", root_id="rec_a"))
    assert [r.state for r in (await store.read(["rec_a/1", "rec_a"])).records] == ["succeeded"] * 2


async def test_many_roots_of_one_call_are_judged_each_by_itself(store: Store) -> None:
    await written(store, put("rec_3", root_id="rec_3"))
    batches = [batch(put(f"rec_{n}", root_id=f"rec_{n}")) for n in range(40)]
    answers = await store.write(batches)
    refused = [n for n, answer in enumerate(answers) if isinstance(answer, Conflict)]
    assert refused == [3]
    assert sum(isinstance(answer, Written) for answer in answers) == 39


async def test_the_hash_of_a_delayed_effect_is_stored_under_its_id(url: str) -> None:
    store = open_store(url)
    await written(store, put(TAGGED, root_id=TAGGED, ready_at=LONG_AGO))
    server = redis("valkey") if url.startswith("redis:") else cluster().holder(TAGGED)
    assert server.administer("TYPE", TAGGED) == "hash"
    lease = Lease("o", 40_000, 40_000, (), "w", b"leased")
    (record,) = (await store.lease(DueQuery((("effect", 1),)), lease)).records
    assert (record.id, record.version) == (TAGGED, 2)
    await written(store, put(TAGGED, root_id=TAGGED, expected=Version(2), ready_at=None))
    await store.close()
    server.administer("DEL", TAGGED)


async def test_another_count_of_partitions_is_refused(url: str) -> None:
    await open_store(url).close()
    with pytest.raises(ValueError, match="16 partitions"):
        open_store(url, partitions=8)
    again = open_store(url, partitions=16)
    await written(again, put("rec_b", root_id="rec_b", expected=Absent()))
    await again.close()


async def test_a_ledger_is_made_only_where_that_is_meant(url: str) -> None:
    assert schema_status(url).found is None
    with pytest.raises(SchemaMissing):
        open_existing(url)
    assert upgrade(url).found == schema_status(url).found == 1
    await open_existing(url).close()
