"""``indoubt effects``: what an operator sees of delayed effects, and does about them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from indoubt import Ledger
from indoubt.delayed_effects import DelayedEffectIntent, DelayedEffectStore, DelayedEffectWorker

from .conftest import Operator

ID = DelayedEffectStore.intent_id_for


class Later:
    """Makes delayed effects on the shop's ledger, each in a run of its own."""

    def __init__(self, url: str) -> None:
        self.url = url

    def run(self, what: Any) -> Any:
        async def go() -> Any:
            ledger = Ledger(self.url)
            try:
                # A short lease: what was sent under it cannot land for long.
                return await what(DelayedEffectStore(ledger, execution_lease_seconds=0.05))
            finally:
                await ledger.close()

        made: Coroutine[Any, Any, Any] = go()
        return asyncio.run(made)

    def put(self, *names: str, delay: float = 60, **options: Any) -> None:
        async def all_of(store: DelayedEffectStore) -> None:
            for name in names:
                await store.register(name, "mail", {"to": name}, delay_seconds=delay, **options)

        self.run(all_of)

    def get(self, name: str) -> DelayedEffectIntent:
        async def read(store: DelayedEffectStore) -> DelayedEffectIntent:
            return await store.get(ID(name))

        return self.run(read)

    def park(self, name: str) -> None:
        async def fails(_intent: DelayedEffectIntent) -> None:
            raise OSError

        async def work(store: DelayedEffectStore) -> None:
            worker = DelayedEffectWorker(
                store, {"mail": fails}, max_attempts=1, retry_delay_seconds=0
            )
            assert (await worker.run_once()).results["parked"] == 1

        self.put(name, delay=0)
        self.run(work)


@pytest.fixture
def later(operator: Operator) -> Later:
    return Later(operator.url)


def test_they_are_listed_by_pages(operator: Operator, later: Later) -> None:
    later.put("op-1", "op-2", "op-3")
    first = operator.run("effects", "list", "--limit", "2", "--json").json
    then = operator.run("effects", "list", "--limit", "2", "--cursor", first["cursor"], "--json")
    found = [*first["items"], *then.json["items"]]
    assert sorted(item["operation_id"] for item in found) == ["op-1", "op-2", "op-3"]
    assert then.json["cursor"] is None
    assert {(item["state"], item["attempts"], item["effect_type"]) for item in found} == {
        ("PENDING", 0, "mail")
    }
    told = operator.run("effects", "list", "--type", "mail").out.splitlines()
    assert told[0].startswith("INTENT\tTYPE\tOPERATION\tSTATE\tDUE")
    assert sorted(line.split("\t")[2] for line in told[1:]) == ["op-1", "op-2", "op-3"]
    none = operator.run("effects", "list", "--type", "other")
    assert (none.code, none.out) == (0, "")
    assert operator.run("effects", "list", "--namespace", "mine", "--json").json["items"] == []


def test_one_is_shown_by_a_beginning_of_its_id(operator: Operator, later: Later) -> None:
    later.put("op-1")
    shown = operator.run("effects", "show", ID("op-1")[:8], "--json").json["effect"]
    assert (shown["intent_id"], shown["payload"]) == (ID("op-1"), {"to": "op-1"})
    assert shown["record"]["kind"] == "delayed_effect"
    assert '{"to":"op-1"}' in operator.run("effects", "show", ID("op-1")).out
    assert operator.run("effects", "show", "ffff").code == 3
    assert operator.run("effects", "show", "f").code == 2


def test_another_tenant_sees_and_steers_nothing(operator: Operator, later: Later) -> None:
    later.put("op-1", tenant_id="acme")
    for command in ("show", "cancel"):
        assert operator.run("effects", command, ID("op-1"), "--tenant", "bolt").code == 3
    assert operator.run("effects", "list", "--tenant", "bolt", "--json").json["items"] == []
    assert not later.get("op-1").terminal
    assert operator.run("effects", "show", ID("op-1"), "--tenant", "acme").code == 0


def test_a_cancelled_one_is_never_fired(operator: Operator, later: Later) -> None:
    later.put("op-1")
    done = operator.run("effects", "cancel", ID("op-1"))
    assert (done.code, done.out) == (0, f"{ID('op-1')[:12]} mail: cancelled\n")
    assert later.get("op-1").error == {"code": "cancelled"}
    again = operator.run("effects", "cancel", ID("op-1"))
    assert (again.code, again.out) == (5, f"{ID('op-1')[:12]} mail: too late: it has ended\n")


def test_what_waits_is_released_at_once(operator: Operator, later: Later) -> None:
    later.put("op-1")
    before = later.get("op-1")
    assert release(operator, "op-1") == 0
    assert later.get("op-1").due_at_ms < before.due_at_ms


def test_a_parked_one_is_released_by_a_person(operator: Operator, later: Later) -> None:
    later.park("op-1")
    assert later.get("op-1").error == {"code": "parked"}
    while (code := release(operator, "op-1")) == 5:  # an earlier attempt may still land
        assert later.get("op-1").error == {"code": "parked"}
    assert code == 0
    fired: list[str] = []

    async def mail(intent: DelayedEffectIntent) -> None:
        fired.append(intent.operation_id)

    async def work(store: DelayedEffectStore) -> None:
        await DelayedEffectWorker(store, {"mail": mail}, max_attempts=1).recover_once()

    later.run(work)
    assert fired == ["op-1"]
    assert later.get("op-1").terminal
    assert release(operator, "op-1") == 5


def release(operator: Operator, name: str) -> int:
    said = ("--actor", "ana", "--reason", "the gateway is back")
    return operator.run("effects", "release", ID(name), *said).code
