"""Server processes that die with the test process, whoever kills it, and leave nothing behind."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

NOBODY = 65534
PATIENCE_S = 60.0
_PDEATHSIG = 1


def free_port() -> int:
    """A port of the loopback that nobody uses just now."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def folder(prefix: str) -> Path:
    """A folder for one server, which an unprivileged user may enter."""
    made = Path(tempfile.mkdtemp(prefix=f"indoubt-{prefix}-"))
    made.chmod(0o755)
    return made


def wait_for(what: str, ready: Callable[[], bool]) -> None:
    """Ask until it is so; fail after a minute."""
    until = time.monotonic() + PATIENCE_S
    while not ready():
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: not so after {PATIENCE_S} s")
        time.sleep(0.01)  # handler under test blocks: a server starts or ends


class Server:
    """One process and its folder.

    Args:
        command: what to run.
        place: the folder; removed by ``remove``.
        as_nobody: run it as an unprivileged user where the tests run as root.
    """

    def __init__(self, command: Sequence[str], place: Path, *, as_nobody: bool = False) -> None:
        self.command = list(command)
        self.place = place
        self._nobody = as_nobody and os.geteuid() == 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; its output goes to a file in the folder."""
        user = NOBODY if self._nobody else None
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(self.place)}
        with (self.place / "output").open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.place,
                env=env,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - it calls one C function
                user=user,
                group=user,
                extra_groups=None if user is None else [],
            )

    def output(self) -> str:
        """What it said so far."""
        return (self.place / "output").read_text("utf-8", "replace")

    def check_running(self) -> None:
        """Fail with its own words if it has ended."""
        if self.process is None or self.process.poll() is not None:
            raise RuntimeError(f"{self.command[0]} has ended:\n{self.output()[-3000:]}")

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal and wait for its end."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(PATIENCE_S)

    def pause(self) -> None:
        """Stop it in its tracks."""
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        """End it, and remove its folder."""
        if self.process is not None and self.process.poll() is None:
            self.go_on()
            self.kill()
        shutil.rmtree(self.place, ignore_errors=True)


def die_with_parent() -> None:
    """In the child: the kernel kills it when the process that made it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


def reachable_by_nobody(path: Path) -> bool:
    """Whether every folder above may be entered by an unprivileged user."""
    return all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents)
