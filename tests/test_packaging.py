"""What a user installs: the package with its data files, and nothing else."""

import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built as a user's pip builds it, but without a download."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, *offline, "--wheel-dir", str(folder), str(ROOT)], check=True)
    (built,) = folder.iterdir()
    return zipfile.ZipFile(built)


def metadata_of(wheel: zipfile.ZipFile) -> dict[str, list[str]]:
    """The wheel's metadata: every header with its values."""
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    headers = Parser().parsestr(wheel.read(name).decode())
    return {key: [str(value) for value in headers.get_all(key, [])] for key in headers}


def test_the_wheel_holds_every_source_and_data_file(wheel: zipfile.ZipFile) -> None:
    kinds = (".py", ".sql", ".lua", "py.typed")
    files = [p.relative_to(SOURCE).as_posix() for p in SOURCE.rglob("*") if p.name.endswith(kinds)]
    assert "indoubt/py.typed" in files
    assert set(files) <= set(wheel.namelist())


def test_the_wheel_installs_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    version = metadata_of(wheel)["Version"][0]
    assert tops == {"indoubt", f"indoubt-{version}.dist-info"}
    assert not [name for name in wheel.namelist() if name.endswith((".pyc", ".db"))]


def test_the_wheel_says_what_it_needs(wheel: zipfile.ZipFile) -> None:
    metadata = metadata_of(wheel)
    always = [need for need in metadata["Requires-Dist"] if "extra ==" not in need]
    assert sorted(need.split(">")[0] for need in always) == ["apsw", "msgspec"]
    assert metadata["License-Expression"] == ["Apache-2.0"]
    assert metadata["Requires-Python"] == [">=3.11"]


def test_the_pins_cover_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["cli"]]
    names = [need.split(">")[0] for need in asked]
    for file in ("requirements-demo.txt", "requirements-dev.txt"):
        pinned = [line.split("==")[0] for line in (ROOT / file).read_text("utf-8").splitlines()]
        assert set(names) <= set(pinned), file
