"""A worker that forks in the middle of an effect; parent and child both go on. Tells what each saw.

Its arguments: the ledger's URL, and where the child writes what it saw.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from indoubt import EffectContext, Ledger

ledger = Ledger(sys.argv[1])
notes = Path(sys.argv[2])
parent = os.getpid()


def itself(order: str) -> str:
    """The key of an act is its order."""
    return order


def what(ask: Any) -> Any:
    """What came of it: a value, or the name of what it raised."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - it is the answer
        return type(error).__name__


@ledger.effect(safety="non_idempotent", name="pay", key=itself)
def pay(order: str, *, effect: EffectContext) -> Any:
    """Fork where asked to; the child tries to speak for its parent, then acts for itself."""
    if order == "forks" and os.fork() == 0:
        seen = {
            "checkpoint": what(lambda: effect.checkpoint({"by": "the child"})),
            "same order": what(lambda: pay.using(wait=NO_TIME)("forks")),
            "own order": what(lambda: pay("child's own")),
        }
        notes.write_text(json.dumps(seen))
        return "the child's word"
    if os.getpid() == parent and order == "forks":
        os.wait()
    return [order, os.getpid() == parent]


if __name__ == "__main__":
    from datetime import timedelta

    NO_TIME = timedelta(0)
    told = what(lambda: pay("forks"))
    if os.getpid() != parent:
        seen = json.loads(notes.read_text())
        notes.write_text(json.dumps(seen | {"told": told}))
        os._exit(0)
    sys.stdout.write(json.dumps({"told": told}) + "\n")
