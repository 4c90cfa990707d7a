"""The scripts, read from the files beside this one, and the digests that call them."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Final, NamedTuple


class Script(NamedTuple):
    """A script's text and its digest, as EVALSHA wants it."""

    text: str
    sha: str
    writes: bool


def _script(*names: str, writes: bool) -> Script:
    folder = files(__name__.rpartition(".")[0]) / "lua"
    # With a shebang the server refuses it whole where memory is full or a disk has failed.
    parts = ["#!lua" if writes else "#!lua flags=no-writes"]
    parts += [(folder / f"{name}.lua").read_text("utf-8") for name in names]
    text = "\n".join(parts)
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), writes)


OPEN: Final = _script("open", writes=True)
LOOK: Final = _script("look", writes=False)
WRITE: Final = _script("head", "write", writes=True)
LEASE: Final = _script("head", "due", "lease", writes=True)
COUNT: Final = _script("head", "count", writes=False)
DUE: Final = _script("head", "due", "page", writes=False)
READ: Final = _script("head", "read", writes=False)
LIST: Final = _script("head", "list", writes=False)
FIND: Final = _script("head", "find", writes=False)
JOURNAL: Final = _script("head", "journal", writes=False)
QUEUES: Final = _script("head", "queues", writes=False)
