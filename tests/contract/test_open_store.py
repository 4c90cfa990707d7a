"""A store's URL: what each form opens, and what is told about the wrong ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from indoubt.errors import SchemaMissing, StoreBroken
from indoubt.stores import open_store
from indoubt.stores.memory import MemoryStore
from indoubt.stores.sqlite import SQLiteStore


async def test_memory() -> None:
    for url in ("memory:", "MEMORY:", "memory://"):
        assert isinstance(open_store(url), MemoryStore)


@pytest.mark.parametrize(
    ("name", "file"),
    [("a.db", "a.db"), ("b%20c.db", "b c.db"), ("%C3%A9.db", "é.db"), ("50%25%3F.db", "50%?.db")],
)
async def test_absolute_and_relative_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, file: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in (f"sqlite:///{tmp_path}/{name}", f"sqlite:///{name}", f"SQLite:///./{name}"):
        store = open_store(url)
        assert isinstance(store, SQLiteStore)
        assert store.path == str(tmp_path / file)
        await store.close()
    assert sorted(os.listdir(tmp_path)) == [file, f"{file}-owners"]  # noqa: PTH208


async def test_a_relative_file_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///a.db")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert (await store.read([])).records == ()
    store.hold_owner("mine")
    assert not list((tmp_path / "elsewhere").iterdir())
    await store.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "no kind of store"),
        ("app.db", "no kind of store"),
        ("/tmp/app.db", "no kind of store"),  # noqa: S108
        ("mysql://user:secret@host/db", "no kind of store called 'mysql'"),
        ("sqlite3:///a.db", "no kind of store"),
        ("sqlite:", "no host"),
        ("sqlite:a.db", "no host"),
        ("sqlite:/a.db", "no host"),
        ("sqlite://", "names a file"),
        ("sqlite:///", "names a file"),
        ("sqlite:////tmp/", "names a file"),
        ("sqlite:///a%00b.db", "names a file"),
        ("sqlite://host/a.db", "no host"),
        ("sqlite:///a.db?mode=ro", "keyword"),
        ("sqlite:///a.db#x", "keyword"),
        ("sqlite:///:memory:", "memory:"),
        ("memory:name", "no name"),
    ],
)
def test_a_wrong_url_is_a_value_error_that_tells_no_secret(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)
    assert "host/db" not in str(caught.value)


def test_an_unknown_option_is_a_type_error(tmp_path: Path) -> None:
    for url in ("memory:", f"sqlite:///{tmp_path}/a.db"):
        with pytest.raises(TypeError):
            open_store(url, colour="blue")
    assert not list(tmp_path.iterdir())


def test_a_missing_file_is_made_only_if_wanted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    with pytest.raises(SchemaMissing, match="no such file"):
        open_store(url, create=False)
    assert not list(tmp_path.iterdir())
    (tmp_path / "a.db").touch()
    with pytest.raises(SchemaMissing, match="empty"):
        open_store(url, create=False)
    assert (tmp_path / "a.db").stat().st_size == 0
    with pytest.raises(StoreBroken, match="cannot be opened"):
        open_store(f"sqlite:///{tmp_path}/missing/a.db")


@pytest.mark.parametrize(
    ("url", "absent"), [("memory:", ["apsw"]), ("nothing:", ["apsw", "indoubt.stores.memory"])]
)
def test_a_store_is_imported_when_it_is_opened(url: str, absent: list[str]) -> None:
    code = (
        "import sys, contextlib\n"
        "from indoubt.stores import open_store\n"
        "assert 'indoubt.stores.memory' not in sys.modules\n"
        f"with contextlib.suppress(ValueError): open_store({url!r})\n"
        f"print([name for name in {absent!r} if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"
