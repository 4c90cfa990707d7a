"""The fake provider when it misbehaves: each behaviour leaves the effects it promises, no other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Literal

import pytest

from indoubt.testing.provider import (
    Act,
    FakeProvider,
    ProviderFailed,
    ProviderRejected,
    act,
    act_async,
    find,
    find_async,
)

MOMENT = timedelta(milliseconds=50)
LONG = timedelta(hours=1)


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as started:
        yield started


@pytest.fixture
def manual() -> Iterator[FakeProvider]:
    with FakeProvider(manual_clock=True) as started:
        yield started


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def send(pool: ThreadPoolExecutor, provider: FakeProvider, key: str = "order-7") -> Future[Act]:
    return pool.submit(act, provider.url, key, 1200, timeout=20)


@pytest.mark.parametrize("how", ["rst", "fin"])
async def test_apply_then_drop(provider: FakeProvider, how: Literal["rst", "fin"]) -> None:
    provider.next("apply_then_drop", times=2, how=how)
    with pytest.raises(ConnectionResetError):
        act(provider.url, "order-7", 1200)
    with pytest.raises(ConnectionResetError):
        await act_async(provider.url, "order-7", 1200)
    assert provider.count("order-7") == 2
    assert act(provider.url, "order-7", 1200)["id"] == "act_000003"
    assert provider.log()[0]["answer"] == f"dropped ({how})"


@pytest.mark.parametrize("how", ["rst", "fin"])
async def test_drop_before_apply(provider: FakeProvider, how: Literal["rst", "fin"]) -> None:
    provider.next("drop_before_apply", times=2, how=how)
    with pytest.raises(ConnectionResetError):
        act(provider.url, "order-7", 1200)
    with pytest.raises(ConnectionResetError):
        await act_async(provider.url, "order-7", 1200)
    assert provider.count("order-7") == 0
    assert find(provider.url, "order-7").status == "not_found"
    assert [entry["did"] for entry in provider.log()] == [[], [], []]


@pytest.mark.parametrize(
    ("then", "raised"),
    [
        ("answer", None),
        ("error", ProviderFailed),
        ("rst", ConnectionResetError),
        ("fin", ConnectionResetError),
        ("hang", TimeoutError),
    ],
)
def test_apply_late_lands_when_the_client_is_gone(
    manual: FakeProvider,
    then: Literal["answer", "error", "rst", "fin", "hang"],
    raised: type[Exception] | None,
) -> None:
    manual.next("apply_late", delay=LONG, then=then)
    if raised is None:
        assert act(manual.url, "order-7", 1200)["key"] == "order-7"
    else:
        with pytest.raises(raised):
            act(manual.url, "order-7", 1200, timeout=0.2)
    assert manual.count("order-7") == 0
    assert find(manual.url, "order-7").status == "not_found"
    assert manual.mutations_during(lambda: manual.clock.advance(LONG)) == 0
    assert manual.count("order-7") == 1
    assert find(manual.url, "order-7").status == "succeeded"


def test_apply_late_on_a_running_clock(provider: FakeProvider) -> None:
    provider.next("apply_late", delay=MOMENT, then="rst")
    with pytest.raises(ConnectionResetError):
        act(provider.url, "order-7", 1200)
    assert provider.count("order-7", at_least=1, timeout=10) == 1


def test_a_late_act_is_one_act_with_its_repeat(manual: FakeProvider) -> None:
    manual.next("apply_late", delay=LONG, then="rst")
    with pytest.raises(ConnectionResetError):
        act(manual.url, "order-7", 1200, idempotency_key="ik")
    assert act(manual.url, "order-7", 1200, idempotency_key="ik")["id"] == "act_000001"
    manual.clock.advance(LONG)
    assert manual.count("order-7") == 1


def test_hide_and_forget_key_change_one_act(manual: FakeProvider) -> None:
    manual.next("hide", delay=LONG)
    manual.next("forget_key", delay=LONG / 2)
    act(manual.url, "order-7", 1200, idempotency_key="ik")
    act(manual.url, "order-8", 1200, idempotency_key="other")
    assert find(manual.url, "order-7").status == "not_found"
    assert find(manual.url, "order-8").status == "succeeded"
    manual.clock.advance(LONG)
    assert find(manual.url, None, idempotency_key="ik").status == "not_found"
    assert find(manual.url, "order-7", idempotency_key="ik").status == "succeeded"
    act(manual.url, "order-7", 1200, idempotency_key="ik")
    assert manual.count("order-7") == 2


def test_s28_an_error_after_applying(provider: FakeProvider) -> None:
    provider.next("apply_then_error")
    with pytest.raises(ProviderFailed) as failed:
        act(provider.url, "box", None, idempotency_key="submission-1")
    assert failed.value.status == 500
    assert provider.count("box") == 1
    assert find(provider.url, None, idempotency_key="submission-1").status == "succeeded"


def test_s28_a_second_create_answers_exists(provider: FakeProvider) -> None:
    provider.fault("unique")
    act(provider.url, "box", None, idempotency_key="somebody")
    with pytest.raises(ProviderRejected, match="exists"):
        act(provider.url, "box", None, idempotency_key="submission-1")
    assert provider.count("box") == 1


def test_a_refusal_has_no_effect_and_is_remembered(provider: FakeProvider) -> None:
    provider.next("reject", code="card_declined")
    for _ in range(2):  # the second one is the stored answer: the fault is used up
        with pytest.raises(ProviderRejected) as refused:
            act(provider.url, "order-7", 1200, idempotency_key="ik.1")
        assert refused.value.code == "card_declined"
    seen = find(provider.url, "order-7", idempotency_key="ik.1")
    assert (seen.status, seen.code) == ("failed", "card_declined")
    assert find(provider.url, "order-7", idempotency_key="ik.2").status == "not_found"
    assert provider.count("order-7") == 0
    act(provider.url, "order-7", 1200, idempotency_key="ik.2")
    assert provider.count("order-7") == 1


def test_hang_applies_and_never_answers_until_released(
    provider: FakeProvider, pool: ThreadPoolExecutor
) -> None:
    hang = provider.fault("hang", key="order-7")
    answer = send(pool, provider)
    hang.wait_reached()
    assert provider.count("order-7") == 1
    assert provider.log()[0]["answer"] is None
    assert not answer.done()
    hang.release()
    assert answer.result(10)["key"] == "order-7"
    assert send(pool, provider).result(10)["id"] == "act_000002"


def test_gate_holds_before_anything_happens(
    provider: FakeProvider, pool: ThreadPoolExecutor
) -> None:
    gate = provider.gate("order-7")
    held = [send(pool, provider), send(pool, provider)]
    gate.wait_reached(requests=2)
    assert provider.count("order-7") == 0
    assert act(provider.url, "order-8", 1)["id"] == "act_000001"
    gate.release()
    assert {one.result(10)["id"] for one in held} == {"act_000002", "act_000003"}
    assert provider.count("order-7") == 2


async def test_gate_in_the_loop_that_sends(provider: FakeProvider) -> None:
    gate = provider.gate("order-7")
    sending = asyncio.create_task(act_async(provider.url, "order-7", 1200))
    await gate.wait_reached_async()
    assert provider.count("order-7") == 0
    gate.release()
    assert (await sending)["key"] == "order-7"


@pytest.mark.parametrize(("behaviour", "effects"), [("gate", 0), ("hang", 1)])
def test_drop_ends_held_requests(
    provider: FakeProvider,
    pool: ThreadPoolExecutor,
    behaviour: Literal["gate", "hang"],
    effects: int,
) -> None:
    fault = provider.fault(behaviour)
    sending = send(pool, provider)
    fault.wait_reached()
    fault.drop()
    with pytest.raises(ConnectionResetError):
        sending.result(10)
    assert provider.count("order-7") == effects


def test_a_request_at_the_gate_outlives_its_client(provider: FakeProvider) -> None:
    gate = provider.gate("order-7")
    with pytest.raises(TimeoutError):
        act(provider.url, "order-7", 1200, timeout=0.05)
    gate.wait_reached()
    gate.release()
    assert provider.count("order-7", at_least=1) == 1


async def test_nobody_at_the_gate_is_a_timeout(provider: FakeProvider) -> None:
    gate = provider.gate("order-7")
    with pytest.raises(TimeoutError, match="0 of 1"):
        gate.wait_reached(0.01)
    with pytest.raises(TimeoutError, match="0 of 3"):
        await gate.wait_reached_async(0.01, requests=3)


def test_the_same_idempotency_key_twice_at_the_gate_is_one_effect(
    provider: FakeProvider, pool: ThreadPoolExecutor
) -> None:
    gate = provider.gate()
    held = [
        pool.submit(act, provider.url, "order-7", 1, idempotency_key="ik", timeout=20)
        for _ in range(2)
    ]
    gate.wait_reached(requests=2)
    gate.release()
    assert {one.result(10)["id"] for one in held} == {"act_000001"}
    assert provider.count("order-7") == 1


def test_slow_waits_first(manual: FakeProvider) -> None:
    slow = manual.next("slow", delay=LONG)
    with pytest.raises(TimeoutError):
        act(manual.url, "order-7", 1200, timeout=0.05)
    assert manual.count("order-7") == 0
    manual.clock.advance(LONG)
    assert manual.count("order-7", at_least=1) == 1
    slow.wait_reached()


def test_slow_on_a_running_clock(provider: FakeProvider) -> None:
    provider.next("slow", delay=MOMENT, on="find")
    asked = provider.clock.now_ms()
    assert find(provider.url, "order-7").status == "not_found"
    assert provider.clock.now_ms() >= asked + 50


@pytest.mark.parametrize("status", ["unavailable", "unknown", "active", "not_found"])
@pytest.mark.parametrize("by", ["key", "idempotency_key"])
async def test_lookups_answer_as_told(
    provider: FakeProvider,
    status: Literal["unavailable", "unknown", "active", "not_found"],
    by: str,
) -> None:
    act(provider.url, "order-7", 1200, idempotency_key="ik")
    asked: dict[str, Any] = (
        {"key": "order-7"} if by == "key" else {"key": None, "idempotency_key": "ik"}
    )
    provider.next("lookup", key="order-7", status=status, times=2)
    assert find(provider.url, "order-8").status == "not_found"
    assert find(provider.url, **asked).status == status
    assert (await find_async(provider.url, **asked)).status == status
    assert find(provider.url, **asked).status == "succeeded"


async def test_a_lookup_can_be_cut(provider: FakeProvider) -> None:
    provider.next("lookup", status="drop", times=2)
    with pytest.raises(ConnectionResetError):
        find(provider.url, "order-7")
    with pytest.raises(ConnectionResetError):
        await find_async(provider.url, "order-7")


def test_a_lookup_at_the_gate_sees_what_is_there_when_it_goes_on(
    provider: FakeProvider, pool: ThreadPoolExecutor
) -> None:
    gate = provider.gate("order-7", on="find")
    looking = pool.submit(find, provider.url, "order-7")
    gate.wait_reached()
    act(provider.url, "order-7", 1200)
    gate.release()
    assert looking.result(10).status == "succeeded"


# -- how faults meet requests ------------------------------------------------------------------


def test_next_counts_only_the_requests_it_meets(provider: FakeProvider) -> None:
    fault = provider.next("reject", key="order-7", times=2)
    act(provider.url, "order-8", 1)
    for _ in range(2):
        with pytest.raises(ProviderRejected):
            act(provider.url, "order-7", 1)
    act(provider.url, "order-7", 1)
    fault.wait_reached(0.0, requests=2)
    assert provider.counts() == {"order-7": 1, "order-8": 1}


def test_faults_add_up_and_the_later_one_wins(manual: FakeProvider) -> None:
    manual.fault("hide", delay=LONG)
    manual.fault("apply_then_error")
    with manual.fault("apply_then_drop") as drop:
        with pytest.raises(ConnectionResetError):
            act(manual.url, "order-7", 1)
        drop.wait_reached()
    with pytest.raises(ProviderFailed):
        act(manual.url, "order-8", 1)
    assert find(manual.url, "order-7").status == "not_found"
    assert manual.counts() == {"order-7": 1, "order-8": 1}


def test_a_fault_ends_with_the_process_it_was_set_in(provider: FakeProvider) -> None:
    with provider.fault("reject") as fault:
        provider.kill()
        provider.restart()
        later = provider.gate("order-8")
        with pytest.raises(LookupError):
            fault.wait_reached(0.0)
        fault.__exit__()
        act(provider.url, "order-7", 1)
    with pytest.raises(TimeoutError):
        later.wait_reached(0.0)


def test_leaving_the_block_of_a_gate_lets_everybody_go(
    provider: FakeProvider, pool: ThreadPoolExecutor
) -> None:
    with provider.gate() as gate:
        held = send(pool, provider)
        gate.wait_reached()
    assert held.result(10)["id"] == "act_000001"
    assert act(provider.url, "order-8", 1)["id"] == "act_000002"


@pytest.mark.parametrize(
    ("behaviour", "options", "message"),
    [
        ("explode", {}, "behaviour must be one of"),
        ("reject", {"how": "fin"}, "takes no 'how'"),
        ("gate", {"delay": MOMENT}, "takes no 'delay'"),
        ("lookup", {"status": "maybe"}, "status must be one of"),
        ("lookup", {"on": "act", "code": "x"}, "takes no 'code'"),
        ("apply_then_drop", {"times": 0}, "times must be"),
        ("apply_then_drop", {"how": "politely"}, "how must be one of"),
        ("hide", {"delay": -MOMENT}, "negative"),
        ("hide", {"dalay": MOMENT}, "dalay"),
    ],
)
def test_a_wrong_fault_is_refused_where_it_is_written(
    behaviour: Any, options: dict[str, Any], message: str
) -> None:
    with FakeProvider() as provider, pytest.raises(ValueError, match=message):
        provider.fault(behaviour, **options)
