"""How far a caller lets its doubt be taken: how long it waits, and whether anything is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from indoubt.core.situation import for_its_caller

if TYPE_CHECKING:
    from indoubt.core.record import Record


class Limits(NamedTuple):
    """What the caller allows: to wait until a local instant, to dispatch.

    ``by_hand``: a person asks for a probe now, whatever is left of the budget. ``in_passing``: no
    call waits for it, so what only its caller may send is not sent (P21).
    """

    until: float
    dispatch: bool
    by_hand: bool = False
    in_passing: bool = False

    def allow(self, record: Record) -> bool:
        """Whether this record, as it stands now, may be dispatched."""
        return self.dispatch and not (self.in_passing and for_its_caller(record))
