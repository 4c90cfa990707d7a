"""S25, an upgrade while acts are parked: nothing is lost, everything can still be decided.

A file as an older version could have written it (its schema is synthetic, see tests/migrations)
with an act in every state; this version upgrades it, and goes on where the older one stopped.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.conftest import Crash, Declined, World

from indoubt import (
    AllowOneAttempt,
    DidNotHappen,
    EffectFailed,
    GiveUp,
    Happened,
    Ledger,
    OutcomeUnknown,
    SchemaTooNew,
    SchemaTooOld,
    StoreError,
)
from indoubt.stores.sql import steps
from indoubt.stores.sqlite import SQLiteStore, schema, upgrade

BY = {"actor": "ana", "reason": "given before the upgrade"}
OLD, STEP = steps(Path(__file__).parents[1] / "migrations")
GONE = ("dispatched_at", "doubt_since", "queue")  # what the older schema does not have
NOW = timedelta(0)
STATES = {
    "prepared": "prepared",
    "executing": "dispatched",
    "in doubt": "in_doubt",
    "asked": "awaiting_decision",
    "approved": "permitted",
    "paid": "succeeded",
    "declined": "failed",
    "failed": "failed",
    "cancelled": "cancelled",
    "given up": "unknown",
}


class Older:
    """What version N wrote, and how to open it."""

    def __init__(self, world: World, path: Path) -> None:
        self.world = world
        self.path = path
        self.refs: dict[str, str] = {}

    def ledger(self) -> Ledger:
        ledger = Ledger(SQLiteStore(self.path, clock=self.world.clock), clock=self.world.clock)
        self.world.payer(ledger, probe=self.world.bank.probe)
        return ledger

    async def doubt(self, ledger: Ledger, order: str, says: str = "unknown") -> str:
        """One act in doubt, as version N left it."""
        self.world.bank.next, self.world.bank.says = ["lost"], says
        pay = self.world.payer(ledger, probe=self.world.bank.probe)
        with pytest.raises((OutcomeUnknown, EffectFailed)) as caught:
            await pay.using(wait=NOW)(order)
        record = await ledger.get(getattr(caught.value, "record_id", ""))
        self.refs[order] = record.ref
        return record.ref

    async def write(self, ledger: Ledger) -> None:
        """An act in every state."""
        world = self.world
        pay = world.payer(ledger, probe=world.bank.probe)
        await self.doubt(ledger, "in doubt", says="unavailable")
        await self.doubt(ledger, "asked")
        await ledger.decide(await self.doubt(ledger, "approved"), AllowOneAttempt(), **BY)
        await self.doubt(ledger, "failed", says="failed")
        await ledger.decide(await self.doubt(ledger, "given up"), GiveUp(), **BY)
        world.bank.next = ["declined"]
        with pytest.raises(Declined):
            await pay("declined")
        await pay("paid")
        for order in ("prepared", "cancelled"):
            await self.unsent(ledger, order)
        record = await ledger.find("pay", "cancelled")
        assert record is not None
        await ledger.cancel(record.ref, **BY)
        dying = self.ledger()
        world.bank.next = ["crash_after"]
        with pytest.raises(Crash):
            await world.payer(dying, probe=world.bank.probe)("executing")
        store: Any = dying.open().store
        store.release_owner(dying.open().engine.owner.current())
        await dying.close()

    async def unsent(self, ledger: Ledger, order: str) -> None:
        store: Any = ledger.open().store
        write = store.write

        async def late(batches: Any) -> Any:
            answers = await write(batches)
            self.world.pass_time(1)
            return answers

        store.write = late
        slow = self.world.payer(ledger, timeout=timedelta(milliseconds=1))
        with pytest.raises(StoreError):
            await slow(order)
        store.write = write

    def age(self) -> None:
        """Write the file anew as the older schema has it."""
        content = self.path.read_bytes
        made: Any = apsw.Connection(str(self.path))
        made.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        names = [row[1] for row in made.execute("PRAGMA table_info(record)") if row[1] not in GONE]
        columns = ", ".join(names)
        rows = made.execute(f"SELECT {columns} FROM record").fetchall()  # noqa: S608
        events = made.execute("SELECT * FROM journal").fetchall()
        meta = made.execute("SELECT * FROM meta").fetchall()
        made.close()
        assert content()
        for file in self.path.parent.glob(f"{self.path.name}*"):
            if file.is_file():
                file.unlink()
        db: Any = apsw.Connection(str(self.path))
        db.execute(OLD.sql).fetchall()
        db.pragma("application_id", 0x1DB17)
        db.execute(
            "CREATE TABLE migration(number INTEGER PRIMARY KEY, name TEXT NOT NULL,"
            " sha256 TEXT NOT NULL, at INTEGER NOT NULL) STRICT"
        )
        db.execute("INSERT INTO migration VALUES (?, ?, ?, 0)", (OLD.number, OLD.name, OLD.sha256))
        for table, found in (("meta", meta), ("record", rows), ("journal", events)):
            marks = ", ".join("?" * len(found[0]))
            into = f"{table}({columns})" if table == "record" else table
            db.executemany(f"INSERT INTO {into} VALUES ({marks})", found)  # noqa: S608
        db.close()


@pytest.fixture
async def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Older:
    """The older file, and this version, which knows the way from there."""
    made = Older(World(), tmp_path / "ledger.db")
    ledger = made.ledger()
    await made.write(ledger)
    await ledger.close()
    made.world.bank.says = "truth"
    made.age()
    monkeypatch.setattr(schema, "SHIPPED", (OLD, STEP))
    return made


async def states(ledger: Ledger) -> dict[str, str]:
    found: dict[str, str] = {}
    for order in STATES:
        record = await ledger.find("pay", order)
        assert record is not None
        found[order] = record.state
    return found


async def test_s25_an_older_file_waits_for_its_upgrade_untouched(older: Older) -> None:
    before = older.path.read_bytes()
    with pytest.raises(SchemaTooOld, match="indoubt db upgrade"):
        Ledger(f"sqlite:///{older.path}").open()
    assert older.path.read_bytes() == before
    upgrade(str(older.path), clock=older.world.clock)
    ledger = older.ledger()
    assert await states(ledger) == STATES | {"executing": "in_doubt"}  # its holder is gone
    await ledger.close()


async def test_s25_every_act_is_reachable_and_decidable(older: Older) -> None:
    upgrade(str(older.path), clock=older.world.clock)
    ledger = older.ledger()
    items = {item.key: item for item in (await ledger.in_doubt()).items}
    assert set(items) == {"executing", "in doubt", "asked", "approved"}
    assert items["asked"].ref == older.refs["asked"]
    assert all(items[order].choices for order in ("executing", "in doubt", "asked"))
    decided = await ledger.decide(older.refs["asked"], Happened({"id": "seen"}), **BY)
    assert decided.state == "succeeded"
    corrected = await ledger.decide(older.refs["given up"], DidNotHappen(), **BY)
    assert (corrected.state, corrected.effect) == ("failed", "none")
    journal = await ledger.journal(older.refs["approved"])
    assert [entry.sequence for entry in journal] == list(range(1, len(journal) + 1))
    assert journal[-1].reason == BY["reason"]
    await ledger.close()


async def test_s25_what_was_approved_before_goes_on_after(older: Older) -> None:
    upgrade(str(older.path), clock=older.world.clock)
    ledger = older.ledger()
    before = await ledger.get(older.refs["approved"])
    recovery = await ledger.recover(wait=NOW)
    assert [view.key for view in recovery.replayed] == ["approved"]
    assert {view.key for view in recovery.settled} == {"executing", "in doubt"}
    after = await ledger.get(older.refs["approved"])
    assert (after.state, after.attempt) == ("succeeded", before.attempt + 1)
    journal = await ledger.journal(after.ref)
    fences = [entry.fence for entry in journal]
    assert fences == sorted(fences)  # fences continue, never restart
    assert fences[-1] > 1
    await ledger.close()


async def test_s25_repeats_get_what_the_older_version_recorded(older: Older) -> None:
    upgrade(str(older.path), clock=older.world.clock)
    ledger = older.ledger()
    world, calls = older.world, older.world.bank.calls
    pay = world.payer(ledger, probe=world.bank.probe)
    assert (await pay.outcome("paid")).replayed
    for order, error in (("failed", EffectFailed), ("cancelled", EffectFailed)):
        with pytest.raises(error):
            await pay(order)
    with pytest.raises(OutcomeUnknown) as caught:
        await pay("given up")
    assert caught.value.next == "closed"
    assert world.bank.calls == calls
    assert (await pay.outcome("declined")).attempt == 2
    assert (await pay.outcome("prepared")).attempt == 2
    await ledger.close()


async def test_s25_the_older_version_refuses_the_upgraded_file(
    older: Older, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade(str(older.path), clock=older.world.clock)
    before = older.path.read_bytes()
    monkeypatch.setattr(schema, "SHIPPED", (OLD,))
    with pytest.raises(SchemaTooNew, match="newer indoubt"):
        Ledger(f"sqlite:///{older.path}").open()
    assert older.path.read_bytes() == before


async def test_s25_an_unknown_state_is_refused_not_treated_as_done(older: Older) -> None:
    upgrade(str(older.path), clock=older.world.clock)
    db: Any = apsw.Connection(str(older.path))
    record_id = older.refs["asked"].partition(".")[0]
    db.execute("UPDATE record SET state = 'paused' WHERE id = ?", (record_id,))
    db.close()
    ledger = older.ledger()
    pay = older.world.payer(ledger, probe=older.world.bank.probe)
    calls = older.world.bank.calls
    with pytest.raises(StoreError, match=record_id):
        await pay("asked")
    with pytest.raises(StoreError, match=record_id):
        await ledger.get(record_id)
    with pytest.raises(StoreError, match=record_id):
        await ledger.in_doubt()
    assert older.world.bank.calls == calls
    recovery = await ledger.recover(wait=NOW)  # one bad record does not cost the good ones
    assert {view.key for view in recovery.settled} == {"executing", "in doubt"}
    await ledger.close()
