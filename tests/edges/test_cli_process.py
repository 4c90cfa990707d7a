"""The program as a shell runs it: started, interrupted, piped, and without its extra."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 60
BANK = """
import asyncio, os
from indoubt.sync import Ledger

ledger = Ledger("sqlite:///shop.db")


async def find(attempt):
    os.write(int(os.environ["READY"]), b"asked")
    await asyncio.Event().wait()


def by_order(order):
    return order


@ledger.effect(safety="non_idempotent", key=by_order, probe=find)
def pay(order):
    os._exit(9)
"""


def python(code: str, operator: Any, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=operator.place,
        env=operator.env | env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_relative_store_is_relative_to_the_working_directory(operator: Any, doubts: Any) -> None:
    ref = doubts.make()
    for args, env in (
        (["--store", "sqlite:///shop.db"], {}),
        ([], {"INDOUBT_URL": "sqlite:///shop.db"}),
        (["--store", "sqlite:///shop.db"], {"INDOUBT_URL": "sqlite:///other.db"}),
    ):
        shown = operator.process("inbox", "--json", *args, env=env)
        assert (shown.code, shown.err) == (0, "")
        assert shown.json["items"][0]["ref"] == ref
    assert not (operator.place / "other.db").exists()


def test_the_installed_program_is_the_same(operator: Any, doubts: Any) -> None:
    doubts.make()
    program = Path(sys.executable).parent / "indoubt"
    shown = subprocess.run(
        [program, "inbox", "--check", "--store", "sqlite:///shop.db"],
        cwd=operator.place,
        env=operator.env,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert shown.returncode == 4
    assert shown.stdout.startswith(b"REF\tSINCE")


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["inbox"], 0),
        (["recover", "--app", "nowhere:x"], 2),
        (["inbox", "--limit", "x"], 2),
        (["show", "rec_none"], 3),
        (["inbox", "--check"], 4),
        (["decide", "REF", "give-up", "--actor", "a", "--reason", "b"], 5),
        (["inbox", "--store", "sqlite:///none.db"], 3),
        (["inbox", "--store", "sqlite:///shop.py"], 1),
    ],
)
def test_exit_codes_reach_the_shell(operator: Any, doubts: Any, args: list[str], code: int) -> None:
    ref = doubts.second_attempt(doubts.make("order-7"), "order-7")
    stale = ref[:-1] + "1"
    args = [stale if arg == "REF" else arg for arg in args]
    shown = operator.process(*args, env={"INDOUBT_URL": operator.url})
    assert shown.code == code
    assert "Traceback" not in shown.err


def test_a_traceback_is_for_those_who_debug(operator: Any, doubts: Any) -> None:
    doubts.make()
    url = {"INDOUBT_URL": "sqlite:///none.db"}
    assert "Traceback" not in operator.process("inbox", env=url).err
    shown = operator.process("inbox", env=url | {"INDOUBT_DEBUG": "1"})
    assert shown.code == 3
    assert "Traceback" in shown.err
    assert shown.err.splitlines()[-2].startswith("indoubt: ")


def test_without_its_extra_one_sentence_says_what_to_install(operator: Any) -> None:
    for missing in ("typer", "rich"):
        code = f"import sys; sys.modules[{missing!r}] = None; import indoubt.cli as c; c.main()"
        done = python(code, operator)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            f"indoubt: the command line needs {missing}: pip install 'indoubt[cli]'\n"
        )


def test_a_fault_of_its_own_is_not_taken_for_a_missing_extra(operator: Any) -> None:
    code = "import sys; sys.modules['msgspec'] = None; import indoubt.cli as c; c.main()"
    assert "ModuleNotFoundError" in python(code, operator).stderr


def test_starting_loads_no_store_and_no_program(operator: Any) -> None:
    report = "import sys; print(*sys.modules)"
    loaded = set(python(f"import indoubt.cli; {report}", operator).stdout.split())
    assert not loaded & {"typer", "rich", "apsw", "indoubt.ledger", "indoubt.stores"}
    loaded = set(python(f"import indoubt.cli.app; {report}", operator).stdout.split())
    heavy = {"apsw", "indoubt.ledger", "indoubt.stores", "indoubt.demo", "indoubt.testing"}
    assert not loaded & heavy


def test_a_reader_that_has_seen_enough_is_no_error_message(operator: Any, doubts: Any) -> None:
    doubts.make()
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        [sys.executable, "-m", "indoubt.cli", "inbox", "--json"],
        cwd=operator.place,
        env=operator.env | {"INDOUBT_URL": operator.url},
        stdout=theirs,
        stderr=subprocess.PIPE,
        timeout=PATIENCE_S,
        check=False,
    )
    os.close(theirs)
    assert (done.returncode, done.stderr) == (1, b"")


def test_ctrl_c_ends_with_130_and_keeps_what_was_written(operator: Any) -> None:
    (operator.place / "bank.py").write_text(BANK, "utf-8")
    died = python("import bank; bank.pay('order-7')", operator)
    assert died.returncode == 9
    ours, theirs = os.pipe()
    recovering = subprocess.Popen(
        [sys.executable, "-m", "indoubt.cli", "recover", "--app", "bank:ledger"],
        cwd=operator.place,
        env=operator.env | {"READY": str(theirs)},
        pass_fds=[theirs],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    assert os.read(ours, 5) == b"asked"
    recovering.send_signal(signal.SIGINT)
    out, err = recovering.communicate(timeout=PATIENCE_S)
    os.close(ours)
    assert (recovering.returncode, out) == (130, b"")
    assert b"Traceback" not in err
    (item,) = operator.run("inbox", "--json").json["items"]
    assert (item["state"], item["key"]) == ("in_doubt", "order-7")


@pytest.mark.parametrize(
    ("words", "expected"),
    [("indoubt in", {"inbox"}), ("indoubt db ", {"status", "upgrade"})],
)
def test_a_shell_completes_commands(operator: Any, words: str, expected: set[str]) -> None:
    code = "from indoubt.cli import main; main()"
    count = len(words.split(" ")) - 1
    asked = {"_INDOUBT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(count)}
    done = python(code, operator, **asked)
    assert set(done.stdout.split()) == expected


def test_completion_covers_decisions(operator: Any) -> None:
    words = "indoubt decide rec_a.1 "
    asked = {"_INDOUBT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
    done = python("from indoubt.cli import main; main()", operator, **asked)
    assert set(done.stdout.split()) == {"happened", "did-not-happen", "allow-one", "give-up"}
