"""Every error this library raises, as one tree; each class says what the caller may do now.

IndoubtError
├── OutcomeUnknown            it may have happened: do not repeat by hand; see ``.next``
├── EffectFailed              a recorded failure is raised again
├── EffectBusy                another holder is at it: call again later
├── KeyConflict               the key belongs to another act: choose another key
├── ScopeRequired             give a key or a scope: nothing was written
├── ReceiptNotStored          it happened, its result could not be stored: never repeat
├── LeaseLost                 somebody took over: your result is kept as evidence
├── StaleDecision             the question you answered is no longer the question
├── AlreadyDecided            somebody else decided first: see ``.decision``
├── TooEarly                  ask again at ``.until``
├── RecordNotFound            (LookupError) no such record for this tenant
├── OutcomePruned             the record is gone, its outcome is not: never repeat
├── DelayedEffectConflict     (RuntimeError) the operation id has another delayed effect
├── ForkedHandle              made before a fork: make a new one in the child
└── StoreError
    ├── StoreUnavailable      call again: nothing is lost
    │   ├── AnswerLost        the write may have landed: the ledger repeats it by its write id
    │   └── Contended         others were faster each time: call again
    ├── StoreBroken           call an operator: full, unreadable, read-only, corrupt
    ├── StoreNotDurable       this store may forget: see ``allow_ledger_loss``
    ├── StoreRewound          the store forgot what this process knows: stop and call an operator
    ├── CrossRootBatch        (a bug in a domain) one batch, one root
    └── SchemaMissing, SchemaTooOld, SchemaTooNew    run ``indoubt db upgrade``, or a newer indoubt

Messages carry ids, never payloads or secrets. Wrong arguments are plain TypeError or ValueError.
All of them pickle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta


class IndoubtError(Exception):
    """Root of the tree."""


class OutcomeUnknown(IndoubtError):
    """The effect may have happened, and nobody here can say.

    Attributes:
        ref: the question, as ``Ledger.decide`` takes it (record id and attempt number).
        record_id: the record.
        evidence: what probes, late results and people reported so far, newest last.
        next: ``probe_again`` (call again after ``retry_after``), ``call_again`` (a repeat of the
            call may dispatch), ``ask_person`` (see the inbox) or ``closed`` (a person gave up).
        retry_after: how long to wait before asking again; None where waiting is no use.
        choices: the decisions a person may take.
    """

    def __init__(
        self,
        message: str,
        *,
        ref: str = "",
        record_id: str = "",
        evidence: Sequence[Any] = (),
        next: str = "ask_person",  # noqa: A002
        retry_after: timedelta | None = None,
        choices: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.ref = ref
        self.record_id = record_id
        self.evidence = tuple(evidence)
        self.next = next
        self.retry_after = retry_after
        self.choices = tuple(choices)


class EffectFailed(IndoubtError):
    """A recorded failure, raised again; ``effect`` says whether something may have happened."""

    def __init__(
        self,
        message: str,
        *,
        record_id: str = "",
        code: str = "",
        effect: str = "none",
        error: Any = None,
    ) -> None:
        super().__init__(message)
        self.record_id = record_id
        self.code = code
        self.effect = effect
        self.error = error


class EffectBusy(IndoubtError):
    """Another holder's lease is still running; nothing was dispatched by this call."""

    def __init__(
        self, message: str, *, record_id: str = "", retry_after: timedelta | None = None
    ) -> None:
        super().__init__(message)
        self.record_id = record_id
        self.retry_after = retry_after


class KeyConflict(IndoubtError):
    """The key was used with other content; nothing was dispatched or changed by this call."""

    def __init__(
        self, message: str, *, record_id: str = "", recorded: str = "", given: str = ""
    ) -> None:
        super().__init__(message)
        self.record_id = record_id
        self.recorded = recorded
        self.given = given


class ScopeRequired(IndoubtError):
    """A call without a key needs a scope; nothing was written."""


class ReceiptNotStored(IndoubtError):
    """The effect happened; its result could not be stored. It is recorded so and never retried."""

    def __init__(self, message: str, *, record_id: str = "") -> None:
        super().__init__(message)
        self.record_id = record_id


class LeaseLost(IndoubtError):
    """Somebody took this record over; what this caller learned is kept as evidence beside it."""

    def __init__(self, message: str, *, record_id: str = "", fence: int = 0) -> None:
        super().__init__(message)
        self.record_id = record_id
        self.fence = fence


class StaleDecision(IndoubtError):
    """The decision answers a question that is no longer asked; nothing was changed."""

    def __init__(
        self, message: str, *, record_id: str = "", current_ref: str | None = None
    ) -> None:
        super().__init__(message)
        self.record_id = record_id
        self.current_ref = current_ref


class AlreadyDecided(IndoubtError):
    """Somebody decided first; ``decision`` is what was decided."""

    def __init__(self, message: str, *, record_id: str = "", decision: Any = None) -> None:
        super().__init__(message)
        self.record_id = record_id
        self.decision = decision


class TooEarly(IndoubtError):
    """A sent request may still land: decide after ``until`` (store time), or once it is known.

    ``until`` is None where no clock ends the wait: the provider acknowledged the attempt, or
    last said that it is active.
    """

    def __init__(self, message: str, *, record_id: str = "", until: datetime | None = None) -> None:
        super().__init__(message)
        self.record_id = record_id
        self.until = until


class RecordNotFound(IndoubtError, LookupError):
    """No such record for this tenant (a foreign tenant's id answers exactly like a missing one)."""

    def __init__(self, message: str, *, record_id: str = "") -> None:
        super().__init__(message)
        self.record_id = record_id


class DelayedEffectConflict(IndoubtError, RuntimeError):
    """An operation id was reused for a different delayed effect; nothing was changed.

    ``intent`` is the one that is registered, with the action CONFLICT.
    """

    def __init__(self, message: str, *, intent: Any = None) -> None:
        super().__init__(message)
        self.intent = intent


class OutcomePruned(IndoubtError):
    """The record was pruned; ``outcome`` is what its tombstone kept. The effect is not repeated."""

    def __init__(self, message: str, *, record_id: str = "", outcome: str = "") -> None:
        super().__init__(message)
        self.record_id = record_id
        self.outcome = outcome


class ForkedHandle(IndoubtError):
    """An open context or handle was used in a forked child; the parent still owns it."""


class StoreError(IndoubtError):
    """The ledger's own storage did not do as asked."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or is busy; nothing is lost, call again."""


class AnswerLost(StoreUnavailable):
    """A write was sent and its answer never came; it may have landed. A repeat by id settles it."""


class Contended(StoreUnavailable):
    """Others changed the record each time before this write; nothing was written, call again."""


class StoreBroken(StoreError):
    """The store refuses (full, read-only, corrupt, I/O error); call an operator."""


class StoreNotDurable(StoreError):
    """This store may forget what it acknowledged, and the effect is not safe to repeat."""


class StoreRewound(StoreError):
    """The store lost writes that this process saw; it stops dispatching."""


class CrossRootBatch(StoreError):
    """A batch named records of more than one root; nothing was written."""


class SchemaMissing(StoreError):
    """The store holds no ledger yet, and this caller may not create one."""


class SchemaTooOld(StoreError):
    """The store was written by an older indoubt: run ``indoubt db upgrade``."""


class SchemaTooNew(StoreError):
    """The store was written by a newer indoubt: this version does not write to it."""
