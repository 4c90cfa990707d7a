"""S26, resume by id across tenants, of guarded effects: an id is no capability."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import World

from indoubt import Happened, Ledger, OutcomeUnknown, RecordNotFound

BY: dict[str, Any] = {"actor": "ana", "reason": "seen"}
NOBODY = "rec_" + "a" * 26
VERBS = ("get", "journal", "probe", "cancel", "decide")


async def told(ledger: Ledger, verb: str, record_id: str, tenant: str | None) -> str:
    """The refusal, whatever the id."""
    ref = f"{record_id}.1" if verb == "decide" else record_id
    given: list[Any] = [Happened()] if verb == "decide" else []
    why = BY if verb in {"cancel", "decide"} else {}
    with pytest.raises(RecordNotFound) as caught:
        await getattr(ledger, verb)(ref, *given, **why, tenant_id=tenant)
    return str(caught.value).replace(record_id, "ID")


@pytest.mark.parametrize("verb", VERBS)
async def test_s26_anothers_id_is_as_unknown_as_one_that_never_was(
    any_world: World, verb: str
) -> None:
    """Same not-found answer (and no write); A's rows unchanged; None means untenanted only."""
    ledger = any_world.process()
    pay = any_world.payer(ledger, probe=any_world.bank.probe)
    any_world.bank.says = "unavailable"
    refs: dict[str | None, str] = {}
    for tenant in ("A", "B", None):
        any_world.bank.next = ["lost"]
        with pytest.raises(OutcomeUnknown) as caught:
            await pay.using(tenant_id=tenant)("order-7")
        refs[tenant] = caught.value.ref
    before = await any_world.records()
    asked = len(any_world.bank.asked)
    for tenant in ("B", "a", None):
        never = await told(ledger, verb, NOBODY, tenant)
        assert await told(ledger, verb, refs["A"].partition(".")[0], tenant) == never
    assert (await any_world.records(), len(any_world.bank.asked)) == (before, asked)
    assert any_world.bank.count("order-7") == 3  # one each: the same key of three tenants


async def test_s26_lists_and_recovery_hold_nothing_of_another(any_world: World) -> None:
    ledger = any_world.process()
    for tenant in ("A", "B", None):
        any_world.bank.next = ["lost"]
        with pytest.raises(OutcomeUnknown):
            await any_world.payer(ledger).using(tenant_id=tenant)("order-7")
    before = {row.id: row for row in await any_world.records()}
    for tenant in ("A", "B", None):
        box = await ledger.in_doubt(tenant_id=tenant)
        assert [item.tenant_id for item in box.items] == [tenant]
    assert (await ledger.in_doubt(tenant_id="a")).items == ()
    await ledger.recover(tenant_id="B")
    after = {row.id: row for row in await any_world.records()}
    assert {i: r for i, r in after.items() if r.tenant_id != "B"} == {
        i: r for i, r in before.items() if r.tenant_id != "B"
    }
