"""Refuses wrong arguments before anything is written (D-13, D-25, D-29, S22)."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any, Final

from indoubt.core.bounds import DURATION_MS_MAX, KEY_CHARS, NAME_CHARS, PAGE_MAX, PAYLOAD_BYTES
from indoubt.json_values import Encoded, detach

Seconds = float | timedelta
YEARS: Final = 10


def text(value: Any, name: str, most: int = NAME_CHARS) -> str:
    """Text that is not blank.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} is text, not {type(value).__name__}")
    if not value.strip():
        raise ValueError(f"{name} is blank")
    if len(value) > most:
        raise ValueError(f"{name} has more than {most:,} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} holds a lone surrogate") from None
    return value


def operation(value: Any) -> str:
    """An operation id."""
    return text(value, "operation_id", KEY_CHARS)


def milliseconds(value: Any, name: str, *, least: int = 0) -> int:
    """Seconds (a number or a timedelta) as whole milliseconds; fractions of one count as one.

    Raises:
        TypeError: no number.
        ValueError: negative, not finite, or over ten years.
    """
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}: seconds or a timedelta, not {type(value).__name__}")
    else:
        seconds = value
    if not math.isfinite(seconds):
        raise ValueError(f"{name}: a finite number of seconds")
    found = math.ceil(seconds * 1000)
    if seconds < 0 or found < least:
        raise ValueError(f"{name}: at least {least / 1000:g} seconds")
    if found > DURATION_MS_MAX:
        raise ValueError(f"{name}: at most {YEARS} years")
    return found


def payload(value: Any) -> Encoded:
    """A JSON object: its text, and a copy of our own.

    Raises:
        TypeError: no dict, or no JSON in it. ValueError: too large or too deep.
    """
    if not isinstance(value, dict):
        raise TypeError(f"payload is a dict, not {type(value).__name__}")
    return detach(value, where="payload", max_bytes=PAYLOAD_BYTES)  # pyright: ignore[reportUnknownArgumentType]


def limit(value: Any, name: str = "limit") -> int:
    """How many at once.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    if type(value) is not int:
        raise TypeError(f"{name}: a whole number")
    if not 1 <= value <= PAGE_MAX:
        raise ValueError(f"{name}: 1 to {PAGE_MAX:,}")
    return value


def namespace(value: Any) -> str:
    """What separates ledgers of delayed effects in one store."""
    found = text(value, "namespace")
    if not found.isprintable() or "/" in found or "." in found:
        # A slash parts a child's id from its root's, and a dot an attempt from its record's id.
        raise ValueError("namespace: no slash, no dot and no control character")
    return found
