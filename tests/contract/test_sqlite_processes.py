"""Several real processes on one file, killed where they stand: nothing acknowledged is lost.

S19 is told here: many writers and a long reader, and no "locked" error reaches anybody.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from typing import Any

import apsw
import pytest

from indoubt.store import DueQuery
from indoubt.stores.sqlite import SQLiteStore
from indoubt.testing.store_contract.examples import LONG_AGO, batch, events, put

# Writes records and new versions of them without end, and says what was acknowledged.
WRITE = """
import asyncio, itertools, json, sys
from indoubt.store import Version, Written
from indoubt.stores.sqlite import SQLiteStore
from indoubt.testing.store_contract.examples import batch, put

async def caller(store, name):
    for n in itertools.count():
        record = f"{name}.{n}"
        for version in range(3):
            change = {"expected": Version(version)} if version else {}
            (answer,) = await store.write([batch(put(record, **change))])
            assert isinstance(answer, Written), answer
            print(json.dumps([record, version + 1]), flush=True)

def blocking(store, name):
    for n in itertools.count():
        (answer,) = store.write_blocking([batch(put(f"{name}.{n}"))])
        assert isinstance(answer, Written), answer
        print(json.dumps([f"{name}.{n}", 1]), flush=True)

async def main(path, name, callers):
    store = SQLiteStore(path)
    if callers == 0:
        blocking(store, name)
    await asyncio.gather(*(caller(store, f"{name}.{n}") for n in range(callers)))

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""

# Claims what is due and completes it, until nothing is; says what it completed.
CLAIM_AND_COMPLETE = """
import sys
from indoubt.store import DueQuery, Version, Written
from indoubt.stores.sqlite import SQLiteStore
from indoubt.testing.store_contract.examples import FAR_OFF, batch, put
import asyncio

async def main(path, me):
    store = SQLiteStore(path)
    while records := (await store.due(DueQuery((("effect", 16),)))).records:
        for record in records:
            claim = put(record.id, expected=Version(record.version), owner=me, state="claimed")
            claim = claim._replace(ready_at=record.ready_at)  # nobody waits for the dead
            (claimed,) = await store.write([batch(claim)])
            if isinstance(claimed, Written):
                done = claim._replace(expected=Version(claimed.versions[0]), state="done")
                done = done._replace(ready_at=None)
                (completed,) = await store.write([batch(done)])
                if isinstance(completed, Written):
                    print(record.id, flush=True)
                    continue
                claimed = completed
            assert type(claimed).__name__ == "Conflict", repr(claimed)

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


def started(program: str, *args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def killed_after(process: subprocess.Popen[str], lines: int) -> dict[str, int]:
    """Let it acknowledge so many writes, kill it, and return the newest version of each record."""
    assert process.stdout is not None
    heard = [process.stdout.readline() for _ in range(lines)]
    process.kill()
    rest, errors = process.communicate()
    assert "Error" not in errors, errors
    whole = [line for line in [*heard, *rest.splitlines(keepends=True)] if line.endswith("\n")]
    newest: dict[str, int] = {}
    for line in whole:
        record, version = json.loads(line)
        newest[record] = max(version, newest.get(record, 0))
    return newest


def check_integrity(path: str) -> None:
    db: Any = apsw.Connection(path)
    assert db.pragma("integrity_check") == "ok"
    db.close()


@pytest.mark.parametrize("callers", [0, 1, 12])
async def test_a_process_killed_inside_its_writes_loses_nothing_acknowledged(
    path: str, callers: int
) -> None:
    chance = random.Random(callers)  # noqa: S311
    acknowledged: dict[str, int] = {}
    for round_ in range(5):
        process = started(WRITE, path, f"round-{round_}", str(callers))
        acknowledged |= await asyncio.to_thread(killed_after, process, chance.randrange(1, 120))
        check_integrity(path)
        store = SQLiteStore(path)
        for names in chunks(sorted(acknowledged), 500):
            found = {r.id: r.version for r in (await store.read(names)).records}
            assert all(found.get(name, 0) >= acknowledged[name] for name in names)
        for name in chance.sample(sorted(acknowledged), min(5, len(acknowledged))):
            numbers = [n for n, _ in await events(store, name)]
            assert numbers == list(range(1, len(numbers) + 1))
        await store.close()


def chunks(names: list[str], size: int) -> list[list[str]]:
    return [names[start : start + size] for start in range(0, len(names), size)]


async def test_two_processes_killed_at_once_leave_a_whole_ledger(path: str) -> None:
    await SQLiteStore(path).close()
    both = [started(WRITE, path, f"p{n}", "4") for n in range(2)]
    heard = await asyncio.gather(*(asyncio.to_thread(killed_after, one, 60) for one in both))
    check_integrity(path)
    store = SQLiteStore(path)
    for acknowledged in heard:
        found = {r.id: r.version for r in (await store.read(list(acknowledged))).records}
        assert all(found.get(name, 0) >= version for name, version in acknowledged.items())
    await store.close()


async def test_s19_eight_writers_and_a_long_reader_meet_no_locked_error(path: str) -> None:
    store = SQLiteStore(path)
    names = [f"intent-{n:03}" for n in range(96)]
    await store.write([batch(put(name, ready_at=LONG_AGO + n)) for n, name in enumerate(names)])
    reader: Any = apsw.Connection(path)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM record").fetchall() == [(96,)]

    workers = [started(CLAIM_AND_COMPLETE, path, f"worker-{n}") for n in range(8)]
    victim = workers[0]
    assert victim.stdout is not None
    heard = [await asyncio.to_thread(victim.stdout.readline)]
    victim.kill()
    said = await asyncio.gather(*(asyncio.to_thread(worker.communicate) for worker in workers))

    # On a busy machine the first worker may be done before the others start, and cannot be killed.
    assert victim.returncode in {-9, 0}, said
    assert [worker.returncode for worker in workers[1:]] == [0] * 7, said
    assert not [errors for _, errors in said if errors]
    completed = Counter("".join([*heard, *(out for out, _ in said)]).split())
    assert set(completed.values()) == {1}
    records = (await store.read(names)).records
    assert {record.state for record in records} == {"done"}
    # The victim may have been killed between its commit and its word about it.
    assert len(names) - 1 <= len(completed) <= len(names)
    assert (await store.due(DueQuery((("effect", 1),)))).records == ()
    assert reader.execute("SELECT count(*) FROM record WHERE state = 'dispatched'").fetchall() == [
        (96,)
    ]
    reader.execute("ROLLBACK")
    reader.close()
    await store.close()


async def test_a_store_used_by_two_processes_counts_both(path: str) -> None:
    store = SQLiteStore(path)
    other = started(WRITE, path, "other", "1")
    await store.write([batch(put("mine"))])
    theirs = await asyncio.to_thread(killed_after, other, 9)
    names = ["mine", *theirs]
    assert len((await store.read(names)).records) == len(names)
    await store.close()
