"""What every store must do, as tests that its author runs.

    class TestMyStore(StoreContract):
        async def open_store(self, place, clock):
            return MyStore(place, clock=clock)

It asks for pytest with pytest-asyncio. Every store of indoubt passes it, and the memory store is
its plainest reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .examples import Bench, SteeredClock
from .judging import Judging, Repeating
from .leasing import Leases, Queues, Waking
from .listing import Due, Journals, Listing
from .living import Closing, Living, Racing
from .prefixes import Prefixes
from .writing import Removing, Renewing, Writing

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from ...store import Store
    from ...stores.clock import Clock


class StoreContract(
    Writing,
    Renewing,
    Removing,
    Judging,
    Repeating,
    Listing,
    Prefixes,
    Due,
    Journals,
    Leases,
    Queues,
    Waking,
    Living,
    Racing,
    Closing,
):
    """Subclass it, say how to open the store, and pytest runs the whole contract.

    Attributes:
        steers_time: the store reads the clock that it is given. Set it to False for a store with
            a clock of its own (a server's).
    """

    pytestmark = pytest.mark.asyncio
    steers_time = True

    async def open_store(self, place: Path, clock: Clock) -> Store:
        """Open a store. The same place again is the same store, if it is shared or durable."""
        raise NotImplementedError("StoreContract: say how to open your store")

    async def kill_owner(self, store: Store, place: Path, owner: str) -> None:
        """Have a process that holds ``owner`` in this store die; for stores that decide silence."""
        raise NotImplementedError("StoreContract: say how an owner of your store dies")

    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncGenerator[Bench]:
        clock = SteeredClock()
        bench = Bench(self, tmp_path, clock, await self.open_store(tmp_path, clock))
        yield bench
        await bench.close()


__all__ = ["SteeredClock", "StoreContract"]
