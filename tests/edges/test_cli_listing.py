"""Seeing what is in doubt: inbox and show, for people and for programs."""

from typing import Any

import pytest

from indoubt.cli import options
from indoubt.delayed_effects.words import KIND as DELAYED
from indoubt.guard.definition import Definition

KINDS = {"effect", "delayed_effect"}
ITEM = {
    "ref", "record_id", "kind", "name", "tenant_id", "scope", "key", "state", "effect", "attempt",
    "safety", "fingerprint", "since", "created_at", "updated_at", "quiet_at", "silent",
    "arguments", "receipt", "receipt_lost", "error", "evidence", "attempts", "reason", "choices",
    "contradicted", "cancel_requested", "decisions", "retry_after",
}  # fmt: skip
ENTRY = {
    "sequence", "at", "did", "state", "fence", "attempt", "owner", "actor", "reason", "evidence",
}  # fmt: skip


def refs(items: list[dict[str, Any]]) -> list[str]:
    return [item["ref"] for item in items]


def test_an_empty_inbox_says_so_and_checks_as_fine(operator: Any, doubts: Any) -> None:
    doubts.done("order-1")
    shown = operator.run("inbox", "--check")
    assert (shown.code, shown.out) == (0, "")
    assert "nothing is in doubt" in shown.err
    assert operator.run("inbox", "--json").json == {"items": [], "cursor": None}


def test_a_pipe_gets_one_line_with_tabs_for_each_doubt(operator: Any, doubts: Any) -> None:
    made = [doubts.make("order-7"), doubts.make(None, scope="run-1")]
    shown = operator.run("inbox")
    heads, *rows = [line.split("\t") for line in shown.out.splitlines()]
    assert heads == ["REF", "SINCE", "KIND", "WHAT", "ATTEMPT", "WHAT WE KNOW", "NEXT"]
    assert [row[0] for row in rows] == made
    assert [row[3] for row in rows] == ["refund order-7", 'refund "order" 1200']
    assert all("no answer; holder: ConnectionResetError" in row[5] for row in rows)
    assert {row[6] for row in rows} == {"a person"}


def test_check_tells_a_monitor(operator: Any, doubts: Any) -> None:
    doubts.make()
    assert operator.run("inbox").code == 0
    assert operator.run("inbox", "--check").code == 4
    assert operator.run("inbox", "--check", "--json").code == 4
    assert operator.run("inbox", "--check", "--tenant", "other").code == 0


def test_its_json_is_the_whole_record(operator: Any, doubts: Any) -> None:
    ref = doubts.make()
    shown = operator.run("inbox", "--json")
    assert shown.err == ""
    assert set(shown.json) == {"items", "cursor"}
    (item,) = shown.json["items"]
    assert set(item) == ITEM
    assert (item["ref"], item["state"], item["key"]) == (ref, "awaiting_decision", "order-7")
    assert item["since"].endswith("+00:00")
    assert item["evidence"][0]["at"].endswith("+00:00")


def test_tenants_and_kinds_restrict_it(operator: Any, doubts: Any) -> None:
    acme = doubts.make("a", tenant_id="acme")
    nobody = doubts.make("a")

    def listed(*args: str, **env: str) -> list[str]:
        return refs(operator.run("inbox", "--json", *args, env=env).json["items"])

    assert listed() == [acme, nobody]
    assert listed("--tenant", "acme") == listed(INDOUBT_TENANT="acme") == [acme]
    assert listed("--kind", "effect", "--kind", "delayed_effect") == [acme, nobody]
    assert listed("--kind", "delayed_effect") == []


def test_an_empty_list_says_whose_it_is(operator: Any, doubts: Any) -> None:
    doubts.make("a", tenant_id="acme")
    assert operator.run("inbox", "--tenant", "acm").err == "nothing of tenant acm is in doubt\n"


@pytest.mark.parametrize("command", ["inbox", "recover"])
def test_an_unknown_kind_is_refused_with_those_there_are(
    operator: Any, doubts: Any, command: str
) -> None:
    doubts.make()
    shown = operator.run(command, "--kind", "efect")
    assert (shown.code, shown.out) == (2, "")
    assert all(kind in shown.err for kind in KINDS)


def test_the_kinds_are_those_that_are_recorded() -> None:
    assert set(options.Kind) == {Definition.kind, DELAYED} == KINDS


def test_pages_say_how_to_go_on(operator: Any, doubts: Any) -> None:
    made = [doubts.make(f"order-{n}") for n in range(3)]
    first = operator.run("inbox", "--limit", "2")
    assert len(first.out.splitlines()) == 3
    cursor = first.err.strip().removeprefix("more: the same with --cursor ")
    rest = operator.run("inbox", "--limit", "2", "--cursor", cursor, "--json").json
    assert refs(rest["items"]) == made[2:]
    assert rest["cursor"] is None
    assert operator.run("inbox", "--limit", "2", "--json").json["cursor"] == cursor


def test_an_attempt_without_a_holder_is_listed_unmarked(operator: Any) -> None:
    assert operator.shop("shop.slow('order-9')") == 9
    (item,) = operator.run("inbox", "--json").json["items"]
    assert (item["name"], item["state"]) == ("slow", "in_doubt")
    assert "nobody holds it any more" in item["reason"]
    assert operator.run("inbox").out.splitlines()[1].endswith("recover")


@pytest.mark.parametrize("cut", [5, 8, 20, 30, 32])
def test_show_takes_any_beginning_that_names_only_one(operator: Any, doubts: Any, cut: int) -> None:
    ref = doubts.make()
    shown = operator.run("show", ref[:cut], "--json")
    assert (shown.code, shown.json["record"]["ref"]) == (0, ref)
    assert set(shown.json) == {"record"}
    assert set(shown.json["record"]) == ITEM


def test_show_tells_a_person_all_there_is(operator: Any, doubts: Any) -> None:
    ref = doubts.make("order-7", tenant_id="acme")
    told = operator.run("show", ref).out
    for words in (
        ref,
        "awaiting_decision",
        "acme",
        '{"order":"order","cents":1200}',
        "open, nobody can send it any more",
        "holder  attempt 1  ConnectionResetError",
        f"indoubt decide {ref} happened --receipt",
        f"indoubt decide {ref} allow-one",
        "it happens twice",
    ):
        assert words in told


def test_show_tells_who_decided_and_why(operator: Any, doubts: Any) -> None:
    ref = doubts.make("order-7")
    asked = ("--actor", "ana", "--reason", "the bank says no")
    assert operator.run("decide", ref, "allow-one", *asked).code == 0
    shown = operator.run("show", ref)
    assert "attempt 1  allow_one_attempt  by ana: the bank says no" in shown.out
    (decided,) = operator.run("show", ref, "--json").json["record"]["decisions"]
    assert (decided["actor"], decided["reason"]) == ("ana", "the bank says no")
    assert (decided["decision"], decided["attempt"]) == ("allow_one_attempt", 1)


def test_what_show_says_of_a_dead_holder_fits_its_state(operator: Any) -> None:
    assert operator.shop("shop.label('order-7')", DIE="1") == 9
    ref = operator.run("inbox", "--json").json["items"][0]["ref"]
    told = operator.run("show", ref).out
    assert "in_doubt: sent, no answer recorded, and nobody holds it any more" in told
    assert "1: sent" in told
    assert "open, may be sent until" in told
    operator.run("recover")  # this proves that it is dead
    assert "open, nobody can send it any more" in operator.run("show", ref).out


def test_an_ambiguous_beginning_names_the_candidates(operator: Any, doubts: Any) -> None:
    made = sorted(doubts.make(f"order-{n}") for n in range(7))
    shown = operator.run("show", "rec_")
    assert (shown.code, shown.out) == (2, "")
    assert ", ".join(ref[:-2] for ref in made[:5]) + ", …" in shown.err
    assert "give more of the id" in shown.err


def test_what_is_missing_or_anothers_is_not_found_alike(operator: Any, doubts: Any) -> None:
    ref = doubts.make("order-7", tenant_id="acme")
    missing = operator.run("show", ref[:-3] + "2", "--tenant", "acme")
    foreign = operator.run("show", ref, "--tenant", "other")
    assert missing.code == foreign.code == 3
    assert foreign.err.replace(ref[:-2], "X") == missing.err.replace(ref[:-3] + "2", "X")
    assert operator.run("show", ref, "--tenant", "acme").code == 0


def test_the_story_comes_in_pages(operator: Any, doubts: Any) -> None:
    ref = doubts.make()
    whole = operator.run("show", ref, "--journal", "--json").json
    assert [entry["sequence"] for entry in whole["journal"]] == [1, 2, 3]
    assert whole["journal_after"] is None
    assert all(set(entry) == ENTRY for entry in whole["journal"])
    assert whole["journal"][0]["did"] == ["prepare", "claim", "dispatch"]
    page = operator.run("show", ref, "--journal", "--limit", "2")
    assert "more: the same with --after 2" in page.err
    rest = operator.run("show", ref, "--journal", "--limit", "2", "--after", "2", "--json").json
    assert [entry["sequence"] for entry in rest["journal"]] == [3]
    lines = operator.run("show", ref, "--journal").out.splitlines()
    assert lines[-3].split("\t")[2:4] == ["prepare, claim, dispatch", "dispatched"]


def test_show_says_that_a_ref_is_no_longer_the_question(operator: Any, doubts: Any) -> None:
    old = doubts.make("order-7")
    new = doubts.second_attempt(old, "order-7")
    shown = operator.run("show", old)
    assert shown.code == 0
    assert f"{old} is no longer the question: it is {new} now" in shown.err
    assert operator.run("show", new).err == ""


@pytest.mark.parametrize(
    "args",
    [
        ["inbox", "--limit", "0"],
        ["inbox", "--limit", "1001"],
        ["inbox", "--cursor", "nonsense"],
        ["inbox", "--tenant", " "],
        ["inbox", "--no-such-option"],
        ["show"],
        ["show", "."],
        ["show", "rec_", "--after", "-1"],
        ["no-such-command"],
    ],
)
def test_wrong_use_ends_with_two(operator: Any, doubts: Any, args: list[str]) -> None:
    doubts.make()
    shown = operator.run(*args)
    assert (shown.code, shown.out) == (2, "")
    assert shown.err
    assert "Traceback" not in shown.err
