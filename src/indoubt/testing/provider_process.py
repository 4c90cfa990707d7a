"""The process in which a fake provider runs: starts fast, dies with its parent, leaves nothing.

The server holds the reading end of a pipe whose other end lives and dies with this process, so it
ends however this process ended, and removes a temporary directory on its way out. (A child forked
from this process holds that end too: the server lives until the last of them is gone.)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import weakref
from pathlib import Path

START_S = 15.0
# The server needs neither `indoubt` nor `site`: empty stand-ins for the two packages let it start
# in a fraction of the time, and keep it working while the library under test is broken.
BOOT = """
import sys, types
for name, path in (("indoubt", sys.argv[1]), ("indoubt.testing", sys.argv[2])):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from indoubt.testing.provider_server import main
main(sys.argv[3:])
"""


class ServerProcess:
    """One server at a time, on one directory and, once it has one, one port."""

    def __init__(self, directory: str | Path | None, port: int, options: list[str]) -> None:
        """Prepare; nothing runs and no directory is made yet."""
        self.port = port
        self._options = options
        self._given = None if directory is None else Path(directory)
        self._made: Path | None = None
        self._process: subprocess.Popen[str] | None = None
        self._owner = os.getpid()

    def start(self) -> None:
        """Start the server, in place of a running one, and wait until it listens.

        Raises:
            RuntimeError: it did not start; its own words are on standard error.
        """
        self.kill()
        self._process = process = self._spawn()
        watchdog = threading.Timer(START_S, process.kill)
        watchdog.daemon = True
        watchdog.start()
        line = process.stdout.readline() if process.stdout else ""
        watchdog.cancel()
        if not line:
            self.close()
            raise RuntimeError("the fake provider did not start; see standard error")
        self.port = int(line)

    def kill(self) -> None:
        """End the server as ``kill -9`` does."""
        if self._process is not None and os.getpid() == self._owner:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def close(self) -> None:
        """Kill the server and remove the directory made for it; safe to repeat."""
        self.kill()
        if self._made is not None and os.getpid() == self._owner:
            shutil.rmtree(self._made, ignore_errors=True)
            self._made = None

    def _spawn(self) -> subprocess.Popen[str]:
        here = Path(__file__).parent
        command = [sys.executable, "-I", "-S", "-c", BOOT, str(here.parent), str(here)]
        command += ["--dir", str(self._directory()), "--port", str(self.port), "--with-parent"]
        command += ["--remove-dir"] if self._given is None else []
        pipe = subprocess.PIPE
        return subprocess.Popen(  # noqa: S603 (our own interpreter, our own arguments)
            [*command, *self._options], stdin=pipe, stdout=pipe, text=True
        )

    def _directory(self) -> Path:
        if self._given is not None:
            self._given.mkdir(parents=True, exist_ok=True)
            return self._given
        if self._made is None:
            self._made = Path(tempfile.mkdtemp(prefix="fake-provider-"))
            # For the one case the server cannot see to: it was killed, and this process ends
            # without closing.
            weakref.finalize(self, _remove, self._made, self._owner)
        return self._made


def _remove(directory: Path, owner: int) -> None:
    """Remove a directory, unless this is a forked child: it is still its parent's."""
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)
