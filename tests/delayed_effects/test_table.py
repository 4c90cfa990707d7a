"""Table 4.1 of seed 002, cell by cell, on every kind of store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.delayed_effects.conftest import Effects

from indoubt.delayed_effects import (
    DelayedEffectAction,
    DelayedEffectConflict,
    DelayedEffectIntent,
    DelayedEffectState,
    DelayedEffectStore,
)

A = DelayedEffectAction
S = DelayedEffectState
OP = "operation-1"
LEASED = 50.0


async def register(store: DelayedEffectStore, delay: float = 0) -> DelayedEffectIntent:
    return await store.register(OP, "unmute", {"user": 7}, delay_seconds=delay)


class Case:
    """An intent in one of the table's states, and its holder's copy of it."""

    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self.store = effects.lasting
        self.intent_id = DelayedEffectStore.intent_id_for(OP)
        self.held: DelayedEffectIntent | None = None
        """By owner-2, under fence 2 wherever something is or was held."""
        self.old: DelayedEffectIntent | None = None
        """By owner-1, under fence 1."""


async def nothing(case: Case) -> None:
    """Missing: it was there, and its time is over."""
    await completed(case)
    case.store = case.effects.view(terminal_ttl_seconds=0.001)
    await passed()


async def pending_later(case: Case) -> None:
    """P, due in an hour; it was held twice before."""
    await executing(case)
    assert case.held is not None
    await case.store.requeue(case.held, delay_seconds=3600)


async def pending_due(case: Case) -> None:
    """P, due now."""
    await executing(case)
    assert case.held is not None
    await case.store.requeue(case.held, delay_seconds=0)


async def executing(case: Case) -> None:
    """E, lease live."""
    await register(case.store)
    case.old = await case.effects.expiring.claim(case.intent_id, "owner-1")
    await passed()
    case.held = await case.store.claim(case.intent_id, "owner-2")
    assert (case.held.action, case.held.fence, case.held.attempts) == (A.RECLAIMED, 2, 2)


async def lapsed(case: Case) -> None:
    """E, lease over."""
    await register(case.store)
    case.old = await case.effects.expiring.claim(case.intent_id, "owner-1")
    await passed()
    case.held = await case.effects.expiring.claim(case.intent_id, "owner-2")
    await passed()


async def completed(case: Case) -> None:
    """C, within its time."""
    await executing(case)
    assert case.held is not None
    done = await case.store.complete(case.held, {"receipt": "first"})
    assert (done.action, done.state) == (A.COMPLETED, S.COMPLETED)


async def passed() -> None:
    """Some milliseconds of every store's clock."""
    await asyncio.sleep(0.01)  # handler under test blocks: a lease of a millisecond ends


STATES: dict[str, Callable[[Case], Awaitable[None]]] = {
    "missing": nothing,
    "P later": pending_later,
    "P due": pending_due,
    "E live": executing,
    "E lapsed": lapsed,
    "C": completed,
}
Call = Callable[[Case, DelayedEffectIntent], Awaitable[DelayedEffectIntent]]


async def register_same(case: Case, _by: DelayedEffectIntent) -> DelayedEffectIntent:
    return await register(case.store, delay=9)


async def register_other(case: Case, _by: DelayedEffectIntent) -> DelayedEffectIntent:
    try:
        return await case.store.register(OP, "unmute", {"user": 8}, delay_seconds=0)
    except DelayedEffectConflict as conflict:
        return conflict.intent


async def claim(case: Case, _by: DelayedEffectIntent) -> DelayedEffectIntent:
    return await case.store.claim(case.intent_id, "owner-3")


async def renew(case: Case, by: DelayedEffectIntent) -> DelayedEffectIntent:
    return await case.store.renew(by)


async def complete(case: Case, by: DelayedEffectIntent) -> DelayedEffectIntent:
    return await case.store.complete(by, {"receipt": "second"})


async def retry(case: Case, by: DelayedEffectIntent) -> DelayedEffectIntent:
    return await case.store.requeue(by, delay_seconds=LEASED, error={"type": "Boom"})


async def defer(case: Case, by: DelayedEffectIntent) -> DelayedEffectIntent:
    return await case.store.requeue(by, delay_seconds=LEASED, deferred=True)


# ruff: noqa: E501
TABLE = """
call             | missing    | P later         | P due           | E live          | E lapsed        | C
register same    | REGISTERED | CACHED          | CACHED          | CACHED          | CACHED          | CACHED
register other   | REGISTERED | CONFLICT        | CONFLICT        | CONFLICT        | CONFLICT        | CONFLICT
claim            | MISSING    | NOT_DUE         | ACQUIRED        | BUSY            | RECLAIMED       | CACHED
renew cur        | MISSING    | INVALID_STATE   | INVALID_STATE   | RENEWED         | RENEWED         | INVALID_STATE
renew old        | MISSING    | STALE_OWNER     | STALE_OWNER     | STALE_OWNER     | STALE_OWNER     | STALE_OWNER
renew other      | MISSING    | INVALID_STATE   | INVALID_STATE   | STALE_OWNER     | STALE_OWNER     | INVALID_STATE
complete cur     | MISSING    | INVALID_STATE   | INVALID_STATE   | COMPLETED       | COMPLETED       | COMPLETED
complete old     | MISSING    | STALE_OWNER     | STALE_OWNER     | STALE_OWNER     | STALE_OWNER     | STALE_OWNER
complete other   | MISSING    | INVALID_STATE   | INVALID_STATE   | STALE_OWNER     | STALE_OWNER     | STALE_OWNER
retry cur        | MISSING    | RETRY_SCHEDULED | RETRY_SCHEDULED | RETRY_SCHEDULED | RETRY_SCHEDULED | INVALID_STATE
retry old        | MISSING    | STALE_OWNER     | STALE_OWNER     | STALE_OWNER     | STALE_OWNER     | STALE_OWNER
retry other      | MISSING    | INVALID_STATE   | INVALID_STATE   | STALE_OWNER     | STALE_OWNER     | STALE_OWNER
defer cur        | MISSING    | RETRY_SCHEDULED | RETRY_SCHEDULED | DEFERRED        | DEFERRED        | INVALID_STATE
defer old        | MISSING    | STALE_OWNER     | STALE_OWNER     | STALE_OWNER     | STALE_OWNER     | STALE_OWNER
defer other      | MISSING    | INVALID_STATE   | INVALID_STATE   | STALE_OWNER     | STALE_OWNER     | STALE_OWNER
"""
CALLS: dict[str, Call] = {
    "register same": register_same,
    "register other": register_other,
    "claim": claim,
    "renew": renew,
    "complete": complete,
    "retry": retry,
    "defer": defer,
}
CHANGES = {A.REGISTERED, A.ACQUIRED, A.RECLAIMED, A.RENEWED, A.DEFERRED, A.RETRY_SCHEDULED}


def cells() -> list[tuple[str, str, str]]:
    head, *rows = [[cell.strip() for cell in line.split("|")] for line in TABLE.split("\n") if line]
    return [(row[0], s, a) for row in rows for s, a in zip(head[1:], row[1:], strict=True)]


def test_the_table_names_every_state() -> None:
    assert {state for _, state, _ in cells()} == {*STATES}
    assert len(cells()) == 15 * 6


@pytest.mark.parametrize(("call", "state", "action"), cells())
async def test_cell(effects: Effects, call: str, state: str, action: str) -> None:
    case = Case(effects)
    await STATES[state](case)
    assert case.held is not None
    assert case.old is not None
    verb, _, who = call.rpartition(" ")
    by = {"cur": case.held, "old": case.old, "other": _other(case.held)}.get(who, case.held)
    before = await effects.lasting.get(case.intent_id)
    done = await CALLS.get(call, CALLS.get(verb, claim))(case, by)
    assert done.action is A[action]
    after = await effects.lasting.get(case.intent_id)
    await _check_outcome(case, call, before, done, after)


def _other(held: DelayedEffectIntent) -> DelayedEffectIntent:
    """The same fence in the hands of somebody else (D-38)."""
    values: dict[str, Any] = {**vars(held), "owner_token": "owner-9"}
    values.pop("_seen", None)
    return DelayedEffectIntent(**values)


async def _check_outcome(
    case: Case,
    call: str,
    before: DelayedEffectIntent,
    done: DelayedEffectIntent,
    after: DelayedEffectIntent,
) -> None:
    first = call.endswith("cur") and before.state is not S.EXECUTING and call != "renew cur"
    if done.action in CHANGES and not (first and done.action is A.RETRY_SCHEDULED):
        await _check_change(call, before, done, after)
    elif done.action is A.COMPLETED and before.state is S.EXECUTING:
        assert (after.state, after.receipt) == (S.COMPLETED, {"receipt": "second"})
        assert case.intent_id not in await case.store.list_due()
    elif case.store is case.effects.lasting:
        assert after == before, "a refusal changes nothing"
    if done.action is A.MISSING:
        assert done.state is None
        assert not done.should_execute


async def _check_change(
    call: str,
    before: DelayedEffectIntent,
    done: DelayedEffectIntent,
    after: DelayedEffectIntent,
) -> None:
    if done.action is A.REGISTERED:
        assert (after.state, after.fence, after.attempts) == (S.PENDING, 0, 0)
        assert (after.receipt, after.error, after.owner_token) == (None, None, "")
    elif done.should_execute:
        assert (after.state, after.fence) == (S.EXECUTING, before.fence + 1)
        assert after.attempts == before.attempts + 1
        assert done.owner_token == "owner-3"  # noqa: S105
        assert after.owner_token.startswith("sha256:"), "another's token is told as a digest"
    elif done.action is A.RENEWED:
        assert (after.state, after.fence, after.attempts) == (S.EXECUTING, 2, 2)
    else:
        deferred = done.action is A.DEFERRED
        assert (after.state, after.owner_token, after.fence) == (S.PENDING, "", before.fence)
        assert after.attempts == before.attempts - deferred
        assert after.error == (before.error if deferred else {"type": "Boom"})
        assert after.due_at_ms > before.created_at_ms + 1000 * (LEASED - 5)
    assert call != "claim" or done.should_execute


@pytest.mark.parametrize("state", STATES)
async def test_what_is_listed(effects: Effects, state: str) -> None:
    """The table's last row: P that is due, and E whose lease is over; nothing else."""
    case = Case(effects)
    await STATES[state](case)
    listed = case.intent_id in await case.store.list_due()
    assert listed == (state in {"P due", "E lapsed"})
