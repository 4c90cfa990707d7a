"""From a verdict that ends a doubt to the command that records it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Raw

from indoubt.core.bounds import EVIDENCE_BYTES, RECEIPT_BYTES
from indoubt.core.commands import Ask, Command, Settle
from indoubt.core.record import NO_RAW, Closed, Effect, Record, State
from indoubt.core.verdicts import Probe, Verdict
from indoubt.json_values import TooLarge, detach

if TYPE_CHECKING:
    from .probing import Asked


def settlement(answer: Verdict, record: Record, asked: Asked | None) -> Command:
    """Adopt, close with a possible effect, or ask a person."""
    if answer is Verdict.ADOPT and asked is not None:
        return _adopt_found(record.fence, asked)
    if answer is Verdict.ADOPT_LATE:
        return _adopt_late(record)
    if answer is Verdict.CLOSE and asked is not None:
        return _close_possible(record.fence, asked)
    if record.state is State.PERMITTED:
        return Ask(fence=record.fence, reason="the permitted attempt can be sent no more")
    why = asked.status.value if asked else "nothing more can be asked"
    return Ask(fence=record.fence, reason=why)


def _adopt_found(fence: int, asked: Asked) -> Settle:
    """What the provider calls succeeded did happen, whether or not its result can be stored."""
    found = asked.decisive
    try:
        result = found.result.to_dict()["result"]
        receipt = Raw(detach(result, where="probe result", max_bytes=RECEIPT_BYTES).text)
    except TooLarge:
        receipt = NO_RAW
    return Settle(
        fence=fence,
        outcome=State.SUCCEEDED,
        attempt=found.attempt,
        receipt=receipt,
        receipt_lost=receipt == NO_RAW,
    )


def _adopt_late(record: Record) -> Settle:
    number, late = next(
        (attempt.number, attempt.late)
        for attempt in record.open_attempts
        if attempt.late is not None
    )
    return Settle(
        fence=record.fence,
        outcome=State.SUCCEEDED,
        attempt=number,
        receipt=NO_RAW if late.lost else late.receipt,
        receipt_lost=late.lost,
    )


def _close_possible(fence: int, asked: Asked) -> Settle:
    error = asked.decisive.result.to_dict()["error"]
    text = NO_RAW if error is None else Raw(detach(error, where="probe error").text)
    if len(bytes(text)) > EVIDENCE_BYTES:
        text = Raw(b'{"too_large":true}')
    return Settle(
        fence=fence,
        outcome=State.CANCELLED if asked.status is Probe.CANCELLED else State.FAILED,
        effect=Effect.POSSIBLE,
        closes=Closed.FAILED,
        error=text,
    )
