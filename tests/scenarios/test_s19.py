"""S19, "database is locked" although a timeout was set: guarded calls of 8 processes on one file.

Beside them one long reader, and one process is killed while it works. Nobody is told of a lock,
every act is done once, and none without its intent on disk.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import IO, Any

import apsw
import pytest
from tests.scenarios import locked_worker

from indoubt import Ledger

PROCESSES = 8
ORDERS = 40
SHARED = 10


def start(url: str, acts: Path, number: int) -> subprocess.Popen[str]:
    """A worker with orders of its own, and some that all have."""
    orders = [f"own-{number}-{n}" for n in range(ORDERS)] + [f"shared-{n}" for n in range(SHARED)]
    random.Random(number).shuffle(orders)  # noqa: S311 - a seed, not a secret
    command = [sys.executable, locked_worker.__file__, url, str(acts), *orders]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def end_of(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.read()


@pytest.mark.timeout(100)
async def test_s19_eight_processes_a_long_reader_and_a_death(tmp_path: Path) -> None:
    path, acts = tmp_path / "ledger.db", tmp_path / "acts"
    url = f"sqlite:///{path}"
    async with Ledger(url):
        pass  # made, so that nobody waits for its schema
    workers = [start(url, acts, number) for number in range(PROCESSES)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    reader: Any = apsw.Connection(str(path))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM record").fetchall()  # a snapshot that is kept
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    victim = workers[0]
    assert victim.stdout is not None
    heard = [victim.stdout.readline() for _ in range(5)]
    victim.send_signal(signal.SIGKILL)
    assert all(heard)
    said: list[list[str]] = []
    for worker in workers:
        out, errors = end_of(worker.stdout), end_of(worker.stderr)
        code = worker.wait()
        assert code == (-signal.SIGKILL if worker is victim else 0), errors
        assert "locked" not in errors.lower()
        said.append(out.splitlines())
        for stream in (worker.stdin, worker.stdout, worker.stderr):
            if stream is not None:
                stream.close()
    reader.close()
    done = acts.read_text().splitlines()
    assert {line.rpartition(" ")[2] for line in done} == {"True"}  # none without its intent
    assert max(Counter(done).values()) == 1  # none twice
    for lines in said[1:]:  # the others' own orders are all done
        own = [line for line in lines if line.startswith("own")]
        assert len(own) == ORDERS
        assert all(line.split()[0] == line.split()[1] for line in own)
    await check_what_is_left(url, done)


async def check_what_is_left(url: str, done: list[str]) -> None:
    """At most what the victim had in hand is in doubt, and everything done is recorded."""
    async with Ledger(url) as ledger:
        items = (await ledger.in_doubt()).items
        assert len(items) <= 1
        doubted = {item.key for item in items}
        for line in done:
            order = line.split()[0]
            record = await ledger.find("act", order)
            assert record is not None
            assert record.state == "succeeded" or order in doubted
