"""Proof that an owner's process is dead: a file lock that dies with it.

Each owner holds an exclusive ``flock`` on a file of its own; who gets that lock has the proof. It
is held while the process is stopped, free at once when it was killed, and still held while a
forked child lives (which errs to "alive"). Where locks may lie, nothing is proven.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..errors import StoreBroken, StoreUnavailable
from .clock import SystemClock

_NONCE: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
_FORGOTTEN_MS: Final = 30 * 24 * 3600 * 1000
# File systems of this machine alone, by their magic numbers in statfs(2). A list of those that
# are trusted, not of those that are not: a new network file system must not look local.
_LOCAL: Final = frozenset(
    {
        0xEF53,  # ext2, ext3, ext4
        0x58465342,  # xfs
        0x9123683E,  # btrfs
        0x2FC12FC1,  # zfs
        0xF2F52010,  # f2fs
        0xCA451A4E,  # bcachefs
        0x01021994,  # tmpfs
        0x858458F6,  # ramfs
        0x794C7630,  # overlayfs
        0x3153464A,  # jfs
        0x52654973,  # reiserfs
        0x3434,  # nilfs
    }
)


class Owners:
    """The locks beside one database file. They are kept until ``release`` or the process' end."""

    def __init__(self, database: Path) -> None:
        self.folder = database.with_name(f"{database.name}-owners")
        self.decides = _is_local(database.parent)
        self._database = database
        with suppress(OSError):  # hold() says what is wrong
            _make_folder(self.folder, database)
            if self.decides:
                self._forget_old()

    def hold(self, owner: str) -> None:
        """Take the owner's lock; again is no error.

        Raises:
            ValueError: the name could not be a file's name.
            StoreUnavailable: another process holds it.
            StoreBroken: no file can be made there.
        """
        if not _NONCE.fullmatch(owner):
            raise ValueError("an owner is named by up to 100 letters, digits, _ and -")
        try:
            _make_folder(self.folder, self._database)
            with _lock:
                path = str(self.folder / owner)
                held = _held.get(path)
                if held is None or held[0] != os.getpid():
                    _held[path] = (os.getpid(), _take(path, self._database.stat()))
        except OSError as error:
            raise StoreBroken(f"{self.folder}: no owner's lock: {error.strerror}") from error

    def release(self, owner: str) -> None:
        """From now on the owner counts as dead: nothing of it may still be running."""
        with _lock:
            held = _held.pop(str(self.folder / owner), None)
            if held is not None and held[0] == os.getpid():
                os.close(held[1])

    def dead(self, owner: str) -> bool | None:
        """True: proven. False: it lives. None: no proof to be had here."""
        if not self.decides or not _NONCE.fullmatch(owner):
            return None
        try:
            fd = os.open(self.folder / owner, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            # Shared, so that two who ask at once do not take each other for the owner.
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return None
        else:
            return True
        finally:
            os.close(fd)

    def _forget_old(self) -> None:
        """Remove files of owners dead for so long that no record names them any more."""
        limit_s = (SystemClock().wall_ms() - _FORGOTTEN_MS) / 1000
        for path in self.folder.iterdir():
            try:
                if _NONCE.fullmatch(path.name) and path.stat().st_mtime < limit_s:
                    _remove_dead(path)
            except OSError:  # locked, gone, or not ours to remove
                continue


# One table for the process: two stores on one file share the process' one lock.
_held: dict[str, tuple[int, int]] = {}
_lock = threading.Lock()


def _make_folder(folder: Path, database: Path) -> None:
    """For the same people as the database: as SQLite does with its -wal file."""
    if not folder.is_dir():
        like = database.stat()
        folder.mkdir(exist_ok=True)
        folder.chmod((like.st_mode & 0o666) | ((like.st_mode & 0o444) >> 2))
        if os.geteuid() == 0:
            os.chown(folder, like.st_uid, like.st_gid)


def _take(path: str, like: os.stat_result) -> int:
    """Open and lock the file; again if somebody removed it in between."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.utime(fd)
            os.fchmod(fd, like.st_mode & 0o666)
            if _names(path, fd):
                return fd
        except BlockingIOError:
            os.close(fd)
            raise StoreUnavailable(f"{path}: another process holds this owner's lock") from None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _names(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), Path(path).stat())
    except FileNotFoundError:
        return False


def _remove_dead(path: Path) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(fd)


def _is_local(folder: Path) -> bool:
    """Divergence: only Linux tells; elsewhere a lease alone ends a dead owner's hold."""
    return sys.platform == "linux" and _magic(folder) in _LOCAL


def _magic(folder: Path) -> int:
    """The number of the folder's file system; 0 if there is no telling."""
    answer = ctypes.create_string_buffer(512)  # struct statfs, which begins with it
    if ctypes.CDLL(None).statfs(os.fsencode(folder), answer):
        return 0
    magic: int = ctypes.cast(answer, ctypes.POINTER(ctypes.c_long))[0]
    return magic & 0xFFFFFFFF
