#!/usr/bin/env python3
"""Every command a developer needs, on a bare Python: `python3 dev.py help`.

It keeps a virtual environment next to this file, filled from a hashed list of exact versions, and
refills it when that list or the Python changes. Only the standard library is used here, in
a syntax that old Pythons can read, so that they can say what is wrong.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - this is who must be told
    sys.exit("indoubt needs Python 3.11 or newer; this is " + sys.version.split()[0] + ".")

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent
PYTHONS = ("3.11", "3.12", "3.13")
ENV = {
    **os.environ,
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PYTHONHASHSEED": "0",  # the test processes collect sets in one order
    "PYRIGHT_PYTHON_GLOBAL_NODE": "0",  # the pinned Node, not an old one of the system
}
HELP = """\
python3 dev.py COMMAND [arguments]

  demo [args]      a crash, and what indoubt does about it
  test [args]      lint, types, then pytest; the arguments go to pytest
  pytest [args]    pytest alone
  test-all [args]  lint and types, then pytest on every Python found (3.11 to 3.13)
  lint             ruff check, ruff format --check, lint-imports
  types            pyright, strict
  bench [name]     a short set of benchmarks, or bench/NAME.py with the arguments that follow
  model [args]     every order of the protocol's steps, large bounds (many minutes)
  clean            remove the environments, caches and build products

--keep-going       do the remaining steps too when one has failed"""

BENCH = (
    "cpu",
    "import_time",
    "count_commits",
    "guarded_sqlite --reps 5 --seconds 0.5 --peers none",
    "two_processes --reps 3 --seconds 1",
)

Step = tuple[str, list[str]]


def say(text: str, end: str = "\n") -> None:
    """Print at once: a watcher should see the step while it runs."""
    print(text, end=end, flush=True)


def quiet(title: str, command: Sequence[str]) -> None:
    """Run a long step on one line, with progress; show its output only where it fails."""
    say(f"{title} ...", end="")
    started, output = time.monotonic(), list[str]()
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(command, env=ENV, stdout=pipe, stderr=both, text=True) as p:
        for line in p.stdout or ():
            output.append(line)
            if line.startswith("Collecting "):
                say(".", end="")
    took = f"{time.monotonic() - started:.1f} s"
    if p.returncode:
        sys.exit(f" failed\n{''.join(output[-30:])}dev.py: '{title}' failed after {took}.")
    say(f" done in {took}")


def fill(venv: Path, pins: Path, python: str, version: str) -> None:
    """Make, refill or keep an environment; each part has a stamp of what it was made from."""
    pip = [str(venv / "bin/python"), "-m", "pip", "install", "--progress-bar", "off"]
    inputs = f"{version} {ROOT}".encode()
    project = (ROOT / "pyproject.toml").read_bytes()
    pinned = [*pip, "--require-hashes", "-r", str(pins)]
    editable = [*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)]
    parts = [
        (f"make {venv.name}, Python {version}", [python, "-m", "venv", "--clear", str(venv)], b""),
        (f"install the packages of {pins.name}", pinned, pins.read_bytes()),
        ("install indoubt, editable", editable, project),
    ]
    for number, (title, command, content) in enumerate(parts):
        stamp, wanted = venv / f".stamp{number}", hashlib.sha256(inputs + content).hexdigest()
        if not stamp.exists() or stamp.read_text() != wanted:
            quiet(title, command)
            stamp.write_text(wanted)


def ensure(name: str, pins: str, python: str = sys.executable, version: str = "") -> Path:
    """Return an environment that holds what the list says, and this project."""
    venv = ROOT / name
    try:
        with (ROOT / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one process at a time
            fill(venv, ROOT / pins, python, version or sys.version.split()[0])
    except OSError as error:
        sys.exit(f"dev.py: cannot prepare {venv}: {error.strerror}.")
    return venv


def answer(*command: str) -> str:
    """What a command prints, or nothing where it does not work."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        silent = subprocess.DEVNULL
        return subprocess.check_output(command, text=True, timeout=60, stderr=silent).strip()
    return ""


def interpreters() -> Iterator[tuple[str, str, str]]:
    """Yield (minor version, path, full version): the first working interpreter of each."""
    managed = Path(answer("pyenv", "root") or os.devnull).glob("versions/*/bin/python")
    paths = [sys.executable, *(f"python{minor}" for minor in PYTHONS), *map(str, managed)]
    ask = "import platform; print(platform.python_version())"
    versions = {path: answer(path, "-c", ask) for path in paths}
    for minor in PYTHONS:
        found = [path for path in paths if versions[path].startswith(minor + ".")]
        if found:
            yield minor, found[0], versions[found[0]]
        else:
            say(f"No Python {minor} found here: left out.")


def checks(venv: Path) -> list[Step]:
    """The steps of `lint`, then that of `types`."""
    ruff, python = str(venv / "bin/ruff"), str(venv / "bin/python")
    return [
        ("ruff check", [ruff, "check", "."]),
        ("ruff format --check", [ruff, "format", "--check", "."]),
        ("lint-imports", [str(venv / "bin/lint-imports"), "--no-logo"]),
        ("pyright", [python, "-m", "pyright", "--pythonpath", python]),
    ]


def pytest(venv: Path, args: Sequence[str], title: str = "pytest") -> list[Step]:
    """The step that runs the tests, in two processes unless the arguments say otherwise."""
    return [(title, [str(venv / "bin/python"), "-m", "pytest", "-n", "2", *args])]


def steps_of(command: str, args: Sequence[str]) -> list[Step]:
    """Prepare what a command needs and return its steps."""
    here = ensure(".venv", "requirements-dev.txt")
    if command == "test-all":
        steps = checks(here)
        for minor, path, version in interpreters():
            venv = ensure(f".venv-{minor}", "requirements-dev.txt", path, version)
            steps += pytest(venv, args, f"pytest on Python {version}")
        return steps
    python = str(here / "bin/python")
    benches = [args] if args else [line.split() for line in BENCH]
    return {
        "test": [*checks(here), *pytest(here, args)],
        "pytest": pytest(here, args),
        "lint": checks(here)[:-1],
        "types": checks(here)[-1:],
        "bench": [(name, [python, f"bench/{name}.py", *more]) for name, *more in benches],
        "model": [("model", [python, "-m", "tests.model.protocol_model", *args])],
    }[command]


def clean() -> None:
    """Remove what this file, the tools and the tests have made."""
    names = ".venv* build dist .hypothesis .import_linter_cache .pytest_cache .ruff_cache"
    names += " src/**/__pycache__ tests/**/__pycache__ bench/**/__pycache__"
    for path in [path for name in names.split() for path in ROOT.glob(name)]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def run(steps: Sequence[Step], *, keep_going: bool) -> None:
    """Run the steps; end with a non-zero exit at the first that fails, or after the last."""
    failed = list[str]()
    for number, (title, command) in enumerate(steps, 1):
        say(f"[{number}/{len(steps)}] {title}")
        code = subprocess.call(command, cwd=ROOT, env=ENV)
        failed += [f"{title} (exit code {code})"] if code else []
        if failed and not keep_going:
            break
    sys.exit("dev.py: failed: " + ", ".join(failed) if failed else 0)


def main(command: str = "help", *rest: str) -> None:
    """Do what the command line says."""
    args = [arg for arg in rest if arg != "--keep-going"]
    if command == "demo":
        python = ensure(".venv-demo", "requirements-demo.txt") / "bin/python"
        sys.exit(subprocess.call([str(python), "-m", "indoubt.cli", "demo", *args], env=ENV))
    elif command == "clean":
        clean()
    elif command in {"help", "--help", "-h"}:
        say(HELP)
    elif command not in {"test", "pytest", "test-all", "lint", "types", "bench", "model"}:
        sys.exit(f"{HELP}\n\ndev.py: there is no command '{command}'.")
    else:
        run(steps_of(command, args), keep_going="--keep-going" in rest)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
