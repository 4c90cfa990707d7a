"""From a record to the exception that tells its caller what is known and what to do now."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from indoubt.core.decisions import choices
from indoubt.errors import (
    EffectBusy,
    EffectFailed,
    KeyConflict,
    OutcomePruned,
    OutcomeUnknown,
    ReceiptNotStored,
)
from indoubt.json_values import canonical
from indoubt.recovery.items import plain, shown

from .arguments import REDACTED

if TYPE_CHECKING:
    from indoubt.core.record import Record

WHAT_NOW = {
    "probe_again": "call again after retry_after; nothing is sent before it is safe",
    "call_again": "a repeat of the call may send again, because this effect may be repeated",
    "ask_person": "a person must decide: see `indoubt inbox`; do not repeat it by hand",
    "closed": "a person closed it as unknown; only a person can allow another attempt",
}


def outcome_unknown(
    record: Record, *, next_step: str, retry_after_ms: int | None = None
) -> OutcomeUnknown:
    """It may have happened: what is known, and what the caller may do now."""
    return OutcomeUnknown(
        f"{record.name} ({record.ref}) may have happened; {WHAT_NOW[next_step]}",
        ref=record.ref,
        record_id=record.id,
        evidence=[shown(one) for one in record.evidence],
        next=next_step,
        retry_after=None if retry_after_ms is None else timedelta(milliseconds=retry_after_ms),
        choices=sorted(kind.value for kind in choices(record)),
    )


def effect_failed(record: Record) -> EffectFailed:
    """The recorded outcome, raised again."""
    effect = record.effect.value if record.effect else "none"
    error: Any = plain(record.error)
    code: Any = cast("dict[str, Any]", error).get("code") if isinstance(error, dict) else None
    why = "cancel was asked" if record.cancel_requested else f"recorded as {record.state}"
    again = "" if effect == "none" else "; only decide(ref, AllowOneAttempt(), ...) sends it again"
    return EffectFailed(
        f"{record.name} ({record.ref}): {why}, effect {effect}{again}",
        record_id=record.id,
        code=str(code or record.state.value),
        effect=effect,
        error=error,
    )


def busy(record: Record) -> EffectBusy:
    """Another holder is at it."""
    return EffectBusy(
        f"{record.name} ({record.id}) is being performed by another holder; call again later",
        record_id=record.id,
        retry_after=timedelta(seconds=1),
    )


def too_late(record: Record) -> EffectFailed:
    """Past ``no_use_after``: nothing was sent, and nothing will be."""
    return EffectFailed(
        f"{record.name} ({record.id}): no_use_after is over; nothing was sent",
        record_id=record.id,
        code="no_use_after",
    )


def key_conflict(record: Record, given: Record) -> KeyConflict:
    """The key belongs to a call with other arguments; those that differ are named, not shown."""
    names = _differing(plain(record.payload), plain(given.payload))
    which = ", ".join(names) or "one whose value is not recorded"
    return KeyConflict(
        f"{record.name} ({record.id}): its key was used with other arguments ({which});"
        " nothing was sent: give another act another key",
        record_id=record.id,
        recorded=record.fingerprint,
        given=given.fingerprint,
    )


def _differing(recorded: dict[str, Any], given: dict[str, Any]) -> list[str]:
    """Arguments whose recorded texts differ; one is missing where it is left at its default."""
    differing: list[str] = []
    for name in sorted({*recorded, *given}):
        both = [arguments[name] for arguments in (recorded, given) if name in arguments]
        texts = {canonical(value) for value in both}
        if REDACTED not in both and (len(both), len(texts)) != (2, 1):
            differing.append(name)
    return differing


def outcome_pruned(record: Record) -> OutcomePruned:
    """The record is gone; what it came to is not."""
    return OutcomePruned(
        f"{record.name} ({record.id}) was pruned; its outcome was {record.state}, and it is not"
        " sent again",
        record_id=record.id,
        outcome=record.state.value,
    )


def receipt_not_stored(record: Record, why: Exception | None = None) -> ReceiptNotStored:
    """It happened; nobody can say with what result."""
    return ReceiptNotStored(
        f"{record.name} ({record.id}): it happened; its result could not be stored"
        + (f": {why}" if why else ""),
        record_id=record.id,
    )
