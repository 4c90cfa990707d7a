"""Who this process is to the store: a random nonce, new in every process and after every fork.

The store locks the nonce for as long as the process lives; getting that lock is the proof of death
(protocol P26). Holding is by (record, fence) in memory, never by owner.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .ids import owner_nonce

if TYPE_CHECKING:
    from indoubt.store import Store


class Owner:
    """This process as an owner at one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._nonce = ""
        self._pid = 0

    def current(self) -> str:
        """The nonce; taken and locked at the first use in each process."""
        pid = os.getpid()
        if pid != self._pid:
            nonce = owner_nonce()
            self._store.hold_owner(nonce)
            self._nonce, self._pid = nonce, pid
        return self._nonce

    def dead(self, owner: str) -> bool:
        """Whether another owner is proven dead (undecidable is not a proof)."""
        return owner != self._nonce and self._store.owner_dead(owner) is True
