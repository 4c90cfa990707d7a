"""Where things are: the one rule of key names, so that all keys of a partition share a slot.

A record lives in the partition that its root's id names: by the literal tag of a delayed effect
(``namespace:{07}:intent:...``, whose hash is stored under that very id), else by a digest.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ...store import root_of

if TYPE_CHECKING:
    from collections.abc import Iterable

PARTITIONS: Final = 16
"""How many a new ledger has."""
PARTITIONS_MAX: Final = 64
"""The place in the order of insertion has six bits for the partition."""
_TAG: Final = re.compile(r"[^{]*\{(\d\d)\}:intent:")
_NAME: Final = re.compile(r"[^{}\s]{1,100}")
_DIGEST: Final = 9


class Keys(NamedTuple):
    """The names of one ledger's keys."""

    namespace: str
    partitions: int

    @property
    def channel(self) -> str:
        """Where wakes are published."""
        return f"{self.namespace}:wakes"

    def partition(self, root_id: str) -> int:
        """Where the records of this root are."""
        tagged = self._tagged(root_id)
        if tagged is not None:
            return tagged
        digest = hashlib.blake2b(root_id.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.partitions

    def prefix(self, partition: int) -> str:
        """What all keys of a partition begin with, but for the records of delayed effects."""
        return f"{self.namespace}:{{{partition:02}}}:"

    def meta(self, partition: int) -> str:
        return f"{self.prefix(partition)}meta"

    def record(self, partition: int, record_id: str) -> str:
        """The hash of a record; ``key_of`` in head.lua says the same."""
        if self._tagged(record_id) == partition:
            return record_id
        return f"{self.prefix(partition)}r:{record_id}"

    def part(self, partition: int, part: str, name: str) -> str:
        """Of a record ``p`` fixed part, ``b`` body, ``j`` journal, ``c`` children.

        ``q``: a queue; ``m``: what a lease remembers.
        """
        return f"{self.prefix(partition)}{part}:{name}"

    def by_partition(self, ids: Iterable[str]) -> dict[int, list[str]]:
        """Ids in the partitions of their roots."""
        found: dict[int, list[str]] = {}
        for record_id in ids:
            found.setdefault(self.partition(root_of(record_id)), []).append(record_id)
        return found

    def _tagged(self, record_id: str) -> int | None:
        if "{" not in record_id:
            return None
        match = _TAG.match(record_id)
        named = int(match[1]) if match else self.partitions
        return named if named < self.partitions else None


def queue_digest(queue: str) -> str:
    """A queue's short name: 18 characters in every record's hash instead of the whole text."""
    return hashlib.blake2b(queue.encode(), digest_size=_DIGEST).hexdigest()


def check_namespace(namespace: str) -> str:
    """Refuse what would move keys to another slot.

    Raises:
        ValueError: braces, white space, empty or long.
    """
    if not _NAME.fullmatch(namespace):
        raise ValueError("namespace: up to 100 characters without braces and spaces")
    return namespace


def check_partitions(count: int) -> int:
    """Refuse a count that places in the order of insertion have no room for.

    Raises:
        ValueError: naming the bounds.
    """
    if not 1 <= count <= PARTITIONS_MAX:
        raise ValueError(f"partitions: between 1 and {PARTITIONS_MAX}")
    return count
