"""A worker of the storm: until it is killed, it does at random whatever a program can do to acts.

Its bank is a file: an effect is a line, appended in one write, so that it is there or is not. A
look-up sees lines only after a lag.
"""

# ruff: noqa: S311 - chance is what a storm is made of
from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import indoubt.sync
from indoubt import DoubtfulAttempt, IndoubtError, Ledger, ProbeBudget, Retention
from indoubt.stores import open_store
from indoubt.testing import CrashStore
from indoubt.testing.crash import Fate, How

LAG_S = 0.05
LEASE = timedelta(milliseconds=600)
SETTLE = timedelta(milliseconds=200)
SAFETIES = (
    "pure",
    "idempotent",
    "retry_safe",
    "status_query_required",
    "non_idempotent",
    "human_confirmation_required",
)
TENANTS = ("north", "south")
ACTS = 3
CALLERS = 4


class Declined(Exception):
    """The bank said no: nothing happened."""


class Loses(Fate):
    """A store some of whose answers are lost, and which some questions never reach."""

    def begin(self, name: str) -> How | None:
        """Decide it for one outside call."""
        if not name.startswith(("write", "renew")) or random.random() > 0.03:
            return None
        return random.choice(("answer_lost", "never_arrived"))


@dataclass
class Bank:
    """What really happened, one line each: act, receipt, time."""

    path: Path

    def pay(self, act: str) -> dict[str, str]:
        """It happens here and nowhere else."""
        receipt = os.urandom(6).hex()
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(fd, f"{act} {receipt} {time.time()}\n".encode())
        finally:
            os.close(fd)
        return {"id": receipt}

    def paid(self, act: str, *, lag_s: float = 0.0) -> list[str]:
        """The receipts of an act, as a look-up with this lag sees them."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        seen = [line.split() for line in lines]
        until = time.time() - lag_s
        return [one[1] for one in seen if one[0] == act and float(one[2]) <= until]

    def probe(self, attempt: DoubtfulAttempt) -> Any:
        """Look an act up; sometimes there is no telling."""
        chance = random.random()
        if chance < 0.1:
            raise ConnectionError("the bank is closed")
        if chance < 0.2:
            return attempt.unavailable()
        if chance < 0.23:
            return attempt.unknown()
        time.sleep(random.uniform(0, 0.02))  # handler under test blocks
        found = self.paid(attempt.arguments["act"], lag_s=LAG_S)
        return attempt.succeeded({"id": found[0]}) if found else attempt.not_found()


def itself(act: str) -> str:
    """The key of an act is its name."""
    return act


def policy(bank: Bank, safety: str, *, plain: bool) -> dict[str, Any]:
    """How the storm's effects are declared, in its workers and in whoever recovers."""
    name = f"{safety}_{'plain' if plain else 'async'}"
    given: dict[str, Any] = {"safety": safety, "name": name, "clean_failures": (Declined,)}
    given["key"] = None if safety == "idempotent" else itself
    given |= {"settle_time": SETTLE, "not_found_is_authoritative": True, "probe": bank.probe}
    given["probe_budget"] = ProbeBudget(6, timedelta(seconds=3))
    if plain:
        given["resend_on_proven_absence"] = safety == "non_idempotent"
    else:
        given["timeout"] = timedelta(milliseconds=400)
    return given


def before() -> None:
    """What goes wrong before anything has happened."""
    chance = random.random()
    if chance < 0.1:
        raise Declined("insufficient funds")
    if chance < 0.2:
        raise ConnectionError("it was never sent")


def after(receipt: dict[str, str]) -> Any:
    """What goes wrong after it has happened."""
    chance = random.random()
    if chance < 0.15:
        raise ConnectionError("the answer was lost")
    return object() if chance < 0.18 else receipt


def guard(ledger: Any, bank: Bank) -> list[Any]:
    """All twelve effects: each class, as an ``async def`` and as a ``def``."""
    return [
        made
        for safety in SAFETIES
        for made in (_plain(ledger, bank, safety), _async(ledger, bank, safety))
    ]


def _plain(ledger: Any, bank: Bank, safety: str) -> Any:
    @ledger.effect(**policy(bank, safety, plain=True))
    def pay(act: str) -> Any:
        before()
        time.sleep(random.choice((0, 0.05, 0.3)))  # handler under test blocks
        return after(bank.pay(act))

    return pay


def _async(ledger: Any, bank: Bank, safety: str) -> Any:
    @ledger.effect(**policy(bank, safety, plain=False))
    async def pay(act: str, *, effect: Any) -> Any:
        before()
        if random.random() < 0.1:
            await effect.checkpoint({"at": "the bank"})
        await asyncio.sleep(random.choice((0, 0.1, 0.5)))  # handler under test blocks
        return after(bank.pay(act))

    return pay


def an_act(effects: list[Any]) -> tuple[Any, str, str]:
    """One of few acts, so that callers meet, and others a while later: effect, act and tenant."""
    number = random.randrange(len(effects))
    tenant = random.choice(TENANTS)
    safety = SAFETIES[number * len(SAFETIES) // len(effects)]
    which = f"{len(effects)}.{number}.{int(time.time() // 4)}.{random.randrange(ACTS)}"
    return effects[number], f"{tenant}-{safety}-{which}", tenant


class Worker:
    """Callers, each doing one thing after another; what they were told is a line each."""

    def __init__(self, url: str, bank: Bank, told: Path) -> None:
        self._ledger = Ledger(CrashStore(open_store(url), Loses()), lease=LEASE)
        self._effects = guard(self._ledger, bank)
        self._sync = indoubt.sync.Ledger(url, lease=LEASE)
        self._sync_effects = guard(self._sync, bank)[::2]
        self._told = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def run(self) -> None:
        """Until it is killed."""
        threading.Thread(target=self._block, daemon=True).start()
        await asyncio.gather(*(self._caller() for _ in range(CALLERS)))

    async def _caller(self) -> None:
        while True:
            chance = random.random()
            with suppress(IndoubtError, TimeoutError, LookupError):
                if chance < 0.85:
                    await self._call()
                elif chance < 0.95:
                    await self._ledger.recover(wait=timedelta(milliseconds=300))
                elif chance < 0.97:
                    await self._cancel()
                else:
                    await self._ledger.prune(Retention(timedelta(seconds=3)))

    async def _call(self) -> None:
        pay, act, tenant = an_act(self._effects)
        wait = timedelta(seconds=random.choice((0, 0.2, 0.8)))
        using = pay.using(tenant_id=tenant, scope="storm", wait=wait)
        async with asyncio.timeout(random.choice((0.05, 0.3, 5, 5))):
            try:
                self._tell(act, await using.aio(act))
            except Declined:
                self._tell(act, "declined")

    async def _cancel(self) -> None:
        page = await self._ledger.in_doubt(limit=20)
        if page.items:
            item = random.choice(page.items)
            await self._ledger.cancel(item.ref, actor="storm", reason="withdrawn")

    def _block(self) -> None:
        while True:
            pay, act, tenant = an_act(self._sync_effects)
            with suppress(IndoubtError, Declined):
                wait = timedelta(seconds=random.choice((0, 0.3)))
                self._tell(act, pay.using(tenant_id=tenant, scope="storm", wait=wait)(act))
            with suppress(IndoubtError):
                if random.random() < 0.05:
                    self._sync.recover(wait=timedelta(0))

    def _tell(self, act: str, answer: Any) -> None:
        os.write(self._told, (json.dumps([act, answer]) + "\n").encode())


if __name__ == "__main__":
    random.seed(sys.argv[4])
    worker = Worker(sys.argv[1], Bank(Path(sys.argv[2])), Path(sys.argv[3]))
    asyncio.run(worker.run())
