"""V-52, V-54 and what lives here of V-55 to V-60: judging a probe's answer, and nothing more.

What recovery does with an answer (never probing, time-outs, both flags, resending) is tested with
the recovering modules; here stands what they can rely on.
"""

import inspect
from typing import Any
from unittest.mock import MagicMock

import pytest

from indoubt import contracts
from indoubt.contracts import (
    BaseCapabilityProvider,
    ProviderProbeResult,
    ProviderProbeStatus,
    RecoveryCapableProvider,
    Violation,
    check_provider,
    checked_answer,
    violation_of,
)

NO_RESULT: dict[str, object] = {
    "None": None,
    "dict": ProviderProbeResult(ProviderProbeStatus.SUCCEEDED, "exec-1").to_dict(),
    "status": ProviderProbeStatus.SUCCEEDED,
    "bool": True,
    "class": ProviderProbeResult,
    "mock": MagicMock(spec=ProviderProbeResult, execution_id="exec-1"),
}


@pytest.mark.parametrize("status", list(ProviderProbeStatus))
def test_v52_a_proper_answer_passes_as_it_is(status: ProviderProbeStatus) -> None:
    """V-52: None/other type is a contract violation; a result for this execution is not."""
    answer = ProviderProbeResult(status, "exec-1", raw={"state": "x"})
    assert violation_of(answer, "exec-1") is None
    assert checked_answer(answer, "exec-1") is answer


def test_v52_a_subclass_of_the_result_passes() -> None:
    """V-52: None/other type is a contract violation; a subclass is a result."""

    class Labelled(ProviderProbeResult):
        pass

    answer = Labelled(ProviderProbeStatus.ACTIVE, "exec-1")
    assert checked_answer(answer, "exec-1") is answer


@pytest.mark.parametrize("name", NO_RESULT)
def test_v52_another_type_is_a_violation(name: str) -> None:
    """V-52 ... treat None/other type as a contract violation, status unavailable."""
    assert violation_of(NO_RESULT[name], "exec-1") is Violation.NOT_A_RESULT
    assert checked_answer(NO_RESULT[name], "exec-1") == ProviderProbeResult(
        ProviderProbeStatus.UNAVAILABLE, "exec-1", raw={"contract_violation": "not_a_result"}
    )


@pytest.mark.parametrize("asked", ["exec-2", "exec-1 ", "EXEC-1", "exec-11"])
def test_v54_an_answer_for_another_execution_is_a_violation(asked: str) -> None:
    """V-54 [I] returned execution_id must equal the asked one.

    (else unavailable + contract error).
    """
    answer = ProviderProbeResult(ProviderProbeStatus.SUCCEEDED, "exec-1", result={"id": 1})
    assert violation_of(answer, asked) is Violation.WRONG_EXECUTION
    assert checked_answer(answer, asked) == ProviderProbeResult(
        ProviderProbeStatus.UNAVAILABLE, asked, raw={"contract_violation": "wrong_execution"}
    )


def test_v54_nothing_of_the_foreign_answer_is_taken_over() -> None:
    """V-54: support flags and facts of another execution say nothing about this one."""
    answer = ProviderProbeResult(
        ProviderProbeStatus.ACTIVE,
        "exec-1",
        "ref-1",
        supports_reattach=True,
        supports_cancel_after_restart=True,
    )
    told = checked_answer(answer, "exec-2").to_dict()
    assert told["external_ref"] is None
    assert told["supports_reattach"] is told["supports_cancel_after_restart"] is False


def test_v54_asking_for_nothing_is_the_callers_mistake() -> None:
    """V-11 holds for the asked id too."""
    with pytest.raises(ValueError, match="execution_id must not be blank"):
        checked_answer(None, " ")


def test_v55_contracts_define_no_way_to_repeat_anything() -> None:
    """V-55 [S] a probe reports and must not start, replay or mutate; it defines no retry."""
    members = {name for name in vars(RecoveryCapableProvider) if not name.startswith("_")}
    methods = [n for n in members if inspect.isfunction(getattr(RecoveryCapableProvider, n))]
    assert methods == ["probe_execution"]
    words = ("retry", "replay", "reattach_", "resume_", "cancel_execution", "redispatch")
    assert [n for n in contracts.__all__ if any(word in n.lower() for word in words)] == []


class Quiet(BaseCapabilityProvider):
    """Cannot be queried; being asked all the same is an error."""

    async def probe_execution(
        self, execution_id: str, external_ref: str | None
    ) -> ProviderProbeResult:
        raise AssertionError(f"probed: {execution_id} {external_ref}")


def test_v56_registration_does_not_probe() -> None:
    """V-56 [I] `supports_status_query` False → never probe: the fact says so, unasked."""
    assert check_provider(Quiet()).supports_status_query is False


@pytest.mark.parametrize("broken", NO_RESULT)
def test_v57_a_broken_answer_is_never_not_found(broken: str) -> None:
    """V-57 [R] probe exception/timeout → unavailable, never not_found."""
    assert checked_answer(NO_RESULT[broken], "exec-1").status is ProviderProbeStatus.UNAVAILABLE


@pytest.mark.parametrize("flag", ["supports_reattach", "supports_cancel_after_restart"])
def test_v58_what_the_provider_can_and_what_the_operation_can_are_two_facts(flag: str) -> None:
    """V-58 [I] provider-level flags say what the provider can do, result-level flags what this can.

    Both are kept as declared, so that who acts can ask for both.
    """
    able: Any = type("Able", (Quiet,), {flag: True})()
    answer = ProviderProbeResult(ProviderProbeStatus.ACTIVE, "exec-1")
    assert getattr(check_provider(able), flag) is True
    assert getattr(checked_answer(answer, "exec-1"), flag) is False


def test_v60_absence_is_proven_by_nothing_unless_declared() -> None:
    """V-60 [I] not_found is an observation, not proof of no effect.

    Redispatch after not_found only if the provider declares lookups authoritative and a settle time
    has passed: without a declaration there is neither.
    """
    facts = check_provider(Quiet())
    assert facts.not_found_is_authoritative is None
    assert facts.settle_time is None
