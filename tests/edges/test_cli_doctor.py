"""What a ledger promises here, and its schema: doctor and db."""

import os
from pathlib import Path
from typing import Any

import pytest

from indoubt import stores
from indoubt.stores.sqlite import examine
from indoubt.stores.sqlite.connection import Place
from indoubt.stores.sqlite.schema import SHIPPED

FINDINGS = [
    "durable", "silence", "shared", "engine", "file", "file_system", "journal", "schema",
    "identity", "clock", "owner_locks", "records", "disk_sync", "in_doubt",
]  # fmt: skip
LATEST = SHIPPED[-1].number


def findings(operator: Any, *args: str) -> dict[str, Any]:
    told = operator.run("doctor", "--json", *args).json
    assert set(told) == {"store", "ok", "findings"}
    return told["findings"]


def test_it_tells_everything_in_order(operator: Any, doubts: Any) -> None:
    doubts.done("order-1")
    told = operator.run("doctor")
    assert [line[2:].split()[0] for line in told.out.splitlines()] == FINDINGS
    assert list(findings(operator)) == FINDINGS
    assert {name for one in findings(operator).values() for name in one} == {
        "value", "level", "words",
    }  # fmt: skip


def test_it_looks_at_the_ledger_that_is_there(operator: Any, doubts: Any) -> None:
    doubts.done("order-1")
    found = findings(operator)
    assert found["engine"]["value"]["name"] == "SQLite"
    assert found["file"]["value"]["path"] == str(operator.place / "shop.db")
    assert found["file"]["value"]["bytes"] > 0
    assert found["journal"]["value"] == {"mode": "wal", "synchronous": "full"}
    assert found["schema"]["value"] == {"found": LATEST, "latest": LATEST}
    assert found["identity"]["value"]["epoch"] == 1
    assert found["records"]["value"] == {"counted": 1, "all": True, "states": {"succeeded": 1}}
    assert found["in_doubt"]["value"] == {"count": 0}
    assert found["durable"]["value"] is True


def test_it_tells_what_is_in_doubt_and_since_when(operator: Any, doubts: Any) -> None:
    doubts.make()
    doubts.make("order-8", tenant_id="acme")
    one = findings(operator)["in_doubt"]
    assert (one["level"], one["value"]["count"], one["value"]["for_people"]) == ("note", 2, 2)
    assert one["value"]["oldest"].endswith("+00:00")
    assert findings(operator, "--tenant", "acme")["in_doubt"]["value"]["count"] == 1


def test_it_counts_owners_that_live_and_that_died(operator: Any, doubts: Any) -> None:
    doubts.done("order-1")
    assert operator.shop("shop.slow('order-9')") == 9
    assert findings(operator)["owner_locks"]["value"] == {"alive": 1, "dead": 1, "undecided": 0}


def test_effects_that_settle_slower_than_anybody_waits_are_named(operator: Any) -> None:
    assert operator.shop("shop.label('order-1')") == 0
    one = findings(operator, "--app", "shop:ledger")["effects"]
    assert one["level"] == "note"
    assert one["value"] == {"registered": 4, "settle_longer_than_wait": ["slow"]}


def test_a_clock_that_was_set_back_is_bad(operator: Any, doubts: Any) -> None:
    doubts.done("order-1")
    db = Place(str(operator.place / "shop.db")).connect()
    db.execute("UPDATE meta SET now_ms = now_ms + 3600000").fetchall()
    db.close()
    told = operator.run("doctor")
    assert told.code == 1
    assert [line for line in told.out.splitlines() if line.startswith("! clock")]
    assert "s ahead of this host's" in told.out
    one = operator.run("doctor", "--json").json
    assert one["ok"] is False
    assert 3_590_000 < one["findings"]["clock"]["value"]["ahead_ms"] <= 3_600_000


@pytest.mark.parametrize(("kind", "level"), [("tmpfs", "bad"), ("nfs4", "note")])
def test_a_file_system_that_forgets_or_is_shared_is_told(
    operator: Any, doubts: Any, monkeypatch: pytest.MonkeyPatch, kind: str, level: str
) -> None:
    doubts.done("order-1")
    local = kind == "tmpfs"

    def named(_path: str) -> str:
        return kind

    def is_local(_folder: Path) -> bool:
        return local

    monkeypatch.setattr(examine, "_kind_of_file_system", named)
    monkeypatch.setattr("indoubt.stores.owners._is_local", is_local)
    one = findings(operator)["file_system"]
    assert (one["level"], one["value"]) == (level, {"type": kind, "local": local})


def test_the_kernel_names_the_file_system_of_a_path() -> None:
    named = examine._kind_of_file_system  # pyright: ignore[reportPrivateUsage]
    assert named("/proc/self") == "proc"


def test_a_disk_that_is_too_quick_or_cannot_be_measured_is_told(
    operator: Any, doubts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubts.done("order-1")
    tries = findings(operator)["disk_sync"]["value"]
    assert tries["tries"] == 7
    monkeypatch.setattr(examine, "_NO_WAIT_MS", 1e9)
    assert "is it waited for?" in findings(operator)["disk_sync"]["words"]

    def full(_fd: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    one = findings(operator)["disk_sync"]
    assert (one["level"], one["value"]) == ("note", None)
    assert sorted(p.name for p in operator.place.iterdir() if "tmp" in p.name) == []


def test_a_great_ledger_is_counted_up_to_a_bound(
    operator: Any, doubts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        doubts.done(f"order-{n}")
    monkeypatch.setattr(examine, "_COUNTED_MAX", 2)
    one = findings(operator)["records"]
    assert one["value"] == {"counted": 2, "all": False, "states": {"succeeded": 2}}
    assert one["words"].startswith("of the newest 2")


def test_many_doubts_are_counted_up_to_a_bound(
    operator: Any, doubts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        doubts.make(f"order-{n}")
    monkeypatch.setattr("indoubt.cli.doctor.COUNTED_MAX", 2)
    monkeypatch.setattr("indoubt.cli.doctor.PAGE", 2)
    one = findings(operator)["in_doubt"]
    assert (one["value"]["count"], one["value"]["more"]) == (2, True)
    assert one["words"].startswith("more than 2, 2 of them for a person")


def test_a_password_is_not_told(operator: Any) -> None:
    from indoubt.cli.doctor import shown_url  # noqa: PLC0415

    assert shown_url("postgresql://ana:secret@db:5432/app?x=1") == "postgresql://db:5432/app?x=1"
    assert (
        shown_url("postgresql://db,db2/app?user=a&password=b&x=1") == "postgresql://db,db2/app?x=1"
    )
    assert shown_url("sqlite:////srv/app.db") == "sqlite:////srv/app.db"
    told = operator.run("doctor", "--store", "nosuch://ana:secret@db/app")
    assert told.code == 2
    assert "secret" not in told.err


# -- db --------------------------------------------------------------------------------------------


def of_age(operator: Any, number: int) -> None:
    """Make the ledger's file look as another version of indoubt left it."""
    db = Place(str(operator.place / "shop.db")).connect(0x6)  # read, write, create
    if number < LATEST:
        db.pragma("application_id", 0x1DB17)
        history = "number INTEGER PRIMARY KEY, name TEXT, sha256 TEXT, at INTEGER"
        db.execute(f"CREATE TABLE migration({history})").fetchall()
    db.execute("INSERT INTO migration VALUES (?, 'x', 'x', 1)", (number,)).fetchall()
    db.close()


def test_a_ledger_of_this_version_is_fine(operator: Any, doubts: Any) -> None:
    doubts.done("order-1")
    assert operator.run("db", "status").out == f"schema {LATEST}, as this version writes it\n"
    told = operator.run("db", "status", "--json")
    assert (told.code, told.json["found"], told.json["pending"]) == (0, LATEST, [])


def test_an_older_one_is_upgraded_step_by_step(operator: Any) -> None:
    of_age(operator, 0)
    status = operator.run("db", "status")
    assert status.code == 6
    assert "run indoubt db upgrade" in status.out
    for args in (["inbox"], ["doctor"], ["recover"], ["decide", "r.1", "give-up"]):
        who = ["--actor", "a", "--reason", "b"] if args[0] == "decide" else []
        refused = operator.run(*args, *who)
        assert (refused.code, refused.out) == (6, "")
        assert "indoubt db upgrade" in refused.err
    done = operator.run("db", "upgrade", "--json")
    assert (done.code, done.json["before"], done.json["found"]) == (0, 0, LATEST)
    assert f"upgrading: 0/{LATEST} " in done.err
    assert operator.run("db", "upgrade").out == f"schema {LATEST}, before {LATEST}\n"
    assert operator.run("inbox", "--check").code == 0


def test_a_newer_one_is_left_alone(operator: Any, doubts: Any) -> None:
    doubts.done("order-1")
    doubts.ledger.close()
    of_age(operator, 99)
    status = operator.run("db", "status", "--json")
    assert (status.code, status.json["found"]) == (6, 99)
    for args in (["inbox"], ["db", "upgrade"]):
        refused = operator.run(*args)
        assert refused.code == 6
        assert "use a newer indoubt" in refused.err


@pytest.mark.parametrize(
    "args",
    [["inbox"], ["show", "rec_x"], ["recover"], ["doctor"], ["db", "status"], ["db", "upgrade"]],
    ids=" ".join,
)
def test_no_command_makes_a_ledger(operator: Any, args: list[str]) -> None:
    told = operator.run(*args, "--json")
    assert (told.code, told.json["exit_code"]) == (3, 3)
    assert "a program makes its ledger when it first uses it" in told.err
    assert not (operator.place / "shop.db").exists()


@pytest.mark.parametrize("args", [["inbox"], ["db", "status"], ["db", "upgrade"]], ids=" ".join)
@pytest.mark.parametrize("url", ["memory:", "sqlite:app.db", "nosuch:x", "sqlite:///a?b=c"])
def test_a_url_that_names_no_ledger_is_wrong_use(operator: Any, args: list[str], url: str) -> None:
    assert operator.run(*args, "--store", url).code == 2


def test_no_ledger_given_is_wrong_use(operator: Any) -> None:
    told = operator.run("inbox", env={"INDOUBT_URL": ""})
    assert told.code == 2
    assert "set INDOUBT_URL" in told.err


def test_another_programs_database_is_left_alone(operator: Any) -> None:
    db = Place(str(operator.place / "shop.db")).connect(0x6)
    db.execute("CREATE TABLE theirs(x)").fetchall()
    db.close()
    told = operator.run("inbox")
    assert told.code == 1
    assert "another program" in told.err


def test_a_store_without_findings_of_its_own_has_none() -> None:
    assert stores.facts_of(stores.open_store("memory:")) == ()
