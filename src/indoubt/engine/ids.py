"""The only place where chance enters: random identities, and what is spread."""

from __future__ import annotations

import os


def write_id() -> str:
    """Name one write, so that its repeat after a lost answer is recognised (128 random bits)."""
    return os.urandom(16).hex()


def owner_nonce() -> str:
    """Name one life of one process."""
    return "o" + os.urandom(12).hex()


def chance() -> float:
    """A number from 0 up to 1, to spread what would come all at once."""
    return int.from_bytes(os.urandom(4)) / 2**32


def decision_id() -> str:
    """Name one decision, where its maker gave it no name."""
    return "d" + os.urandom(12).hex()
