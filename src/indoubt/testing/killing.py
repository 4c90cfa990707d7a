"""Real processes that are really killed, or stopped, at a chosen point of an effect.

The worker is a script of yours that wraps its store and its provider call; the code under test
has no failpoint:

    fate = ProcessFate.from_environment()              # in the worker's script
    ledger = Ledger(CrashStore(open_store(url), fate))
    send = fate.sending(act)
    ...
    fate.tell({"receipt": pay("order-7")})

    with Worker("worker.py", url, cut="F3", provider=bank, key="order-7") as worker:
        worker.wait_cut()                              # it is dead now: kill -9, at F3
    assert bank.count("order-7") == 1

Without a cut the same script runs to its end. F2 and F3 are points inside the provider: give the
`FakeProvider`, and the request is held there while its sender dies.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, cast

from indoubt.testing.crash import CUTS, Cut, Fate, How
from indoubt.testing.provider import FakeProvider, Fault

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

VARIABLE = "INDOUBT_CUT"
WAIT_S = 30.0
Signal = Literal["kill", "stop"]
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
# Where the provider holds a request while its sender dies.
HELD: dict[Cut, Literal["gate", "hang"]] = {"F2": "gate", "F3": "hang"}


class CutPlan(NamedTuple):
    """Where a worker is cut, and by what; ``fault`` is where the provider holds its request."""

    cut: Cut
    by: Signal = "kill"
    fault: str = ""

    def text(self) -> str:
        """The plan as the environment variable holds it."""
        return f"{self.cut} {self.by} {self.fault}".strip()

    @classmethod
    def read(cls, text: str) -> CutPlan:
        """Read a plan.

        Raises:
            ValueError: no such cut, or no such signal.
        """
        cut, by, fault = [*text.split(" "), "", ""][:3]
        if cut not in CUTS or (by or "kill") not in SIGNALS:
            raise ValueError(f"{text!r} is no cut: F0 to F6, then kill or stop")
        return cls(cut, cast("Signal", by or "kill"), fault)


class ProcessFate(Fate):
    """The fate of this very process: at the cut it kills, or stops, itself."""

    def __init__(self, plan: CutPlan | None = None) -> None:
        """Take the plan; None: nothing happens."""
        inside = plan is not None and plan.fault != ""
        super().__init__(*([] if plan is None or inside else [CUTS[plan.cut]]))
        self._plan = plan
        self._watched = not inside

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> ProcessFate:
        """The fate that `Worker` (or you, by ``INDOUBT_CUT="F3 kill"``) chose for this process."""
        text = environ.get(VARIABLE, "")
        return cls(CutPlan.read(text) if text else None)

    def begin(self, name: str) -> How | None:
        """Count a call; the first one to the provider is watched if the cut is inside it."""
        if name.startswith("send") and not self._watched:
            self._watched = True
            threading.Thread(target=self._watch, name="cut", daemon=True).start()
        return super().begin(name)

    def die(self) -> None:
        """Kill this process, or stop it until somebody lets it go on."""
        by = SIGNALS[self._plan.by if self._plan else "kill"]
        # To this thread: it must not go on for another instruction.
        signal.pthread_kill(threading.get_ident(), by)

    def tell(self, value: Any) -> None:
        """Tell the caller (whoever started this process) one JSON value, as a line."""
        with self.call("tell"):
            sys.stdout.write(json.dumps(value) + "\n")
            sys.stdout.flush()

    def _watch(self) -> None:
        assert self._plan is not None
        Fault.at(self._plan.fault).wait_reached(WAIT_S)
        self.die()


class Worker:
    """A script in a child process, cut at one point; leaving the block kills it.

    Attributes:
        held: where the provider holds the request of a cut at F2 or F3: ``release()`` lets it
            go on without its sender, ``drop()`` loses it.
    """

    def __init__(
        self,
        script: str | Path,
        *args: str,
        cut: Cut | None = None,
        by: Signal = "kill",
        provider: FakeProvider | None = None,
        key: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare; nothing runs before `start` or the block.

        Args:
            script: a Python file.
            args: its arguments.
            cut: where it is cut; None: nowhere.
            by: the signal that cuts it.
            provider: holds its request at F2 and F3 (without one, F2 is just before the call and
                F3 just after it).
            key: the business key of that request; None: the next one.
            env: what its environment has besides.
        """
        self.held: Fault | None = None
        self._cut: Cut | None = cut
        self._by: Signal = by
        self._provider = provider
        self._key = key
        self._command = [sys.executable, str(script), *args]
        self._env = dict(env or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = b""

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._running().pid

    def start(self) -> Self:
        """Start the child."""
        environ = {**os.environ, **self._env}
        environ.pop(VARIABLE, None)
        if self._cut is not None:
            environ[VARIABLE] = self._plan(self._cut).text()
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(  # noqa: S603 (our own interpreter, the test's own script)
            self._command, stdin=pipe, stdout=pipe, env=environ
        )
        return self

    def wait_cut(self, timeout: float = WAIT_S) -> None:
        """Wait until the child was cut: killed, or stopped.

        Raises:
            RuntimeError: it ended by itself, or was not cut in that many seconds (and is killed).
        """
        process = self._running()
        late = threading.Event()
        watchdog = threading.Timer(timeout, lambda: (late.set(), process.kill()))
        watchdog.daemon = True
        watchdog.start()
        # Without WNOWAIT the state would be gone for whoever asks next.
        state = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        watchdog.cancel()
        wanted = os.CLD_STOPPED if self._by == "stop" else os.CLD_KILLED
        if late.is_set() or state is None or state.si_code != wanted:
            self.kill()
            raise RuntimeError(f"not cut at {self._cut}: {'too late' if late.is_set() else state}")
        if self._by == "kill":
            process.wait()

    def go_on(self) -> None:
        """Let a stopped child go on."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Stop it wherever it is, as a suspended machine does, and wait until it stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)

    def say(self, value: Any) -> None:
        """Write one JSON value to its standard input, as a line."""
        stdin = self._running().stdin
        assert stdin is not None
        stdin.write(json.dumps(value).encode() + b"\n")
        stdin.flush()

    def hear(self, timeout: float = WAIT_S) -> Any:
        """The next JSON value that it told.

        Raises:
            EOFError: it ended without.
            TimeoutError: it said nothing in that many seconds.
        """
        stdout = self._running().stdout
        assert stdout is not None
        deadline = time.monotonic() + timeout
        while b"\n" not in self._heard:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stdout], [], [], left)[0]:
                raise TimeoutError(f"nothing heard in {timeout} s")
            chunk = os.read(stdout.fileno(), 65_536)
            if not chunk:
                raise EOFError("the worker ended without a word")
            self._heard += chunk
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line)

    def wait(self, timeout: float = WAIT_S) -> int:
        """Wait for its end, and return its exit status."""
        return self._running().wait(timeout)

    def kill(self) -> None:
        """Kill it wherever it is, and hear no more of it; safe to repeat."""
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                _close(pipe)

    def __enter__(self) -> Self:
        """Start the child."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Kill the child if it still runs."""
        self.kill()

    def _plan(self, cut: Cut) -> CutPlan:
        if self._provider is None or cut not in HELD:
            return CutPlan(cut, self._by)
        self.held = self._provider.next(HELD[cut], key=self._key)
        return CutPlan(cut, self._by, self.held.address)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("not started: use `with Worker(...) as worker:`")
        return self._process


def _close(pipe: Any) -> None:
    try:
        pipe.close()
    except BrokenPipeError:  # something was left in the buffer for a child that is gone
        return


__all__ = ["CutPlan", "ProcessFate", "Worker"]
