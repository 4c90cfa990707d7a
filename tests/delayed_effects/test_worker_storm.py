"""Real workers that are stopped, killed and poisoned; what their handlers wrote is the oracle."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from indoubt import Ledger
from indoubt.delayed_effects import DelayedEffectIntent, DelayedEffectState, DelayedEffectStore

S = DelayedEffectState
SOON_S = 60.0
LEASE_S = 1.0
APP = f"""
import asyncio, os
from pathlib import Path
from indoubt import Ledger, Worker
from indoubt.delayed_effects import DelayedEffectStore

here = Path(__file__).parent
ledger = Ledger(f"sqlite:///{{here}}/ledger.db")
store = DelayedEffectStore(ledger, execution_lease_seconds={LEASE_S})

def note(what):
    with (here / "counts").open("a") as file:
        file.write(what + "\\n")

async def fire(intent):
    note(intent.operation_id)
    if intent.payload.get("poison"):
        os._exit(137)
    if intent.payload.get("hangs") and intent.attempts == 1:
        (here / "hanging").touch()
        try:
            await asyncio.Event().wait()
        finally:
            (here / "cancelled").touch()
    await asyncio.sleep(0.01)
    return {{"by": os.getpid()}}

worker = Worker(
    ledger, delayed_effects={{"fire": fire}}, store=store, concurrency=4, max_attempts=3
)
"""


class Place:
    """One ledger, its workers, and what their handlers wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workers: list[subprocess.Popen[bytes]] = []
        (folder / "app.py").write_text(APP)
        (folder / "counts").touch()

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "indoubt.cli", "worker", "app:worker"]
        null = subprocess.DEVNULL
        made = subprocess.Popen(
            command, cwd=self.folder, env={**os.environ}, stdout=null, stderr=null
        )
        self.workers.append(made)
        return made

    def counts(self) -> Counter[str]:
        return Counter((self.folder / "counts").read_text().split())

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    async def register(self, *names: str, **payload: bool) -> None:
        async with Ledger(f"sqlite:///{self.folder}/ledger.db") as ledger:
            store = DelayedEffectStore(ledger)
            for name in names:
                await store.register(name, "fire", payload, delay_seconds=0)

    async def read(self, *names: str) -> list[DelayedEffectIntent]:
        async with Ledger(f"sqlite:///{self.folder}/ledger.db") as ledger:
            store = DelayedEffectStore(ledger)
            return [await store.get(store.intent_id_for(name)) for name in names]

    async def completed(self, *names: str) -> list[DelayedEffectIntent]:
        async with asyncio.timeout(SOON_S):
            while True:
                found = await self.read(*names)
                if all(one.terminal for one in found):
                    return found
                self.supervise()

    def supervise(self) -> None:
        """Start another worker for each that has died."""
        for worker in [worker for worker in self.workers if worker.poll() is not None]:
            self.workers.remove(worker)
            self.start()


@pytest.fixture
def place(tmp_path: Path) -> Generator[Place]:
    made = Place(tmp_path)
    yield made
    for worker in made.workers:
        worker.send_signal(signal.SIGCONT)
        worker.kill()
        worker.wait()


async def eventually(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not done():  # noqa: ASYNC110 - another process says nothing by itself
            await asyncio.sleep(0)  # handler under test blocks


async def test_d60_a_worker_that_was_stopped_past_its_lease_writes_nothing(place: Place) -> None:
    """Its handler is ended when it wakes, and it goes on with other work."""
    await place.register("op", hangs=True)
    first = place.start()
    await eventually(lambda: place.has("hanging"))
    first.send_signal(signal.SIGSTOP)
    second = place.start()
    (done,) = await place.completed("op")
    assert (done.receipt, done.fence) == ({"by": second.pid}, 2)
    assert not place.has("cancelled"), "it is still stopped"
    first.send_signal(signal.SIGCONT)
    await eventually(lambda: place.has("cancelled"))
    second.terminate()
    await asyncio.to_thread(second.wait)
    place.workers.remove(second)
    await place.register("next")
    (after,) = await place.completed("next")
    assert after.receipt == {"by": first.pid}
    assert await place.read("op") == [done]
    assert place.counts() == {"op": 2, "next": 1}


async def test_d20_d52_many_workers_fire_each_once_but_for_what_a_killed_one_held(
    place: Place,
) -> None:
    names = [f"op-{n}" for n in range(60)]
    workers = [place.start() for _ in range(3)]
    await place.register(*names)
    await eventually(lambda: place.counts().total() >= 5)
    workers[0].kill()
    await place.completed(*names)
    counts = place.counts()
    assert sorted(counts) == sorted(names)
    again = {name: count for name, count in counts.items() if count > 1}
    assert set(again.values()) <= {2}
    assert len(again) <= 4, "no more than its slots"


async def test_s23_poison_kills_its_workers_no_more_than_so_often(place: Place) -> None:
    healthy = [f"op-{n}" for n in range(20)]
    await place.register("poison", poison=True)
    await place.register(*healthy)
    place.start()
    await place.completed(*healthy)
    async with asyncio.timeout(SOON_S):
        while (found := (await place.read("poison"))[0]).error != {"code": "parked"}:
            place.supervise()
    assert found.state is S.PENDING
    assert place.counts()["poison"] == 3
    async with Ledger(f"sqlite:///{place.folder}/ledger.db") as ledger:
        (item,) = (await ledger.in_doubt(kinds=["delayed_effect"])).items
    assert item.key == "poison"
