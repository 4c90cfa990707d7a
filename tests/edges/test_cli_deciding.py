"""Acting on what is in doubt: decide, probe and recover, and what each of them refuses."""

import json
from typing import Any

import pytest

WHO = ("--actor", "ana", "--reason", "seen in the bank's console")


def state(operator: Any, ref: str) -> str:
    return operator.run("show", ref, "--json").json["record"]["state"]


def test_happened_closes_it_with_the_receipt(operator: Any, doubts: Any) -> None:
    ref = doubts.make()
    done = operator.run("decide", ref, "happened", "--receipt", '{"id": "rf_12"}', *WHO)
    assert (done.code, done.err) == (0, "")
    assert f"{ref}: happened, by ana; it is succeeded now" in done.out
    record = operator.run("show", ref, "--json", "--journal").json
    assert record["record"]["receipt"] == {"id": "rf_12"}
    last = record["journal"][-1]
    assert (last["actor"], last["reason"]) == ("ana", "seen in the bank's console")
    assert operator.run("inbox", "--check").code == 0


@pytest.mark.parametrize(
    ("word", "becomes"),
    [
        ("happened", "succeeded"),
        ("did-not-happen", "failed"),
        ("allow-one", "permitted"),
        ("give-up", "unknown"),
    ],
)
def test_each_decision_does_what_it_says(
    operator: Any, doubts: Any, word: str, becomes: str
) -> None:
    ref = doubts.make()
    done = operator.run("decide", ref[:12] + ".1", word, *WHO, "--json")
    assert (done.code, done.err) == (0, "")
    assert set(done.json) == {"record"}
    assert (done.json["record"]["ref"], done.json["record"]["state"]) == (ref, becomes)


def test_a_bare_id_is_no_question(operator: Any, doubts: Any) -> None:
    ref = doubts.make()
    done = operator.run("decide", ref[:-2], "happened", *WHO)
    assert (done.code, done.out) == (2, "")
    assert f"the question now is {ref}" in done.err
    assert f"indoubt show {ref}" in done.err
    assert operator.run("decide", ref[:10], "happened", *WHO, "--json").json["error"] == {
        "message": f"{ref[:10]} names a record, not a question; the question now is {ref}",
        "next_step": f"read it, then decide: indoubt show {ref}",
        "record_id": ref[:-2],
        "current_ref": ref,
    }
    assert state(operator, ref) == "awaiting_decision"


def test_a_question_that_has_changed_is_refused(operator: Any, doubts: Any) -> None:
    old = doubts.make("order-7")
    new = doubts.second_attempt(old, "order-7")
    done = operator.run("decide", old, "did-not-happen", *WHO)
    assert (done.code, done.out) == (5, "")
    assert f"the question now is {new}" in done.err
    assert f"indoubt show {old[:-2]}" in done.err
    told = operator.run("decide", old, "did-not-happen", *WHO, "--json")
    assert (told.code, told.json["exit_code"]) == (5, 5)
    assert told.json["error"]["type"] == "StaleDecision"
    assert told.json["error"]["current_ref"] == new
    assert state(operator, new) == "awaiting_decision"


def test_a_decided_question_is_refused_but_not_to_the_same_decision(
    operator: Any, doubts: Any
) -> None:
    ref = doubts.make()
    args = ("decide", ref, "happened", *WHO, "--decision-id", "d-1")
    assert [operator.run(*args).code for _ in range(3)] == [0, 0, 0]
    other = operator.run("decide", ref, "give-up", *WHO, "--json")
    assert other.code == 5
    decision = other.json["error"]["decision"]
    assert (decision["kind"], decision["actor"]) == ("happened", "ana")
    assert decision["at"].endswith("+00:00")
    assert state(operator, ref) == "succeeded"


def test_what_may_still_land_is_too_early_and_says_when(operator: Any) -> None:
    assert operator.shop("shop.slow('order-9')") == 9
    ref = operator.run("inbox", "--json").json["items"][0]["ref"]
    done = operator.run("decide", ref, "did-not-happen", *WHO)
    assert (done.code, done.out) == (5, "")
    assert "decide after 2" in done.err
    until = operator.run("decide", ref, "allow-one", *WHO, "--json").json["error"]["until"]
    assert until.endswith("+00:00")
    assert operator.run("decide", ref, "happened", *WHO).code == 0


def test_what_is_missing_or_anothers_is_not_found(operator: Any, doubts: Any) -> None:
    ref = doubts.make("order-7", tenant_id="acme")
    assert operator.run("decide", "rec_nothing.1", "happened", *WHO).code == 3
    assert operator.run("decide", ref, "happened", *WHO, "--tenant", "other").code == 3
    assert state(operator, ref) == "awaiting_decision"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["happened", "--receipt", "{nonsense", *WHO], "no JSON"),
        (["happened", "--receipt", "NaN", *WHO], "no JSON"),
        (["give-up", "--receipt", "{}", *WHO], "belongs to happened"),
        (["maybe", *WHO], "maybe"),
        (["happened", "--actor", "ana"], "--reason"),
        (["happened", "--reason", "x"], "--actor"),
        (["happened", "--actor", " ", "--reason", "x"], "actor"),
        (["happened", "--actor", "ana", "--reason", "x" * 1_025], "reason"),
        (["happened", "--receipt", json.dumps("x" * 1_048_577), *WHO], "receipt"),
    ],
)
def test_wrong_words_change_nothing(operator: Any, doubts: Any, args: list[str], says: str) -> None:
    ref = doubts.make()
    done = operator.run("decide", ref, *args)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert state(operator, ref) == "awaiting_decision"


def test_a_ref_with_a_garbled_attempt_is_wrong_use(operator: Any, doubts: Any) -> None:
    ref = doubts.make()
    assert operator.run("decide", f"{ref[:-2]}.x", "happened", *WHO).code == 2


def test_a_receipt_may_be_any_json(operator: Any, doubts: Any) -> None:
    ref = doubts.make()
    text = '[null, true, "\\u0000é", 1e300, 123456789012345678901234567890]'
    assert operator.run("decide", ref, "happened", "--receipt", text, *WHO).code == 0
    assert operator.run("show", ref, "--json").json["record"]["receipt"] == json.loads(text)


# -- probe -----------------------------------------------------------------------------------------


def test_a_probe_settles_what_it_may_settle(operator: Any) -> None:
    operator.bank_says()
    operator.shop("shop.refund.using(wait=shop.timedelta(0))('order-7', 1200)")
    ref = operator.run("inbox", "--json").json["items"][0]["ref"]
    asked = operator.run("probe", ref[:12], "--app", "shop:ledger")
    assert asked.code == 0
    assert asked.out.startswith(f"{ref}: awaiting_decision")
    assert "probe: unknown" in asked.out
    operator.bank_says(**{"order-7": {"id": "rf_1"}})
    found = operator.run("probe", ref, "--json", env={"INDOUBT_APP": "shop:ledger"}).json
    assert found["record"]["evidence"][-1]["status"] == "succeeded"


def test_a_probe_needs_the_program(operator: Any, doubts: Any) -> None:
    ref = doubts.make()
    asked = operator.run("probe", ref)
    assert (asked.code, asked.out) == (2, "")
    assert "--app pkg.mod:ledger" in asked.err


def test_a_program_without_that_effect_cannot_ask(operator: Any, doubts: Any) -> None:
    doubts.effect("other")
    with pytest.raises(Exception, match="may have happened"):
        doubts.effect("unheard_of").using(key="k")("order", 1)
    ref = operator.run("inbox", "--json").json["items"][0]["ref"]
    asked = operator.run("probe", ref, "--app", "shop:ledger")
    assert asked.code == 1
    assert "unheard_of: its code is not loaded here" in asked.err
    assert operator.run("probe", "rec_none", "--app", "shop:ledger").code == 3


def test_an_effect_without_a_probe_cannot_be_asked_about(operator: Any) -> None:
    assert operator.shop("shop.notify.using(key='k')('order-7', 'hello')") != 0
    ref = operator.run("inbox", "--json").json["items"][0]["ref"]
    asked = operator.run("probe", ref, "--app", "shop:ledger")
    assert asked.code == 1
    assert "notify declares no probe" in asked.err


@pytest.mark.parametrize(
    ("app", "code", "says"),
    [
        ("shop", 2, "pkg.mod:ledger"),
        ("shop:", 2, "pkg.mod:ledger"),
        ("nowhere:ledger", 2, "no module named nowhere"),
        ("shop.nowhere:ledger", 2, "no module named"),
        ("shop:nowhere", 2, "has no nowhere"),
        ("shop:BANK", 2, "not a Ledger"),
        ("broken:ledger", 1, "ZeroDivisionError"),
        ("needy:ledger", 1, "not_installed"),
    ],
)
def test_a_program_that_cannot_be_used_is_told_apart(
    operator: Any, doubts: Any, app: str, code: int, says: str
) -> None:
    doubts.make()
    (operator.place / "broken.py").write_text("1 / 0\n", "utf-8")
    (operator.place / "needy.py").write_text("import not_installed\n", "utf-8")
    asked = operator.run("recover", "--app", app)
    assert (asked.code, asked.out) == (code, "")
    assert says in asked.err
    assert "Traceback" not in asked.err


def test_a_program_brings_its_own_ledger(operator: Any) -> None:
    asked = operator.run("recover", "--app", "shop:ledger", "--store", "sqlite:///other.db")
    assert asked.code == 2
    assert "not both" in asked.err
    assert not (operator.place / "other.db").exists()


# -- recover ---------------------------------------------------------------------------------------

LISTS = ("settled", "replayed", "waiting", "asked", "skipped")


def test_without_a_program_it_ends_leases_and_says_so(operator: Any) -> None:
    assert operator.shop("shop.label('order-7')", DIE="1") == 9
    done = operator.run("recover")
    assert done.code == 0
    assert "no --app: no probe and no function of your program is called" in done.err
    assert done.out.splitlines()[0] == "1 skipped"
    assert done.out.splitlines()[2].startswith("skipped\trec_")
    told = operator.run("recover", "--json").json
    assert set(told) == {"app", "counts", *LISTS, "errors", "cursor"}
    assert (told["app"], told["counts"]["skipped"]) == (None, 1)
    assert told["skipped"][0]["state"] == "in_doubt"
    assert told["skipped"][0]["reason"] == "its code is not loaded here"
    assert "a repeat of the call (its code is not loaded here)" in done.out


def test_a_program_without_effects_is_told_that_it_has_none(operator: Any) -> None:
    assert operator.shop("shop.label('order-7')", DIE="1") == 9
    (operator.place / "settings.py").write_text(
        "from indoubt import Ledger\nledger = Ledger('sqlite:///shop.db')\n", "utf-8"
    )
    done = operator.run("recover", "--app", "settings:ledger")
    assert done.code == 0
    assert "settings:ledger has no effects registered" in done.err
    assert "no effects" not in operator.run("recover", "--app", "shop:ledger").err


def test_with_a_program_it_goes_on_where_that_is_safe(operator: Any) -> None:
    operator.bank_says(**{"order-7": {"id": "rf_1"}})
    assert operator.shop("shop.label('order-7')", DIE="1") == 9
    told = operator.run("recover", "--app", "shop:ledger", "--json")
    assert (told.code, told.err.count("\n")) == (0, 1)
    assert told.json["counts"] == dict.fromkeys(LISTS, 0) | {"replayed": 1}
    (item,) = told.json["replayed"]
    assert (item["state"], item["receipt"]) == ("succeeded", {"label": "order-7"})
    assert operator.run("recover", "--app", "shop:ledger").out == "nothing to do\n"


def test_pages_and_all(operator: Any) -> None:
    for n in range(3):
        assert operator.shop(f"shop.label('order-{n}')", DIE="1") == 9
    first = operator.run("recover", "--limit", "2", "--json").json
    assert first["counts"]["skipped"] == 2
    rest = operator.run("recover", "--limit", "2", "--json", "--cursor", first["cursor"]).json
    assert (rest["counts"]["skipped"], rest["cursor"]) == (1, None)
    page = operator.run("recover", "--limit", "1")
    assert "more: the same with --cursor" in page.err
    whole = operator.run("recover", "--limit", "1", "--all", "--app", "shop:ledger", "--json")
    assert (whole.json["counts"]["replayed"], whole.json["cursor"]) == (3, None)
    assert "recovering: 1 replayed" in whole.err
    assert "recovering: 3 replayed" in whole.err


@pytest.mark.parametrize("wait", ["x", "", "-1s", "1 week", "11000d", "9" * 400, "inf"])
def test_a_wait_is_a_duration(operator: Any, doubts: Any, wait: str) -> None:
    doubts.make()
    done = operator.run("recover", "--wait", wait)
    assert (done.code, done.out) == (2, "")


@pytest.mark.parametrize("wait", ["0", "250ms", "1.5s", "2m", "1h", "1 d"])
def test_durations_have_units(operator: Any, doubts: Any, wait: str) -> None:
    doubts.make()
    assert operator.run("recover", "--wait", wait).code == 0
