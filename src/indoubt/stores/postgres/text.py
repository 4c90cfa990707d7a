"""Text as PostgreSQL can hold it: without NUL, in the same order, and back again."""

from __future__ import annotations


def held(text: str) -> str:
    """Any text, with NUL as two characters; order and prefixes stay."""
    if "\0" not in text and "\1" not in text:
        return text
    return text.replace("\1", "\1\2").replace("\0", "\1\1")


def told(text: str) -> str:
    """The text that was given."""
    return text.replace("\1\1", "\0").replace("\1\2", "\1") if "\1" in text else text


def held_or_none(text: str | None) -> str | None:
    return None if text is None else held(text)


def told_or_none(text: str | None) -> str | None:
    return None if text is None else told(text)
