"""Cursors of listings: opaque, url-safe, and good for the one query and store they came from."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from ..store import ScanQuery, Stored

Position = tuple[int, str]
"""(number, "") in the view ``all``, (0, id) by prefix, else (time, id); it goes on above that."""

START: Final[Position] = (-(2**63), "")
_DIGEST = 8
_decode = msgspec.msgpack.Decoder(tuple[int, str])


def position(query: ScanQuery, n: int, record: Stored) -> Position:
    """Where this record stands in this query's order."""
    if query.id_prefix is not None:
        return 0, record.id
    if query.view == "all":
        return n, ""
    when = record.ready_at if query.view == "ready" else record.doubt_since
    if when is None:
        raise ValueError(f"{record.id} has no place in the view {query.view}")
    return when, record.id


def write_cursor(query: ScanQuery, store: str, at: Position) -> str:
    """A cursor behind ``at``; ``store`` names the store and its epoch."""
    text = msgspec.msgpack.encode(at)
    return base64.urlsafe_b64encode(_digest(query, store, text) + text).decode().rstrip("=")


def read_cursor(query: ScanQuery, store: str) -> Position:
    """Where the query's cursor stands; the start if it has none.

    Raises:
        ValueError: it is garbled, or of another query or store, or older than a restore.
    """
    if query.after is None:
        return START
    try:
        padded = query.after + "=" * (-len(query.after) % 4)
        raw = base64.b64decode(padded, b"-_", validate=True)
    except ValueError:  # not base64, or not even ASCII
        raw = b""
    seal, text = raw[:_DIGEST], raw[_DIGEST:]
    if not text or seal != _digest(query, store, text):
        raise ValueError(
            "the cursor is garbled, or belongs to another query or store, or to this store"
            " before it was restored: start again without it"
        )
    return _decode.decode(text)


def _digest(query: ScanQuery, store: str, text: bytes) -> bytes:
    """Binds a position to its query. A seal against mistakes, not against forgers."""
    tenant = query.tenant_id
    named = [tenant] if tenant is None or isinstance(tenant, str) else []
    bound = (
        store,
        query.view,
        sorted(set(query.kinds)),
        sorted(set(query.states)),
        named,
        query.parent_id,
        query.id_prefix,
        sorted(set(query.queues)),
        text,
    )
    return hashlib.blake2b(msgspec.msgpack.encode(bound), digest_size=_DIGEST).digest()
