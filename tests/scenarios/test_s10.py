"""S10, same key, other content: an honest repeat is one act in every build, all else is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import World, first
from tests.scenarios.conftest import world_on
from tests.servers.places import ALL

from indoubt import KeyConflict, Ledger, OutcomeUnknown

SCRIPT = """
import json, sys
from indoubt import KeyConflict, Ledger

url, key, payload = sys.argv[1:]
ledger, calls = Ledger(url), []

@ledger.effect(safety="non_idempotent", name="send", key=lambda key, payload: key)
def send(key, payload):
    calls.append(key)
    return {"sent": payload}

try:
    outcome = send.outcome(key, json.loads(payload))
    print(json.dumps([outcome.receipt, outcome.replayed, len(calls)]))
except KeyConflict as error:
    print(json.dumps(["conflict", error.recorded, error.given, str(error), len(calls)]))
"""
PAYLOAD = {"to": "a", "n": 1, "nested": {"z": [1, 2], "ä": None}}
TURNED = {"nested": {"ä": None, "z": [1, 2]}, "n": 1, "to": "a"}
OTHER: dict[str, dict[str, Any]] = {
    "1.0 is not 1": PAYLOAD | {"n": 1.0},
    "text is not a number": PAYLOAD | {"n": "1"},
    "true is not 1": PAYLOAD | {"n": True},
    "another order in a list": PAYLOAD | {"nested": {"z": [2, 1], "ä": None}},
    "decomposed is not composed": PAYLOAD | {"nested": {"z": [1, 2], "a\u0308": None}},
    "one key more": PAYLOAD | {"more": None},
}


def elsewhere(url: str, payload: Any, **environ: str) -> Any:
    """The same call in a process of its own."""
    command = [sys.executable, "-c", SCRIPT, url, "op-1", json.dumps(payload, ensure_ascii=False)]
    env = {**os.environ, "PYTHONUTF8": "1", **environ}
    return json.loads(subprocess.check_output(command, env=env, timeout=60))


def sender(ledger: Ledger, calls: list[Any], **policy: Any) -> Any:
    given: dict[str, Any] = {"safety": "non_idempotent", "name": "send", "key": first}

    @ledger.effect(**(given | policy))
    def send(key: str, payload: Any) -> Any:
        calls.append(key)
        return {"sent": payload}

    return send


def test_s10_a_repeat_from_another_build_is_the_same_act(kept_url: str) -> None:
    url = kept_url
    made = elsewhere(url, PAYLOAD, LANG="C", PYTHONHASHSEED="1")
    again = elsewhere(url, TURNED, LANG="tr_TR.UTF-8", LC_ALL="C.UTF-8", PYTHONHASHSEED="4711")
    assert made == [{"sent": PAYLOAD}, False, 1]
    assert again == [{"sent": PAYLOAD}, True, 0]  # with the stored receipt
    conflict = elsewhere(url, PAYLOAD | {"n": 2}, PYTHONHASHSEED="3")
    assert (conflict[0], conflict[-1]) == ("conflict", 0)


@pytest.mark.parametrize("payload", OTHER.values(), ids=OTHER)
async def test_s10_other_content_is_a_conflict_and_leaves_the_record(
    any_world: World, payload: Any
) -> None:
    ledger, calls = any_world.process(), list[Any]()
    send = sender(ledger, calls)
    outcome = send.outcome("op-1", PAYLOAD)
    before = await any_world.records()
    with pytest.raises(KeyConflict) as caught:
        send("op-1", payload)
    record = await ledger.get(outcome.record_id)
    assert caught.value.recorded == record.fingerprint
    assert caught.value.given not in {"", record.fingerprint}
    assert "nested" not in str(caught.value)  # no payload
    assert (await any_world.records(), calls) == (before, ["op-1"])


async def test_s10_the_fingerprints_are_the_same_on_every_store(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    for kind in ALL:
        with ExitStack() as stack:
            world = world_on(kind, tmp_path, stack)
            send = sender(world.process(), [])
            send("op-1", PAYLOAD)
            with pytest.raises(KeyConflict) as caught:
                send("op-1", PAYLOAD | {"n": 1.0})
            told.append((caught.value.recorded, caught.value.given))
            await world.close()
    assert told == [told[0]] * len(ALL)


async def test_s10_the_same_key_of_another_effect_is_another_act(any_world: World) -> None:
    ledger, calls = any_world.process(), list[Any]()
    create = sender(ledger, calls, name="create_invoice")
    ledger_two = any_world.process()
    pay = sender(ledger_two, calls, name="pay_invoice")
    one, two = create.outcome("op-1", PAYLOAD), pay.outcome("op-1", PAYLOAD)
    assert one.record_id != two.record_id
    assert len(calls) == 2


async def test_s10_a_conflict_is_told_while_the_first_is_in_doubt(any_world: World) -> None:
    ledger = any_world.process()
    pay = any_world.payer(ledger)
    any_world.bank.next = ["lost"]
    with pytest.raises(OutcomeUnknown):
        await pay("op-1", 1)
    with pytest.raises(KeyConflict):
        await pay("op-1", 2)
    assert any_world.bank.acts == [("op-1", 1, any_world.bank.acts[0][2])]
