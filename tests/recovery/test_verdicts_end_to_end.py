"""The rows of the verdict table, each carried out for real on a store and a bank (G1, G3).

Every row is a doubt that a dead process left, and what its class makes of each probe answer.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.conftest import ABSENCE, Crash, World, first, only

from indoubt import Ledger, OutcomeUnknown, ProviderProbeResult, RecordView, Recovery

CLASSES = ("pure", "idempotent", "retry_safe", "status_query_required", "non_idempotent")
HUMAN = "human_confirmation_required"
ALL = (*CLASSES, HUMAN)
SAFE = ("pure", "idempotent", "retry_safe")
NOW = timedelta(0)


async def orphan(world: World, safety: str, how: str, **policy: Any) -> Ledger:
    """What a dead process left, and a live one that knows the effect."""
    policy = {"safety": safety, "probe": world.bank.probe, **policy}
    dying = world.process()
    world.bank.next = [how]
    with pytest.raises(Crash):
        await world.payer(dying, **policy)("order-7")
    world.kill(dying)
    ledger = world.process()
    world.payer(ledger, **policy)
    return ledger


def where(recovery: Recovery) -> tuple[str, RecordView]:
    """The one list that has the one record."""
    lists = ("settled", "replayed", "waiting", "asked", "skipped")
    found = [(name, view) for name in lists for view in getattr(recovery, name)]
    assert recovery.errors == ()
    assert len(found) == 1
    return found[0]


# -- probe: succeeded ------------------------------------------------------------------------------


@pytest.mark.parametrize("safety", CLASSES)
async def test_row_succeeded_adopts_the_receipt(world: World, safety: str) -> None:
    ledger = await orphan(world, safety, "crash_after", **ABSENCE)
    name, view = where(await ledger.recover())
    if safety in {"pure", "idempotent"}:  # replay, or probe if declared: it is declared here
        assert name in {"settled", "replayed"}
    else:
        assert (name, view.state, view.receipt) == ("settled", "succeeded", {"id": "pay_1"})
    assert view.state == "succeeded"
    assert world.bank.count("order-7") == 1 or safety in SAFE


async def test_row_succeeded_human_confirms_the_adoption(world: World) -> None:
    ledger = await orphan(world, HUMAN, "crash_after")
    name, view = where(await ledger.recover())
    assert (name, view.state) == ("asked", "awaiting_decision")
    assert view.evidence[-1]["data"]["result"] == {"id": "pay_1"}  # what we know is attached
    assert world.bank.calls == 1


# -- probe: failed / cancelled ---------------------------------------------------------------------


@pytest.mark.parametrize("says", ["failed", "cancelled"])
@pytest.mark.parametrize("safety", CLASSES)
async def test_row_failed_closes_with_a_possible_effect(
    world: World, safety: str, says: str
) -> None:
    ledger = await orphan(world, safety, "crash_before", **ABSENCE)
    world.bank.says = says
    name, view = where(await ledger.recover())
    assert (name, view.state, view.effect) == ("settled", says, "possible")  # G1
    assert world.bank.calls == 1


@pytest.mark.parametrize("says", ["failed", "cancelled"])
async def test_row_failed_human_is_asked(world: World, says: str) -> None:
    ledger = await orphan(world, HUMAN, "crash_before")
    world.bank.says = says
    assert where(await ledger.recover())[0] == "asked"


# -- probe: active ---------------------------------------------------------------------------------


@pytest.mark.parametrize("safety", ALL)
async def test_row_active_waits(world: World, safety: str) -> None:
    ledger = await orphan(world, safety, "crash_before", **ABSENCE)
    world.bank.says = "active"
    name, view = where(await ledger.recover(wait=NOW))
    assert (name, view.state) == ("waiting", "in_doubt")
    assert view.retry_after is not None
    assert world.bank.calls == 1


@pytest.mark.parametrize("safety", ALL)
async def test_p14_active_for_ever_ends_with_the_budget(world: World, safety: str) -> None:
    ledger = await orphan(world, safety, "crash_before", **ABSENCE)
    world.bank.says = "active"
    while (recovery := await ledger.recover(wait=NOW)).waiting:
        assert len(world.bank.asked) <= 10
    assert where(recovery)[0] == ("replayed" if safety in SAFE else "asked")
    assert len(world.bank.asked) == 10


# -- probe: not_found ------------------------------------------------------------------------------


@pytest.mark.parametrize("safety", ALL)
async def test_row_not_found_before_quiet_at_waits(world: World, safety: str) -> None:
    ledger = await orphan(world, safety, "crash_before", **ABSENCE)
    assert where(await ledger.recover(wait=NOW))[0] == "waiting"
    world.pass_time(34.9)
    assert where(await ledger.recover(wait=NOW))[0] == "waiting"
    assert world.bank.calls == 1


@pytest.mark.parametrize("safety", ALL)
async def test_row_proven_absence(world: World, safety: str) -> None:
    ledger = await orphan(world, safety, "crash_before", **ABSENCE)
    await ledger.recover(wait=NOW)
    world.pass_time(36)
    name, view = where(await ledger.recover(wait=NOW))
    if safety in {"non_idempotent", HUMAN}:
        assert (name, view.state) == ("asked", "awaiting_decision")
        assert world.bank.count("order-7") == 0
    else:
        assert (name, view.state) == ("replayed", "succeeded")
        assert world.bank.count("order-7") == 1


async def test_row_proven_absence_opted_in(any_world: World) -> None:
    given = ABSENCE | {"resend_on_proven_absence": True}
    ledger = await orphan(any_world, "non_idempotent", "crash_before", **given)
    await ledger.recover(wait=NOW)
    any_world.pass_time(36)
    name, view = where(await ledger.recover(wait=NOW))
    assert (name, view.state) == ("replayed", "succeeded")
    assert any_world.bank.count("order-7") == 1


@pytest.mark.parametrize("declared", [{}, {"settle_time": timedelta(seconds=5)}])
@pytest.mark.parametrize("safety", ALL)
async def test_row_not_found_that_proves_nothing(
    world: World, safety: str, declared: dict[str, Any]
) -> None:
    ledger = await orphan(world, safety, "crash_before", **declared)
    await ledger.recover(wait=NOW)
    world.pass_time(3600)
    world.pass_time(1)
    name, _ = where(await ledger.recover(wait=NOW))
    assert name == ("replayed" if safety in SAFE else "asked")
    assert world.bank.count("order-7") == (1 if safety in SAFE else 0)


async def test_v60_not_found_without_authority_never_sends_again(world: World) -> None:
    given: dict[str, Any] = {"settle_time": timedelta(seconds=5), "resend_on_proven_absence": True}
    ledger = await orphan(world, "non_idempotent", "crash_before", **given)
    for _ in range(5):
        await ledger.recover(wait=NOW)
        world.pass_time(100)
    assert world.bank.count("order-7") == 0
    assert (await only(ledger)).state == "awaiting_decision"


# -- probe: unknown, unavailable, broken -----------------------------------------------------------


@pytest.mark.parametrize("safety", ALL)
async def test_row_unknown(world: World, safety: str) -> None:
    ledger = await orphan(world, safety, "crash_before", **ABSENCE)
    world.bank.says = "unknown"
    name, _ = where(await ledger.recover(wait=NOW))
    assert name == ("replayed" if safety in SAFE else "asked")


@pytest.mark.parametrize("says", ["unavailable", "raise", "nothing"])
@pytest.mark.parametrize("safety", ALL)
async def test_row_unavailable_backs_off_until_the_budget_ends(
    world: World, safety: str, says: str
) -> None:
    ledger = await orphan(world, safety, "crash_before", **ABSENCE)
    world.bank.says = says
    name, view = where(await ledger.recover(wait=NOW))
    if safety in {"pure", "idempotent"}:
        assert name == "replayed"
        return
    assert (name, view.evidence[-1]["status"]) == ("waiting", "unavailable")  # V-57
    pauses = [view.retry_after]
    while (recovery := await ledger.recover(wait=NOW)).waiting:
        pauses.append(recovery.waiting[0].retry_after)
    assert pauses == sorted(pauses, key=str) or len(set(pauses)) > 5
    assert where(recovery)[0] == ("replayed" if safety in SAFE else "asked")
    assert len(world.bank.asked) == 10


@pytest.mark.parametrize("safety", ALL)
async def test_row_an_answer_about_another_execution_asks(world: World, safety: str) -> None:
    ledger = await orphan(world, safety, "crash_before", **ABSENCE)
    world.bank.says = "foreign"
    name, view = where(await ledger.recover())
    assert (name, view.state) == ("asked", "awaiting_decision")
    assert world.bank.calls == 1


async def test_v57_a_probe_that_hangs_is_unavailable(world: World) -> None:
    import asyncio  # noqa: PLC0415

    from indoubt.recovery import probing  # noqa: PLC0415

    async def hanging(_attempt: Any) -> ProviderProbeResult:
        await asyncio.Event().wait()
        raise AssertionError

    ledger = await orphan(world, "non_idempotent", "crash_before", probe=hanging)
    before = probing.PROBE_TIMEOUT_S
    probing.PROBE_TIMEOUT_S = 0.01  # type: ignore[misc]
    try:
        name, view = where(await ledger.recover(wait=NOW))
    finally:
        probing.PROBE_TIMEOUT_S = before  # type: ignore[misc]
    assert name == "waiting"
    assert view.evidence[-1]["status"] == "unavailable"


# -- in doubt, cannot probe ------------------------------------------------------------------------


@pytest.mark.parametrize("safety", [*SAFE, "non_idempotent", HUMAN])
async def test_row_cannot_probe(world: World, safety: str) -> None:
    ledger = await orphan(world, safety, "crash_before", probe=None)
    name, _ = where(await ledger.recover())
    assert name == ("replayed" if safety in SAFE else "asked")


def test_v59_status_query_required_needs_somebody_to_ask(world: World) -> None:
    with pytest.raises(ValueError, match="status_query_required"):
        world.payer(world.process(), safety="status_query_required")


def test_p31_resend_on_proven_absence_is_for_non_idempotent(world: World) -> None:
    for safety in (*SAFE, "status_query_required", HUMAN):
        with pytest.raises(ValueError, match="resend_on_proven_absence"):
            world.payer(
                world.process(),
                safety=safety,
                probe=world.bank.probe,
                resend_on_proven_absence=True,
            )


@pytest.mark.parametrize("safety", ALL)
async def test_row_an_acknowledged_attempt_is_never_sent_blindly(world: World, safety: str) -> None:
    ledger = world.process()
    calls: list[str] = []

    @ledger.effect(safety=safety, name="pay", key=first, probe=world.bank.probe)
    async def pay(order: str, *, effect: Any) -> None:
        calls.append(order)
        await effect.checkpoint(external_ref="job_1")
        raise ConnectionResetError

    world.bank.says = "unavailable"
    with pytest.raises(OutcomeUnknown):
        await pay.using(wait=NOW)("order-7")
    while (recovery := await ledger.recover(wait=NOW)).waiting:
        world.pass_time(30)
    assert where(recovery)[0] == "asked"
    assert calls == ["order-7"]


# -- human: the caller's own first call ------------------------------------------------------------


async def test_human_class_is_dispatched_by_the_callers_own_call(world: World) -> None:
    pay = world.payer(world.process(), safety=HUMAN)
    assert (await pay("order-7"))["id"] == "pay_1"


# -- late results ----------------------------------------------------------------------------------


@pytest.mark.parametrize("safety", ALL)
async def test_p12_a_late_result_is_adopted(world: World, safety: str) -> None:
    """A replaced holder comes back while the record is still in doubt."""
    import asyncio  # noqa: PLC0415

    ledger, other = world.process(), world.process()
    entered, free = asyncio.Event(), asyncio.Event()
    policy: dict[str, Any] = {"safety": safety, "name": "pay", "key": first}

    @ledger.effect(**policy, probe=world.bank.probe)
    async def slow(order: str, cents: int = 1) -> Any:
        entered.set()
        await free.wait()
        return world.bank.pay(order, cents)

    running = asyncio.create_task(slow("order-7"))
    await entered.wait()
    world.kill(ledger, proven=False)
    world.pass_time(31)
    world.bank.says = "active"
    world.payer(other, safety=safety, probe=world.bank.probe)
    assert where(await other.recover(wait=NOW))[0] == "waiting"
    free.set()
    with pytest.raises(Exception, match="took over"):
        await running
    name, view = where(await other.recover(wait=NOW))
    if safety == HUMAN:
        assert name == "asked"
        assert view.attempts[0]["late_result"]
    else:
        assert (name, view.receipt) == ("settled", {"id": "pay_1", "cents": 1})
    assert world.bank.count("order-7") == 1
