"""The few bytes of HTTP that the fake provider speaks: pure functions, shared by all its sides.

Blocking client, async client and server put the same text on the wire, so none of them can differ
from the others, and none needs an HTTP library. Only what the provider uses is here: bodies with a
``Content-Length``, JSON, one answer per request.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

REASONS = {
    200: "OK",
    400: "Bad Request",
    402: "Payment Required",
    404: "Not Found",
    409: "Conflict",
    422: "Unprocessable Content",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
Reply = tuple[int, dict[str, Any]]
END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as the server reads it."""

    method: str
    path: str
    query: dict[str, str]
    body: dict[str, Any]

    @property
    def mutates(self) -> bool:
        """Whether the request asks for a change, whatever came of it."""
        return self.method not in {"GET", "HEAD"}


@dataclass(frozen=True, slots=True)
class Head:
    """First line and headers of a message, and how many bytes of body follow."""

    first_line: list[str]
    length: int
    closes: bool


def read_head(raw: bytes) -> Head:
    """Parse a message up to its blank line.

    Raises:
        ValueError: it is not HTTP, or its body has no declared length.
    """
    first, *lines = raw.decode("latin-1").split("\r\n")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)
    }
    if "transfer-encoding" in headers:
        raise ValueError("a body needs a Content-Length")
    words = first.split(" ", 2)
    if len(words) < 2:
        raise ValueError("not HTTP")
    return Head(
        words, int(headers.get("content-length", "0")), headers.get("connection") == "close"
    )


def read_request(head: Head, body: bytes) -> Request:
    """Put a request together.

    Raises:
        ValueError: the body is not a JSON object.
    """
    method, target = head.first_line[:2]
    parts = urlsplit(target)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return Request(method, parts.path, query, read_json(body))


def read_json(body: bytes) -> dict[str, Any]:
    """Read a JSON object; no body is an empty one.

    Raises:
        ValueError: it is something else.
    """
    value: object = json.loads(body, parse_constant=_not_json) if body else {}
    if not isinstance(value, dict):
        raise ValueError("the body must be a JSON object")  # noqa: TRY004 (a wrong message)
    return cast("dict[str, Any]", value)


def write_response(status: int, body: dict[str, Any], *, closes: bool) -> bytes:
    """Put an answer on the wire."""
    first = f"HTTP/1.1 {status} {REASONS.get(status, 'Unnamed')}"
    return _write(first, ["Connection: close"] if closes else [], body)


def write_request(
    url: str, method: str, path: str, query: dict[str, str], body: dict[str, Any]
) -> bytes:
    """Put a request on the wire; it asks the server to close afterwards."""
    base = urlsplit(url)
    target = base.path.rstrip("/") + path + (f"?{urlencode(query)}" if query else "")
    return _write(
        f"{method} {target} HTTP/1.1", [f"Host: {base.netloc}", "Connection: close"], body
    )


def read_response(raw: bytes) -> Reply:
    """Read all that came before the connection ended: status and JSON body.

    Raises:
        ConnectionResetError: the answer is missing or torn, so nothing is known.
    """
    head, found, rest = raw.partition(END_OF_HEAD)
    if not found:
        raise ConnectionResetError("the connection ended without an answer")
    parsed = read_head(head)
    if len(rest) < parsed.length:
        raise ConnectionResetError("the connection ended inside the answer")
    return int(parsed.first_line[1]), read_json(rest[: parsed.length])


def _write(first: str, headers: list[str], body: dict[str, Any]) -> bytes:
    content = json.dumps(body, allow_nan=False).encode() if body else b""
    lines = [
        first,
        *headers,
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
    ]
    return "\r\n".join(lines).encode("latin-1") + END_OF_HEAD + content


def _not_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
