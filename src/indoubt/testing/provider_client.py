"""Blocking and async calls to the fake provider, for a worker in whatever process it runs.

`act` and `find` say no more than the wire said: a refusal is `ProviderRejected`, an answer that
tells nothing about the effect is `ProviderFailed`, a lost connection is the `ConnectionError` it
was, silence is `TimeoutError`. Nothing is ever sent twice: one call, one connection, one request.
`ConnectionRefusedError` is the one transport error after which nothing can have been sent.
"""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, TypeVar, cast
from urllib.parse import urlsplit

from indoubt.testing import provider_wire as wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

TIMEOUT_S = 10.0
Result_co = TypeVar("Result_co", covariant=True)
LookupStatus = Literal["succeeded", "failed", "not_found", "active", "unknown", "unavailable"]


class Act(TypedDict):
    """An act as the provider knows it: plain JSON, fit to be a receipt."""

    id: str
    key: str
    idempotency_key: str | None
    amount: Any


@dataclass(frozen=True, slots=True)
class Lookup:
    """What the provider said about a key: its status, and the acts it showed, oldest first."""

    status: LookupStatus
    acts: tuple[Act, ...] = ()
    code: str | None = None


class ProviderRejected(Exception):
    """The provider refused: this request had no effect, and ``code`` says why.

    ``exists`` and ``idempotency_key_reused`` say only that *this* request did nothing; an earlier
    one under the same key may have.
    """

    def __init__(self, code: str) -> None:
        """Keep the provider's code."""
        super().__init__(code)
        self.code = code


class ProviderFailed(Exception):
    """The provider answered with an error that says nothing about the effect."""

    def __init__(self, status: int, code: str) -> None:
        """Keep the HTTP status and the provider's code."""
        super().__init__(status, code)
        self.status = status
        self.code = code


class ProbedAttempt(Protocol[Result_co]):
    """What a probe needs of an attempt: what to look up, and makers for what it found."""

    @property
    def key(self) -> str | None: ...
    @property
    def idempotency_key(self) -> str | None: ...
    def succeeded(
        self, result: Mapping[str, Any], external_ref: str | None = None
    ) -> Result_co: ...
    def failed(self, error: Mapping[str, Any]) -> Result_co: ...
    def not_found(self) -> Result_co: ...
    def active(self) -> Result_co: ...
    def unknown(self) -> Result_co: ...
    def unavailable(self) -> Result_co: ...


def act(
    url: str,
    key: str,
    amount: Any,
    *,
    idempotency_key: str | None = None,
    timeout: float = TIMEOUT_S,
) -> Act:
    """Ask the provider to act once for a business key.

    Raises:
        ProviderRejected: this request had no effect.
        ProviderFailed: the answer says nothing about the effect.
        ConnectionError: no answer; the effect may have happened (but see the module's text).
        TimeoutError: no answer in time; it may have happened, or happen later.
    """
    return _acted(
        exchange(url, "POST", "/acts", body=_act(key, amount, idempotency_key), timeout=timeout)
    )


async def act_async(
    url: str,
    key: str,
    amount: Any,
    *,
    idempotency_key: str | None = None,
    timeout: float = TIMEOUT_S,
) -> Act:
    """`act` without blocking; raises the same."""
    body = _act(key, amount, idempotency_key)
    return _acted(await exchange_async(url, "POST", "/acts", body=body, timeout=timeout))


def find(
    url: str, key: str | None, *, idempotency_key: str | None = None, timeout: float = TIMEOUT_S
) -> Lookup:
    """Look up by idempotency key, else by business key; one read-only request.

    Raises:
        ConnectionError: no answer.
        TimeoutError: no answer in time.
    """
    query = _query(key, idempotency_key)
    return _found(exchange(url, "GET", "/acts", query=query, timeout=timeout))


async def find_async(
    url: str,
    key: str | None,
    *,
    idempotency_key: str | None = None,
    timeout: float = TIMEOUT_S,
) -> Lookup:
    """`find` without blocking; raises the same."""
    query = _query(key, idempotency_key)
    return _found(await exchange_async(url, "GET", "/acts", query=query, timeout=timeout))


def async_probe(
    url: str, *, timeout: float = TIMEOUT_S
) -> Callable[[ProbedAttempt[Result_co]], Awaitable[Result_co]]:
    """Make a probe of the provider at `url` that an effect can name; see `report`."""

    async def find_act(attempt: ProbedAttempt[Result_co]) -> Result_co:
        key, idempotency_key = attempt.key, attempt.idempotency_key
        try:
            seen = await find_async(url, key, idempotency_key=idempotency_key, timeout=timeout)
        except OSError:
            return attempt.unavailable()
        return report(attempt, seen)

    return find_act


def blocking_probe(
    url: str, *, timeout: float = TIMEOUT_S
) -> Callable[[ProbedAttempt[Result_co]], Result_co]:
    """`async_probe` for blocking effects."""

    def find_act(attempt: ProbedAttempt[Result_co]) -> Result_co:
        key, idempotency_key = attempt.key, attempt.idempotency_key
        try:
            seen = find(url, key, idempotency_key=idempotency_key, timeout=timeout)
        except OSError:
            return attempt.unavailable()
        return report(attempt, seen)

    return find_act


def report(attempt: ProbedAttempt[Result_co], seen: Lookup) -> Result_co:
    """Say what a lookup means for an attempt.

    An act under the same business key that was sent with another idempotency key is somebody
    else's: that it exists says nothing about this attempt, so the report is `unknown`.
    """
    match seen.status:
        case "succeeded":
            ours = [one for one in seen.acts if _is_ours(one, attempt.idempotency_key)]
            return attempt.succeeded(ours[0], ours[0]["id"]) if ours else attempt.unknown()
        case "failed":
            return attempt.failed({"code": seen.code})
        case "not_found":
            return attempt.not_found()
        case "active":
            return attempt.active()
        case "unknown":
            return attempt.unknown()
        case "unavailable":
            return attempt.unavailable()


def exchange(
    url: str,
    method: str,
    path: str,
    *,
    query: dict[str, str] | None = None,
    body: dict[str, Any] | None = None,
    timeout: float = TIMEOUT_S,
) -> wire.Reply:
    """Send one request and read its answer, in one connection and within one deadline.

    Raises:
        ConnectionError: no whole answer came.
        TimeoutError: none came in time.
    """
    deadline = time.monotonic() + timeout
    with socket.create_connection(_address(url), timeout) as connection:
        connection.sendall(wire.write_request(url, method, path, query or {}, body or {}))
        raw = b""
        while chunk := _receive(connection, deadline):
            raw += chunk
    return wire.read_response(raw)


async def exchange_async(
    url: str,
    method: str,
    path: str,
    *,
    query: dict[str, str] | None = None,
    body: dict[str, Any] | None = None,
    timeout: float = TIMEOUT_S,
) -> wire.Reply:
    """`exchange` without blocking; raises the same."""
    async with asyncio.timeout(timeout):
        reader, writer = await asyncio.open_connection(*_address(url))
        try:
            writer.write(wire.write_request(url, method, path, query or {}, body or {}))
            raw = await reader.read(-1)
        finally:
            # Not waited for: closing must neither hide an error nor outlast the deadline.
            writer.transport.abort()
    return wire.read_response(raw)


def _receive(connection: socket.socket, deadline: float) -> bytes:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    connection.settimeout(left)
    return connection.recv(65536)


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None:
        raise ValueError(f"not the URL of a fake provider: {url!r}")
    return parts.hostname, parts.port or 80


def _act(key: str, amount: Any, idempotency_key: str | None) -> dict[str, Any]:
    return {"key": key, "idempotency_key": idempotency_key, "amount": amount}


def _query(key: str | None, idempotency_key: str | None) -> dict[str, str]:
    given = {"key": key, "idempotency_key": idempotency_key}
    return {name: value for name, value in given.items() if value is not None}


def _acted(reply: wire.Reply) -> Act:
    status, body = reply
    if status == 200:
        return cast("Act", body)
    code = str(body.get("code"))
    if status == 400:
        raise ValueError(f"the provider did not understand the request: {body.get('message')}")
    if status in {402, 409, 422}:
        raise ProviderRejected(code)
    raise ProviderFailed(status, code)


def _found(reply: wire.Reply) -> Lookup:
    _, body = reply
    return Lookup(body.get("status", "unknown"), tuple(body.get("acts", ())), body.get("code"))


def _is_ours(one: Act, idempotency_key: str | None) -> bool:
    return idempotency_key is None or one["idempotency_key"] in {None, idempotency_key}
