"""Who can report restart-time facts: the structural protocol and a base with safe answers."""

from abc import ABC, abstractmethod
from typing import Protocol, runtime_checkable

from .result import ProviderProbeResult
from .safety import ExecutionSafetyClass


@runtime_checkable
class RecoveryCapableProvider(Protocol):
    """Runtime-checkable structural protocol for a Provider that can report restart-time facts.

    `isinstance` sees whether the six members are there and nothing else, and on Python 3.11 it
    evaluates the properties (V-48 to V-50): keep them free of I/O, and register through
    `check_provider`. `issubclass` raises TypeError (V-51). Attributes read where present:
    `not_found_is_authoritative`, `settle_time`, `key_retention`; see `ProviderFacts`.
    """

    async def probe_execution(
        self, execution_id: str, external_ref: str | None
    ) -> ProviderProbeResult:
        """Report an observation of one execution.

        "It does not define an SDK retry, reattachment, or replay mechanism"; "a probe should report
        facts and avoid starting, replaying, or mutating the underlying operation" (V-55).
        The result must carry the execution_id that was asked for (V-54).
        """
        ...

    @property
    def supports_status_query(self) -> bool:
        """Whether `probe_execution` may be called at all (V-56)."""
        ...

    @property
    def supports_reattach(self) -> bool:
        """Whether some of the provider's operations can be reattached."""
        ...

    @property
    def supports_resume(self) -> bool:
        """Whether some can be resumed; recorded and shown, never acted on."""
        ...

    @property
    def supports_cancel_after_restart(self) -> bool:
        """Whether some can be cancelled after a restart."""
        ...

    @property
    def execution_safety_class(self) -> ExecutionSafetyClass:
        """What the provider promises about repeating its actions."""
        ...


class BaseCapabilityProvider(ABC):
    """A provider that promises nothing yet: override what yours can do (V-61).

    All four flags are False and the class is HUMAN_CONFIRMATION_REQUIRED, so that what is left out
    costs a question and never a second effect. There is no `__init__` to call.
    """

    @abstractmethod
    async def probe_execution(
        self, execution_id: str, external_ref: str | None
    ) -> ProviderProbeResult:
        """Report what the backend says of this execution; map every state it has.

        A state that the provider cannot place is UNKNOWN, a backend that does not answer is
        UNAVAILABLE; only a lookup that found nothing is NOT_FOUND.
        """

    @property
    def supports_status_query(self) -> bool:
        """False: `probe_execution` is not called."""
        return False

    @property
    def supports_reattach(self) -> bool:
        """False: an active operation is waited for by further probes."""
        return False

    @property
    def supports_resume(self) -> bool:
        """False."""
        return False

    @property
    def supports_cancel_after_restart(self) -> bool:
        """False: an operation cannot be cancelled once its worker is gone."""
        return False

    @property
    def execution_safety_class(self) -> ExecutionSafetyClass:
        """The strictest class: a person decides."""
        return ExecutionSafetyClass.HUMAN_CONFIRMATION_REQUIRED
