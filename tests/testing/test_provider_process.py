"""The fake provider as a process: what survives a kill, and that it leaves nothing behind."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from indoubt.testing.provider import Act, FakeProvider, act, find
from indoubt.testing.provider_process import BOOT

LONG = timedelta(hours=1)
SETUP = """
import os, signal, sys, threading
from indoubt.testing.provider import FakeProvider, act
provider = FakeProvider()
provider.restart()
act(provider.url, "order-7", 1)
"""


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary directory of this test, empty, which it must be again at the end."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


def refuses(url: str) -> bool:
    parts = urlsplit(url)
    with socket.socket() as client:
        return client.connect_ex((parts.hostname, parts.port)) != 0


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process; returns when it *and its server* are gone, for both hold stderr."""
    return subprocess.run(
        [sys.executable, "-c", SETUP + code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_everything_but_faults_survives_a_kill() -> None:
    with FakeProvider(manual_clock=True) as provider:
        provider.fault("apply_late", key="late", delay=LONG)
        provider.fault("reject", key="refused", code="no_funds")
        made = act(provider.url, "order-7", 1200, idempotency_key="ik")
        act(provider.url, "late", 1)
        with pytest.raises(Exception, match="no_funds"):
            act(provider.url, "refused", 1, idempotency_key="no")
        provider.clock.advance(LONG / 2)
        url, log, now = provider.url, provider.log(), provider.clock.now_ms()

        provider.kill()
        assert refuses(url)
        provider.restart()

        assert (provider.url, provider.log(), provider.clock.now_ms()) == (url, log, now)
        assert provider.counts() == {"order-7": 1}
        assert find(url, "order-7").acts == (made,)
        assert act(url, "order-7", 1200, idempotency_key="ik") == made
        assert find(url, None, idempotency_key="no").status == "failed"
        assert act(url, "refused", 1)["id"] == "act_000003"
        provider.clock.advance(LONG / 2)
        assert provider.counts() == {"order-7": 1, "late": 1, "refused": 1}


def test_a_kill_loses_held_requests_and_their_effects_only() -> None:
    with FakeProvider() as provider, ThreadPoolExecutor(2) as pool:
        gate, hang = provider.gate("before"), provider.fault("hang", key="after")
        held = [pool.submit(act, provider.url, key, 1) for key in ("before", "after")]
        gate.wait_reached()
        hang.wait_reached()
        provider.kill()
        for one in held:
            with pytest.raises(ConnectionResetError):
                one.result(10)
        provider.restart()
        assert provider.counts() == {"after": 1}
        assert {(entry["key"], entry["answer"]) for entry in provider.log()} == {
            ("before", None),
            ("after", None),
        }


def test_effects_are_exact_under_repeated_kills() -> None:
    def send(n: int) -> Act:
        return act(provider.url, "order-7", n, idempotency_key=f"ik {n}")

    with FakeProvider() as provider, ThreadPoolExecutor(4) as pool:
        for n in range(0, 40, 8):
            happened = provider.count("order-7")
            sending = [pool.submit(send, n + i) for i in range(8)]
            provider.count("order-7", at_least=happened + 2)
            provider.kill()
            told = [one.result() for one in sending if one.exception(10) is None]
            provider.restart()
            for made in told:
                seen = find(provider.url, None, idempotency_key=made["idempotency_key"])
                assert seen.acts == (made,)
        for n in range(40):
            send(n)
        assert provider.count("order-7") == 40


def test_a_torn_last_line_is_as_if_never_written(tmp_path: Path) -> None:
    with FakeProvider(tmp_path) as provider:
        act(provider.url, "order-7", 1)
    memory = tmp_path / "provider.jsonl"
    whole = memory.read_bytes()
    memory.write_bytes(whole + b'{"event": "accepted", "id": "act_0000')
    with FakeProvider(tmp_path) as provider:
        assert memory.read_bytes() == whole
        assert act(provider.url, "order-7", 1)["id"] == "act_000002"
    with FakeProvider(tmp_path) as provider:
        assert provider.counts() == {"order-7": 2}


def test_a_given_directory_stays_and_is_remembered(tmp_path: Path) -> None:
    home = tmp_path / "not" / "there" / "yet"
    with FakeProvider(home) as provider:
        act(provider.url, "order-7", 1)
    assert [file.name for file in home.iterdir()] == ["provider.jsonl"]
    with FakeProvider(str(home)) as provider:
        assert provider.counts() == {"order-7": 1}


def test_two_servers_on_one_directory_do_not_count_past_each_other(tmp_path: Path) -> None:
    with FakeProvider(tmp_path) as one, FakeProvider(tmp_path) as other:
        act(one.url, "order-7", 1)
        with pytest.raises(ConnectionError):
            act(other.url, "order-7", 1)
        with pytest.raises(ConnectionError):
            other.counts()


@pytest.mark.usefixtures("temp")
async def test_closing_leaves_nothing_behind() -> None:
    async with FakeProvider() as provider:
        act(provider.url, "order-7", 1)
    assert refuses(provider.url)
    provider.close()
    provider.restart()
    assert provider.counts() == {}
    provider.close()


@pytest.mark.usefixtures("temp")
def test_closing_after_a_kill_leaves_nothing_behind() -> None:
    with FakeProvider() as provider:
        provider.kill()
    assert refuses(provider.url)


@pytest.mark.usefixtures("temp")
@pytest.mark.parametrize(
    ("death", "returncode"),
    [
        ("os._exit(137)", 137),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("raise RuntimeError('forgot to close')", 1),
        ("sys.exit(3)", 3),
        ("provider.kill(); sys.exit(3)", 3),
    ],
)
def test_the_death_of_the_parent_leaves_nothing_behind(death: str, returncode: int) -> None:
    assert run(death).returncode == returncode


@pytest.mark.usefixtures("temp")
def test_ctrl_c_is_the_parents_business() -> None:
    done = run(
        """
from indoubt.testing import provider_client
pid = provider_client.exchange(provider.url, "GET", "/status")[1]["pid"]
os.kill(pid, signal.SIGINT)
assert provider.count("order-7") == 1
provider.close()
"""
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("temp")
def test_a_forked_child_leaves_its_parents_provider_alone() -> None:
    done = run(
        """
child = os.fork()
if child == 0:
    provider.close()
    provider.kill()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert provider.count("order-7") == 1
provider.close()
"""
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("temp")
def test_a_server_that_cannot_start_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    with FakeProvider() as first:
        with pytest.raises(RuntimeError, match="did not start"):
            FakeProvider(port=urlsplit(first.url).port or 0).restart()
        assert "address already in use" in capfd.readouterr().err
        assert first.counts() == {}


def test_an_address_is_known_once_started() -> None:
    with pytest.raises(RuntimeError, match="not started"):
        _ = FakeProvider().url


def test_the_server_runs_by_hand_until_it_is_ended(tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    command = [
        sys.executable,
        "-m",
        "indoubt.testing.provider_server",
        "--dir",
        str(tmp_path / "d"),
    ]
    with subprocess.Popen(
        [*command, "--port", "0", "--port-file", str(port_file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        assert port_file.read_text().strip() == port
        assert act(f"http://127.0.0.1:{port}", "order-7", 1)["id"] == "act_000001"
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0


def test_the_server_loads_neither_the_library_nor_anything_slow() -> None:
    code = BOOT.replace("main(sys.argv[3:])", "import json; print(json.dumps(sorted(sys.modules)))")
    package = Path(sys.modules[FakeProvider.__module__].__file__ or "").parent
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(package.parent), str(package)],
        capture_output=True,
        check=True,
        timeout=60,
    )
    loaded = set(json.loads(done.stdout))
    assert not {"site", "msgspec", "apsw", "http.client", "http.server", "email"} & loaded
    assert {name for name in loaded if name.startswith("indoubt")} == {
        "indoubt",
        "indoubt.testing",
        *(f"indoubt.testing.provider_{part}" for part in ("faults", "memory", "server")),
        *(f"indoubt.testing.provider_{part}" for part in ("service", "wire")),
    }
