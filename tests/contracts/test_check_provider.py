"""V-49, V-50, V-59: what registration refuses that `isinstance` lets pass."""

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from indoubt.contracts import (
    BaseCapabilityProvider,
    ExecutionSafetyClass,
    ProviderProbeResult,
    ProviderProbeStatus,
    check_provider,
)

FLAGS = (
    "supports_status_query",
    "supports_reattach",
    "supports_resume",
    "supports_cancel_after_restart",
)


async def _probe(execution_id: str, external_ref: str | None) -> ProviderProbeResult:
    return ProviderProbeResult(ProviderProbeStatus.UNKNOWN, execution_id, external_ref)


class Plain:
    """A provider made of plain attributes, so that a test can put anything in."""

    def __init__(self, **members: Any) -> None:
        self.probe_execution = _probe
        self.supports_status_query = True
        self.supports_reattach = False
        self.supports_resume = False
        self.supports_cancel_after_restart = False
        self.execution_safety_class = ExecutionSafetyClass.RETRY_SAFE
        vars(self).update(members)


def kind(value: object) -> str:
    """The name of a value's type, as a test id."""
    return type(value).__name__


def refusal(error: type[Exception], provider: object) -> str:
    """The words with which registration refuses a provider, by this kind of error."""
    with pytest.raises(error) as caught:
        check_provider(provider)
    return str(caught.value)


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("value", [True, False], ids=str)
def test_v49_facts_are_what_was_declared(flag: str, *, value: bool) -> None:
    """V-49 own `check_provider()` at registration: it returns what it read."""
    facts = check_provider(Plain(**{flag: value}))
    declared = dict.fromkeys(FLAGS, False) | {"supports_status_query": True} | {flag: value}
    assert {name: getattr(facts, name) for name in FLAGS} == declared
    assert facts.safety is ExecutionSafetyClass.RETRY_SAFE


@pytest.mark.parametrize("safety", list(ExecutionSafetyClass))
def test_v49_every_class_can_be_declared(safety: ExecutionSafetyClass) -> None:
    """V-49 ... enum-valued class."""
    assert check_provider(Plain(execution_safety_class=safety)).safety is safety


def test_v49_a_class_is_no_provider() -> None:
    """V-49 ... instance not class ([M] the class object itself passes isinstance)."""
    assert "pass an instance of the provider, not the class Plain" in refusal(TypeError, Plain)


@pytest.mark.parametrize("name", ["probe_execution", *FLAGS, "execution_safety_class"])
def test_v49_a_missing_member(name: str) -> None:
    """V-49: every member is asked for by name."""
    provider = Plain()
    delattr(provider, name)
    assert f"Plain has no {name}" in refusal(TypeError, provider)


def _blocking(execution_id: str, external_ref: str | None) -> None:
    del execution_id, external_ref


async def _generator(execution_id: str, external_ref: str | None) -> Any:
    yield execution_id, external_ref


async def _none() -> None:
    pass


async def _one(execution_id: str) -> None:
    del execution_id


async def _three(execution_id: str, external_ref: str | None, more: str) -> None:
    del execution_id, external_ref, more


async def _keywords(*, execution_id: str, external_ref: str | None) -> None:
    del execution_id, external_ref


async def _optional(execution_id: str, external_ref: str | None, more: str = "") -> None:
    del execution_id, external_ref, more


async def _any(*arguments: object) -> None:
    del arguments


class _Callable:
    async def __call__(self, execution_id: str, external_ref: str | None) -> None:
        pass


@pytest.mark.parametrize("probe", [None, 1, "probe"])
def test_v49_the_probe_is_a_method(probe: object) -> None:
    """V-49 ... coroutine function."""
    assert "probe_execution must be a method" in refusal(TypeError, Plain(probe_execution=probe))


@pytest.mark.parametrize("probe", [_blocking, _generator, MagicMock(), print, _Callable])
def test_v49_the_probe_is_async(probe: Callable[..., object]) -> None:
    """V-49 ... coroutine function ([M] a sync `probe_execution` passes isinstance)."""
    assert "probe_execution must be an async def" in refusal(
        TypeError, Plain(probe_execution=probe)
    )


@pytest.mark.parametrize("probe", [_none, _one, _three, _keywords])
def test_v49_the_probe_takes_two_parameters(probe: Callable[..., object]) -> None:
    """V-49 ... two parameters ([M] a wrong-arity `probe_execution` passes isinstance)."""
    words = "probe_execution must take (execution_id, external_ref)"
    assert words in refusal(TypeError, Plain(probe_execution=probe))


@pytest.mark.parametrize(
    "probe",
    [_probe, _optional, _any, _Callable(), functools.partial(_three, more="x"), AsyncMock()],
    ids=["two", "default", "any", "callable", "partial", "AsyncMock"],
)
def test_v49_any_coroutine_function_of_two_will_do(probe: Callable[..., object]) -> None:
    """V-49 ... coroutine function, two parameters."""
    assert check_provider(Plain(probe_execution=probe)).supports_status_query


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("wrong", [1, None, "true", MagicMock()], ids=kind)
def test_v49_flags_are_bool(flag: str, wrong: object) -> None:
    """V-49 ... bool properties."""
    words = f"Plain.{flag} must be a bool, not {type(wrong).__name__}"
    assert words in refusal(TypeError, Plain(**{flag: wrong}))


def test_v49_a_method_in_place_of_a_property() -> None:
    """V-49 ... bool properties: a bound method is truthy, and the likeliest mistake."""

    class Method(Plain):
        def answer(self) -> bool:
            return True

    provider = Method()
    vars(provider)["supports_resume"] = provider.answer
    assert "not method; make it a property" in refusal(TypeError, provider)


@pytest.mark.parametrize("wrong", ["retry_safe", None, 1, ProviderProbeStatus.ACTIVE, MagicMock()])
def test_v49_the_class_is_an_enum_member(wrong: object) -> None:
    """V-49 ... enum-valued class."""
    words = f"must be an ExecutionSafetyClass, not {type(wrong).__name__}"
    assert words in refusal(TypeError, Plain(execution_safety_class=wrong))


@pytest.mark.parametrize("error", [RuntimeError, KeyError, AttributeError])
def test_v50_a_property_that_raises(error: type[Exception]) -> None:
    """V-50 [M] on 3.11 RuntimeError escapes, AttributeError → False; keep properties free of IO."""

    class Raising(BaseCapabilityProvider):
        probe_execution = AsyncMock()

        @property
        def supports_resume(self) -> bool:
            raise error("backend down")

    words = "has no supports_resume" if error is AttributeError else f"raised {error.__name__}"
    assert words in refusal(TypeError, Raising())


def test_v50_a_mock_is_no_provider() -> None:
    """V-50 [M] MagicMock passes isinstance on 3.11, and its optional attributes are truthy."""
    assert "probe_execution must be an async def" in refusal(TypeError, MagicMock())
    assert "must be a bool, not MagicMock" in refusal(TypeError, MagicMock(spec=Plain()))


def test_v50_a_mock_with_every_member_set_still_has_mocks_for_the_rest() -> None:
    """V-50 trap: optional provider attributes count only if exactly bool / timedelta."""
    mock = MagicMock()
    mock.configure_mock(**vars(Plain()))
    assert "not_found_is_authoritative must be a bool or left out" in refusal(TypeError, mock)


OPTIONAL: dict[str, Any] = {
    "not_found_is_authoritative": True,
    "settle_time": timedelta(seconds=30),
    "key_retention": timedelta(hours=24),
}
TIMES = ("settle_time", "key_retention")


def test_optional_attributes_are_read() -> None:
    """Design 5.2: optional attributes that we read if present."""
    facts = check_provider(Plain(**OPTIONAL))
    assert {name: getattr(facts, name) for name in OPTIONAL} == OPTIONAL


@pytest.mark.parametrize("members", [{}, dict.fromkeys(OPTIONAL)], ids=["left out", "None"])
def test_optional_attributes_may_be_undeclared(members: dict[str, None]) -> None:
    """Design 5.2: optional attributes that we read if present."""
    facts = check_provider(Plain(**members))
    assert [getattr(facts, name) for name in OPTIONAL] == [None, None, None]


def test_optional_attributes_may_say_no_and_zero() -> None:
    """Decisions 2.3: a provider whose window is unknown says `timedelta(0)`: that is a fact."""
    zero = timedelta(0)
    facts = check_provider(
        Plain(not_found_is_authoritative=False, settle_time=zero, key_retention=zero)
    )
    assert facts.not_found_is_authoritative is False
    assert facts.settle_time == facts.key_retention == zero


@pytest.mark.parametrize("name", OPTIONAL)
@pytest.mark.parametrize("wrong", [0, 30.0, "PT30S", MagicMock()], ids=kind)
def test_optional_attributes_of_another_type(name: str, wrong: object) -> None:
    """Decisions 2.3: anything else is a TypeError at registration."""
    wanted = kind(OPTIONAL[name])
    words = f"Plain.{name} must be a {wanted} or left out, not {kind(wrong)}"
    assert words in refusal(TypeError, Plain(**{name: wrong}))


def test_optional_attributes_are_not_taken_for_one_another() -> None:
    """Decisions 2.3: exactly bool / timedelta."""
    assert "settle_time must be a timedelta" in refusal(TypeError, Plain(settle_time=True))
    wrong = Plain(not_found_is_authoritative=timedelta(1))
    assert "not_found_is_authoritative must be a bool" in refusal(TypeError, wrong)


@pytest.mark.parametrize("name", TIMES)
def test_times_are_not_negative(name: str) -> None:
    """J5: negatives are refused."""
    wrong = Plain(**{name: timedelta(microseconds=-1)})
    assert f"Plain.{name} must not be negative" in refusal(ValueError, wrong)


def test_v59_status_query_required_without_status_query() -> None:
    """V-59 [R] status_query_required without `supports_status_query` → registration error."""
    wrong = Plain(
        execution_safety_class=ExecutionSafetyClass.STATUS_QUERY_REQUIRED,
        supports_status_query=False,
    )
    assert "is status_query_required, but its supports_status_query is False" in refusal(
        ValueError, wrong
    )


@pytest.mark.parametrize("safety", list(ExecutionSafetyClass))
@pytest.mark.parametrize("query", [True, False], ids=str)
def test_v59_only_that_pair_is_refused(safety: ExecutionSafetyClass, *, query: bool) -> None:
    """V-59 [R] status_query_required without `supports_status_query` → registration error."""
    provider = Plain(execution_safety_class=safety, supports_status_query=query)
    if safety is ExecutionSafetyClass.STATUS_QUERY_REQUIRED and not query:
        assert "supports_status_query" in refusal(ValueError, provider)
    else:
        assert check_provider(provider).supports_status_query is query


def test_each_attribute_is_read_once() -> None:
    """V-50: properties may be evaluated; what was read is a value and is not asked for again."""
    reads: list[str] = []

    class Counting(Plain):
        def __getattribute__(self, name: str) -> Any:
            if not name.startswith("__"):
                reads.append(name)
            return super().__getattribute__(name)

    provider = Counting(**OPTIONAL)
    reads.clear()
    facts = check_provider(provider)
    assert sorted(reads) == sorted([*vars(Plain()), *OPTIONAL])
    provider.supports_reattach = True
    assert facts.supports_reattach is False


def test_facts_are_a_value() -> None:
    """Design 5.2: what a provider declared, frozen."""
    facts = check_provider(Plain())
    assert facts == check_provider(Plain())
    with pytest.raises(AttributeError):
        facts.supports_reattach = True  # pyright: ignore[reportAttributeAccessIssue]
