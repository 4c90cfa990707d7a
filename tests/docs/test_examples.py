"""The examples run, and what they print is what happened at the provider."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest
from tests.servers.fixtures import postgres, postgres_versions, redis, redis_versions

from indoubt import RecordNotFound
from indoubt.testing import FakeProvider

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def bank() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        yield provider


@pytest.fixture
def environ(bank: FakeProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Where the examples find bank and store."""
    given = {"BANK_URL": bank.url, "INDOUBT_URL": f"sqlite:///{tmp_path}/ledger.db"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return {**os.environ, **given}


def load(name: str) -> ModuleType:
    """The example as a fresh module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name: str, *arguments: str) -> str:
    """What the example prints when it is run without anything around it."""
    env = {name: value for name, value in os.environ.items() if name != "INDOUBT_URL"}
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    return subprocess.check_output(command, env=env, text=True, timeout=60)


def test_every_example_is_tested() -> None:
    tested = {"refund", "worker_task", "invoice_tool", "operators_evening", "delayed_unmute"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == tested


# -- delayed unmute -------------------------------------------------------------------------------

UNMUTED = [
    "muted; unmute is REGISTERED",
    "unmuted 1 time(s); the other one is COMPLETED",
]


def test_the_delayed_unmute_fires_once() -> None:
    assert run("delayed_unmute").splitlines() == UNMUTED


def test_the_delayed_unmute_fires_once_on_servers() -> None:
    """The same program; on Redis over a client that it has made itself."""
    with postgres(postgres_versions()[0]).ledger() as url:
        assert run("delayed_unmute", url).splitlines() == UNMUTED
    assert run("delayed_unmute", redis(redis_versions()[0]).url).splitlines() == UNMUTED


# -- refund ----------------------------------------------------------------------------------------


def test_the_refund_example_prints_one_refund() -> None:
    said = run("refund").splitlines()
    assert said[0] == said[1]  # the second click gets the first one's answer
    assert said[0].startswith("order-7 200 ")
    assert said[2] == "order-8 402 {'refused': 'declined'}"
    assert said[3] == "refunds of order-7 that happened: 1"


async def test_refund_answers_202_while_nobody_knows(
    bank: FakeProvider, environ: dict[str, str]
) -> None:
    assert environ
    shop: Any = load("refund")
    bank.next("drop_before_apply", key="doubtful")
    fault = bank.fault("lookup", key="doubtful", status="unknown")
    status, body = await shop.post_refund("doubtful", 500, "acme")
    assert (status, body["state"], body["next"]) == (202, "in_doubt", "ask_person")
    again = await shop.post_refund("doubtful", 500, "acme")
    assert again == (status, body)
    with pytest.raises(RecordNotFound):
        await shop.ledger.get(body["ref"], tenant_id="bolt")
    assert (await shop.ledger.get(body["ref"], tenant_id="acme")).key == "doubtful"
    status, _ = await shop.post_refund("doubtful", 500, "bolt")  # another tenant's own order
    assert (status, bank.count("doubtful")) == (200, 1)
    fault.clear()
    await shop.ledger.close()


async def test_refund_may_be_tried_again_after_a_refusal(
    bank: FakeProvider, environ: dict[str, str]
) -> None:
    assert environ
    shop: Any = load("refund")
    bank.next("reject", key="poor", code="insufficient")
    assert await shop.post_refund("poor", 500, "acme") == (402, {"refused": "insufficient"})
    status, body = await shop.post_refund("poor", 500, "acme")
    assert (status, body["amount"], bank.count("poor")) == (200, 500, 1)
    await shop.ledger.close()


# -- worker_task -----------------------------------------------------------------------------------


class Queue:
    """Workers of a queue that redelivers what was not answered."""

    def __init__(self, environ: dict[str, str]) -> None:
        self._environ = environ | {"LEASE_S": "0.5", "SETTLE_S": "0.2"}

    def worker(self) -> subprocess.Popen[str]:
        command, pipe = [sys.executable, str(EXAMPLES / "worker_task.py")], subprocess.PIPE
        return subprocess.Popen(command, env=self._environ, stdin=pipe, stdout=pipe, text=True)

    def deliver(self, *task: Any) -> dict[str, Any]:
        """Give the task to a worker until it is answered."""
        for _ in range(20):
            out, _ = self.worker().communicate(json.dumps(task) + "\n", timeout=60)
            answer = json.loads(out)
            if "retry_after_s" not in answer:
                return answer
        pytest.fail("asked to retry 20 times")

    def deliver_to_one_that_dies(self, bank: FakeProvider, where: Any, *task: Any) -> None:
        with bank.next(where, key=task[0]) as fault, self.worker() as worker:
            assert worker.stdin is not None
            worker.stdin.write(json.dumps(task) + "\n")
            worker.stdin.flush()
            fault.wait_reached()
            worker.send_signal(signal.SIGKILL)
            worker.wait()
            fault.drop()


def test_a_task_is_performed_once(bank: FakeProvider, environ: dict[str, str]) -> None:
    queue = Queue(environ)
    one = queue.deliver("task-1", 1200)
    assert queue.deliver("task-1", 1200) == one
    assert (one["refunded"]["amount"], bank.count("task-1")) == (1200, 1)


@pytest.mark.parametrize("where", ["gate", "hang"])
def test_a_task_whose_worker_was_killed_is_performed_once(
    bank: FakeProvider, environ: dict[str, str], where: str
) -> None:
    """Held before anything happened, and after it did."""
    queue = Queue(environ)
    queue.deliver_to_one_that_dies(bank, where, f"task-{where}", 1200)
    assert bank.count(f"task-{where}") == (1 if where == "hang" else 0)
    answer = queue.deliver(f"task-{where}", 1200)
    assert answer["refunded"]["amount"] == 1200
    assert bank.count(f"task-{where}") == 1


@pytest.mark.parametrize(("says", "told"), [("active", "retry_after_s"), ("unknown", "in_doubt")])
def test_a_task_in_doubt_is_delivered_later_or_left_to_a_person(
    bank: FakeProvider, environ: dict[str, str], says: Literal["active", "unknown"], told: str
) -> None:
    queue = Queue(environ | {"WAIT_S": "0"})
    bank.next("apply_then_drop", key=f"task-{says}")
    bank.fault("lookup", key=f"task-{says}", status=says)
    task = json.dumps([f"task-{says}", 1200])
    out, _ = queue.worker().communicate(f"{task}\n{task}\n", timeout=60)
    assert [list(json.loads(line)) for line in out.splitlines()] == [[told], [told]]
    assert bank.count(f"task-{says}") == 1


# -- invoice_tool, operators_evening ---------------------------------------------------------------


def test_the_tool_shows_the_model_its_own_parameters_only() -> None:
    said = run("invoice_tool").splitlines()
    assert said[0] == "the model sees: (invoice: str, cents: int) -> dict[str, typing.Any]"
    assert said[1] == said[2]
    assert "Do not call this tool again" in said[3]
    assert said[4:] == ["inv-1 succeeded", "inv-2 awaiting_decision", "inv-3 never asked for"]


def test_the_operators_evening_leaves_nothing_in_doubt() -> None:
    said = run("operators_evening").splitlines()
    assert said[:3] == ["order-1: ask_person", "order-2: ask_person", "order-3: ask_person"]
    assert "bob is too late: happened by ana" in said
    assert said[-2:] == ["left in doubt: 0", "refunds that happened: [1, 1, 1]"]
    assert sum(line.startswith("    ") for line in said) == 4 + 6  # choices, and a journal
