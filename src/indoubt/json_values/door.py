"""The JSON door: what comes in is checked, detached, and becomes text and fingerprint.

The quick way encodes, decodes and compares; equal means JSON, and the decoded value is the detached
copy. What it cannot see (depth, huge integers) is read off the text. Whatever does not pass the
quick way goes to the exact walk, which either takes it (tuples, enums) or says where and why not.
"""

import hashlib
from typing import NamedTuple

import msgspec

from .exact import DEPTH_MAX, Json, NotJson, exact

FINGERPRINT_PREFIX = "v1:"
"""Names the canonical text that was hashed: another way to write it gets another prefix."""

_INT_DIGITS_MAX = 1233
"""Integers of up to so many digits are below 2**4096; one digit more needs a look at the value."""

# What msgspec raises for values it cannot write or read back, and what their comparison may raise
# (bytes against str under `python -bb`). The exact walk then finds the reason, so nothing is hidden
# by catching them.
_NO_QUICK_WAY = (AttributeError, BytesWarning, RecursionError, TypeError, ValueError)

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


class TooLarge(ValueError):
    """The JSON text is larger than its bound: `size` and `max_bytes` are bytes of UTF-8.

    A caller must pass less, or a reference to where the rest is kept; nothing was written or sent.
    """

    def __init__(self, where: str, size: int, max_bytes: int) -> None:
        super().__init__(where, size, max_bytes)
        self.where = where
        self.size = size
        self.max_bytes = max_bytes

    def __str__(self) -> str:
        return f"{self.where}: {self.size:,} bytes of JSON, at most {self.max_bytes:,} are kept"


class Encoded(NamedTuple):
    """What the door gives: the text to store, and the detached plain copy of the value."""

    text: bytes
    """Compact UTF-8 JSON with the caller's key order."""
    value: Json
    """A fresh copy that shares nothing with what was passed in."""

    def canonical(self) -> bytes:
        """Return canonical text v1: as `text`, with keys sorted by code point at every depth."""
        if b"{" not in self.text:
            return self.text  # no keys to sort
        return _encode_sorted(self.value)

    def fingerprint(self) -> str:
        """Return `"v1:"` and the hex SHA-256 of the canonical text."""
        return FINGERPRINT_PREFIX + hashlib.sha256(self.canonical()).hexdigest()


def detach(value: object, *, where: str = "value", max_bytes: int | None = None) -> Encoded:
    """Check that `value` is JSON and return its text and a copy that is the library's own.

    Args:
        value: anything.
        where: what the value is to the caller; errors start with it.
        max_bytes: the largest text accepted, in bytes of UTF-8; None for no bound.

    Raises:
        NotJson: the value is not JSON.
        TooLarge: its text is longer than `max_bytes`.
    """
    encoded = _quick(value)
    if encoded is None:
        copy = exact(value, where=where)
        encoded = Encoded(_encode(copy), copy)
    if max_bytes is not None and len(encoded.text) > max_bytes:
        raise TooLarge(where, len(encoded.text), max_bytes)
    return encoded


def canonical(value: object, *, where: str = "value") -> bytes:
    """Return the canonical text of a value that has not passed the door yet.

    Raises:
        NotJson: the value is not JSON.
    """
    return detach(value, where=where).canonical()


def fingerprint(value: object, *, where: str = "value") -> str:
    """Return the fingerprint of a value that has not passed the door yet.

    It differs for 1, 1.0 and True, and for different Unicode spellings of one text (V-32).

    Raises:
        NotJson: the value is not JSON.
    """
    return detach(value, where=where).fingerprint()


def parse(text: bytes | str, *, where: str = "text", max_bytes: int | None = None) -> Encoded:
    """Read JSON text from outside, by the rules of `detach`. Of a repeated key the last counts.

    Raises:
        NotJson: it is not JSON text, or holds what `detach` refuses: 1e400, lone surrogates, too
            many levels, too large a number.
        TooLarge: its compact text is longer than `max_bytes`.
    """
    try:
        value = _decode(text)
    except (RecursionError, ValueError):
        value = _UNREADABLE
    if value is _UNREADABLE:
        raise NotJson(where, "not JSON text")
    return detach(value, where=where, max_bytes=max_bytes)


_UNREADABLE = object()


def _quick(value: object) -> Encoded | None:
    """Encode, decode, compare; None if the exact walk must decide.

    An object that claims to equal its own JSON passes as that JSON: text and copy agree anyway.
    """
    try:
        text = _encode(value)
        copy = _decode(text)
        if copy != value:
            return None
    except _NO_QUICK_WAY:
        return None
    if len(text) > 2 * DEPTH_MAX and (_is_deep(text) or _has_long_digits(text)):
        return None
    return Encoded(text, copy)


def _is_deep(text: bytes) -> bool:
    """Whether the containers of a JSON text stand more than `DEPTH_MAX` deep."""
    if text.count(b"[") + text.count(b"{") <= DEPTH_MAX:
        return False
    brackets = _brackets(text)
    for _ in range(DEPTH_MAX):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return False
    return True


_TO_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_MARK = bytes(byte for byte in range(256) if byte not in b'[]{}"')


def _brackets(text: bytes) -> bytes:
    """Return the brackets of a JSON text that stand outside its strings, all as square ones."""
    if b"\\" in text:
        # Pairs first: what is left of `\\"` is the quote that ends the string, of `\"` nothing.
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = text.translate(_TO_SQUARE, _NO_MARK)
    # Two quotes side by side may go: what follows them stays inside, or outside, a string.
    marks = marks.replace(b'""', b"")
    return b"".join(marks.split(b'"')[::2])


_DIGITS = b"0123456789"


def _has_long_digits(text: bytes) -> bool:
    """Whether more than `_INT_DIGITS_MAX` digits stand in a row: such a row covers a sample."""
    reach = _INT_DIGITS_MAX + 1
    for place in range(_INT_DIGITS_MAX, len(text), reach):
        if text[place] in _DIGITS:
            before = text[place - _INT_DIGITS_MAX : place]
            after = text[place : place + reach]
            row = (
                len(before) - len(before.rstrip(_DIGITS)) + len(after) - len(after.lstrip(_DIGITS))
            )
            if row > _INT_DIGITS_MAX:
                return True
    return False
