"""Asking a provider what became of an attempt: read-only, bounded in time, kept as evidence.

A provider is asked about each open attempt, newest first, and each answer speaks about that one. A
probe function is asked once and speaks for all: it looks the act up, not the request. Whatever goes
wrong while asking is *unavailable*, never *not found* (V-57).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Raw

from indoubt.contracts import (
    ProviderProbeResult,
    ProviderProbeStatus,
    Violation,
    checked_answer,
    violation_of,
)
from indoubt.core.bounds import EVIDENCE_BYTES
from indoubt.core.commands import Note
from indoubt.core.record import Attempt, Closed, Evidence, Record, execution_id
from indoubt.core.verdicts import Probe, combine
from indoubt.engine.requests import Invoke, Raised, Request, Returned
from indoubt.json_values import canonical

from .items import plain, when

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from datetime import datetime

    from .known import Known

PROBE_TIMEOUT_S = 30.0
"""A probe that hangs must not hold a record for ever; its renewal goes on meanwhile."""
ENDED = frozenset({Probe.FAILED, Probe.CANCELLED})


class DoubtfulAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe function is asked about, and the makers of its answer.

    Attributes:
        execution_id: names this attempt (record id and number).
        external_ref: the provider's own reference, where one was checkpointed.
        key: the business key its author gave; None for an act named by its place.
        idempotency_key: what the provider was sent, one for all attempts of a series.
        arguments: as recorded (redacted ones are marked).
        attempt: its number, from 1.
        dispatched_at: store time of the dispatch.
        token: the last checkpoint's note.
    """

    execution_id: str
    external_ref: str | None
    key: str | None
    idempotency_key: str
    arguments: Mapping[str, Any]
    attempt: int
    dispatched_at: datetime | None
    token: Any = None

    def succeeded(
        self, result: Mapping[str, Any] | None = None, external_ref: str | None = None
    ) -> ProviderProbeResult:
        """It happened; ``result`` is its receipt."""
        return ProviderProbeResult(
            ProviderProbeStatus.SUCCEEDED,
            self.execution_id,
            external_ref=external_ref or self.external_ref,
            result=result,
        )

    def failed(self, error: Mapping[str, Any] | None = None) -> ProviderProbeResult:
        """The provider tried and did not complete it (it may have left traces)."""
        return ProviderProbeResult(ProviderProbeStatus.FAILED, self.execution_id, error=error)

    def active(self) -> ProviderProbeResult:
        """The provider is still at it."""
        return self._plain(ProviderProbeStatus.ACTIVE)

    def cancelled(self) -> ProviderProbeResult:
        """It was cancelled at the provider."""
        return self._plain(ProviderProbeStatus.CANCELLED)

    def not_found(self) -> ProviderProbeResult:
        """The provider has no such thing at this moment."""
        return self._plain(ProviderProbeStatus.NOT_FOUND)

    def unknown(self) -> ProviderProbeResult:
        """The provider answered, and cannot tell."""
        return self._plain(ProviderProbeStatus.UNKNOWN)

    def unavailable(self) -> ProviderProbeResult:
        """The provider could not be asked."""
        return self._plain(ProviderProbeStatus.UNAVAILABLE)

    def _plain(self, status: ProviderProbeStatus) -> ProviderProbeResult:
        return ProviderProbeResult(status, self.execution_id, external_ref=self.external_ref)


class Answer(NamedTuple):
    """One checked answer about one attempt."""

    attempt: int
    status: Probe
    result: ProviderProbeResult


class Asked(NamedTuple):
    """What all probes of one round came to."""

    status: Probe
    answers: tuple[Answer, ...]
    speaks_for_all: bool

    @property
    def decisive(self) -> Answer:
        """The answer that gave the status."""
        return next(answer for answer in self.answers if answer.status is self.status)

    @property
    def failed(self) -> bool:
        """Whether one of the attempts ended at the provider, with a possible effect."""
        return any(answer.status in ENDED for answer in self.answers)

    def notes(self, now_ms: int, *, counts: bool = True) -> tuple[Note, ...]:
        """Each answer as evidence; one that ends its attempt closes it."""
        return tuple(
            Note(
                evidence=_evidence(answer, now_ms),
                counts=counts,
                about=answer.attempt,
                active=answer.status is Probe.ACTIVE,
                closes=None if self.speaks_for_all or answer.status not in ENDED else Closed.FAILED,
            )
            for answer in self.answers
        )


def can_ask(known: Known | None) -> bool:
    """Whether the code loaded here can probe."""
    return known is not None and known.policy.can_probe


def ask(known: Known, record: Record) -> Generator[Request, Any, Asked]:
    """Probe every open attempt of a record."""
    if known.provider is None:
        answer = yield from _ask_function(known, record)
        return Asked(answer.status, (answer,), speaks_for_all=True)
    answers: list[Answer] = []
    for attempt in reversed(record.open_attempts or _possible(record)):
        answers.append((yield from _ask_provider(known, record, attempt)))
        if answers[-1].status is Probe.SUCCEEDED:
            break
    status = combine(tuple(answer.status for answer in answers))
    return Asked(status, tuple(answers), speaks_for_all=False)


def _possible(record: Record) -> tuple[Attempt, ...]:
    """What a store that forgot writes may have forgotten: the next attempt's dispatch."""
    return (Attempt(number=record.attempt + 1, fence=record.fence, owner=""),)


def _ask_provider(
    known: Known, record: Record, attempt: Attempt
) -> Generator[Request, Any, Answer]:
    provider, about = known.provider, execution_id(record.id, attempt.number)
    assert provider is not None  # noqa: S101 - for the type checker
    answered = yield Invoke(
        lambda: provider.probe_execution(about, attempt.external_ref), PROBE_TIMEOUT_S
    )
    return _judge(answered, attempt.number, about)


def _ask_function(known: Known, record: Record) -> Generator[Request, Any, Answer]:
    doubtful, probe = doubtful_attempt(known, record), known.probe
    assert probe is not None  # noqa: S101 - for the type checker
    answered = yield Invoke(lambda: probe(doubtful), PROBE_TIMEOUT_S, thread=_plain(probe))
    return _judge(answered, doubtful.attempt, doubtful.execution_id)


def _plain(probe: object) -> bool:
    """A plain function may block, so it must not run on the caller's event loop."""
    import inspect  # noqa: PLC0415 - heavy, and needed only when something is in doubt

    return not inspect.iscoroutinefunction(probe)


def doubtful_attempt(known: Known, record: Record) -> DoubtfulAttempt:
    """Describe the newest open attempt to a probe function."""
    attempts = record.open_attempts or record.attempts
    newest = attempts[-1] if attempts else None
    number = newest.number if newest else record.attempt
    return DoubtfulAttempt(
        execution_id=execution_id(record.id, number),
        external_ref=newest.external_ref if newest else None,
        key=record.key,
        idempotency_key=known.idempotency_key(record),
        arguments=plain(record.payload) or {},
        attempt=number,
        dispatched_at=when(newest.dispatched_at_ms) if newest else None,
        token=plain(newest.token) if newest else None,
    )


def _judge(answered: Returned | Raised, attempt: int, about: str) -> Answer:
    if isinstance(answered, Raised):
        return Answer(attempt, Probe.UNAVAILABLE, _unavailable(about, answered.error))
    foreign = violation_of(answered.value, about) is Violation.WRONG_EXECUTION
    result = checked_answer(answered.value, about)
    return Answer(attempt, Probe.FOREIGN if foreign else Probe(result.status.value), result)


def _unavailable(about: str, error: Exception) -> ProviderProbeResult:
    # The type only: an error's text may hold what must not be stored.
    raw = {"raised": type(error).__name__}
    return ProviderProbeResult(ProviderProbeStatus.UNAVAILABLE, about, raw=raw)


def _evidence(answer: Answer, now_ms: int) -> Evidence:
    text = canonical(answer.result.to_dict())
    if len(text) > EVIDENCE_BYTES:
        text = canonical({"too_large": len(text), "external_ref": answer.result.external_ref})
    return Evidence(
        source="probe",
        at_ms=now_ms,
        attempt=answer.attempt,
        status=answer.status.value,
        data=Raw(text),
    )
