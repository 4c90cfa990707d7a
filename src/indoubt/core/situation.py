"""From a record as it stands to the situation that the verdict table reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from indoubt.contracts.safety import stricter

from .attempts import marred
from .bounds import SENDS_BEFORE_RECOVERY_STOPS
from .record import Millis, Policy, Record, Safety, Stage, State
from .verdicts import Probe, Situation

if TYPE_CHECKING:
    from .absence import Absence

BY_KEY = frozenset({Safety.IDEMPOTENT, Safety.RETRY_SAFE})


def governing(recorded: Policy, declared: Policy | None) -> Policy:
    """Where code and record differ, the stricter governs.

    The stricter class, the longer settle time, the shorter key window; what only one of them
    allows is not allowed. ``no_use_after`` is the record's.
    """
    if declared is None or declared == recorded:
        return recorded
    return replace(
        declared,
        safety=stricter(recorded.safety, declared.safety),
        settle_ms=_longer(recorded.settle_ms, declared.settle_ms),
        authoritative=recorded.authoritative and declared.authoritative,
        key_retention_ms=_shorter(recorded.key_retention_ms, declared.key_retention_ms),
        resend=recorded.resend and declared.resend,
        detached=recorded.detached or declared.detached,
        no_use_after_ms=recorded.no_use_after_ms,
    )


def _longer(one: Millis | None, other: Millis | None) -> Millis | None:
    return None if one is None or other is None else max(one, other)


def _shorter(one: Millis | None, other: Millis | None) -> Millis | None:
    known = [ms for ms in (one, other) if ms is not None]
    return min(known) if known else None


def effective_safety(record: Record, *, now_ms: Millis, permit_ms: Millis) -> Safety:
    """The class that holds now.

    Safety through a key ends with the provider's memory of it (P13): a resend must be able to
    land inside the window, strictly; outside it the class falls back to a status query.
    """
    policy = record.policy
    if policy.key_retention_ms is None or policy.safety not in BY_KEY:
        return policy.safety
    first = record.first_dispatched_at_ms if record.first_dispatched_at_ms is not None else now_ms
    lands = now_ms + permit_ms + (policy.settle_ms or 0)
    inside = lands < first + policy.key_retention_ms
    return policy.safety if inside else Safety.STATUS_QUERY_REQUIRED


def in_time(record: Record) -> bool:
    """Whether the attempt just dispatched may be sent, by the times that the store stamped on it.

    What was decided on an earlier clock may land too late: past ``no_use_after``, or - a replay
    under a key - when the provider has forgotten the key (P13: by its own ``permit_until``).
    """
    policy, sent = record.policy, record.attempts[-1]
    if policy.no_use_after_ms is not None and sent.dispatched_at_ms >= policy.no_use_after_ms:
        return False
    replay = len(record.open_attempts) > 1 and sent.permission is None
    if not replay or policy.key_retention_ms is None or policy.safety not in BY_KEY:
        return True
    first = record.first_dispatched_at_ms or 0
    return sent.permit_until_ms + (policy.settle_ms or 0) < first + policy.key_retention_ms


def for_its_caller(record: Record) -> bool:
    """Whether only a repeat of the call may send it, and no pass of recovery.

    What was never sent is its caller's to send (P21); so is what has been sent too often, unless a
    person has just allowed it.
    """
    if record.state is State.PREPARED:
        return True
    worn = record.attempt >= SENDS_BEFORE_RECOVERY_STOPS
    return worn and record.state is not State.PERMITTED


def held(record: Record, *, now_ms: Millis, dead: bool) -> bool:
    """Whether somebody holds the record: its lease is running and its owner not proven dead."""
    if record.owner is None or record.lease_until_ms is None or dead:
        return False
    return record.lease_until_ms > now_ms


def situation(
    record: Record,
    *,
    now_ms: Millis,
    permit_ms: Millis,
    store_epoch: int,
    mine: bool,
    dead: bool = False,
    probe: Probe | None = None,
    absence: Absence | None = None,
    reattach: bool = False,
    failed: bool = False,
    by_hand: bool = False,
) -> Situation:
    """Read a record for the verdict table.

    Args:
        record: with the policy that governs.
        now_ms: store time.
        permit_ms: how long a new attempt's permit would run.
        store_epoch: the store's present epoch.
        mine: the asker holds it, so that its lease bars nobody here.
        dead: its owner is proven dead.
        probe: what the probes came to, if they were asked.
        absence: what "not found" is worth.
        reattach: provider and result both support it.
        failed: one of the probes said "failed" or "cancelled" of its attempt.
        by_hand: a person asks for this probe: it needs nothing left of the budget.
    """
    policy, attempts = record.policy, record.open_attempts
    return Situation(
        state=record.state,
        safety=effective_safety(record, now_ms=now_ms, permit_ms=permit_ms),
        held=not mine and held(record, now_ms=now_ms, dead=dead),
        expired=policy.no_use_after_ms is not None and now_ms >= policy.no_use_after_ms,
        forgot=record.store_epoch < store_epoch,
        cancel=record.cancel_requested,
        opted_in=policy.resend,
        late=record.state in {State.DISPATCHED, State.IN_DOUBT}
        and any(attempt.late is not None for attempt in attempts),
        acknowledged=any(attempt.stage is Stage.ACKNOWLEDGED for attempt in attempts),
        marred=failed or marred(record),
        can_probe=policy.can_probe,
        budget=by_hand or _budget(record, now_ms),
        probe=probe,
        reattach=reattach,
        absence=absence,
    )


def _budget(record: Record, now_ms: Millis) -> bool:
    since = record.probing_since_ms
    in_time = since is None or now_ms - since < record.policy.probes_within_ms
    return in_time and record.probes < record.policy.probes_max
