"""The SQL of the stores, read from the files beside this one.

Statements are constants: nothing a caller gives ever becomes part of their text.
"""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"--[^\n]*")
_BLOCK = re.compile(r"\{(\w+)\}")
_PARAMETER = re.compile(r"(?<!:):(\w+)")
_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


class Statement(NamedTuple):
    """SQL with numbered parameters, and their names in order."""

    text: str
    names: tuple[str, ...]

    def values(self, given: Mapping[str, Any]) -> tuple[Any, ...]:
        """Parameters in this statement's order."""
        return tuple(given[name] for name in self.names)


class Migration(NamedTuple):
    """One numbered step; its digest is kept beside the number in the store."""

    number: int
    name: str
    sql: str
    sha256: str


def statements(text: str | None = None) -> dict[str, Statement]:
    """All named statements of ``statements.sql``, or of a text like it."""
    parts = _NAME.split(text or (files(__name__) / "statements.sql").read_text("utf-8"))[1:]
    blocks = {
        name: " ".join(_COMMENT.sub("", sql).split())
        for name, sql in zip(parts[::2], parts[1::2], strict=True)
    }
    return {name: _numbered(_expand(sql, blocks)) for name, sql in blocks.items()}


def _expand(sql: str, blocks: Mapping[str, str]) -> str:
    return _BLOCK.sub(lambda found: _expand(blocks[found[1]], blocks), sql)


def _numbered(sql: str) -> Statement:
    names = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    text = _PARAMETER.sub(lambda found: f"?{names.index(found[1]) + 1}", sql)
    return Statement(text, names)


def migrations(dialect: str) -> tuple[Migration, ...]:
    """The shipped migrations of one kind of database, in order."""
    return steps(files(__name__) / "migrations" / dialect)


def steps(folder: Traversable) -> tuple[Migration, ...]:
    """The migrations in a folder, in order."""
    return tuple(sorted(_steps(folder)))


def _steps(folder: Traversable) -> Iterator[Migration]:
    for file in folder.iterdir():
        if found := _FILE.fullmatch(file.name):
            sql = file.read_text("utf-8")
            digest = hashlib.sha256(sql.encode()).hexdigest()
            yield Migration(int(found[1]), found[2], sql, digest)
