"""A storm over one SQLite file: workers killed and stopped at random, people who decide, a checker.

``python -m tests.race.storm --seed 7 --seconds 60``. The seed fixes what is drawn, not how the
processes meet. The oracle is the bank's own file.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.race.storm_worker import LEASE, TENANTS, Bank, guard

from indoubt import (
    AllowOneAttempt,
    DidNotHappen,
    GiveUp,
    Happened,
    IndoubtError,
    Ledger,
    RecordView,
)
from indoubt.core.codec import record_of
from indoubt.store import ScanQuery

WORKER = Path(__file__).with_name("storm_worker.py")
WORKERS = 3
ONCE = ("status_query_required", "non_idempotent", "human_confirmation_required")
END_S = 60.0


class Storm:
    """One storm in a directory of its own."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed, self.url = seed, f"sqlite:///{folder}/ledger.db"
        self.bank, self.told = Bank(folder / "bank"), folder / "told"
        self.ledger = Ledger(self.url, lease=LEASE)
        guard(self.ledger, self.bank)
        self.did: Counter[str] = Counter()
        self.words: Counter[str] = Counter()
        self._random = random.Random(seed)  # noqa: S311 - to be drawn again
        self._numbers = itertools.count()
        self._workers: list[subprocess.Popen[bytes]] = []

    async def blow(self, seconds: float) -> None:
        """Run it, then end every worker."""
        until = time.monotonic() + seconds
        try:
            people = [self._person(name, until) for name in ("ana", "bo")]
            await asyncio.gather(self._kill(until), *people)
        finally:
            for worker in self._workers:
                worker.kill()
                worker.wait()

    async def _kill(self, until: float) -> None:
        self._workers = [self._spawn() for _ in range(WORKERS)]
        while time.monotonic() < until:
            await _while(self._random.uniform(0.2, 0.8))
            number = self._random.randrange(WORKERS)
            if self._workers[number].poll() is not None:
                self.did["worker ended by itself"] += 1
            if self._random.random() < 0.5:
                await self._stop(self._workers[number])
                continue
            self._workers[number].kill()
            self._workers[number].wait()
            self.did["kill"] += 1
            self._workers[number] = self._spawn()

    async def _stop(self, worker: subprocess.Popen[bytes]) -> None:
        """Stand still past the lease, then go on as if nothing had been."""
        worker.send_signal(signal.SIGSTOP)
        await _while(self._random.uniform(0.8, 2.0))
        worker.send_signal(signal.SIGCONT)
        self.did["stop"] += 1

    def _spawn(self) -> subprocess.Popen[bytes]:
        seed = f"{self.seed}.{next(self._numbers)}"
        command = [sys.executable, str(WORKER), self.url, str(self.bank.path), str(self.told), seed]
        here = str(Path(__file__).parents[2])
        return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": here})

    async def _person(self, name: str, until: float) -> None:
        while time.monotonic() < until:
            await _while(self._random.uniform(0.05, 0.3))
            tenant = self._random.choice(TENANTS)
            page = await self.ledger.in_doubt(tenant_id=tenant, limit=50)
            assert all(item.tenant_id == tenant for item in page.items)
            asked = [item for item in page.items if item.state == "awaiting_decision"]
            for item in asked[:3]:
                await self.decide(item, name)
            if page.items and self._random.random() < 0.1:
                await self.decide(self._random.choice(page.items), name)

    async def decide(self, item: RecordView, name: str) -> None:
        """Say what the bank shows; where it shows nothing, any other word."""
        found = self.bank.paid(item.arguments["act"])
        word: Any = (
            Happened({"id": found[0]})
            if found
            else self._random.choice(
                (DidNotHappen(), AllowOneAttempt(), AllowOneAttempt(), GiveUp())
            )
        )
        try:
            await self.ledger.decide(item, word, actor=name, reason="as the bank shows")
        except IndoubtError as refused:
            self.did[type(refused).__name__] += 1
            return
        self.did[type(word).__name__] += 1
        if isinstance(word, DidNotHappen | AllowOneAttempt):
            self.words[item.arguments["act"]] += 1

    async def settle(self) -> None:
        """Everything ends: by recovery, or by a person.

        Raises:
            TimeoutError: something does not.
        """
        async with asyncio.timeout(END_S):
            while True:
                done = await self.ledger.recover(wait=timedelta(0), limit=1000)
                assert not [e for e in done.errors if "Error" in e[1] and "Conn" not in e[1]], done
                page = await self.ledger.in_doubt(limit=1000)
                if not page.items and not done.waiting:
                    return
                if not page.items and all(one.state == "prepared" for one in done.waiting):
                    return
                for item in page.items:
                    await self.decide(item, "cy")
                await _while(0.1)

    async def check(self) -> list[str]:
        """What is not as promised."""
        lines = self.bank.path.read_text().splitlines()
        counts = Counter(line.split()[0] for line in lines)
        receipts = {line.split()[1] for line in lines}
        wrong: list[str] = []
        for line in self.told.read_text().splitlines():
            act, answer = json.loads(line)
            self.did["told"] += 1
            if isinstance(answer, dict) and answer["id"] not in receipts:
                wrong.append(f"{act}: told {answer}, which the bank never gave")
            if isinstance(answer, dict) and answer["id"] not in self.bank.paid(act):
                wrong.append(f"{act}: told the receipt of another act")
        for act, many in counts.items():
            if act.split("-")[1] in ONCE and many > 1 + self.words[act]:
                wrong.append(f"{act}: happened {many} times, {self.words[act]} by permission")
        for record in await self._records():
            wrong += self._judge(record, counts)
        self.did["effects"] = sum(counts.values())
        return wrong

    def _judge(self, record: Any, counts: Counter[str]) -> list[str]:
        if record.pruned:
            return []
        act = json.loads(bytes(record.payload))["act"]
        many = counts[act]
        self.did[f"ended {record.state}"] += 1
        wrong: list[str] = []
        if not act.startswith(record.tenant_id):
            wrong.append(f"{act}: of tenant {record.tenant_id}")
        if record.state == "succeeded" and many == 0:
            wrong.append(f"{act}: recorded as done, and never happened ({record.id})")
        none = record.effect == "none" and not record.contradicted and not record.decisions
        if none and many and record.state in {"failed", "cancelled"}:
            wrong.append(f"{act}: {record.state} without effect, happened {many} ({record.id})")
        return wrong

    async def _records(self) -> list[Any]:
        found: list[Any] = []
        after: str | None = None
        store = self.ledger.open().store
        while True:
            page = await store.scan(ScanQuery(after=after, limit=1000))
            found += [record_of(row) for row in page.records]
            if (after := page.cursor) is None:
                return found


async def _while(seconds: float) -> None:
    """Let the others go on for a while: a storm has no event to wait for."""
    nothing = asyncio.get_running_loop().create_future()
    await asyncio.wait([nothing], timeout=seconds)


async def storm(folder: Path, *, seed: int, seconds: float) -> Storm:
    """Let it blow, let it settle, and see that every promise was kept."""
    made = Storm(folder, seed)
    await made.blow(seconds)
    await made.settle()
    wrong = await made.check()
    await made.ledger.close()
    assert not wrong, "\n".join([f"seed {seed}: {dict(made.did)}", *wrong])
    return made


def main() -> None:
    """Run one from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, suppress(KeyboardInterrupt):
        made = asyncio.run(storm(Path(folder), seed=given.seed, seconds=given.seconds))
        sys.stdout.write(f"{dict(made.did)}\n")


if __name__ == "__main__":
    main()
