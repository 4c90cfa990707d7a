"""Counts what SQLite is asked to do: every statement of every connection opened meanwhile."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator
from typing import Any

import apsw


class Counted:
    """The statements since the last ``reset``, in order."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def reset(self) -> None:
        self.statements.clear()

    def kinds(self) -> list[str]:
        """Each statement's first word, as ``BEGIN``, ``SELECT`` or ``COMMIT``."""
        return [statement.split(maxsplit=1)[0].upper() for statement in self.statements]

    @property
    def commits(self) -> int:
        return Counter(self.kinds())["COMMIT"]

    def before_the_first_write(self) -> list[str]:
        """What was asked before anything was written; the first of it opens the transaction."""
        words = self.kinds()
        writes = [at for at, word in enumerate(words) if word in {"INSERT", "UPDATE", "DELETE"}]
        return self.statements[: writes[0] if writes else len(words)]


@contextlib.contextmanager
def counting() -> Generator[Counted]:
    """Watch the connections that are opened inside."""
    counted = Counted()

    def note(event: dict[str, Any]) -> None:
        counted.statements.append(event["sql"])

    def watch(db: Any) -> None:
        db.trace_v2(apsw.SQLITE_TRACE_STMT, note)

    hooks: list[Any] = apsw.connection_hooks
    hooks.append(watch)
    try:
        yield counted
    finally:
        hooks.remove(watch)
