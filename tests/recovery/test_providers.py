"""Providers asked by contract: each open attempt, both flags, reattach (head 3, G4, V-54 to 60)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

import pytest
from tests.conftest import ABSENCE, SETTLE, Crash, Provider, World, first, only

from indoubt import (
    AllowOneAttempt,
    ExecutionSafetyClass,
    Ledger,
    OutcomeUnknown,
    ProviderProbeResult,
    ProviderProbeStatus,
)

NOW = timedelta(0)
BY = {"actor": "ana", "reason": "seen"}
S = ExecutionSafetyClass


async def doubt(world: World, provider: Provider, *how: str, **policy: Any) -> Ledger:
    """Attempts in doubt, each after the first by a person's permission."""
    patience: timedelta = policy.pop("wait", NOW)
    ledger = world.process()
    pay = world.payer(ledger, safety=None, provider=provider, **policy)
    world.bank.next = list(how)
    for number in range(1, len(how) + 1):
        if number > 1:
            await ledger.decide(await only(ledger), AllowOneAttempt(), **BY)
        with pytest.raises(OutcomeUnknown):
            await pay.using(wait=patience)("order-7")
    provider.asked.clear()
    return ledger


def always(status: str) -> dict[int, Mapping[str, Any]]:
    return {number: {"status": status} for number in range(1, 20)}


async def test_head3_each_open_attempt_is_asked_newest_first(any_world: World) -> None:
    provider = Provider()
    provider.answers = always("unknown")
    ledger = await doubt(any_world, provider, "dropped", "dropped", "dropped")
    view = await ledger.probe((await only(ledger)).ref)
    assert [number for number, _ in provider.asked] == [3, 2, 1]
    assert [one["attempt"] for one in view.evidence[-3:]] == [3, 2, 1]


async def test_head3_an_answer_closes_the_attempt_it_is_about(world: World) -> None:
    provider = Provider()
    provider.answers = always("unknown")
    ledger = await doubt(world, provider, "dropped", "lost")
    await ledger.decide(await only(ledger), AllowOneAttempt(), **BY)
    provider.answers = {3: {"status": "failed"}, 2: {"status": "active"}, 1: {"status": "active"}}
    world.bank.next = ["dropped"]
    pay = world.payer(ledger, safety=None, provider=provider)
    with pytest.raises(OutcomeUnknown):
        await pay.using(wait=NOW)("order-7")
    item = await only(ledger)
    assert [one["closed"] for one in item.attempts] == [None, None, "failed"]
    assert item.state == "in_doubt"  # "failed" about one attempt does not close the others (P6)
    provider.answers = {2: {"status": "succeeded", "result": {"id": "two"}}}
    provider.asked.clear()
    assert await pay("order-7") == {"id": "two"}
    assert [number for number, _ in provider.asked] == [2]
    record = await ledger.get(item.ref)
    assert [one["closed"] for one in record.attempts] == [None, "succeeded", "failed"]


async def test_head3_failed_about_all_attempts_closes_with_a_possible_effect(world: World) -> None:
    provider = Provider()
    provider.answers = always("unavailable")
    ledger = await doubt(world, provider, "dropped")
    provider.answers = always("failed")
    view = await ledger.probe((await only(ledger)).ref)
    assert (view.state, view.effect) == ("failed", "possible")


async def test_the_checkpointed_reference_is_asked_with(world: World) -> None:
    provider = Provider()
    provider.answers = always("active")
    ledger = world.process()

    @ledger.effect(provider=provider, name="pay", key=first)
    async def pay(_order: str, *, effect: Any) -> None:
        await effect.checkpoint(external_ref="job_9")
        raise ConnectionResetError

    with pytest.raises(OutcomeUnknown):
        await pay.using(wait=NOW)("order-7")
    assert provider.asked == [(1, "job_9")]


async def test_v56_without_supports_status_query_it_is_never_probed(world: World) -> None:
    provider = Provider(supports_status_query=False)
    ledger = await doubt(world, provider, "lost")
    await ledger.recover()
    item = await only(ledger)
    with pytest.raises(LookupError):
        await ledger.probe(item.ref)
    assert (item.state, provider.asked) == ("awaiting_decision", [])


async def test_v49_safety_may_be_left_out_and_the_stricter_governs(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for number, (code, said, governs) in enumerate(
        [
            (None, S.RETRY_SAFE, "retry_safe"),
            ("idempotent", S.NON_IDEMPOTENT, "non_idempotent"),
            ("non_idempotent", S.IDEMPOTENT, "non_idempotent"),
        ]
    ):
        provider = Provider(execution_safety_class=said)
        pay = world.payer(world.process(), safety=code, provider=provider, name=f"pay_{number}")
        outcome = await pay.outcome("order-7")
        assert (await world.process().get(outcome.record_id)).safety == governs
    assert "governs" in caplog.text


async def test_v49_where_record_and_code_differ_the_stricter_governs(world: World) -> None:
    ledger = world.process()
    world.bank.next = ["lost"]
    with pytest.raises(OutcomeUnknown):
        await world.payer(ledger, safety="non_idempotent")("order-7")
    other = world.process()
    with pytest.raises(OutcomeUnknown):  # the newer code is laxer; the record is not
        await world.payer(other, safety="idempotent")("order-7")
    world.bank.next = ["crash_after"]
    with pytest.raises(Crash):
        await world.payer(other, safety="idempotent")("order-8")
    world.kill(other)
    last = world.process()
    world.payer(last, safety="non_idempotent")
    assert [view.key for view in (await last.recover()).asked] == ["order-8"]
    assert world.bank.count("order-7") == world.bank.count("order-8") == 1


async def test_p01_a_providers_settle_time_counts_and_keywords_win(world: World) -> None:
    options: list[dict[str, Any]] = [{}, {"settle_time": SETTLE * 2}]
    for number, given in enumerate(options):
        pause = given.get("settle_time", SETTLE)
        provider = Provider(
            settle_time=SETTLE,
            not_found_is_authoritative=True,
            execution_safety_class=S.STATUS_QUERY_REQUIRED,
        )
        ledger = world.process()
        pay = world.payer(ledger, safety=None, provider=provider, name=f"pay_{number}", **given)
        world.bank.next = ["dropped"]
        with pytest.raises(OutcomeUnknown) as caught:
            await pay.using(wait=NOW)("order-7")
        assert caught.value.retry_after == pause
        world.pass_time(pause.total_seconds() + 0.1)
        assert (await pay.using(wait=NOW).outcome("order-7")).attempt == 2


async def test_v60_a_keyword_can_take_authority_away(world: World) -> None:
    provider = Provider(
        settle_time=SETTLE,
        not_found_is_authoritative=True,
        execution_safety_class=S.STATUS_QUERY_REQUIRED,
    )
    ledger = world.process()
    pay = world.payer(ledger, safety=None, provider=provider, not_found_is_authoritative=False)
    world.bank.next = ["dropped"]
    with pytest.raises(OutcomeUnknown) as caught:
        await pay("order-7")
    assert caught.value.next == "ask_person"


# -- answers that break the contract ---------------------------------------------------------------


class Broken(Provider):
    def __init__(self, answer: Any, **declared: Any) -> None:
        super().__init__(**declared)
        self.answer = answer

    async def probe_execution(self, execution_id: str, external_ref: str | None) -> Any:
        self.asked.append((0, external_ref))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer(execution_id) if callable(self.answer) else self.answer


@pytest.mark.parametrize(
    "answer", [None, {}, "not_found", 5, RuntimeError("x"), TimeoutError()], ids=repr
)
async def test_v57_a_broken_answer_is_unavailable_never_not_found(
    world: World, answer: Any
) -> None:
    provider = Broken(answer, settle_time=NOW, not_found_is_authoritative=True)
    ledger = await doubt(world, provider, "lost", resend_on_proven_absence=True)
    world.pass_time(10)
    recovery = await ledger.recover(wait=NOW)
    assert [view.state for view in recovery.waiting] == ["in_doubt"]
    assert recovery.waiting[0].evidence[-1]["status"] == "unavailable"
    assert world.bank.calls == 1


async def test_v54_an_answer_for_another_execution_is_a_broken_probe(world: World) -> None:
    def foreign(_execution_id: str) -> Any:
        return ProviderProbeResult(ProviderProbeStatus.SUCCEEDED, "rec_other.1", result={"id": 1})

    ledger = await doubt(world, Broken(foreign), "lost")
    item = await only(ledger)
    assert item.state == "awaiting_decision"
    assert item.evidence[-1]["status"] == "foreign"


async def test_a_result_too_large_to_keep_is_adopted_without_it(world: World) -> None:
    provider = Provider()
    provider.answers = always("unavailable")
    ledger = await doubt(world, provider, "lost")
    provider.answers = {1: {"status": "succeeded", "result": {"text": "x" * 1_048_577}}}
    recovery = await ledger.recover()
    assert [(view.state, view.receipt_lost) for view in recovery.settled] == [("succeeded", True)]


# -- reattach (G4, V-58) ---------------------------------------------------------------------------


class Reattachable(Provider):
    """Waits for its executions; `ends` is what the wait comes to."""

    supports_reattach = True  # type: ignore[assignment]

    def __init__(self, ends: Any = None, **declared: Any) -> None:
        super().__init__(**declared)
        self.ends = ends
        self.waited: list[tuple[str, str | None]] = []

    async def reattach_execution(self, execution_id: str, external_ref: str | None) -> Any:
        self.waited.append((execution_id, external_ref))
        if callable(self.ends):
            await cast("Any", self.ends())
        if isinstance(self.ends, Exception):
            raise self.ends
        return self.ends


async def test_g4_an_active_execution_is_reattached_and_its_result_adopted(
    any_world: World,
) -> None:
    provider = Reattachable({"id": "waited"})
    provider.answers = {1: {"status": "active", "supports_reattach": True, "external_ref": "job"}}
    ledger = any_world.process()
    pay = any_world.payer(ledger, safety=None, provider=provider)
    any_world.bank.next = ["lost"]
    outcome = await pay.outcome("order-7")
    assert outcome.receipt == {"id": "waited"}
    assert provider.waited == [(f"{outcome.record_id}.1", "job")]
    assert any_world.bank.calls == 1


@pytest.mark.parametrize(
    ("provider_flag", "result_flag"), [(True, False), (False, True), (False, False)]
)
async def test_v58_reattach_needs_both_flags(
    world: World, *, provider_flag: bool, result_flag: bool
) -> None:
    provider = Reattachable({"id": "waited"}, supports_reattach=provider_flag)
    provider.answers = {1: {"status": "active", "supports_reattach": result_flag}}
    await doubt(world, provider, "lost")
    assert provider.waited == []


async def test_g4_without_the_method_active_means_wait_and_probe_again(world: World) -> None:
    provider = Provider(supports_reattach=True)
    provider.answers = {1: {"status": "active", "supports_reattach": True}}
    ledger = await doubt(world, provider, "lost")
    assert len((await ledger.recover(wait=NOW)).waiting) == 1


@pytest.mark.parametrize("ends", [RuntimeError("lost"), None, 5, {"a": b""}], ids=repr)
async def test_g4_a_reattach_that_fails_leaves_it_active(world: World, ends: Any) -> None:
    provider = Reattachable(ends)
    provider.answers = {1: {"status": "active", "supports_reattach": True}}
    ledger = await doubt(world, provider, "lost")
    item = await only(ledger)
    assert item.state == "in_doubt"
    assert world.bank.calls == 1


async def test_g4_a_reattach_lasts_no_longer_than_its_caller_waits(world: World) -> None:
    provider = Reattachable(asyncio.Event().wait)
    provider.answers = {1: {"status": "active", "supports_reattach": True}}
    ledger = world.process()
    pay = world.payer(ledger, safety=None, provider=provider)
    world.bank.next = ["lost"]
    with pytest.raises(OutcomeUnknown) as caught:
        await pay.using(wait=timedelta(milliseconds=20))("order-7")
    assert caught.value.next == "probe_again"
    recovery = await ledger.recover(wait=timedelta(milliseconds=20))
    assert [view.state for view in recovery.waiting] == ["in_doubt"]
    assert len(provider.waited) == 2


async def test_g4_human_class_does_not_reattach(world: World) -> None:
    provider = Reattachable({"id": "waited"}, execution_safety_class=S.HUMAN_CONFIRMATION_REQUIRED)
    provider.answers = {1: {"status": "active", "supports_reattach": True}}
    await doubt(world, provider, "lost")
    assert provider.waited == []


# -- cancelling after a restart (G4, V-58) ---------------------------------------------------------


class Cancellable(Provider):
    """Cancels its executions; `ends` is what it says then."""

    supports_cancel_after_restart = True  # type: ignore[assignment]

    def __init__(self, ends: Any = "cancelled", **declared: Any) -> None:
        super().__init__(**declared)
        self.answers = {1: {"status": "active", "supports_cancel_after_restart": True}}
        self.ends = ends
        self.cancelled: list[str] = []

    async def cancel_execution(self, execution_id: str, external_ref: str | None) -> Any:
        del external_ref
        self.cancelled.append(execution_id)
        if isinstance(self.ends, Exception):
            raise self.ends
        if not isinstance(self.ends, str):
            return self.ends
        return ProviderProbeResult(ProviderProbeStatus(self.ends), execution_id)


async def test_g4_a_cancelled_act_that_is_active_is_cancelled_at_the_provider(
    any_world: World,
) -> None:
    provider = Cancellable()
    ledger = await doubt(any_world, provider, "lost")
    await ledger.recover(wait=NOW)
    assert provider.cancelled == []  # nobody asked for it
    item = await only(ledger)
    await ledger.cancel(item.ref, **BY)
    recovery = await ledger.recover(wait=NOW)
    assert [(view.state, view.effect) for view in recovery.settled] == [("cancelled", "possible")]
    assert provider.cancelled == [item.ref]
    assert recovery.settled[0].evidence[-1]["status"] == "cancelled"
    assert any_world.bank.calls == 1


@pytest.mark.parametrize("ends", ["active", "unknown", "not_found", RuntimeError("x"), None, 5])
async def test_g4_a_cancellation_that_says_nothing_leaves_it_in_doubt(
    world: World, ends: Any
) -> None:
    provider = Cancellable(ends)
    ledger = await doubt(world, provider, "lost", **ABSENCE)
    await ledger.cancel((await only(ledger)).ref, **BY)
    recovery = await ledger.recover(wait=NOW)
    assert [view.state for view in recovery.waiting] == ["in_doubt"]
    assert len(provider.cancelled) == 1


async def test_g4_a_cancellation_that_came_too_late_is_a_success(world: World) -> None:
    provider = Cancellable("succeeded")
    ledger = await doubt(world, provider, "lost")
    await ledger.cancel((await only(ledger)).ref, **BY)
    assert [view.state for view in (await ledger.recover()).settled] == ["succeeded"]


@pytest.mark.parametrize(
    ("provider_flag", "result_flag"), [(True, False), (False, True), (False, False)]
)
async def test_v58_cancelling_needs_both_flags(
    world: World, *, provider_flag: bool, result_flag: bool
) -> None:
    provider = Cancellable(supports_cancel_after_restart=provider_flag)
    provider.answers = {1: {"status": "active", "supports_cancel_after_restart": result_flag}}
    ledger = await doubt(world, provider, "lost")
    await ledger.cancel((await only(ledger)).ref, **BY)
    await ledger.recover(wait=NOW)
    assert provider.cancelled == []
