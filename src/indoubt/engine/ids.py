"""The only place that makes random identities."""

from __future__ import annotations

import os


def write_id() -> str:
    """Name one write, so that its repeat after a lost answer is recognised (128 random bits)."""
    return os.urandom(16).hex()


def owner_nonce() -> str:
    """Name one life of one process."""
    return "o" + os.urandom(12).hex()


def decision_id() -> str:
    """Name one decision, where its maker gave it no name."""
    return "d" + os.urandom(12).hex()
