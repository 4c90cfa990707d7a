"""Other libraries, each in an environment of its own, measured in turn with ours.

A peer's process starts once, is stopped (SIGSTOP) while others are measured, and answers figures
over its standard streams; see ``peers/answering.py``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import signal
import subprocess
import sys
import venv
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "bench/peers"


def environment(name: str) -> Path:
    """Make the peer's environment from its hashed list, if that changed; returns its Python."""
    pins = HERE / f"{name}.txt"
    home = ROOT / f".venv-peer-{name}"
    wanted = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()
    stamp = home / ".stamp"
    if not stamp.exists() or stamp.read_text("utf-8") != wanted:
        print(f"making {home.name} ...", flush=True)
        venv.create(home, clear=True, with_pip=True)
        pip = [str(home / "bin/python"), "-m", "pip", "install", "--quiet", "--no-input"]
        quiet = ["--disable-pip-version-check", "--root-user-action=ignore"]
        command = [*pip, *quiet, "--require-hashes", "-r", str(pins)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise RuntimeError(f"{pins.name} could not be installed:\n{done.stderr}")
        stamp.write_text(wanted, "utf-8")
    return home / "bin/python"


class Peer:
    """One running peer."""

    def __init__(self, name: str, folder: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            [str(environment(name)), str(HERE / f"{name}_steps.py"), f"{folder}/{name}.db"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.versions: dict[str, str] = self._answer()["ready"]
        self._process.send_signal(signal.SIGSTOP)

    def rate(self, case: str, seconds: float) -> float:
        """Steps per second."""
        self._process.send_signal(signal.SIGCONT)
        try:
            if self._process.stdin is not None:
                self._process.stdin.write(f"{case} {seconds}\n")
                self._process.stdin.flush()
            return self._answer()["figure"]
        finally:
            self._process.send_signal(signal.SIGSTOP)

    def close(self) -> None:
        """End it; it holds nothing that anybody needs."""
        self._process.kill()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        while line and not line.startswith("{"):
            line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise RuntimeError(f"the peer ended with exit code {self._process.wait()}")
        return json.loads(line)


@contextlib.contextmanager
def running(names: Iterable[str], folder: str) -> Generator[dict[str, Peer]]:
    """Start the peers, with their files in a folder, and end them."""
    peers: dict[str, Peer] = {}
    try:
        for name in names:
            peers[name] = Peer(name, folder)
        yield peers
    finally:
        for peer in peers.values():
            peer.close()
