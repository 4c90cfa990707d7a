"""Proof of death: only a lock that nobody holds proves it, and only where locks can be trusted."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from indoubt.errors import StoreBroken, StoreUnavailable
from indoubt.stores import owners as module
from indoubt.stores.owners import Owners

HOLD = """
import sys, time
from pathlib import Path
from indoubt.stores.owners import Owners
Owners(Path(sys.argv[1])).hold(sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""
LONG_AGO_S = 1_600_000_000


@pytest.fixture
def database(tmp_path: Path) -> Path:
    database = tmp_path / "ledger.db"
    database.touch(0o640)
    return database


class Process:
    """Another process that holds an owner's lock until it dies."""

    def __init__(self, database: Path, owner: str) -> None:
        self._running = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(database), owner],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._running.stdout is not None
        assert self._running.stdout.readline() == "held\n"

    def signal(self, number: int) -> None:
        os.kill(self._running.pid, number)

    def end(self) -> None:
        self._running.kill()
        self._running.communicate()


def test_a_process_is_alive_until_it_is_killed(database: Path) -> None:
    owners = Owners(database)
    other = Process(database, "other")
    assert owners.dead("other") is False
    other.signal(signal.SIGSTOP)
    assert owners.dead("other") is False
    other.end()
    assert owners.dead("other") is True
    assert owners.dead("other") is True


def test_killed_and_not_yet_reaped_is_dead(database: Path) -> None:
    owners = Owners(database)
    other = Process(database, "other")
    other.signal(signal.SIGKILL)
    while owners.dead("other") is False:
        continue
    assert owners.dead("other") is True
    other.end()


def test_a_forked_child_keeps_its_parent_alive(database: Path) -> None:
    """Errs to "alive": a child may still be sending what its parent began."""
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        os.close(write)
        Owners(database).hold("parent")
        if os.fork() == 0:
            os.read(read, 1)  # until the test closes its end
        os._exit(0)
    os.close(read)
    os.waitpid(parent, 0)
    owners = Owners(database)
    assert owners.dead("parent") is False
    os.close(write)
    while owners.dead("parent") is False:
        continue
    assert owners.dead("parent") is True


def test_the_lock_does_not_pass_to_a_program_that_is_started(database: Path) -> None:
    owners = Owners(database)
    owners.hold("mine")
    try:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
            owners.release("mine")
            assert owners.dead("mine") is True
            started.communicate(b"\n")
    finally:
        owners.release("mine")


def test_ones_own_lock_is_alive_from_every_store_of_the_process(database: Path) -> None:
    first, second = Owners(database), Owners(database)
    first.hold("mine")
    second.hold("mine")
    assert first.dead("mine") is False
    assert second.dead("mine") is False
    first.release("mine")
    assert second.dead("mine") is True


def test_two_who_ask_at_once_do_not_take_each_other_for_the_owner(database: Path) -> None:
    owners = Owners(database)
    (owners.folder / "gone").touch()
    asking = os.open(owners.folder / "gone", os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    assert owners.dead("gone") is True
    os.close(asking)


def test_anothers_name_is_not_to_be_had(database: Path) -> None:
    other = Process(database, "other")
    with pytest.raises(StoreUnavailable, match="another process"):
        Owners(database).hold("other")
    other.end()


def test_an_owner_without_a_file_is_undecided(database: Path) -> None:
    assert Owners(database).dead("never-seen") is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".turn", "../ledger.db", "a/b", "\0", "é", "x" * 101]
)
def test_a_name_cannot_leave_the_folder(database: Path, name: str) -> None:
    owners = Owners(database)
    before = set(database.parent.rglob("*"))
    with pytest.raises(ValueError, match="letters"):
        owners.hold(name)
    assert owners.dead(name) is None
    assert set(database.parent.rglob("*")) == before


def test_a_link_in_the_folder_is_not_followed(database: Path) -> None:
    owners = Owners(database)
    (owners.folder / "link").symlink_to(database)
    with pytest.raises(StoreBroken):
        owners.hold("link")
    assert owners.dead("link") is None


LOCAL = (0xEF53, 0x58465342, 0x01021994, 0x794C7630)  # ext4, xfs, tmpfs, overlayfs
OTHER = (0x6969, 0xFF534D42, 0xFE534D42, 0x65735546, 1)  # nfs, cifs, smb2, fuse, unheard of


@pytest.mark.parametrize("magic", [*LOCAL, *OTHER], ids=hex)
def test_only_file_systems_of_this_machine_prove_anything(
    database: Path, monkeypatch: pytest.MonkeyPatch, magic: int
) -> None:
    def told(_folder: Path) -> int:
        return magic

    monkeypatch.setattr(module, "_magic", told)
    owners = Owners(database)
    (owners.folder / "gone").touch()
    assert owners.decides is (magic in LOCAL)
    assert owners.dead("gone") is (True if magic in LOCAL else None)


def test_this_disk_is_local(database: Path) -> None:
    assert module._is_local(database.parent)
    assert not module._is_local(Path("/proc"))
    assert not module._is_local(database.parent / "missing")


def test_files_of_the_long_dead_are_removed_and_no_others(database: Path) -> None:
    owners = Owners(database)
    for name in ("old", "old-alive", "young", ".old"):
        (owners.folder / name).touch()
    other = Process(database, "old-alive")
    for name in ("old", "old-alive", ".old"):
        os.utime(owners.folder / name, (LONG_AGO_S, LONG_AGO_S))
    Owners(database)
    left = sorted(file.name for file in owners.folder.iterdir())
    assert left == [".old", "old-alive", "young"]
    other.end()


def test_a_file_removed_while_it_was_being_locked_is_made_again(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = Owners(database)
    path = owners.folder / "mine"
    removed: list[int] = []

    def remove_once(_fd: int) -> None:
        if not removed:
            removed.append(1)
            path.unlink()

    monkeypatch.setattr("indoubt.stores.owners.os.utime", remove_once)
    owners.hold("mine")
    assert removed
    assert path.exists()
    assert owners.dead("mine") is False
    owners.release("mine")


def test_the_folder_is_for_the_same_people_as_the_database(database: Path) -> None:
    owners = Owners(database)
    owners.hold("mine")
    assert oct(owners.folder.stat().st_mode & 0o777) == oct(0o750)
    assert oct((owners.folder / "mine").stat().st_mode & 0o777) == oct(0o640)
    owners.release("mine")
