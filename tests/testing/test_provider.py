"""The fake provider when it behaves: acting, looking up, its clock, its log, its probes."""

from __future__ import annotations

import http.client
import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from indoubt.testing.provider import (
    FakeProvider,
    Lookup,
    ProviderRejected,
    act,
    act_async,
    async_probe,
    blocking_probe,
    find,
    find_async,
)
from indoubt.testing.provider_client import report

NUMBERS = itertools.count()
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def shared() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        yield provider


@pytest.fixture
def key() -> str:
    """A business key of the test's own, so that tests may share one provider."""
    return f"order {next(NUMBERS)} ✓&="


@dataclass(frozen=True)
class Attempt:
    key: str | None
    idempotency_key: str | None = None

    def succeeded(self, result: Any, external_ref: str | None = None) -> tuple[str, Any]:
        return "succeeded", (result["amount"], external_ref)

    def failed(self, error: Any) -> tuple[str, Any]:
        return "failed", error

    def not_found(self) -> tuple[str, Any]:
        return "not_found", None

    def active(self) -> tuple[str, Any]:
        return "active", None

    def unknown(self) -> tuple[str, Any]:
        return "unknown", None

    def unavailable(self) -> tuple[str, Any]:
        return "unavailable", None


def test_an_act_is_counted_per_business_key(shared: FakeProvider, key: str) -> None:
    assert shared.count(key) == 0
    first = act(shared.url, key, 1200)
    second = act(shared.url, key, 1200)
    assert first["id"] != second["id"]
    assert first == {"id": first["id"], "key": key, "idempotency_key": None, "amount": 1200}
    assert shared.count(key) == 2
    assert shared.counts()[key] == 2
    assert find(shared.url, key) == Lookup("succeeded", (first, second))


@pytest.mark.parametrize("amount", [None, 2**70, 1.5, True, "é\0\ud800", [], {"a": {"b": [1]}}])
def test_the_amount_is_any_json(shared: FakeProvider, key: str, amount: object) -> None:
    assert act(shared.url, key, amount)["amount"] == amount
    assert find(shared.url, key).acts[0]["amount"] == amount


def test_what_is_not_json_never_leaves(shared: FakeProvider, key: str) -> None:
    with pytest.raises(ValueError, match="JSON"):
        act(shared.url, key, float("nan"))
    with pytest.raises(ValueError, match="business key"):
        act(shared.url, "", 1)
    assert shared.count(key) == 0


async def test_the_async_calls_say_the_same(shared: FakeProvider, key: str) -> None:
    made = await act_async(shared.url, key, 1, idempotency_key=f"ik {key}")
    assert made == act(shared.url, key, 1, idempotency_key=f"ik {key}")
    seen = await find_async(shared.url, key)
    assert seen == find(shared.url, key, idempotency_key=f"ik {key}")
    assert seen == Lookup("succeeded", (made,))


def test_an_idempotency_key_makes_one_act_of_many(shared: FakeProvider, key: str) -> None:
    def send(_: int) -> str:
        return act(shared.url, key, 5, idempotency_key=f"ik {key}")["id"]

    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(send, range(48)))) == 1
    assert shared.count(key) == 1


def test_without_one_every_request_is_an_act(shared: FakeProvider, key: str) -> None:
    def send(n: int) -> str:
        return act(shared.url, key, n)["id"]

    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(send, range(48)))
    assert len(set(made)) == shared.count(key) == 48


def test_an_idempotency_key_with_other_content_is_refused(shared: FakeProvider, key: str) -> None:
    act(shared.url, key, 1, idempotency_key=f"ik {key}")
    for other in (True, 1.0, 2):
        with pytest.raises(ProviderRejected, match="idempotency_key_reused"):
            act(shared.url, key, other, idempotency_key=f"ik {key}")
    assert shared.count(key) == 1


def test_s29_read_lag_hides_new_objects_but_not_from_the_count() -> None:
    lag = timedelta(milliseconds=800)
    with FakeProvider(not_found_lag=lag, manual_clock=True) as provider:
        act(provider.url, "box", 1, idempotency_key="submission-1")
        seen = list[str]()
        for at_ms in (0, 400, 1200):
            start = provider.log()[0]["at_ms"]
            provider.clock.advance(timedelta(milliseconds=start + at_ms - provider.clock.now_ms()))
            by_key = find(provider.url, "box").status
            assert find(provider.url, None, idempotency_key="submission-1").status == by_key
            seen.append(by_key)
        assert seen == ["not_found", "not_found", "succeeded"]
        assert provider.count("box") == 1


@pytest.mark.parametrize(
    ("retention", "after", "effects"),
    [
        (None, 10_000 * HOUR, 1),
        (24 * HOUR, HOUR, 1),
        (24 * HOUR, 24 * HOUR - timedelta(milliseconds=1), 1),
        (24 * HOUR, 24 * HOUR, 2),
        (timedelta(0), timedelta(0), 2),
    ],
)
def test_s33_an_idempotency_key_is_honoured_for_its_time(
    retention: timedelta | None, after: timedelta, effects: int
) -> None:
    with FakeProvider(key_retention=retention, manual_clock=True) as provider:
        act(provider.url, "order-7", 1, idempotency_key="ik")
        provider.clock.advance(after)
        found = find(provider.url, None, idempotency_key="ik").status
        assert found == ("succeeded" if effects == 1 else "not_found")
        act(provider.url, "order-7", 1, idempotency_key="ik")
        assert provider.count("order-7") == effects


def test_the_clock_moves_forward_only() -> None:
    with FakeProvider(manual_clock=True) as provider:
        before = provider.clock.now_ms()
        assert provider.clock.now_ms() == before
        with pytest.raises(ValueError, match="backwards"):
            provider.clock.advance(timedelta(milliseconds=-1))
        provider.clock.advance(HOUR)
        assert provider.clock.now_ms() == before + 3_600_000


def test_the_log_says_what_was_asked_and_done(key: str) -> None:
    with FakeProvider() as provider:
        made = act(provider.url, key, 1, idempotency_key="ik")
        act(provider.url, key, 1, idempotency_key="ik")
        find(provider.url, key)
        find(provider.url, "another")
        provider.count(key)
        log = provider.log()
    assert [(entry["request"], entry["mutates"], entry["answer"]) for entry in log] == [
        ("act", True, "200"),
        ("act", True, "200"),
        ("find", False, "200"),
        ("find", False, "404"),
    ]
    assert [entry["did"] for entry in log] == [
        [f"{made['id']} happened"],
        [f"repeated {made['id']}"],
        [],
        [],
    ]
    assert [entry["n"] for entry in log] == [1, 2, 3, 4]


async def test_mutations_during_tells_a_probe_from_an_act(shared: FakeProvider, key: str) -> None:
    attempt = Attempt(key, f"ik {key}")
    act(shared.url, key, 1, idempotency_key=f"ik {key}")
    blocking = blocking_probe(shared.url)
    assert shared.mutations_during(lambda: blocking(attempt)) == 0
    assert shared.mutations_during(lambda: shared.probe(attempt)) == 0
    # It changes nothing, yet it asked to act: no probe may do that.
    again = lambda: act_async(shared.url, key, 1, idempotency_key=f"ik {key}")  # noqa: E731
    assert shared.mutations_during(again) == 1
    assert shared.mutations_during(lambda: _raw(shared.url, "DELETE", "/acts")) == 1
    assert shared.count(key) == 1


def test_what_the_call_raises_is_raised(shared: FakeProvider, key: str) -> None:
    async def broken() -> None:
        await find_async(shared.url, key)
        raise KeyError(key)

    with pytest.raises(KeyError):
        shared.mutations_during(broken)


def _raw(url: str, method: str, path: str, body: bytes = b"") -> int:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=5)
    try:
        connection.request(method, path, body)
        return connection.getresponse().status
    finally:
        connection.close()


# -- probes ------------------------------------------------------------------------------------


async def test_a_probe_reports_what_the_lookup_says(shared: FakeProvider, key: str) -> None:
    attempt = Attempt(key, f"ik {key}")
    assert await shared.probe(attempt) == ("not_found", None)
    made = act(shared.url, key, 7, idempotency_key=f"ik {key}")
    assert await shared.probe(attempt) == ("succeeded", (7, made["id"]))
    assert blocking_probe(shared.url)(attempt) == ("succeeded", (7, made["id"]))
    assert await async_probe(shared.url)(Attempt(key)) == ("succeeded", (7, made["id"]))
    assert await shared.probe(Attempt(None, f"ik {key}")) == ("succeeded", (7, made["id"]))


def test_an_act_sent_without_idempotency_key_is_found_by_business_key(
    shared: FakeProvider, key: str
) -> None:
    made = act(shared.url, key, 7)
    probe = blocking_probe(shared.url)
    assert probe(Attempt(key, "never sent")) == ("succeeded", (7, made["id"]))


def test_an_act_of_another_idempotency_key_proves_nothing(shared: FakeProvider, key: str) -> None:
    act(shared.url, key, 7, idempotency_key=f"somebody else {key}")
    probe = blocking_probe(shared.url)
    assert probe(Attempt(key, f"ik {key}")) == ("unknown", None)
    made = act(shared.url, key, 8, idempotency_key=f"ik {key}")
    assert probe(Attempt(key, f"ik {key}")) == ("succeeded", (8, made["id"]))


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (Lookup("failed", code="declined"), ("failed", {"code": "declined"})),
        (Lookup("active"), ("active", None)),
        (Lookup("unknown"), ("unknown", None)),
        (Lookup("unavailable"), ("unavailable", None)),
        (Lookup("not_found"), ("not_found", None)),
    ],
)
def test_each_status_has_its_maker(seen: Lookup, expected: tuple[str, Any]) -> None:
    assert report(Attempt("order-7"), seen) == expected


async def test_a_dead_provider_is_unavailable() -> None:
    with FakeProvider() as provider:
        provider.kill()
        assert await provider.probe(Attempt("order-7")) == ("unavailable", None)
        assert blocking_probe(provider.url)(Attempt("order-7")) == ("unavailable", None)
        with pytest.raises(ConnectionRefusedError):
            act(provider.url, "order-7", 1)
        with pytest.raises(ConnectionRefusedError):
            await act_async(provider.url, "order-7", 1)


# -- plain HTTP, for clients that are not ours -----------------------------------------------


def test_other_http_clients_may_keep_the_connection(shared: FakeProvider, key: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(shared.url).netloc, timeout=5)
    for _ in range(3):
        connection.request("POST", "/acts", json.dumps({"key": key, "amount": [1]}))
        reply = connection.getresponse()
        assert (reply.status, json.loads(reply.read())["key"]) == (200, key)
    connection.close()
    assert shared.count(key) == 3


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/acts", b"{", 400),
        ("POST", "/acts", b"[]", 400),
        ("POST", "/acts", b'{"amount": 1}', 400),
        ("POST", "/acts", b'{"key": "k", "amount": NaN}', 400),
        ("POST", "/acts", b'{"key": "k", "idempotency_key": 7}', 400),
        ("POST", "/acts", b'{"key": "k", "idempotency_key": ""}', 400),
        ("POST", "/nowhere", b"", 404),
        ("GET", "/faults/none", b"", 404),
        ("POST", "/faults", b'{"behaviour": "explode"}', 400),
        ("POST", "/clock", b"{}", 400),
    ],
)
def test_bad_requests_are_answered_and_do_nothing(
    shared: FakeProvider, method: str, path: str, body: bytes, status: int
) -> None:
    before = shared.counts()
    assert _raw(shared.url, method, path, body) == status
    assert shared.counts() == before


@pytest.mark.parametrize("url", ["https://127.0.0.1:1", "127.0.0.1:80", ""])
def test_an_address_of_something_else_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="fake provider"):
        act(url, "order-7", 1)
