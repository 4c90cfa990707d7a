"""The help teaches, the documentation tells all of it, and the exit codes are one table."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from indoubt.cli.app import app
from indoubt.cli.exits import ENDINGS, EXITS, Exit, told
from indoubt.errors import IndoubtError

DOCS = (Path(__file__).parent.parent.parent / "docs" / "cli.md").read_text("utf-8")


def commands(group: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every command by the words that name it."""
    found: dict[tuple[str, ...], Any] = {}
    for name, command in group.commands.items():
        inner = getattr(command, "commands", None)
        found |= commands(command, (*path, name)) if inner else {(*path, name): command}
    return found


COMMANDS = commands(typer.main.get_command(app))
each_command = pytest.mark.parametrize("path", COMMANDS, ids=" ".join)


def section(path: tuple[str, ...]) -> str:
    """What the documentation says of one command."""
    parts = re.split(r"^## ", DOCS, flags=re.MULTILINE)
    name = f"`indoubt {' '.join(path)}"
    return next(part for part in parts if part.startswith((f"{name}`", f"{name} ")))


def test_these_are_the_commands() -> None:
    assert sorted(map(" ".join, COMMANDS)) == [
        "db status", "db upgrade", "decide", "demo", "doctor", "effects cancel", "effects list",
        "effects release", "effects show", "inbox", "probe", "recover", "show", "worker",
    ]  # fmt: skip


@each_command
def test_its_help_says_what_it_does_and_never_does_and_shows_how(
    operator: Any, path: tuple[str, ...]
) -> None:
    shown = operator.run(*path, "--help")
    assert (shown.code, shown.err) == (0, "")
    told_of = shown.out.split("Options:")[0]
    assert f"\n  Example:\n    indoubt {' '.join(path)}" in told_of
    assert re.search(r"[Nn]ever|only reads|[Nn]othing|nothing but|none", told_of)
    assert len(re.findall(r"\w\.(?:\s|$)", told_of.split("Example:")[0])) >= 3
    assert "\b" not in shown.out
    assert operator.run(*path, "-h").out == shown.out


@each_command
def test_its_example_can_be_read(path: tuple[str, ...]) -> None:
    example = re.findall(r"indoubt .+", COMMANDS[path].help.split("Example:")[1])[0]
    for option in re.findall(r"--[a-z-]+", example.split("|")[0]):
        assert option in names(path)


def names(path: tuple[str, ...]) -> set[str]:
    """Every way to write every option of a command."""
    return {name for p in COMMANDS[path].params for name in p.opts if name.startswith("-")}


@each_command
def test_the_documentation_has_every_option(path: tuple[str, ...]) -> None:
    everywhere = DOCS.split("## Exit codes")[0]
    for name in names(path) - {"--help", "-h"}:
        assert f"`{name}" in section(path) + everywhere, name
    for parameter in COMMANDS[path].params:
        if not parameter.opts[0].startswith("-"):
            assert parameter.metavar in section(path)


@each_command
def test_every_command_but_the_demo_has_the_options_of_all(path: tuple[str, ...]) -> None:
    if path == ("worker",):  # the program's worker brings its own ledger
        assert "--json" in names(path)
        return
    if path != ("demo",):
        assert {"--store", "--json"} <= names(path)
    if path not in {("demo",), ("db", "status"), ("db", "upgrade")}:
        assert "--tenant" in names(path)


def test_the_documentation_has_no_command_too_many() -> None:
    named = {
        tuple(words.split()) for words in re.findall(r"^## `indoubt ([a-z ]+)", DOCS, re.MULTILINE)
    }
    assert named == set(COMMANDS)


def test_the_main_help_tells_commands_and_exit_codes(operator: Any) -> None:
    shown = operator.run("--help").out
    for code, meaning in EXITS.items():
        assert f"{code.value:>3}  {meaning}" in shown
    for path in COMMANDS:
        assert re.search(rf"^  {path[0]} ", shown, re.MULTILINE)
    for name in ("INDOUBT_URL", "INDOUBT_TENANT", "INDOUBT_APP", "INDOUBT_DEBUG", "NO_COLOR"):
        assert name in shown
        assert name in DOCS
    alone = operator.run()
    assert (alone.code, alone.err.splitlines()[:3]) == (2, shown.splitlines()[:3])


def test_exit_codes_are_numbered_for_ever() -> None:
    assert {code.name: code.value for code in Exit} == {
        "DONE": 0, "ERROR": 1, "USAGE": 2, "NOT_FOUND": 3, "IN_DOUBT": 4, "REFUSED": 5,
        "UPGRADE": 6, "INTERRUPTED": 130,
    }  # fmt: skip
    assert list(EXITS) == list(Exit)


@pytest.mark.parametrize("code", Exit)
def test_the_documentation_has_every_exit_code(code: Exit) -> None:
    assert f"| {code.value} | {EXITS[code]} |" in DOCS


def kinds(root: type[BaseException]) -> list[type[BaseException]]:
    return [root, *[kind for child in root.__subclasses__() for kind in kinds(child)]]


@pytest.mark.parametrize("kind", kinds(IndoubtError), ids=lambda kind: kind.__name__)
def test_every_error_ends_with_a_code_and_a_whole_sentence(kind: type[Exception]) -> None:
    end = told(kind("rec_a.1: it is so"))
    assert end.code in {Exit.ERROR, Exit.NOT_FOUND, Exit.REFUSED, Exit.UPGRADE}
    assert str(end) == "rec_a.1: it is so"
    assert "{" not in end.next_step
    assert end.facts["type"] == kind.__name__


def test_narrow_errors_stand_before_wide_ones() -> None:
    for number, (kind, _) in enumerate(ENDINGS):
        assert not [wide for wide, _ in ENDINGS[:number] if issubclass(kind, wide)]


@pytest.mark.parametrize(("error", "code"), [(ValueError("x"), 2), (KeyError("x"), 1)])
def test_other_errors_end_too(error: Exception, code: int) -> None:
    assert told(error).code == code
    end = told(error)
    assert told(end) is end


def test_the_version(operator: Any) -> None:
    shown = operator.run("--version")
    assert shown.code == 0
    assert re.fullmatch(r"indoubt \d+\.\d+\.\d+\S*\n", shown.out)


def test_the_demo_is_told_what_was_asked(operator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[dict[str, Any]] = []

    def run(**given: Any) -> int:
        played.append(given)
        return 0

    monkeypatch.setattr("indoubt.demo.run", run)
    for option in ("--yes", "-y", "--no-input"):
        assert operator.run("demo", option).code == 0
    assert operator.run("demo", "--keep", "here").code == 0
    assert operator.run("demo", "--store", "redis://there").code == 0
    default = {"store": None, "keep": None, "ask": False}
    kept, there = default | {"keep": "here"}, default | {"store": "redis://there"}
    assert played == [default] * 3 + [kept, there]
