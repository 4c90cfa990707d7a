"""Text that others wrote into records never does more to a terminal than be read."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import unicodedata
from typing import Any

import pytest

from indoubt.cli.escape import as_json, visible

NASTY = {
    "escape": "\x1b[2J\x1b]0;owned\x07",
    "c1 control": "\x9b31m\x85",
    "lines": "a\r\nrec_fake.1\u2028\u2029",
    "tab": "a\tb",
    "bidi": "\u202egnp.exe\u2066\u200f\u061c",
    "hidden": "a\u200b\u00ad\ufeff\U000e0041b",
    "markup": "[bold red]x[/] :boom: [link=http://x]y[/link]",
    "private": "\ue000\U0010ffff",
}
WHO = ("--actor", "ana", "--reason", "r")


def harmless(text: str) -> bool:
    """Nothing but what may be seen, and the line ends and tabs that are ours."""
    kinds = {unicodedata.category(c) for c in text if c not in "\n\t"}
    return not kinds & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY)
def test_every_character_is_shown(text: str) -> None:
    shown = visible(text)
    assert harmless(shown)
    assert "\n" not in shown
    assert "\t" not in shown
    assert re.sub(r"\\x..|\\u....|\\U........", "", shown) == "".join(
        [c for c in text if harmless(c) and c not in "\n\t"]
    )


@pytest.mark.parametrize("text", ["", "order-7", "naïve ünï — 订单 заказ طلب", "👍", "a\\b", "  "])
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_json_is_shown_on_one_line() -> None:
    assert as_json({"a": "\n\u202e", "b": [1, None]}) == '{"a":"\\n\\u202e","b":[1,null]}'


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY)
def test_records_of_others_are_harmless_in_every_listing(
    operator: Any, doubts: Any, text: str
) -> None:
    ref = doubts.make(text, tenant_id=text, scope=text)
    for args in (["inbox"], ["show", ref, "--journal"], ["recover"], ["doctor"]):
        shown = operator.run(*args)
        assert shown.code == 0
        assert harmless(shown.out), args
        assert harmless(shown.err), args
    rows = operator.run("inbox").out.splitlines()
    assert len(rows) == 2
    assert len(rows[1].split("\t")) == 7


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY)
def test_what_a_person_wrote_is_harmless_too(operator: Any, doubts: Any, text: str) -> None:
    ref = doubts.make()
    receipt = json.dumps({text: text})
    args = ("--actor", f"a{text}", "--reason", f"b{text}", "--receipt", receipt)
    decided = operator.run("decide", ref, "happened", *args)
    assert decided.code == 0
    again = operator.run("decide", ref, "give-up", "--actor", "b", "--reason", "c")
    assert again.code == 5
    shown = operator.run("show", ref, "--journal")
    assert all(map(harmless, (*decided[1:], *again[1:], *shown[1:])))


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY)
def test_json_is_ascii_and_whole(operator: Any, doubts: Any, text: str) -> None:
    ref = doubts.make(text)
    shown = operator.run("show", ref, "--json")
    assert shown.out.isascii()
    assert shown.json["record"]["key"] == text


@pytest.mark.parametrize("text", ["rec_\x1b[2J", "rec_\u202e", "[bold]"], ids=ascii)
def test_even_what_was_typed_is_harmless(operator: Any, doubts: Any, text: str) -> None:
    doubts.make()
    shown = operator.run("show", text)
    assert shown.code == 3
    assert harmless(shown.err)


# -- on a terminal ---------------------------------------------------------------------------------


def on_a_terminal(operator: Any, *args: str, **env: str) -> tuple[int, str]:
    """Run a command with a terminal for all three streams; its exit code and what it showed."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "indoubt.cli", *args]
    settings = operator.env | {"TERM": "xterm-256color", "INDOUBT_URL": operator.url} | env
    child = subprocess.Popen(
        command, cwd=operator.place, env=settings, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            got = os.read(ours, 65_536)
        except OSError:  # the other end is closed
            break
        if not got:
            break
        shown += got
    os.close(ours)
    return child.wait(60), shown.decode()


def test_a_terminal_gets_a_table_with_refs_that_fit(operator: Any, doubts: Any) -> None:
    made = [doubts.make(f"order-{n}") for n in range(3)]
    code, shown = on_a_terminal(operator, "inbox", "--check")
    assert code == 4
    assert "\t" not in shown
    for ref in made:
        short = f"{ref[:12]}.1"
        assert short in shown
        assert ref not in shown
        assert operator.run("decide", short, "give-up", *WHO).code == 0


def test_colours_are_for_terminals_that_want_them(operator: Any, doubts: Any) -> None:
    doubts.make()
    coloured = "\x1b["
    assert coloured in on_a_terminal(operator, "inbox")[1]
    assert coloured not in on_a_terminal(operator, "inbox", TERM="dumb")[1]
    plain = on_a_terminal(operator, "doctor", NO_COLOR="1")[1]
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", plain)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "CLICOLOR_FORCE"):
        piped = operator.process("inbox", "--store", operator.url, env={name: "1"})
        assert coloured not in piped.out + piped.err


def test_a_terminal_is_not_steered_by_a_record(operator: Any, doubts: Any) -> None:
    doubts.make("".join(NASTY.values()))
    shown = on_a_terminal(operator, "inbox")[1]
    ours = re.sub(r"\x1b\[[0-9;]*m", "", shown).replace("\r\n", "\n")
    assert harmless(ours)


def test_progress_on_a_terminal_leaves_the_answer_alone(operator: Any, doubts: Any) -> None:
    doubts.make()
    code, shown = on_a_terminal(operator, "recover")
    assert code == 0
    assert "nothing to do" in shown


def test_json_on_a_terminal_is_json(operator: Any, doubts: Any) -> None:
    doubts.make()
    assert json.loads(on_a_terminal(operator, "inbox", "--json")[1])["cursor"] is None


def test_any_locale_will_do(operator: Any, doubts: Any) -> None:
    doubts.make("заказ é")
    env = {"PYTHONIOENCODING": "ascii", "INDOUBT_URL": operator.url}
    shown = operator.process("inbox", env=env)
    assert shown.code == 0
    assert "\\u0437\\u0430\\u043a\\u0430\\u0437 \\xe9" in shown.out
