"""Who an act is: its name, and the ids that are derived from what it was asked to do.

Two calls are one act exactly if their record ids are equal, so what is hashed can never be read in
two ways: every part carries its length, and nothing is stripped, folded or normalised. The ids are
frozen for ever: another way to derive them would be another scheme, beside this one.
"""

import functools
import unicodedata
from collections.abc import Callable
from hashlib import sha256
from typing import Any, cast

from indoubt.core.bounds import KEY_CHARS, NAME_CHARS
from indoubt.errors import ScopeRequired

SCHEME = "v1"
"""Names the encoding that is hashed."""

_RECORD_CHARS = 26
"""130 bits: two acts of one ledger never meet by chance."""
_KEY_CHARS = 32
"""160 bits; with its prefix the key is as long as a UUID, which every provider's limit allows."""
_INVISIBLE = ("Cc", "Cf")
_BITS = 160
_DIGITS = bytes.maketrans(bytes(range(32)), b"abcdefghijklmnopqrstuvwxyz234567")
_MOVES = [
    (
        sum(((1 << half) - 1) << place for place in range(half, 256, 2 * (half + gap))),
        (1 << gap) - 1,
    )
    for half, gap in ((80, 48), (40, 24), (20, 12), (10, 6), (5, 3))
]
"""Base 32: the upper halves move up by a gap, then theirs, until five bits have a byte of their
own; `base64.b32encode` takes four times as long."""


def record_id(
    tenant: str | None,
    name: str,
    key: str | None = None,
    scope: str | None = None,
    fingerprint: str | None = None,
) -> str:
    """Return the id of the record of one act.

    With a key the act is (tenant, name, key), whatever the scope and the arguments; without one it
    is (tenant, name, scope, fingerprint of the arguments).

    Raises:
        ScopeRequired: neither a key nor a scope says which act is meant.
    """
    act = _act(name, key, scope, fingerprint)
    return "rec_" + _digest("record", tenant, name, act)[:_RECORD_CHARS]


def idempotency_key(
    tenant: str | None,
    name: str,
    key: str | None = None,
    scope: str | None = None,
    fingerprint: str | None = None,
    *,
    series: int = 1,
) -> str:
    """Return the text that a provider gets as this act's idempotency key.

    It is opaque and 36 characters long. Replays and permitted attempts have the same; only after
    a proven clean failure the series rises, because a provider answers a repeated key with the
    refusal that it stored.

    Raises:
        ScopeRequired: neither a key nor a scope says which act is meant.
    """
    act = (*_act(name, key, scope, fingerprint), str(series))
    return "idk_" + _digest("key", tenant, name, act)[:_KEY_CHARS]


def effect_name(fn: Callable[..., Any], given: str | None = None) -> str:
    """Return the name under which a function's acts are recorded.

    It is the name that was given, or the function's qualified name without its module, so that
    a function may move to another file.

    Raises:
        ValueError: the function has no name that is its own (a lambda, a function inside
            a function, a partial), or the name breaks a rule of `check_name`.
        TypeError: the given name is no str.
    """
    if given is not None:
        return check_name(given)
    name = cast("object", getattr(fn, "__qualname__", None))
    if not isinstance(name, str) or "<" in name:
        raise ValueError(
            "name: a lambda, a partial or a function inside another has no lasting name, "
            "and its acts are found by name after a restart: give one"
        )
    return check_name(name)


def check_key(value: object, where: str = "key") -> str:
    """Return a business key as plain text, unchanged.

    Raises:
        TypeError: it is no str. ValueError: it is blank, too long, or holds a NUL or a lone
        surrogate.
    """
    return _text(value, where, KEY_CHARS)


def check_name(value: object, where: str = "name") -> str:
    """Return an effect's name as plain text, unchanged; raises like `check_key`."""
    return _text(value, where, NAME_CHARS)


def check_scope(value: object, where: str = "scope") -> str:
    """Return a scope as plain text, unchanged; raises like `check_key`."""
    return _text(value, where, NAME_CHARS)


def check_tenant(value: object, where: str = "tenant_id") -> str | None:
    """Return a tenant as plain text, unchanged, or None for untenanted; raises like `check_key`."""
    return None if value is None else _text(value, where, NAME_CHARS)


def _act(
    name: str, key: str | None, scope: str | None, fingerprint: str | None
) -> tuple[str | None, ...]:
    """Return what tells the act from others of its name; the first part says in which way."""
    if key is not None:
        return "key", key
    if scope is None:
        raise ScopeRequired(
            f"{name}: give the effect a key=, or call it inside ledger.scope(...): "
            "without either nobody can tell a repeat from another act"
        )
    if fingerprint is None:
        raise ValueError("fingerprint: an act without a key is named by its arguments")
    return "scope", scope, fingerprint


def _digest(what: str, tenant: str | None, name: str, act: tuple[str | None, ...]) -> str:
    """Return the first 160 bits of the hash in base 32, in lower case."""
    hashed = sha256(_head(what, tenant, name) + _encoded(act)).digest()
    bits = int.from_bytes(hashed[: _BITS // 8])
    for upper, up in _MOVES:
        bits += (bits & upper) * up
    return bits.to_bytes(_BITS // 5).translate(_DIGITS).decode()


@functools.lru_cache
def _head(what: str, tenant: str | None, name: str) -> bytes:
    """Write the parts that an effect's acts have in common."""
    return _encoded((SCHEME, what, tenant, name))


def _encoded(parts: tuple[str | None, ...]) -> bytes:
    """Write each part behind its length in bytes, and None as a part of no length."""
    return "".join(
        ["-," if part is None else f"{len(part.encode())}:{part}," for part in parts]
    ).encode()


def _text(value: object, where: str, chars_max: int) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{where} must be str, not {type(value).__name__}")
    text = str.__str__(value)  # what a str enum holds, not how it shows itself
    if _is_blank(text):
        raise ValueError(f"{where} must not be blank")
    if len(text) > chars_max:
        raise ValueError(f"{where} has {len(text):,} characters, at most {chars_max:,} are kept")
    if "\0" in text:
        raise ValueError(f"{where} must not hold a NUL character")
    if not text.isascii() and not _encodes(text):
        raise ValueError(f"{where} must not hold a lone surrogate")
    return text


def _is_blank(text: str) -> bool:
    """Whether nobody would see anything of a text: spaces, control and format characters."""
    if text[:1].isalnum():
        return False
    return all(char.isspace() or unicodedata.category(char) in _INVISIBLE for char in text)


def _encodes(text: str) -> bool:
    # A plain answer instead of a chained error: the codec's exception carries the text.
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
