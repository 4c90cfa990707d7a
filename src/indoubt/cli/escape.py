"""Text from records as a terminal may safely show it.

What a record holds was written by others. Nothing of it reaches a terminal that moves the cursor,
changes colours, hides or reorders other text: such characters are shown by their number.
"""

from __future__ import annotations

import unicodedata
from typing import Any

import msgspec

# Controls (line ends and escapes among them), format characters (bidirectional overrides, zero
# widths, tags), surrogates, private and unassigned ones, and separators of lines and paragraphs.
HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_ASCII_MAX, _BMP_MAX = 0xFF, 0xFFFF


def visible(text: str) -> str:
    """The text with every character that could do more than be seen shown by its number."""
    if text.isascii() and text.isprintable():
        return text
    return "".join([c if unicodedata.category(c) not in HIDDEN else _number(c) for c in text])


def _number(character: str) -> str:
    code = ord(character)
    if code <= _ASCII_MAX:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= _BMP_MAX else f"\\U{code:08x}"


def as_json(value: Any) -> str:
    """A JSON value on one line, for people."""
    return visible(msgspec.json.encode(value).decode())
