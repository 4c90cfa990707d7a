"""An execution that still runs: waiting for it, or cancelling it, by the provider's own means (G4).

Used only if provider flag *and* result flag allow it (V-58). Nothing here starts anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from indoubt.contracts import ProviderProbeResult, ProviderProbeStatus, checked_answer
from indoubt.core.verdicts import Probe, combine
from indoubt.engine.requests import Invoke, Request, Returned

from .probing import ENDED, PROBE_TIMEOUT_S, Answer, Asked

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


def cancel_execution(known: Known, asked: Asked) -> Generator[Request, Any, Asked]:
    """Cancel it at the provider; its answer counts where it says how the execution ended."""
    cancel: Any = getattr(known.provider, "cancel_execution", None)
    if not (
        asked.status is Probe.ACTIVE
        and known.facts is not None
        and known.facts.supports_cancel_after_restart
        and asked.decisive.result.supports_cancel_after_restart
        and callable(cancel)
    ):
        return asked
    active = asked.decisive.result
    answered = yield Invoke(
        lambda: cancel(active.execution_id, active.external_ref), PROBE_TIMEOUT_S
    )
    if not isinstance(answered, Returned):
        return asked
    answer = checked_answer(answered.value, active.execution_id)
    status = Probe(answer.status.value)
    if status not in {Probe.SUCCEEDED, *ENDED}:
        return asked
    ended = Answer(asked.decisive.attempt, status, answer)
    answers = tuple(ended if one is asked.decisive else one for one in asked.answers)
    return Asked(combine(tuple(one.status for one in answers)), answers, asked.speaks_for_all)


def reattach(known: Known, asked: Asked, seconds: float) -> Generator[Request, Any, Asked]:
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
