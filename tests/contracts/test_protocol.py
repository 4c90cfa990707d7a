"""V-48 to V-53 and V-61: the structural protocol and the base class."""

import inspect
import sys
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from indoubt import contracts
from indoubt.contracts import (
    BaseCapabilityProvider,
    ExecutionSafetyClass,
    ProviderProbeResult,
    ProviderProbeStatus,
    RecoveryCapableProvider,
)

EXAMPLE = Path(__file__).with_name("seed_example.txt").read_text("utf-8")
# On 3.11 isinstance reads every member of the instance, later it only looks whether it is there.
EVALUATES = sys.version_info < (3, 12)


class Structural:
    """All six members, without inheriting; two of them plain attributes."""

    supports_resume = False

    def __init__(self) -> None:
        self.execution_safety_class = ExecutionSafetyClass.IDEMPOTENT

    @property
    def supports_status_query(self) -> bool:
        return True

    @property
    def supports_reattach(self) -> bool:
        return False

    @property
    def supports_cancel_after_restart(self) -> bool:
        return False

    async def probe_execution(
        self, execution_id: str, external_ref: str | None
    ) -> ProviderProbeResult:
        return ProviderProbeResult(ProviderProbeStatus.ACTIVE, execution_id, external_ref)


MEMBERS = (
    "probe_execution",
    "supports_status_query",
    "supports_reattach",
    "supports_resume",
    "supports_cancel_after_restart",
    "execution_safety_class",
)


def with_members(**members: object) -> object:
    """An object of a class of its own with these members and no others."""
    return type("Made", (), members)()


def all_but(name: str, **instead: object) -> object:
    """A provider that lacks one member, or has another thing in its place."""
    made = Structural()
    kept = {m: inspect.getattr_static(made, m) for m in MEMBERS if m != name}
    return with_members(**kept, **instead)


def is_provider(value: object) -> bool:
    """What isinstance says; through `object`, so that the type checker has no opinion."""
    return isinstance(value, RecoveryCapableProvider)


def test_v48_structural() -> None:
    """V-48 [S] runtime-checkable, structural.

    An instance with all six members passes without inheriting.
    """
    typed: RecoveryCapableProvider = Structural()
    assert is_provider(typed)


@pytest.mark.parametrize("name", MEMBERS)
def test_v48_missing_any_one_fails(name: str) -> None:
    """V-48 [S] ... missing any one fails."""
    assert not is_provider(all_but(name))
    assert is_provider(all_but(name, **{name: inspect.getattr_static(Structural(), name)}))


def _sync_probe(self: object, execution_id: str, external_ref: str | None) -> None:
    del self, execution_id, external_ref


async def _narrow_probe(self: object) -> None:
    del self


@pytest.mark.parametrize("probe", [_sync_probe, _narrow_probe])
def test_v49_isinstance_checks_presence_only(probe: object) -> None:
    """V-49 [M] isinstance checks presence only: sync or wrong-arity `probe_execution` passes."""
    assert is_provider(all_but("probe_execution", probe_execution=probe))


def test_v49_a_probe_of_none_fails() -> None:
    """V-49 [M] `probe_execution=None` fails; plain attributes pass."""
    assert not is_provider(all_but("probe_execution", probe_execution=None))


def test_v49_the_class_itself_passes() -> None:
    """V-49 [M] the class object itself passes."""
    whole = type("Whole", (Structural,), {"execution_safety_class": ExecutionSafetyClass.PURE})
    assert is_provider(whole)


def _raising(error: Exception) -> property:
    def read(self: object) -> bool:
        del self
        raise error

    return property(read)


def test_v50_isinstance_and_raising_properties() -> None:
    """V-50 [M] on 3.11 isinstance *evaluates* the properties.

    (RuntimeError escapes, AttributeError → False); on 3.12+ it is static (both raising cases True).
    """
    runtime = all_but("supports_resume", supports_resume=_raising(RuntimeError("io")))
    attribute = all_but("supports_resume", supports_resume=_raising(AttributeError("io")))
    if EVALUATES:
        with pytest.raises(RuntimeError, match="io"):
            is_provider(runtime)
    else:
        assert is_provider(runtime)
    assert is_provider(attribute) is not EVALUATES


def test_v50_isinstance_and_mocks() -> None:
    """V-50 [M] MagicMock passes on 3.11, and does not on 3.12+."""
    assert is_provider(MagicMock()) is EVALUATES


def test_v51_issubclass() -> None:
    """V-51 [M] `issubclass` → TypeError."""
    with pytest.raises(TypeError, match="non-method members"):
        issubclass(cast("type", Structural), RecoveryCapableProvider)  # pyright: ignore[reportGeneralTypeIssues]


async def test_v52_a_subclass_of_the_protocol_may_forget_the_probe() -> None:
    """V-52 [M] a subclass of the Protocol that forgets `probe_execution` still passes.

    and its probe returns None → treat None/other type as a contract violation, status unavailable.
    """

    class Forgetful(RecoveryCapableProvider):
        pass

    forgetful: Any = cast("Any", Forgetful)()
    assert is_provider(forgetful)
    answer: object = await forgetful.probe_execution("exec-1", None)
    assert answer is None
    assert contracts.checked_answer(answer, "exec-1").status is ProviderProbeStatus.UNAVAILABLE


@pytest.mark.parametrize("kind", [RecoveryCapableProvider, BaseCapabilityProvider])
def test_v53_what_a_probe_takes(kind: Any) -> None:
    """V-53 [S] probe takes (execution_id, external_ref | None)."""
    probe = kind.probe_execution
    assert list(inspect.signature(probe).parameters) == ["self", "execution_id", "external_ref"]
    assert probe.__annotations__["execution_id"] is str
    assert probe.__annotations__["external_ref"] == str | None
    assert probe.__annotations__["return"] is ProviderProbeResult
    assert inspect.iscoroutinefunction(probe)


class Minimal(BaseCapabilityProvider):
    """The least that the base class asks for."""

    async def probe_execution(
        self, execution_id: str, external_ref: str | None
    ) -> ProviderProbeResult:
        return ProviderProbeResult(ProviderProbeStatus.UNKNOWN, execution_id, external_ref)


def test_v61_base_class_defaults() -> None:
    """V-61 `BaseCapabilityProvider`: no `__init__`; the four `supports_*` False.

    class HUMAN_CONFIRMATION_REQUIRED; `probe_execution` abstract.
    """
    provider: RecoveryCapableProvider = Minimal()
    flags = [name for name in MEMBERS if name.startswith("supports_")]
    assert len(flags) == 4
    assert [getattr(provider, name) for name in flags] == [False] * 4
    safety = provider.execution_safety_class
    assert safety is ExecutionSafetyClass.HUMAN_CONFIRMATION_REQUIRED
    assert "__init__" not in vars(BaseCapabilityProvider)
    assert is_provider(provider)


def test_v61_the_probe_is_abstract() -> None:
    """V-61 ... `probe_execution` abstract."""
    with pytest.raises(TypeError, match="probe_execution"):
        BaseCapabilityProvider()  # pyright: ignore[reportAbstractUsage]


class Backend:
    """Answers the example's one question."""

    async def status(self, external_ref: str | None) -> str:
        return f"{external_ref} is running"


def example() -> Any:
    """An instance of the seed's example class, compiled from its very text."""
    names = vars(contracts).copy()
    exec(compile(EXAMPLE, "seed_example.txt", "exec"), names)  # noqa: S102 - our own file
    provider = names["RecoverableProvider"]()
    provider._backend = Backend()
    return provider


async def test_v61_the_doc_example() -> None:
    """V-61 [S] the doc example compiles against our base class.

    Note it always answers ACTIVE whatever the backend says: our docs must map every backend state.
    """
    answer = await example().probe_execution("exec-1", "ref-1")
    assert answer == ProviderProbeResult(
        status=ProviderProbeStatus.ACTIVE,
        execution_id="exec-1",
        external_ref="ref-1",
        supports_cancel_after_restart=True,
        raw={"backend_state": "ref-1 is running"},
    )


def test_v61_the_doc_example_is_a_provider() -> None:
    """V-61 [S] the doc example compiles against our base class."""
    provider = example()
    facts = contracts.check_provider(provider)
    assert is_provider(provider)
    assert facts == contracts.ProviderFacts(
        supports_status_query=True,
        supports_reattach=False,
        supports_resume=False,
        supports_cancel_after_restart=True,
        safety=ExecutionSafetyClass.STATUS_QUERY_REQUIRED,
    )
