"""Clean failures, rejections, and errors that carry what to do next (U13, U14, decisions C)."""

from __future__ import annotations

import copy
import inspect
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.conftest import World, first, only

import indoubt
from indoubt import (
    DoubtfulAttempt,
    EffectContext,
    EffectFailed,
    EffectPolicy,
    Ledger,
    OutcomeUnknown,
    ProviderProbeResult,
    errors,
)


class CardDeclined(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def failing(ledger: Ledger, error: BaseException, **policy: Any) -> Any:
    given: dict[str, Any] = {"safety": "non_idempotent", "name": "pay", "key": first}

    @ledger.effect(**(given | policy))
    async def pay(_order: str) -> None:
        raise error

    return pay


async def settled(ledger: Ledger, call: Any) -> tuple[str, str | None]:
    """State and effect after a call that raises."""
    with pytest.raises(Exception):  # noqa: B017, PT011 - which one is another test's question
        await call("order-7")
    record = await ledger.find("pay", "order-7")
    assert record is not None
    return record.state, record.effect


# -- clean failures --------------------------------------------------------------------------------


def is_402(error: BaseException) -> bool:
    return getattr(error, "status", None) == 402


def broken(_: BaseException) -> bool:
    raise LookupError


def truthy(_: BaseException) -> Any:
    return 1


def nothing(_: BaseException) -> Any:
    return None


CASES: list[tuple[str, Any, BaseException, bool]] = [
    ("its type", (CardDeclined,), CardDeclined(402), True),
    ("a subclass", (LookupError,), KeyError("x"), True),
    ("another type", (CardDeclined,), ValueError("x"), False),
    ("none declared", (), CardDeclined(402), False),
    ("predicate true", (is_402,), CardDeclined(402), True),
    ("predicate false", (is_402,), CardDeclined(500), False),
    ("second of two", (KeyError, is_402), CardDeclined(402), True),
    ("predicate truthy", (truthy,), CardDeclined(402), False),
    ("predicate none", (nothing,), CardDeclined(402), False),
    ("predicate raises", (broken,), CardDeclined(402), False),
    ("raises, then true", (broken, is_402), CardDeclined(402), True),
    ("wrapped", (CardDeclined,), ExceptionGroup("two", [CardDeclined(402)]), False),
]


@pytest.mark.parametrize(
    ("clean", "error", "counts"), [one[1:] for one in CASES], ids=[one[0] for one in CASES]
)
async def test_u13_clean_failures_are_types_or_predicates(
    world: World, clean: Any, error: BaseException, *, counts: bool
) -> None:
    ledger = world.process()
    expected = ("failed", "none") if counts else ("awaiting_decision", None)
    assert await settled(ledger, failing(ledger, error, clean_failures=clean)) == expected


async def test_u13_a_predicate_that_raises_is_logged_as_no_proof(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = world.process()
    await settled(ledger, failing(ledger, CardDeclined(402), clean_failures=(broken,)))
    assert "no proof" in caplog.text


async def test_a_time_out_is_never_a_failure_of_the_effect(world: World) -> None:
    import asyncio  # noqa: PLC0415

    ledger = world.process()

    @ledger.effect(
        safety="non_idempotent",
        name="pay",
        key=first,
        clean_failures=(TimeoutError,),
        timeout=timedelta(milliseconds=20),
    )
    async def pay(_order: str) -> None:
        await asyncio.Event().wait()

    assert await settled(ledger, pay) == ("awaiting_decision", None)


async def test_g1_a_refused_connection_counts_only_if_declared(world: World) -> None:
    ledger = world.process()
    declared = failing(ledger, ConnectionRefusedError(), clean_failures=(ConnectionRefusedError,))
    assert await settled(ledger, declared) == ("failed", "none")


@pytest.mark.parametrize(
    "wrong", [(1,), ("KeyError",), (int,), (KeyError(),), KeyError, 5, (KeyboardInterrupt,)]
)
def test_u13_what_is_no_clean_failure_is_refused_when_declared(world: World, wrong: Any) -> None:
    with pytest.raises(TypeError, match="clean_failures"):
        failing(world.process(), KeyError(), clean_failures=wrong)


# -- reject ----------------------------------------------------------------------------------------


def rejecting(ledger: Ledger, **policy: Any) -> Any:
    given: dict[str, Any] = {"safety": "non_idempotent", "name": "pay", "key": first}

    @ledger.effect(**(given | policy))
    async def pay(_order: str, *, effect: EffectContext) -> None:
        raise effect.reject("card_declined", "do not honour")

    return pay


async def test_u13_reject_says_the_same_from_inside(any_world: World) -> None:
    ledger = any_world.process()
    pay = rejecting(ledger)
    with pytest.raises(EffectFailed) as caught:
        await pay("order-7")
    assert (caught.value.code, caught.value.effect) == ("card_declined", "none")
    assert "do not honour" in str(caught.value)
    record = await ledger.get(caught.value.record_id)
    assert (record.state, record.effect) == ("failed", "none")
    assert record.error == {
        "type": "EffectFailed",
        "code": "card_declined",
        "message": "card_declined: do not honour",
    }
    any_world.payer(ledger, name="pay2")
    with pytest.raises(EffectFailed):  # tried anew, refused anew
        await pay("order-7")
    assert (await ledger.get(caught.value.record_id)).attempt == 2


async def test_u13_only_this_effects_rejection_counts(world: World) -> None:
    ledger = world.process()
    inner = rejecting(ledger, name="inner")

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    async def outer(order: str, *, effect: EffectContext) -> None:
        effect.reject("unused")
        await inner(order)

    assert await settled(ledger, outer) == ("awaiting_decision", None)


async def test_u13_a_rejection_that_is_not_raised_says_nothing(world: World) -> None:
    ledger = world.process()

    @ledger.effect(safety="non_idempotent", name="pay", key=first)
    async def pay(_order: str, *, effect: EffectContext) -> str:
        effect.reject("changed_my_mind")
        return "paid"

    assert await pay("order-7") == "paid"


async def test_u13_an_error_made_by_hand_is_no_rejection(world: World) -> None:
    ledger = world.process()
    made = EffectFailed("declined", code="declined", effect="none")
    assert await settled(ledger, failing(ledger, made)) == ("awaiting_decision", None)


# -- OutcomeUnknown --------------------------------------------------------------------------------


async def test_u13_outcome_unknown_says_all_there_is(any_world: World) -> None:
    ledger = any_world.process()
    pay = any_world.payer(ledger, probe=any_world.bank.probe)
    any_world.bank.next, any_world.bank.says = ["lost"], "unknown"
    with pytest.raises(OutcomeUnknown) as caught:
        await pay("order-7", 1234)
    doubt = caught.value
    item = await only(ledger)
    assert (doubt.ref, doubt.record_id) == (item.ref, item.record_id)
    assert doubt.next == "ask_person"
    assert doubt.retry_after is None
    assert doubt.choices == ("allow_one_attempt", "did_not_happen", "give_up", "happened")
    assert tuple(doubt.evidence) == item.evidence
    assert [one["source"] for one in doubt.evidence] == ["holder", "probe"]
    assert doubt.evidence[0]["note"] == "ConnectionResetError"
    assert doubt.evidence[1]["status"] == "unknown"
    assert isinstance(doubt.__cause__, ConnectionResetError)
    assert "1234" not in str(doubt)
    assert "order-7" not in str(doubt)


async def test_u13_an_error_text_is_not_evidence(world: World) -> None:
    ledger = world.process()
    with pytest.raises(OutcomeUnknown) as caught:
        await failing(ledger, ValueError("card 4242"))("order-7")
    assert "4242" not in str(caught.value.evidence)
    assert "4242" not in str((await only(ledger)).to_dict())


MADE = {
    "ref": "rec_a.1",
    "record_id": "rec_a",
    "evidence": ({"source": "probe"},),
    "next": "probe_again",
    "retry_after": timedelta(seconds=2),
    "choices": ("happened",),
    "code": "declined",
    "effect": "possible",
    "error": {"code": "declined"},
    "recorded": "v1:a",
    "given": "v1:b",
    "intent": {"operation_id": "op-1"},
    "fence": 3,
    "current_ref": "rec_a.2",
    "decision": {"kind": "happened"},
    "until": datetime(2026, 1, 1, tzinfo=UTC),
    "outcome": "succeeded",
}
TREE = [
    one
    for one in vars(errors).values()
    if isinstance(one, type) and issubclass(one, errors.IndoubtError)
]


@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)
def test_c_every_error_pickles_and_copies(kind: type[errors.IndoubtError]) -> None:
    named = set(inspect.signature(kind.__init__).parameters) - {"self", "args", "kwargs"}
    given = {name: MADE[name] for name in named - {"message"}}
    error = kind("what happened", **given)
    error.add_note("and a note")
    copies: list[Any] = [copy.copy(error), copy.deepcopy(error)]
    copies += [
        pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - our own bytes
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    ]
    for again in copies:
        assert type(again) is kind
        assert str(again) == "what happened"
        assert {name: getattr(again, name) for name in given} == given
        assert again.__notes__ == ["and a note"]


def test_c_the_error_tree() -> None:
    parents = {one.__name__: one.__bases__[0].__name__ for one in TREE}
    assert parents.pop("IndoubtError") == "Exception"
    for name, parent in {
        "StoreUnavailable": "StoreError",
        "AnswerLost": "StoreUnavailable",
        "Contended": "StoreUnavailable",
        "StoreBroken": "StoreError",
        "StoreNotDurable": "StoreError",
        "StoreRewound": "StoreError",
        "CrossRootBatch": "StoreError",
        "SchemaMissing": "StoreError",
        "SchemaTooOld": "StoreError",
        "SchemaTooNew": "StoreError",
    }.items():
        assert parents.pop(name) == parent
    assert set(parents.values()) == {"IndoubtError"}
    assert issubclass(errors.RecordNotFound, LookupError)
    assert all(getattr(indoubt, one.__name__) is one for one in TREE)


async def test_u13_a_real_doubt_pickles(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger, probe=world.bank.probe)
    world.bank.next, world.bank.says = ["lost"], "active"
    with pytest.raises(OutcomeUnknown) as caught:
        await pay.using(wait=timedelta(0))("order-7")
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own bytes
    assert vars(again) == vars(caught.value)
    assert again.next == "probe_again"
    assert again.retry_after > timedelta(0)


# -- U14: what a probe is given --------------------------------------------------------------------


async def test_u14_the_attempt_tells_what_to_look_up(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger, probe=world.bank.probe)
    world.bank.next = ["lost"]
    await pay("order-7", 1200)
    (asked,) = world.bank.asked
    record = await ledger.find("pay", "order-7")
    assert record is not None
    assert asked.execution_id == record.ref
    assert (asked.key, asked.attempt, asked.external_ref, asked.token) == (
        "order-7",
        1,
        None,
        None,
    )
    assert asked.arguments == {"order": "order-7", "cents": 1200}
    assert asked.idempotency_key == world.bank.acts[0][2]
    assert asked.dispatched_at is not None
    assert asked.dispatched_at.isoformat() == record.attempts[0]["dispatched_at"]


def attempt() -> DoubtfulAttempt:
    return DoubtfulAttempt(
        execution_id="rec_a.2",
        external_ref="job_1",
        key="order-7",
        idempotency_key="idk_1",
        arguments={},
        attempt=2,
        dispatched_at=None,
    )


def test_u14_the_makers_fill_in_the_execution_id() -> None:
    one = attempt()
    made = [
        one.succeeded({"id": 1}),
        one.succeeded(),
        one.failed({"code": "x"}),
        one.failed(),
        one.active(),
        one.cancelled(),
        one.not_found(),
        one.unknown(),
        one.unavailable(),
    ]
    assert {type(answer) for answer in made} == {ProviderProbeResult}
    assert {answer.execution_id for answer in made} == {"rec_a.2"}
    assert [str(answer.status) for answer in made] == [
        "succeeded",
        "succeeded",
        "failed",
        "failed",
        "active",
        "cancelled",
        "not_found",
        "unknown",
        "unavailable",
    ]
    assert (made[0].result, made[0].external_ref) == ({"id": 1}, "job_1")
    assert one.succeeded({"id": 1}, external_ref="job_2").external_ref == "job_2"
    assert made[2].error == {"code": "x"}


async def test_u14_a_permitted_attempt_keeps_the_idempotency_key(world: World) -> None:
    ledger = world.process()
    pay = world.payer(ledger, probe=world.bank.probe)
    world.bank.next, world.bank.says = ["dropped", "dropped"], "unknown"
    with pytest.raises(OutcomeUnknown) as caught:
        await pay("order-7")
    await ledger.decide(caught.value, indoubt.AllowOneAttempt(), actor="ana", reason="looked it up")
    with pytest.raises(OutcomeUnknown):
        await pay("order-7")
    one, two = world.bank.asked
    assert (one.attempt, two.attempt) == (1, 2)
    assert one.idempotency_key == two.idempotency_key
    assert one.execution_id != two.execution_id


@pytest.mark.parametrize(("minutes", "told"), [(10, 0), (11, 1)])
def test_a_settle_time_beyond_the_probe_budget_is_told_when_it_is_declared(
    caplog: pytest.LogCaptureFixture, minutes: int, told: int
) -> None:
    settle = timedelta(minutes=minutes)
    EffectPolicy(safety="status_query_required", probe=print, settle_time=settle)
    assert len(caplog.records) == told
    assert ("probe_budget.within (600000 ms)" in caplog.text) is bool(told)
