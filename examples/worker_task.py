"""A task of a queue that redelivers: killed at any point, repeated by the queue, paid once.

    echo '["order-7", 1200]' | python examples/worker_task.py

Reads one task a line and answers one line each, as a worker of any queue does. Everything blocks:
no event loop is needed. Set BANK_URL and INDOUBT_URL.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from typing import Any

from indoubt import DoubtfulAttempt, EffectContext, OutcomeUnknown, ProviderProbeResult
from indoubt.sync import Ledger
from indoubt.testing.provider import act, find


def seconds(name: str, default: float) -> timedelta:
    """Read a duration from the environment."""
    return timedelta(seconds=float(os.environ.get(name, default)))


WAIT = seconds("WAIT_S", 5)  # longer, and another task can use this worker meanwhile
ledger = Ledger(lease=seconds("LEASE_S", 30))


class Retry(Exception):
    """Tells the queue to deliver the task again, after so long."""

    def __init__(self, after: timedelta) -> None:
        super().__init__(after)
        self.after = after


def find_refund(attempt: DoubtfulAttempt) -> ProviderProbeResult:
    """Ask the bank what became of a refund; reads only."""
    url = os.environ["BANK_URL"]
    found = find(url, attempt.key, idempotency_key=attempt.idempotency_key)
    match found.status:  # every answer of the bank, and nothing else than it says
        case "succeeded":
            return attempt.succeeded(dict(found.acts[0]))
        case "not_found":
            return attempt.not_found()
        case "active":
            return attempt.active()
        case "unavailable":
            return attempt.unavailable()
        case _:
            return attempt.unknown()


def the_order(order: str, cents: int) -> str:
    """One refund an order."""
    del cents
    return order


@ledger.effect(
    safety="non_idempotent",
    key=the_order,
    probe=find_refund,
    settle_time=seconds("SETTLE_S", 5),
    not_found_is_authoritative=True,
    resend_on_proven_absence=True,
)
def refund(order: str, cents: int, *, effect: EffectContext) -> dict[str, Any]:
    """Pay the customer back."""
    url, key = os.environ["BANK_URL"], effect.idempotency_key
    return dict(act(url, order, cents, idempotency_key=key))


def refund_order(order: str, cents: int) -> dict[str, Any]:
    """Perform the task; a redelivered one is probed, never repeated blindly."""
    try:
        return {"refunded": refund.using(wait=WAIT)(order, cents)}
    except OutcomeUnknown as doubt:
        if doubt.retry_after is None:  # a person's turn: keep the queue out of it
            return {"in_doubt": doubt.ref}
        raise Retry(doubt.retry_after) from doubt


def main() -> None:
    """Work until there is no more to do."""
    with ledger:
        for line in sys.stdin:
            try:
                answer = refund_order(*json.loads(line))
            except Retry as retry:
                answer = {"retry_after_s": retry.after.total_seconds()}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
