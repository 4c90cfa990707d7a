"""One attempt failed with a possible effect, the other is not found: nothing is sent by itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from tests.conftest import SETTLE, Provider, World, only

from indoubt import AllowOneAttempt, EffectFailed, ExecutionSafetyClass, OutcomeUnknown

BY = {"actor": "ana", "reason": "seen"}
NOT_FOUND = {"status": "not_found"}
FAILED = {"status": "failed", "error": {"code": "half_done"}}


@pytest.mark.parametrize(
    "answers", [{1: FAILED, 2: NOT_FOUND}, {1: NOT_FOUND, 2: FAILED}], ids=["old", "new"]
)
@pytest.mark.parametrize("safety", ["status_query_required", "non_idempotent"])
async def test_g1_a_failed_attempt_beside_an_absent_one_closes_as_possible(
    any_world: World, safety: str, answers: Mapping[int, Mapping[str, Any]]
) -> None:
    provider = Provider(
        execution_safety_class=ExecutionSafetyClass(safety),
        settle_time=SETTLE,
        not_found_is_authoritative=True,
    )
    provider.answers = {1: {"status": "unavailable"}, 2: {"status": "unavailable"}}
    ledger = any_world.process()
    policy: dict[str, Any] = {"safety": None, "provider": provider}
    if safety == "non_idempotent":
        policy["resend_on_proven_absence"] = True
    pay = any_world.payer(ledger, **policy)
    any_world.bank.next = ["dropped", "dropped"]
    with pytest.raises(OutcomeUnknown):
        await pay.using(wait=timedelta(0))("order-7")
    any_world.pass_time(SETTLE.total_seconds())
    await ledger.decide(await only(ledger), AllowOneAttempt(), **BY)
    with pytest.raises(OutcomeUnknown):
        await pay.using(wait=timedelta(0))("order-7")
    assert any_world.bank.calls == 2
    provider.answers = dict(answers)
    any_world.pass_time(SETTLE.total_seconds())
    with pytest.raises(EffectFailed) as caught:
        await pay("order-7")
    assert (caught.value.effect, caught.value.code) == ("possible", "failed")
    assert any_world.bank.calls == 2
