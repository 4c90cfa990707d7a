"""``indoubt.Worker`` and ``indoubt worker``, as processes that are stopped and killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from indoubt import Ledger, Worker
from indoubt.delayed_effects import DelayedEffectIntent, DelayedEffectState, DelayedEffectStore

APP = """
import asyncio, os, sys
from pathlib import Path
from indoubt import Ledger, Worker
from indoubt.delayed_effects import DelayedEffectStore

counts = Path(os.environ["COUNTS"])
ledger = Ledger(os.environ["LEDGER"])
store = DelayedEffectStore(ledger, execution_lease_seconds=float(os.environ.get("LEASE", "300")))

async def unmute(intent):
    with counts.open("a") as file:
        file.write(intent.operation_id + "\\n")
    if intent.payload.get("hang"):
        (counts.parent / "hanging").touch()
        await asyncio.Event().wait()
    return {"by": os.getpid()}

worker = Worker(ledger, delayed_effects={"unmute": unmute}, store=store)
"""
SOON_S = 60.0


class Processes:
    """Workers of one ledger; ``counts`` is the provider's own record of what it did."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.running: list[subprocess.Popen[str]] = []
        (folder / "app.py").write_text(textwrap.dedent(APP))
        self._counts = folder / "counts"
        self._counts.touch()

    def start(self, *arguments: str, lease: float = 300) -> subprocess.Popen[str]:
        env = {
            **os.environ,
            "COUNTS": str(self._counts),
            "LEDGER": self.url,
            "LEASE": str(lease),
        }
        command = [sys.executable, "-m", "indoubt.cli", "worker", "app:worker", *arguments]
        pipe = subprocess.PIPE
        made = subprocess.Popen(
            command, cwd=self.folder, env=env, stdout=pipe, stderr=pipe, text=True
        )
        self.running.append(made)
        return made

    def counts(self) -> Counter[str]:
        return Counter(self._counts.read_text().split())


@pytest.fixture
def processes(tmp_path: Path, url: str) -> Generator[Processes]:
    if url == "memory:":
        url = f"sqlite:///{tmp_path}/ledger.db"
    made = Processes(tmp_path, url)
    yield made
    for process in made.running:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.communicate()


async def eventually(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not done():  # noqa: ASYNC110 - another process says nothing by itself
            await asyncio.sleep(0)


async def register(url: str, *names: str, hang: bool = False) -> dict[str, str]:
    ledger = Ledger(url)
    store = DelayedEffectStore(ledger)
    payload = {"hang": True} if hang else {}
    made = {
        name: (await store.register(name, "unmute", payload, delay_seconds=0)).intent_id
        for name in names
    }
    await ledger.close()
    return made


async def read(url: str, intent_id: str) -> DelayedEffectIntent:
    ledger = Ledger(url)
    try:
        return await DelayedEffectStore(ledger).get(intent_id)
    finally:
        await ledger.close()


async def test_d75_what_one_process_registered_another_fires(processes: Processes) -> None:
    names = [f"op-{n}" for n in range(5)]
    made = await register(processes.url, *names)
    once = processes.start("--once")
    out, err = await asyncio.to_thread(once.communicate)
    assert (once.returncode, out.strip()) == (0, "5 claimed: 5 completed"), err
    assert processes.counts() == dict.fromkeys(names, 1)
    assert (await read(processes.url, made["op-0"])).receipt == {"by": once.pid}


async def test_sigterm_ends_it_gracefully(processes: Processes) -> None:
    await register(processes.url, "op")
    worker = processes.start()
    await eventually(lambda: processes.counts()["op"] == 1)
    worker.send_signal(signal.SIGTERM)
    _, err = await asyncio.to_thread(worker.communicate)
    assert worker.returncode == 0, err


async def test_d52_d60_a_killed_worker_is_replaced_and_only_then(processes: Processes) -> None:
    """At least once: what it was at is done again, by one other, once its lease is over."""
    made = await register(processes.url, "hung", hang=True)
    first = processes.start(lease=2)
    await eventually((processes.folder / "hanging").exists)
    second = processes.start(lease=2)
    held = await read(processes.url, made["hung"])
    assert (held.state, held.attempts) == (DelayedEffectState.EXECUTING, 1)
    assert processes.counts() == {"hung": 1}
    first.kill()
    await eventually(lambda: processes.counts()["hung"] == 2)
    now = await read(processes.url, made["hung"])
    assert (now.state, now.fence, now.attempts) == (DelayedEffectState.EXECUTING, 2, 2)
    second.kill()
    await asyncio.to_thread(second.wait)


async def test_a_worker_recovers_too_if_asked(tmp_path: Path) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
    found: list[str] = []

    async def fire(intent: DelayedEffectIntent) -> None:
        found.append(intent.operation_id)

    from datetime import timedelta  # noqa: PLC0415

    worker = Worker(ledger, delayed_effects={"mail": fire}, recover_every=timedelta(seconds=600))
    await DelayedEffectStore(ledger).register("op", "mail", {}, delay_seconds=0)
    report = await worker.run_once()
    assert (report.claimed, report.results, found) == (1, {"COMPLETED": 1}, ["op"])
    assert report.recovery is not None
    await DelayedEffectStore(ledger).register("op-2", "mail", {}, delay_seconds=0)
    async with worker:
        await eventually(lambda: found == ["op", "op-2"])
    await ledger.close()
