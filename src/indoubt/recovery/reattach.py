"""Waiting for an execution that still runs, through the provider's own means (decisions G4).

Used only if provider flag *and* result flag allow it (V-58). It starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from indoubt.contracts import ProviderProbeResult, ProviderProbeStatus
from indoubt.core.verdicts import Probe
from indoubt.engine.requests import Invoke, Request, Returned

from .probing import Answer, Asked

if TYPE_CHECKING:
    from collections.abc import Generator

    from .known import Known


def reattachable(known: Known, asked: Asked) -> bool:
    """Whether the active execution can be waited for."""
    return (
        asked.status is Probe.ACTIVE
        and known.facts is not None
        and known.facts.supports_reattach
        and asked.decisive.result.supports_reattach
        and callable(getattr(known.provider, "reattach_execution", None))
    )


def reattach(known: Known, asked: Asked, *, seconds: float) -> Generator[Request, Any, Asked]:
    """Wait for it, so long at most; whatever goes wrong leaves it active, to be probed again."""
    active = asked.decisive.result
    wait: Any = getattr(known.provider, "reattach_execution", None)
    answered = yield Invoke(
        lambda: wait(active.execution_id, active.external_ref), max(seconds, 0.0)
    )
    result: Any = answered.value if isinstance(answered, Returned) else None
    if not isinstance(result, Mapping):
        return asked
    try:
        found = ProviderProbeResult(
            ProviderProbeStatus.SUCCEEDED,
            active.execution_id,
            external_ref=active.external_ref,
            result=cast("Mapping[str, Any]", result),
        )
    except (TypeError, ValueError):
        return asked
    done = Answer(asked.decisive.attempt, Probe.SUCCEEDED, found)
    return Asked(Probe.SUCCEEDED, (done,), asked.speaks_for_all)
