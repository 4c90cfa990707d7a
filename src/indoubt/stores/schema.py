"""What any store with a schema says of it."""

from __future__ import annotations

from typing import NamedTuple


class SchemaStatus(NamedTuple):
    """The schema's number (None: no ledger there yet), and the one this version writes.

    ``pending``: the steps that an upgrade would take.
    """

    found: int | None
    latest: int
    pending: tuple[str, ...] = ()


__all__ = ["SchemaStatus"]
