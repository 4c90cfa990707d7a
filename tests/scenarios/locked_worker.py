"""One of many processes on one file: performs each order it is given, and says what it got.

Before it acts it looks its own intent up on disk. Each act is a line in a file of all acts.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from indoubt import EffectBusy, EffectContext, Ledger, OutcomeUnknown


def main(url: str, acts: str, orders: list[str]) -> None:
    """Perform the orders; print what became of each."""
    ledger = Ledger(url)
    file = os.open(acts, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def itself(order: str) -> str:
        return order

    @ledger.effect(safety="non_idempotent", name="act", key=itself)
    def act(order: str, *, effect: EffectContext) -> Any:
        record = ledger.look_up_blocking(effect.operation_id)
        on_disk = record is not None and record.state == "dispatched"
        os.write(file, f"{order} {on_disk}\n".encode())
        return order

    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for order in orders:
        try:
            told = act(order)
        except (OutcomeUnknown, EffectBusy) as error:
            told = type(error).__name__
        sys.stdout.write(f"{order} {told}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
