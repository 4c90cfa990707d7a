"""What `import indoubt` offers, and what it costs."""

import subprocess
import sys

import pytest

import indoubt

# A program that only wants a name from us does not pay for engines and command lines.
HEAVY = {"apsw", "indoubt.cli", "indoubt.stores", "indoubt.testing", "rich", "sqlite3", "typer"}


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh Python has loaded after some code."""
    report = f"import sys\n{code}\nprint(*sys.modules)"
    command = [sys.executable, "-W", "error", "-c", report]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def order(name: str) -> tuple[bool, bool, str]:
    """CONSTANTS, then Classes, then functions, as the linter sorts them."""
    return not name.isupper(), name[0].islower(), name


def test_every_exported_name_is_there() -> None:
    assert [name for name in indoubt.__all__ if not hasattr(indoubt, name)] == []


def test_exported_names_are_sorted_and_listed() -> None:
    assert list(indoubt.__all__) == sorted(set(indoubt.__all__), key=order)
    assert set(indoubt.__all__) <= set(dir(indoubt))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(indoubt, "no_such_name")  # noqa: B009 - the type checker knows it is not there


def test_importing_loads_no_store_and_no_optional_package() -> None:
    assert loaded_by("import indoubt") & HEAVY == set()
