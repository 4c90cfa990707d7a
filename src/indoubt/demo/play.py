"""The scenes of the demo: kill, recover, ask a person, repeat every call, count."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from indoubt import stores
from indoubt.contracts import ExecutionSafetyClass as Safety
from indoubt.errors import IndoubtError, SchemaMissing
from indoubt.ledger import Ledger
from indoubt.testing.provider import FakeProvider, act_async, find_async

from .acts import AMOUNT, LEASE, guard_all
from .kills import CUTS, kill_worker
from .person import Person
from .table import final_table, matrix

if TYPE_CHECKING:
    from collections.abc import Generator

    from indoubt.recovery.items import RecordView

    from .acts import Pay

ADOPTED = "adopted"
WORDS = {"replayed": "sent again", "asked": "asks you", "waiting": "not sent", "skipped": "waits"}


def play(*, store: str | None, keep: str | None, ask: bool, console: Console | None) -> int:
    """Play all of it; 0 if the provider's own count is right in every cell."""
    console = console or Console(highlight=False)
    if store is not None:
        _check_is_new(store)
    with _directory(keep) as directory:
        with FakeProvider(directory / "provider") as bank:
            url = store or f"sqlite:///{directory}/ledger.db"
            scenes = _Play(url, bank, console, Person(console, ask=ask))
            right = asyncio.run(scenes.run())
        if keep is not None or store is not None:
            # A store's URL is not repeated: it may hold a password.
            _point_the_way(console, "URL" if store else url, scenes.shown)
    return 0 if right else 1


def _check_is_new(store: str) -> None:
    """Recover and decide nothing of somebody else's."""
    with contextlib.suppress(SchemaMissing):
        asyncio.run(stores.open_existing(store).close())
        raise ValueError(
            "there is a ledger in this store already: name a new one, with ?schema= for"
            " PostgreSQL or ?namespace= for Redis"
        )


def _point_the_way(console: Console, store: str, ref: str) -> None:
    command = Path(sys.executable).with_name("indoubt")
    console.print("\nLook around:")
    for words in (f"show {ref} --journal", "inbox", "doctor"):
        console.print(f"  {command} {words} --store {store}", soft_wrap=True)


@contextmanager
def _directory(keep: str | None) -> Generator[Path, None, None]:
    if keep is not None:
        kept = Path(keep).resolve()
        if kept.exists() and (not kept.is_dir() or any(kept.iterdir())):
            raise ValueError(f"{kept} is there already: give a new folder, or an empty one")
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="indoubt-demo-") as made:
        yield Path(made)


class _Play:
    """The scenes."""

    def __init__(self, store: str, bank: FakeProvider, console: Console, person: Person) -> None:
        self._store = store
        self._bank = bank
        self._console = console
        self._person = person
        self._ledger = Ledger(store, lease=LEASE)
        self._acts = guard_all(self._ledger, bank.url, self._send, self._look)
        self._did: dict[str, str] = {}
        self.shown = ""

    async def run(self) -> bool:
        """Kill, recover, ask, repeat, count."""
        self._kill_all()
        async with self._ledger:
            await self._wait_for_leases()
            died_at = self._bank.counts()
            await self._recover()
            self._console.print(matrix(self._did, self._bank.counts()))
            self._count_blind_guesses(died_at)
            await self._decide()
            await self._repeat_all()
        return self._judge()

    def _kill_all(self) -> None:
        self._console.print(
            "\nSeven workers hold six acts each, one of every safety class. Each is killed by"
            " [bold]kill -9[/]:\n"
        )
        for cut, what in CUTS.items():
            kill_worker(self._store, self._bank, cut)
            self._console.print(f"  [red]killed[/] at [bold]{cut}[/]  {what}")

    async def _wait_for_leases(self) -> None:
        """The last of the dead still seem to hold what they held, where no lock tells of death."""
        if not self._ledger.open().store.capabilities.decides_silence:
            self._console.print(
                f"\nOnly a lease tells here that its holder is dead: {LEASE.total_seconds():g} s."
            )
            await asyncio.sleep(LEASE.total_seconds())

    async def _recover(self) -> None:
        self._console.print("\nA new process calls [bold]ledger.recover()[/]:\n")
        found = await self._ledger.recover(wait=timedelta(seconds=10))
        for word in ("settled", "replayed", "asked", "waiting", "skipped"):
            for view in getattr(found, word):
                self._did[view.key or ""] = _word(word, view)

    def _count_blind_guesses(self, died_at: dict[str, int]) -> None:
        """What guessing would have done with the acts whose outcome the dead had not recorded."""
        unsure = [key for key in self._did if Safety.PURE not in key]
        paid = sum(died_at.get(key, 0) > 0 for key in unsure)
        self._console.print(
            f"\nNobody recorded how {len(unsure)} payments ended. Sending them all again without"
            f" looking would have paid up to [red]{paid}[/] of them twice; holding them all for"
            f" done would have lost [red]{len(unsure) - paid}[/].\n"
        )

    async def _decide(self) -> None:
        found = (await self._ledger.in_doubt(limit=1_000)).items
        items = sorted(found, key=lambda item: item.key or "")
        self._console.print(
            f"[bold]{len(items)}[/] are left for a person. indoubt does not claim to know them:\n"
        )
        for item in items:
            self.shown = item.ref
            decision, reason = self._person.decide(item, self._bank.count(item.key or ""))
            await self._ledger.decide(item, decision, actor=self._person.name, reason=reason)

    async def _repeat_all(self) -> None:
        self._console.print("\nThe callers come back and call everything again:\n")
        for cut in CUTS:
            for safety, pay in self._acts.items():
                await self._repeat(pay, f"{cut} {safety}")

    async def _repeat(self, pay: Pay, key: str) -> None:
        try:
            await pay(key)
        except IndoubtError as error:
            self._console.print(f"  {key}: {type(error).__name__}")

    def _judge(self) -> bool:
        """The provider's own count is the judge."""
        counts = self._bank.counts()
        paying = [f"{cut} {safety}" for cut in CUTS for safety in self._acts if safety != "pure"]
        self._console.print(final_table(counts, list(self._acts)))
        twice = [key for key in paying if counts.get(key, 0) > 1]
        once = sum(counts.get(key, 0) == 1 for key in paying)
        left = len(paying) - once - len(twice)
        self._console.print(
            f"\nAt the provider: [bold]{once}[/] of {len(paying)} payments happened exactly once,"
            f" [bold]{len(twice)}[/] twice" + (f", {left} not at all" if left else "") + "."
        )
        for key in twice:
            self._console.print(f"  {key} was paid twice: {self._person.excused.get(key, '?')}")
        return not [key for key in twice if key not in self._person.excused]

    async def _send(self, key: str, idempotency_key: str | None) -> dict[str, Any]:
        done = await act_async(self._bank.url, key, AMOUNT, idempotency_key=idempotency_key)
        return {"id": done["id"]}

    async def _look(self, key: str) -> dict[str, Any]:
        return {"seen": len((await find_async(self._bank.url, key)).acts)}


def _word(word: str, view: RecordView) -> str:
    if word == "settled":
        return ADOPTED if view.state == "succeeded" else view.state
    return WORDS[word]
