"""Rules of this code that a person would forget: sizes, banned calls, words, leaks.

Each rule is a function from one source file to its findings; RULES says where it applies, and
EXAMPLES shows each rule one text that it must find and one that it must let pass.
"""

import ast
import re
import statistics
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from indoubt.store import BlockingStore, Store

ROOT = Path(__file__).resolve().parent.parent

CLOCK = "the store's time, or indoubt.engine.clock"
RANDOM = "indoubt.engine.ids"
# What the sources may not use, and what to use instead.
BANNED = {
    "asyncio.get_event_loop().time": CLOCK,
    "asyncio.get_running_loop().time": CLOCK,
    "datetime.date.today": CLOCK,
    "datetime.datetime.now": CLOCK,
    "datetime.datetime.today": CLOCK,
    "datetime.datetime.utcnow": CLOCK,
    "time.monotonic": CLOCK,
    "time.monotonic_ns": CLOCK,
    "time.perf_counter": CLOCK,
    "time.perf_counter_ns": CLOCK,
    "time.time": CLOCK,
    "time.time_ns": CLOCK,
    "os.urandom": RANDOM,
    "random": RANDOM,
    "secrets": RANDOM,
    "uuid.uuid1": RANDOM,
    "uuid.uuid4": RANDOM,
}
# Where the above lives, or is allowed for a reason: file pattern -> what it may use.
ALLOWED = {
    r"src/indoubt/engine/clock\.py": (CLOCK,),
    r"src/indoubt/stores/([a-z_]+/)*clock\.py": (CLOCK,),
    r"src/indoubt/engine/ids\.py": (RANDOM,),
    r"src/indoubt/stores/(sqlite|redis)/schema\.py": ("secrets.token_hex",),  # an incarnation
    r"src/indoubt/testing/.*": (CLOCK, RANDOM),  # the simulated world has its own
}
# Who may reach into the stores, beside the stores: these call indoubt.stores.open_store.
STORE_DOORS = {f"indoubt.stores{door}" for door in ("", ".open_store", ".store_of_client")}
STORE_USERS = (
    "src/indoubt/__init__.py",
    "src/indoubt/cli",
    "src/indoubt/delayed_effects",
    "src/indoubt/demo",
    "src/indoubt/ledger",
)

SLEEP_MARK = "# handler under test blocks"
SKIPS = ("pytest.skip", "pytest.importorskip", "pytest.mark.skip", "pytest.mark.skipif")
VAGUE = {"base", "common", "helper", "helpers", "misc", "types", "util", "utils"}
FOREIGN = {"epoch", "generation", "job", "task"}  # the core's words: record, fence, attempt
LATER = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b")

# Built from parts, so that this file does not find itself.
LEAKS = {
    "a package registry": r"\b("
    + "|".join(
        re.escape(".".join(parts))
        for parts in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("npmjs", "org"),
            ("npmjs", "com"),
            ("yarnpkg", "com"),
            ("proxy", "golang", "org"),
            ("crates", "io"),
        )
    )
    + r")\b",
    "a path of one machine": r"(?<![\w.~-])/(root|work|home/[A-Za-z_][\w.-]*|Users/\w+)/",
    "a tool's private folder": r"\." + "py" + r"env\b",
}


class Source(NamedTuple):
    """One Python file: its path from the root, its text and its syntax."""

    path: str
    text: str
    tree: ast.Module

    def lines(self, node: ast.AST) -> str:
        """The source lines that a node covers."""
        first, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", 1)
        return "\n".join(self.text.splitlines()[first - 1 : last])


Finding = tuple[int, str]
Rule = Callable[[Source], Iterator[Finding]]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def parse(path: str, text: str) -> Source:
    """Read a text as the file at a path."""
    return Source(path, text, ast.parse(text))


@cache
def sources() -> tuple[Source, ...]:
    """Every Python file of this project."""
    files = [p for top in ("src", "tests", "bench") for p in sorted((ROOT / top).rglob("*.py"))]
    files.append(ROOT / "dev.py")
    return tuple(parse(p.relative_to(ROOT).as_posix(), p.read_text("utf-8")) for p in files)


def functions(source: Source) -> list[Function]:
    """All functions of a file, nested ones and methods too."""
    return [node for node in ast.walk(source.tree) if isinstance(node, Function)]


def length(node: Function) -> int:
    """The lines of a function, its docstring counted, its decorators not."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def imports(source: Source) -> Iterator[tuple[ast.stmt, str, str]]:
    """Yield (statement, name bound here, absolute dotted name) of every import."""
    package = source.path.removeprefix("src/").removesuffix(".py").split("/")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.asname or "." not in alias.name
                yield (
                    node,
                    alias.asname or alias.name.split(".")[0],
                    (alias.name if whole else alias.name.split(".")[0]),
                )
                if not whole:
                    yield node, "", alias.name
        elif isinstance(node, ast.ImportFrom):
            above = package[: -node.level] if node.level else []
            origin = [*above, *([node.module] if node.module else [])]
            for alias in node.names:
                yield node, alias.asname or alias.name, ".".join([*origin, alias.name])


def dotted(node: ast.AST, known: dict[str, str]) -> str:
    """The dotted name that an expression refers to, through the file's imports, or ''."""
    if isinstance(node, ast.Name):
        return known.get(node.id, "")
    if isinstance(node, ast.Attribute):
        before = dotted(node.value, known)
        return before and f"{before}.{node.attr}"
    if isinstance(node, ast.Call):
        before = dotted(node.func, known)
        return before and f"{before}()"
    return ""


def references(source: Source) -> Iterator[tuple[ast.expr, str]]:
    """Yield every expression that names something imported, with its absolute name."""
    known = {name: target for _, name, target in imports(source) if name}
    inner = {n.value for n in ast.walk(source.tree) if isinstance(n, ast.Attribute)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name | ast.Attribute) and node not in inner:
            name = dotted(node, known)
            if name:
                yield node, name


def file_length(source: Source) -> Iterator[Finding]:
    """A file is short enough to be read in one go."""
    most = 400 if source.path.startswith("src/") else 500
    count = len(source.text.splitlines())
    if count > most:
        yield count, f"{count} lines, at most {most}: split it by responsibility"


def function_length(source: Source) -> Iterator[Finding]:
    """A function fits on a screen."""
    for node in functions(source):
        if length(node) > 50:
            yield node.lineno, f"{node.name} has {length(node)} lines, at most 50"


STORE_VERBS = {name for name in (*vars(Store), *vars(BlockingStore)) if not name.startswith("_")}


def class_size(source: Source) -> Iterator[Finding]:
    """A class has few public methods; properties read as attributes, tests are no interface.

    What the protocols of store.py prescribe is their width, and not that of each store.
    """
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef):
            methods = {m.name for m in node.body if isinstance(m, Function) and not is_property(m)}
            prescribed = set[str]() if source.path.endswith("indoubt/store.py") else STORE_VERBS
            own = methods - prescribed
            public = [name for name in own if not name.startswith(("_", "test_"))]
            if len(public) > 12:
                yield node.lineno, f"{node.name} has {len(public)} public methods, at most 12"


def is_property(node: Function) -> bool:
    """Whether a method is read like an attribute."""
    names = [
        d.attr if isinstance(d, ast.Attribute) else ast.unparse(d) for d in node.decorator_list
    ]
    return any(name in {"property", "cached_property", "setter"} for name in names)


def banned_calls(source: Source) -> Iterator[Finding]:
    """Time and chance enter in one place each."""
    files = [uses for pattern, uses in ALLOWED.items() if re.fullmatch(pattern, source.path)]
    allowed = {use for uses in files for use in uses}
    for node, name in references(source):
        for banned, instead in BANNED.items():
            if f"{name}.".startswith(f"{banned}.") and not {name, instead} & allowed:
                yield node.lineno, f"{name}: use {instead}"


def store_access(source: Source) -> Iterator[Finding]:
    """Nobody but a few reaches into the stores, and those by open_store only."""
    if source.path.startswith(("src/indoubt/stores", "src/indoubt/testing/")):
        return
    for node, _, name in imports(source):
        if name == "indoubt.stores" or name.startswith("indoubt.stores."):
            known = name in STORE_DOORS
            if not (known and source.path.startswith(STORE_USERS)):
                yield node.lineno, f"imports {name}: take a Store, or a ledger"


def sleeping(source: Source) -> Iterator[Finding]:
    """Tests wait for events, never for time; sleep(0) only lets others run."""
    for node, name in references(source):
        if name in {"time.sleep", "asyncio.sleep"}:
            line = source.text.splitlines()[node.lineno - 1]
            if "sleep(0)" not in line and SLEEP_MARK not in line:
                yield node.lineno, f"{name}: wait for an event, or mark it {SLEEP_MARK!r}"


def skipping(source: Source) -> Iterator[Finding]:
    """A test that does not run proves nothing; a missing server is a failure."""
    for node, name in references(source):
        if name in SKIPS or name.startswith("unittest.skip"):
            yield node.lineno, f"{name}: let it fail, and say what is missing"


def swallowing(source: Source) -> Iterator[Finding]:
    """An error that nobody expected is not dropped."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler) and is_broad(node.type):
            if all(isinstance(step, ast.Pass) or is_ellipsis(step) for step in node.body):
                yield node.lineno, "a broad except that does nothing: name the errors"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            for _ in filter(is_broad, node.args):
                yield node.lineno, "suppresses every error: name the errors"


def is_broad(node: ast.expr | None) -> bool:
    """Whether an except clause catches everything."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return any(p is None or ast.unparse(p) in {"Exception", "BaseException"} for p in parts)


def is_ellipsis(step: ast.stmt) -> bool:
    """Whether a statement is a bare `...`."""
    return isinstance(step, ast.Expr) and ast.unparse(step) == "..."


def left_for_later(source: Source) -> Iterator[Finding]:
    """What is to be done is done, or stands where it is planned."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if LATER.search(line):
            yield number, "a mark for later: do it now, or plan it elsewhere"


def vague_name(source: Source) -> Iterator[Finding]:
    """A module's name says what it is responsible for."""
    for part in Path(source.path).with_suffix("").parts:
        if part.strip("_") in VAGUE:
            yield 1, f"'{part}' says nothing: name the responsibility"


def foreign_words(source: Source) -> Iterator[Finding]:
    """One word per idea: the core's are in CONTRIBUTING.md."""
    for node in ast.walk(source.tree):
        for field in ("id", "attr", "arg", "name", "asname"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                plain = re.sub(r"(?i)store_?epoch", "", name)
                words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", plain)
                for word in sorted(FOREIGN & {w.lower().removesuffix("s") for w in words}):
                    yield getattr(node, "lineno", 1), f"'{name}': not '{word}' in the core"


def docstring(source: Source) -> Iterator[Finding]:
    """A module says in one to five lines what it promises."""
    if not ast.get_docstring(source.tree):
        yield 1, "the module has no docstring"


def asserting(source: Source) -> Iterator[Finding]:
    """A test can fail."""
    for test in functions(source):
        if test.name.startswith("test_") and not any(asserts(node) for node in ast.walk(test)):
            yield test.lineno, f"{test.name} asserts nothing"


def asserts(node: ast.AST) -> bool:
    """Whether a piece of a test may make it fail on purpose."""
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).rpartition(".")[2]
        return name in {"raises", "warns", "fail"} or name.startswith(("check_", "assert_"))
    return isinstance(node, ast.Assert)


EVERYWHERE = ("src/", "tests/", "bench/", "dev.py")
TESTS = ("tests/", "src/indoubt/testing/")
RULES: dict[Rule, tuple[str, ...]] = {
    asserting: TESTS,
    banned_calls: ("src/",),
    class_size: ("src/",),
    docstring: ("src/",),
    file_length: EVERYWHERE,
    foreign_words: ("src/indoubt/core/",),
    function_length: EVERYWHERE,
    left_for_later: EVERYWHERE,
    skipping: TESTS,
    sleeping: TESTS,
    store_access: ("src/",),
    swallowing: EVERYWHERE,
    vague_name: EVERYWHERE,
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_code_keeps(rule: Rule) -> None:
    files = [source for source in sources() if source.path.startswith(RULES[rule])]
    found = [f"{s.path}:{line}: {text}" for s in files for line, text in rule(s)]
    assert not found, "\n".join([rule.__doc__ or "", *found])


def test_functions_are_short_as_a_rule() -> None:
    found = [length(f) for s in sources() if s.path.startswith("src/") for f in functions(s)]
    assert statistics.median(found or [0]) <= 10


def leaks(text: str) -> Iterator[Finding]:
    """Nothing in the repository tells where it was written."""
    for number, line in enumerate(text.splitlines(), 1):
        for what, pattern in LEAKS.items():
            if re.search(pattern, line):
                yield number, f"names {what}: {line.strip()[:80]}"


def test_no_file_names_a_registry_or_a_machine() -> None:
    command = ["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found: list[str] = []
    for path in listing.splitlines():
        if (ROOT / path).is_file():
            text = (ROOT / path).read_text("utf-8", errors="replace")
            found += [f"{path}:{line}: {what}" for line, what in leaks(text)]
    assert listing
    assert not found, "\n".join(found)


LONG = "def f():\n" + "    x = 1\n" * 50
MANY = "class C:\n" + "".join(f"    def m{n}(self): ...\n" for n in range(13))
PROPERTIES = MANY.replace("    def m0", "    @property\n    def m0")
CORE, TEST = "src/indoubt/core/machine.py", "tests/core/test_machine.py"
# Rule, path, a text that it finds, a text that it lets pass.
EXAMPLES: list[tuple[Rule, str, str, str]] = [
    (asserting, TEST, "def test_a(): f()", "def test_a():\n    assert f()"),
    (asserting, TEST, "async def test_a(): f()", "async def test_a(): check_all(f)"),
    (asserting, TEST, "def test_a(): raised()", "def test_a():\n  with pytest.raises(E): f()"),
    (banned_calls, CORE, "import time\ntime.time()", "import time\ntime.strftime('%Y')"),
    (banned_calls, CORE, "import time as t\nf(t.monotonic)", "import time as t\nf(t.sleep)"),
    (banned_calls, CORE, "from time import time_ns as n\nn()", "def n(): ...\nn()"),
    (
        banned_calls,
        CORE,
        "import datetime as d\nd.datetime.now()",
        "import datetime as d\nd.datetime.fromtimestamp(0)",
    ),
    (
        banned_calls,
        CORE,
        "from datetime import datetime\ndatetime.now()",
        "from datetime import datetime\ndatetime.min",
    ),
    (banned_calls, CORE, "import asyncio as a\na.get_running_loop().time()", "x.time()"),
    (banned_calls, CORE, "from uuid import uuid4\nuuid4()", "from uuid import UUID\nUUID(x)"),
    (banned_calls, CORE, "import random\nrandom.random()", "random.random()"),
    (banned_calls, CORE, "import secrets\nsecrets.token_hex()", "import os\nos.getpid()"),
    (class_size, CORE, MANY, PROPERTIES),
    (docstring, CORE, "x = 1", '"""What this promises."""'),
    (file_length, CORE, "x = 1\n" * 401, "x = 1\n" * 400),
    (file_length, TEST, "x = 1\n" * 501, "x = 1\n" * 500),
    (foreign_words, CORE, "claim_epoch = 1", "store_epoch = a.store_epoch"),
    (foreign_words, CORE, "class OldTasks: ...", "class StoreEpoch: ..."),
    (foreign_words, CORE, "def f(*, job): ...", "def f(*, jobless): ..."),
    (foreign_words, CORE, "r.generation", "x = 'generation'"),
    (function_length, CORE, LONG, LONG.removesuffix("    x = 1\n")),
    (left_for_later, CORE, "# TO" + "DO: x", "# to do: x"),
    (left_for_later, CORE, "# FIX" + "ME", "PREFIXMETHOD = 1"),
    (skipping, TEST, "import pytest\npytest.skip('x')", "import pytest\npytest.fail('x')"),
    (skipping, TEST, "from pytest import mark\n@mark.skipif(x)\ndef f(): ...", "mark.skipif"),
    (sleeping, TEST, "import time\ntime.sleep(1)", f"import time\ntime.sleep(1)  {SLEEP_MARK}"),
    (
        sleeping,
        TEST,
        "from asyncio import sleep\nasync def f(): await sleep(1)",
        "from asyncio import sleep\nasync def f(): await sleep(0)",
    ),
    (store_access, "src/indoubt/sync.py", "from .stores import open_store", "import os"),
    (
        store_access,
        "src/indoubt/ledger.py",
        "from indoubt.stores.memory import MemoryStore",
        "from .stores import open_store",
    ),
    (
        store_access,
        "src/indoubt/guard/call.py",
        "import indoubt.stores.sqlite",
        "from ..store import Store",
    ),
    (
        swallowing,
        CORE,
        "try: f()\nexcept Exception: pass",
        "try: f()\nexcept ValueError: pass",
    ),
    (swallowing, CORE, "try: f()\nexcept: ...", "try: f()\nexcept Exception: log()"),
    (swallowing, CORE, "with suppress(Exception): f()", "with suppress(OSError): f()"),
]


# Rule, text, a path where it finds that text and one where it lets it pass.
PLACES: list[tuple[Rule, str, str, str]] = [
    (banned_calls, "import time\ntime.time()", CORE, "src/indoubt/engine/clock.py"),
    (banned_calls, "import time\ntime.time()", CORE, "src/indoubt/stores/sqlite/clock.py"),
    (
        banned_calls,
        "import time\ntime.time()",
        "src/indoubt/engine/ids.py",
        "src/indoubt/testing/a.py",
    ),
    (
        banned_calls,
        "import uuid\nuuid.uuid4()",
        "src/indoubt/stores/a.py",
        "src/indoubt/engine/ids.py",
    ),
    (
        store_access,
        "from indoubt.stores import open_store",
        "src/indoubt/engine/a.py",
        "src/indoubt/cli/a.py",
    ),
    (vague_name, "", "src/indoubt/core/_utils.py", "src/indoubt/core/record.py"),
    (vague_name, "", "src/indoubt/common/bounds.py", "src/indoubt/core/bounds.py"),
]
LEAKY = {
    "see https://" + "pypi" + ".org/project/x": "see https://example.org/project/x",
    "files." + "pythonhosted" + ".org": "filespythonhosted",
    "cd /" + "work/main": "cd src/work/main",
    "('/" + "root/x')": "~/root/x",
    "in /" + "home/anna/x": "in /home",
    "~/.py" + "env/versions": "pyenv root",
}


@pytest.mark.parametrize(("rule", "path", "bad", "good"), EXAMPLES)
def test_a_rule_tells_bad_from_good(rule: Rule, path: str, bad: str, good: str) -> None:
    assert list(rule(parse(path, bad)))
    assert not list(rule(parse(path, good)))


@pytest.mark.parametrize(("rule", "text", "there", "here"), PLACES)
def test_a_rule_knows_where_it_applies(rule: Rule, text: str, there: str, here: str) -> None:
    assert list(rule(parse(there, text)))
    assert not list(rule(parse(here, text)))


def test_every_rule_has_been_seen_to_fail() -> None:
    assert set(RULES) == {rule for rule, *_ in [*EXAMPLES, *PLACES]}


@pytest.mark.parametrize(("bad", "good"), LEAKY.items())
def test_leaks_are_found(bad: str, good: str) -> None:
    assert list(leaks(bad))
    assert not list(leaks(good))
