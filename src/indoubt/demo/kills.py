"""Seven workers, each killed at another point while it holds six acts."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from indoubt.testing.provider import FakeProvider

CUTS = {
    "F0": "before anything was recorded",
    "F1": "recorded, nothing sent yet",
    "F2": "requests on their way",
    "F3": "paid, answers not read",
    "F4": "answers read, not recorded",
    "F5": "outcomes recorded, not confirmed",
    "F6": "done, caller not told",
}
PAYING = 5
"""Of the six acts five pay; the pure one only reads."""
PATIENCE_S = 20.0


def kill_worker(store: str, bank: FakeProvider, cut: str) -> None:
    """Start a worker and end it with ``kill -9`` at this point.

    Raises:
        RuntimeError: it ended in another way.
    """
    held = {"F2": "gate", "F3": "hang"}.get(cut)
    fault = bank.gate(times=PAYING) if held == "gate" else None
    fault = bank.fault("hang", times=PAYING) if held == "hang" else fault
    command = [sys.executable, "-m", "indoubt.demo.worker", store, bank.url, cut]
    with subprocess.Popen(command) as worker:  # noqa: S603 - our own interpreter and module
        try:
            if fault is not None:  # all five requests are there: now its sender dies
                fault.wait_reached(PATIENCE_S, requests=PAYING)
                worker.kill()
            worker.wait(PATIENCE_S)
        finally:
            worker.kill()
    if fault is not None:
        fault.drop()  # F2: they were lost on the way; F3: they had happened
    if worker.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the worker was to be killed at {cut}; it ended by {worker.returncode}")
