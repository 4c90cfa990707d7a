"""Bad input to every verb and keyword (design 5.7): a typed error that names field and rule.

Never the value; nothing is written, nothing is sent, nothing half-done remains. What is given to a
guarded call itself is in test_bad_arguments.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from tests.conftest import Provider, World, first

from indoubt import (
    AllowOneAttempt,
    BaseCapabilityProvider,
    EffectContext,
    EffectPolicy,
    GiveUp,
    Happened,
    Ledger,
    OutcomeUnknown,
    ProbeBudget,
    RecordNotFound,
    TooEarly,
)
from indoubt.guard.policy import EffectOptions

MARK = "s3cr3t"
NAN = float("nan")
OBJECT = object()
NO_TEXT: list[Any] = [5, True, 1.5, NAN, b"s3cr3t", ["s3cr3t"], {"s3cr3t": 1}, OBJECT]
BAD_TEXT: list[Any] = ["", " ", "\t\n", "\u200b", "s3cr3t" * 1000, "a\0s3cr3t", "a\ud800s3cr3t"]
TEXT = NO_TEXT + BAD_TEXT
DURATION: list[Any] = [5, "5", True, 1.5, NAN, OBJECT, timedelta(-1), timedelta(days=3653)]
POSITIVE = [*DURATION, timedelta(0)]
WHOLE: list[Any] = [True, 1.0, NAN, "5", b"1", None, -1, 2**63]
LIMIT = [*WHOLE, 0, 1001]
FLAG: list[Any] = [0, 1, "yes", OBJECT]
NO_NAMES: list[Any] = ["effect", b"effect", 5, True, OBJECT, {"effect": 1}]
SEVERAL = [*NO_NAMES, [5], [None], [""], ["\ud800s3cr3t"], ["s3cr3t" * 1000]]
CURSOR: list[Any] = [5, True, b"s3cr3t", OBJECT, ["x"], "", "s3cr3t", "é", "\ud800", "x" * 9999]
BY = {"actor": "ana", "reason": "seen"}


class Case:
    """One keyword of one verb: how to call it, and what it may not be given."""

    def __init__(self, where: str, values: list[Any], call: Callable[..., Any]) -> None:
        self.where = where
        self.field = where.rpartition(".")[2]
        self.values = values
        self._call = call

    async def ask(self, value: Any) -> None:
        """Call it with a value."""
        answer = self._call(value)
        if inspect.isawaitable(answer):
            await answer


def verbs(ledger: Ledger, ref: str) -> Iterator[Case]:
    """Every keyword of the ledger's verbs."""
    for verb in ("get", "journal", "probe"):
        yield Case(f"{verb}.ref", TEXT, getattr(ledger, verb))
        yield Case(f"{verb}.tenant_id", TEXT, _keyword(getattr(ledger, verb), "tenant_id", ref))
    yield Case("journal.after", WHOLE, _keyword(ledger.journal, "after", ref))
    yield Case("journal.limit", LIMIT, _keyword(ledger.journal, "limit", ref))
    yield Case("find.name", TEXT, _keyword(partial(ledger.find, key="key"), "name"))
    yield Case("find.key", TEXT, partial(ledger.find, "name"))
    yield Case("find.tenant_id", TEXT, _keyword(ledger.find, "tenant_id", "name", "key"))
    for verb in ("in_doubt", "recover"):
        call = getattr(ledger, verb)
        yield Case(f"{verb}.tenant_id", TEXT, _keyword(call, "tenant_id"))
        yield Case(f"{verb}.kinds", SEVERAL, _keyword(call, "kinds"))
        yield Case(f"{verb}.limit", LIMIT, _keyword(call, "limit"))
        yield Case(f"{verb}.cursor", CURSOR, _keyword(call, "cursor"))
    yield Case("recover.wait", [*DURATION, None], _keyword(ledger.recover, "wait"))
    yield Case("recover.run", [*FLAG, None], _keyword(ledger.recover, "run"))
    yield from persons(ledger, ref)


def persons(ledger: Ledger, ref: str) -> Iterator[Case]:
    """What a person says."""
    cancel, decide = partial(ledger.cancel, ref, **BY), partial(ledger.decide, ref, GiveUp(), **BY)
    for verb, call in (("cancel", cancel), ("decide", decide)):
        yield Case(f"{verb}.actor", TEXT, _keyword(call, "actor"))
        yield Case(f"{verb}.reason", TEXT, _keyword(call, "reason"))
        yield Case(f"{verb}.tenant_id", TEXT, _keyword(call, "tenant_id"))
    yield Case("cancel.ref", TEXT, partial(ledger.cancel, **BY))
    refs = [*TEXT, None, ref.partition(".")[0], f"{ref}x", ".1", f"{ref}.1 ", "rec_s3cr3t.x"]
    yield Case("decide.ref", refs, partial(ledger.decide, decision=GiveUp(), **BY))
    yield Case("decide.decision_id", TEXT, _keyword(decide, "decision_id"))
    decisions = [GiveUp, AllowOneAttempt, "give_up", {"decision": "give_up"}, None, 5]
    yield Case("decide.decision", decisions, partial(ledger.decide, ref, **BY))
    receipts = [OBJECT, NAN, {1: 2}, b"s3cr3t", "\ud800s3cr3t", {"a": {"s3cr3t"}}, "x" * 1_048_577]
    yield Case("decide.receipt", receipts, _happened(partial(ledger.decide, ref, **BY)))


def surroundings(ledger: Ledger, pay: Any) -> Iterator[Case]:
    """Scopes, and what a call sets otherwise."""
    yield Case("scope.scope", TEXT, ledger.scope)
    yield Case("scope.tenant_id", TEXT, _keyword(ledger.scope, "tenant_id", "run-1"))
    waiting = _keyword(ledger.scope, "wait_for_decision", "run-1")
    yield Case("scope.wait_for_decision", DURATION, waiting)
    for name in ("key", "tenant_id", "scope"):
        yield Case(f"using.{name}", TEXT, _keyword(pay.using, name))
    for name in ("wait", "wait_for_decision"):
        yield Case(f"using.{name}", DURATION, _keyword(pay.using, name))


def declarations(declare: Callable[..., Any], probe: Any) -> Iterator[Case]:
    """Every keyword of an effect."""
    naive: list[Any] = [datetime(2027, 1, 1), "2027-01-01"]  # noqa: DTZ001 - what it is about
    values: dict[str, list[Any]] = {
        "safety": [5, True, b"pure", OBJECT, "", "s3cr3t", "PURE", None],
        "name": TEXT,
        "key": ["order", 5, True, ["order"], OBJECT],
        "probe": ["s3cr3t", 5, True, ["x"]],
        "provider": ["s3cr3t", 5, True, OBJECT, BaseCapabilityProvider],
        "clean_failures": [ValueError, "s3cr3t", 5, None, [5], [int], [KeyboardInterrupt]],
        "timeout": POSITIVE,
        "settle_time": DURATION,
        "not_found_is_authoritative": FLAG,
        "key_retention": DURATION,
        "resend_on_proven_absence": [*FLAG, None],
        "detached": [*FLAG, None],
        "no_use_after": [*POSITIVE, *naive],
        "ignore": [*SEVERAL, None],
        "redact": [*SEVERAL, None],
        "formerly": [*SEVERAL, None],
        "wait_for_decision": DURATION,
        "probe_budget": [0, 5, True, "10", [], OBJECT, (10, timedelta(minutes=1))],
    }
    assert set(values) == set(EffectOptions.__annotations__)
    for name, bad in values.items():
        given: dict[str, Any] = {"probe": probe} if name != "provider" else {}
        yield Case(f"effect.{name}", bad, _keyword(partial(declare, **given), name))
    yield Case("effect.function", [5, "s3cr3t", OBJECT, int], _function(declare))
    yield Case("probe_budget.count", [*WHOLE, 0], _keyword(ProbeBudget, "count"))
    yield Case("probe_budget.within", [*POSITIVE, None], _keyword(ProbeBudget, "within"))


def ledgers() -> Iterator[Case]:
    """A ledger's own keywords."""
    stores: list[Any] = [5, True, b"memory:", OBJECT, [], World]
    stores += ["", "sqlite://", "nonsense:x", "memory:x"]
    yield Case("ledger.store", stores, _used)
    yield Case("ledger.lease", [*POSITIVE, None], _keyword(Ledger, "lease", "memory:"))
    yield Case("ledger.abandon_after", POSITIVE, _keyword(Ledger, "abandon_after", "memory:"))
    loss = _keyword(Ledger, "allow_ledger_loss", "memory:")
    yield Case("ledger.allow_ledger_loss", [*FLAG, None], loss)


def _keyword(call: Callable[..., Any], name: str, *given: Any) -> Callable[[Any], Any]:
    return lambda value: call(*given, **{name: value})


def _happened(decide: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda value: decide(Happened(value))


def _used(store: Any) -> Any:
    return Ledger(store).in_doubt()


def _function(declare: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda value: declare(fn=value)


async def check_refused(case: Case, value: Any) -> None:
    """Check that a value is refused as it should be."""
    with pytest.raises((TypeError, ValueError)) as caught:
        await case.ask(value)
    said = str(caught.value)
    assert case.field in said.lower().replace("safety is", "safety"), said
    assert MARK not in said
    assert len(said) < 500
    assert not isinstance(caught.value, RecordNotFound)


async def doubtful(world: World) -> tuple[Ledger, Any, str]:
    """A ledger with one act in doubt, that could be decided."""
    ledger = world.process()
    pay = world.payer(ledger)
    world.bank.next = ["lost"]
    with pytest.raises(OutcomeUnknown) as doubt:
        await pay("order-7")
    return ledger, pay, doubt.value.ref


async def test_verbs_refuse_bad_input_and_touch_nothing(world: World) -> None:
    ledger, _, ref = await doubtful(world)
    before = await world.records()
    for case in verbs(ledger, ref):
        for value in case.values:
            await check_refused(case, value)
    assert await world.records() == before
    assert world.bank.calls == 1


async def test_every_keyword_of_every_verb_is_tried(world: World) -> None:
    ledger, pay, ref = await doubtful(world)
    tried = {case.where for case in verbs(ledger, ref)}
    tried |= {case.where for case in surroundings(ledger, pay)} | {c.where for c in ledgers()}
    there = {f"ledger.{name}" for name in inspect.signature(Ledger).parameters}
    for verb in ("get", "journal", "probe", "find", "in_doubt", "recover", "cancel", "decide"):
        there |= {f"{verb}.{n}" for n in inspect.signature(getattr(ledger, verb)).parameters}
    there |= {f"scope.{name}" for name in inspect.signature(ledger.scope).parameters}
    there |= {f"using.{name}" for name in inspect.signature(pay.using).parameters}
    assert there - tried == {"ledger.clock"}  # the engine's own; see indoubt.testing


async def test_surroundings_refuse_bad_input(world: World) -> None:
    ledger, pay, _ = await doubtful(world)
    for case in surroundings(ledger, pay):
        for value in case.values:
            await check_refused(case, value)


async def test_declarations_refuse_bad_input_and_register_nothing(world: World) -> None:
    ledger = world.process()

    def declare(fn: Any = None, **given: Any) -> Any:
        async def act(order: str) -> None:
            raise AssertionError(order)

        policy: dict[str, Any] = {"safety": "non_idempotent", "name": "act", "key": first} | given
        return ledger.effect(act if fn is None else fn, **policy)

    for case in declarations(declare, world.bank.probe):
        for value in case.values:
            await check_refused(case, value)
    assert ledger.effects == ()
    assert declare() is not None


async def test_a_policy_refuses_what_an_effect_refuses() -> None:
    def declare(fn: Any = None, **given: Any) -> Any:
        policy: dict[str, Any] = {"safety": "non_idempotent"} | given
        return EffectPolicy(**policy) if fn is None else fn

    for case in declarations(declare, lambda _: None):  # pyright: ignore[reportUnknownLambdaType]
        if case.field not in {"function", "name"}:  # those are the function's
            for value in case.values:
                await check_refused(case, value)


def test_a_policy_has_no_other_keywords() -> None:
    for unknown in ("settle", "keys", "retries"):
        with pytest.raises(TypeError, match=unknown):
            EffectPolicy(safety="pure", **{unknown: 1})  # type: ignore[arg-type]


async def test_ledgers_refuse_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INDOUBT_URL", "memory:")  # is never used in place of a wrong one
    for case in ledgers():
        for value in case.values:
            with pytest.raises((TypeError, ValueError)):
                await case.ask(value)


def test_what_cannot_hold_together_is_refused_when_declared(world: World) -> None:
    provider, probe = Provider(), world.bank.probe
    wrong: list[dict[str, Any]] = [
        {"safety": "status_query_required"},
        {"safety": None, "provider": None},
        {"provider": provider, "probe": probe},
        {"resend_on_proven_absence": True, "safety": "idempotent"},
        {"ignore": ("nothing",)},
        {"redact": ("effect",)},
        {"ignore": ("order",), "redact": ("order",)},
    ]
    for given in wrong:
        with pytest.raises((TypeError, ValueError)):
            world.payer(world.process(), **given)


async def test_inside_an_effect_bad_input_is_told_and_names_its_field(world: World) -> None:
    ledger = world.process()
    told: list[str] = []

    @ledger.effect(safety="non_idempotent", name="act", key=first)
    async def act(_order: str, *, effect: EffectContext) -> None:
        for value in NO_TEXT:
            with pytest.raises(TypeError, match="code"):
                effect.reject(value)
            with pytest.raises(TypeError, match="message"):
                effect.reject("declined", value)
            with pytest.raises(TypeError, match="external_ref"):
                await effect.checkpoint(external_ref=value)
        with pytest.raises(TypeError, match="external_ref"):
            await effect.checkpoint(external_ref="x" * 257)
        told.append("all")

    outcome = await act.outcome("order-7")
    assert told == ["all"]
    record = await ledger.get(outcome.record_id)
    assert (record.state, record.attempts[0]["stage"]) == ("succeeded", "sent")


async def test_too_early_and_unknown_ids_change_nothing(world: World) -> None:
    ledger = world.process()
    world.bank.next = ["crash_before"]
    with pytest.raises(BaseException):  # noqa: B017, PT011 - the process dies
        await world.payer(ledger)("order-7")
    world.kill(ledger)
    other = world.process()
    (item,) = (await other.in_doubt()).items
    before = await world.records()
    with pytest.raises(TooEarly):
        await other.decide(item, AllowOneAttempt(), **BY)
    with pytest.raises(RecordNotFound):
        await other.decide("rec_nobody.1", GiveUp(), **BY)
    assert await world.records() == before
