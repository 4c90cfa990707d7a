"""The Redis store where servers and connections fail: nothing twice, no false word."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest
import redis as driver
from tests.servers.cluster import Cluster
from tests.servers.fixtures import redis
from tests.servers.processes import wait_for
from tests.servers.redis import Redis

from indoubt.errors import (
    AnswerLost,
    SchemaMissing,
    SchemaTooNew,
    StoreBroken,
    StoreError,
    StoreRewound,
    StoreUnavailable,
)
from indoubt.store import Conflict, DueQuery, Lease, Store, Version, Written
from indoubt.stores import open_existing, open_store, schema_status, upgrade
from indoubt.stores.redis import RedisStore
from indoubt.testing.store_contract.examples import (
    LONG_AGO,
    answered,
    batch,
    events,
    put,
    stored,
    written,
)

SECRET = "correct-horse"  # noqa: S105
FEW = 8
client_of: Any = driver.Redis


class Proxy:
    """Passes everything on; from ``swallow()`` on it cuts the connection instead of answering."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.swallowing = 0
        self.swallowed = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self, count: int) -> None:
        self.swallowing = count

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self._target))
        with client, server:
            while asked := client.recv(1 << 20):
                server.sendall(asked)
                answer = server.recv(1 << 20)
                if b"EVALSHA" in asked and self.swallowing and not answer.startswith(b"-NOSCRIPT"):
                    self.swallowing -= 1
                    self.swallowed += 1
                    return
                client.sendall(answer)


@pytest.fixture
def server() -> Generator[Redis]:
    """A server of the test's own, which it may harm."""
    made = Redis("valkey")
    made.start()
    yield made
    made.remove()


@pytest.fixture
async def store(server: Redis) -> AsyncGenerator[Store]:
    opened = open_store(server.url)
    yield opened
    await opened.close()


def own(name: str, **changes: Any) -> Any:
    return put(name, root_id=name, **changes)


async def test_an_answer_that_was_swallowed_is_doubt_and_its_repeat_is_known() -> None:
    proxy = Proxy(redis("valkey").port)
    with redis("valkey").ledger() as url:
        store = open_store(url.replace(redis("valkey").address, f"127.0.0.1:{proxy.port}"))
        await written(store, own("warm"))
        insert = batch(own("a"))
        proxy.swallow(1)
        assert isinstance(await answered(store, insert), AnswerLost)
        assert proxy.swallowed == 1
        again = await written(store, insert)
        assert (again.repeated, again.superseded) == (True, False)
        assert await events(store) == [(1, b"event of a")]
        proxy.swallow(1)
        with pytest.raises(StoreUnavailable):
            await store.read(["a"])
        await store.close()
    proxy.close()


async def test_a_client_that_sends_again_by_itself_writes_once() -> None:
    """Its connections are used, its commands and so its retries are not."""
    proxy = Proxy(redis("valkey").port)
    client = client_of(port=proxy.port, decode_responses=True)
    with redis("valkey").ledger() as url:
        namespace = url.rpartition("=")[2]
        store = RedisStore(client, namespace=namespace)
        await written(store, own("b", ready_at=LONG_AGO, state="prepared"))
        update = batch(own("b", expected=Version(1), ready_at=LONG_AGO))
        proxy.swallow(1)
        assert isinstance(await answered(store, update), AnswerLost)
        assert (await written(store, update)).repeated
        assert (await stored(store, "b")).version == 2
        await store.close()
        assert client.ping()
    client.close()
    proxy.close()


async def test_a_lease_that_is_sent_again_gives_the_first_page() -> None:
    with redis("valkey").ledger(partitions=1) as url:
        store = open_store(url)
        for n in range(FEW):
            await written(store, own(f"r{n}", ready_at=LONG_AGO + n))
        query = DueQuery((("effect", 3),))
        lease = Lease("o", 40_000, 40_000, (), "same", b"leased")
        first = await store.lease(query, lease)
        again = await store.lease(query, lease)
        assert [r.id for r in first.records] == ["r0", "r1", "r2"]
        assert {r.id: r.fence for r in again.records} == {r.id: r.fence for r in first.records}
        assert (await stored(store, "r3")).version == 1
        await store.close()


async def test_scripts_that_the_server_forgot_are_loaded_again(store: Store, server: Redis) -> None:
    await written(store, own("a"))
    server.administer("SCRIPT", "FLUSH")
    batches = [batch(own(f"r{n}")) for n in range(FEW)]
    assert all(isinstance(answer, Written) for answer in await store.write(batches))
    server.administer("SCRIPT", "FLUSH")
    assert len((await store.read([f"r{n}" for n in range(FEW)])).records) == FEW


async def test_what_was_acknowledged_survives_a_kill(store: Store, server: Redis) -> None:
    assert store.capabilities.durable
    kept: list[str] = []

    async def write_on() -> None:
        for n in range(10_000):
            answer = await answered(store, own(f"r{n}"))
            if isinstance(answer, StoreError):
                assert isinstance(answer, StoreUnavailable)
                return
            kept.append(f"r{n}")

    writing = asyncio.create_task(write_on())
    while len(kept) < 3 * FEW:
        await asyncio.wait({writing}, timeout=0.01)
    server.kill()
    await writing
    server.start()
    assert [r.id for r in (await store.read(kept[:1000])).records] == kept[:1000]
    assert isinstance(await answered(store, own(kept[0])), Conflict)


async def test_a_server_that_hangs_is_given_up(server: Redis) -> None:
    store = open_store(server.url, patience_ms=300)
    await written(store, own("a"))
    server.pause()
    assert isinstance(await answered(store, own("b")), AnswerLost)
    server.go_on()
    wait_for("the server", lambda: server.administer("PING") is not None)
    await written(store, own("c"))
    await store.close()


async def test_memory_that_is_full_writes_nothing_and_says_so(store: Store, server: Redis) -> None:
    await written(store, own("a"))
    server.configure(maxmemory="1mb")
    both = batch(put("a", root_id="a", expected=Version(1)), put("a/1", root_id="a"))
    answer = await answered(store, both)
    assert isinstance(answer, StoreBroken)
    assert "maxmemory" in str(answer)
    assert (await stored(store)).version == 1
    assert (await store.read(["a/1"])).records == ()
    server.configure(maxmemory="0")
    await written(store, both)


async def test_a_key_of_another_program_is_not_touched(store: Store, server: Redis) -> None:
    tagged = "shop:{03}:intent:" + "0" * 64
    for kind in ("hash", "string"):
        server.administer("DEL", tagged)
        words = ("HSET", tagged, "mine", "1") if kind == "hash" else ("SET", tagged, "mine")
        server.administer(*words)
        assert isinstance(await answered(store, own(tagged)), StoreBroken)
        assert server.administer("TYPE", tagged) == kind
    assert server.administer("GET", tagged) == "mine"


async def test_a_flush_under_an_open_store_stops_it(store: Store, server: Redis) -> None:
    await written(store, own("a"))
    server.administer("FLUSHALL")
    assert isinstance(await answered(store, own("a")), StoreRewound)
    assert isinstance(await answered(store, own("b")), StoreRewound)
    with pytest.raises(StoreRewound):
        await store.read(["a"])
    assert server.administer("DBSIZE") == 0


async def test_a_lost_partition_is_noticed_and_opens_a_new_epoch(server: Redis) -> None:
    store = open_store(server.url)
    await written(store, own("a"))
    epoch = (await store.read(["a"])).epoch
    await store.close()
    server.administer("DEL", "indoubt:{05}:meta")
    with pytest.raises(StoreRewound, match="5"):
        open_store(server.url)
    upgrade(server.url)
    again = open_existing(server.url)
    found = await again.read(["a"])
    assert (found.epoch, [r.id for r in found.records]) == (epoch + 1, ["a"])
    await again.close()


async def test_a_replica_that_lacks_writes_is_noticed(server: Redis) -> None:
    """The loss bound of a fail-over: what was not copied. No holder goes on with what it held."""
    copy = Redis("valkey")
    copy.start()
    try:
        store = open_store(f"redis://{server.address},{copy.address}")
        await written(store, own("a"))
        copy.follow(server)
        await written(store, own("a", expected=Version(1), fence=12))
        wait_for("the copy", lambda: _copied(server))
        copy.promote()  # what comes now is acknowledged, and never copied
        await written(store, own("a", expected=Version(2), fence=13, owner="owner-13"))
        server.kill()
        answer = await answered(store, own("a", expected=Version(3), fence=13, owner="owner-13"))
        assert isinstance(answer, StoreUnavailable)  # the server that is gone
        answer = await answered(store, own("a", expected=Version(3), fence=13, owner="owner-13"))
        assert isinstance(answer, StoreRewound)
        await store.close()
        other = open_existing(copy.url)
        record = await stored(other)
        assert (record.fence, record.version) == (12, 2)
        assert isinstance(await answered(other, own("a", expected=Version(3), fence=13)), Conflict)
        await other.close()
    finally:
        copy.remove()


def _copied(server: Redis) -> bool:
    info = server.administer("INFO", "replication")
    return bool(info["slave0"]["offset"] == info["master_repl_offset"])


async def test_a_write_waits_for_as_many_copies_as_asked(server: Redis) -> None:
    await open_store(server.url).close()
    store = open_store(f"{server.url}?wait_replicas=1", patience_ms=400)
    assert isinstance(await answered(store, own("a")), AnswerLost)
    copy = Redis("valkey")
    copy.start()
    try:
        copy.follow(server)
        patient = open_store(f"{server.url}?wait_replicas=1")
        await written(patient, own("b"))
        await patient.close()
    finally:
        copy.remove()
    await store.close()


async def test_a_store_that_does_not_sync_says_so(server: Redis) -> None:
    server.configure(appendfsync="everysec")
    store = open_store(server.url)
    assert not store.capabilities.durable
    assert "everysec" in store.capabilities.durable_why
    await store.close()


async def test_a_newer_ledger_is_refused(store: Store, server: Redis) -> None:
    await written(store, own("a"))
    for partition in range(16):
        server.administer("HSET", f"indoubt:{{{partition:02}}}:meta", "schema", "2")
    assert isinstance(await answered(store, own("b")), SchemaTooNew)
    with pytest.raises(SchemaTooNew):
        await store.read(["a"])
    with pytest.raises(SchemaTooNew):
        open_store(server.url)
    assert schema_status(server.url).found == 2


async def test_no_message_tells_a_password(server: Redis) -> None:
    server.configure(requirepass=SECRET)
    for url in (f"redis://:wrong-{SECRET}@{server.address}", f"redis://x:{SECRET}@127.0.0.1:1"):
        with pytest.raises(StoreError) as caught:
            open_store(url)
        assert SECRET not in str(caught.value)
    store = open_store(f"redis://:{SECRET}@{server.address}")
    await written(store, own("a"))
    await store.close()
    with client_of(port=server.port, password=SECRET) as client:
        client.config_set("requirepass", "")


async def test_the_least_rights_that_are_documented_suffice(server: Redis) -> None:
    rights = ["~indoubt:*", "&indoubt:wakes", "-@all", "+@hash", "+@string", "+@list"]
    rights += ["+@sortedset", "+@scripting", "+del", "+exists", "+time", "+publish", "+subscribe"]
    rights += ["+ping", "+role", "+wait", "+config|get", "+client|setinfo", "+info", "-flushall"]
    server.administer("ACL", "SETUSER", "ledger", "on", f">{SECRET}", *rights)
    store = open_store(f"redis://ledger:{SECRET}@{server.address}")
    assert store.capabilities.durable
    await written(store, own("a", ready_at=LONG_AGO))
    lease = Lease("o", 40_000, 40_000, (), "w", b"leased")
    assert len((await store.lease(DueQuery((("effect", 1),)), lease)).records) == 1
    await store.close()
    with pytest.raises(StoreBroken, match="this user may not"):
        open_store(f"redis://ledger:{SECRET}@{server.address}?namespace=other")


async def test_one_master_down_leaves_the_others_at_work() -> None:
    servers = Cluster(replicas=False)
    servers.start()
    try:
        store = open_store(servers.url, patience_ms=2_000)
        names = [f"rec_{n}" for n in range(30)]
        down = servers.nodes[1]
        down.kill(signal.SIGKILL)
        due = [batch(own(name, ready_at=LONG_AGO)) for name in names]
        answers = await store.write(due)
        failed = [answer for answer in answers if isinstance(answer, StoreUnavailable)]
        assert 0 < len(failed) < len(names)
        landed = [n for n, a in zip(names, answers, strict=True) if isinstance(a, Written)]
        assert len(failed) + len(landed) == len(names)
        assert len((await store.read(landed)).records) == len(landed)
        lease = Lease("o", 40_000, 40_000, (), "w", b"leased")
        taken = await store.lease(DueQuery((("effect", 100),)), lease)
        assert {r.id for r in taken.records} == set(landed)
        await store.close()
    finally:
        servers.remove()


async def test_there_is_no_ledger_after_a_fork(store: Store) -> None:
    await written(store, own("a"))
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child
        try:
            store.write_blocking([batch(own("b"))])  # type: ignore[attr-defined]
        except BaseException as error:  # noqa: BLE001
            os._exit(7 if type(error).__name__ == "ForkedHandle" else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7  # noqa: ASYNC222
    with pytest.raises(SchemaMissing):
        open_existing(redis("valkey").url + "?namespace=none")
