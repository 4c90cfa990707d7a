"""Code under an old and a new name makes the same first call at once: one act (G11, U4).

Every order of the two calls' requests to the store is gone through; the oracle is the callee's own
count.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import World

from indoubt import EffectBusy, Ledger
from indoubt.core.pointers import KIND, pointer, target
from indoubt.core.record import Record
from indoubt.guard.call import Performance
from indoubt.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = {"old": ("a", ()), "new": ("b", ("a",)), "back": ("a", ("b",)), "third": ("c", ("b", "a"))}
PAIRS = [("old", "new"), ("new", "back"), ("old", "third"), ("new", "third"), ("new", "new")]


def by_order(order: str) -> str:
    return order


class Call:
    """One process's call, a request at a time."""

    def __init__(self, store: MemoryStore, code: str, paid: Counter[str], order: str) -> None:
        name, formerly = NAMES[code]
        ledger = Ledger(store, allow_ledger_loss=True)

        @ledger.effect(name=name, formerly=formerly, safety="non_idempotent", key=by_order)
        def pay(order: str) -> str:
            paid[order] += 1
            return order

        door: Any = pay
        effect = door.using.__self__._effect
        using = door.using.__self__._using
        runtime = ledger.open()
        call = effect.call(using._replace(wait=None), (order,), {}, blocking=True)
        self._flow = Performance(runtime, call).run()
        driver: Any = runtime.blocking
        self._answer = driver._answer
        self._request: Any = next(self._flow)
        self.ended = False

    def step(self) -> None:
        """Answer what it asked for; a holder that is at it is not waited for."""
        if type(self._request).__name__ == "Sleep":
            self._flow.close()
            self.ended = True
            return
        try:
            self._request = self._flow.send(self._answer(self._request))
        except (StopIteration, EffectBusy):
            self.ended = True


def run(schedule: list[int], codes: tuple[str, str], order: str) -> tuple[list[int], int]:
    """Follow a schedule, then let the first go on that can: the whole schedule, and the effects."""
    store, paid = MemoryStore(), Counter[str]()
    calls = [Call(store, code, paid, order) for code in codes]
    taken: list[int] = []
    while not all(call.ended for call in calls):
        wish = schedule[len(taken)] if len(taken) < len(schedule) else 0
        turn = wish if not calls[wish].ended else 1 - wish
        free = not calls[1 - turn].ended
        calls[turn].step()
        taken.append(turn if free else 1)  # 1: there is nothing else to try here
    for code in NAMES:  # and everybody's repeat finds that act
        again = Call(store, code, paid, order)
        while not again.ended:
            again.step()
    return taken, paid[order]


def interleavings(codes: tuple[str, str], order: str) -> Iterator[tuple[list[int], int]]:
    """Every order of the two calls' steps, depth first."""
    schedule: list[int] = []
    while True:
        taken, effects = run(schedule, codes, order)
        yield taken, effects
        while taken and taken[-1] == 1:
            taken.pop()
        if not taken:
            return
        schedule = [*taken[:-1], 1]


@pytest.mark.parametrize("order", ["order-1", "order-2", "order-3"])
@pytest.mark.parametrize("codes", PAIRS, ids="-".join)
def test_g11_two_names_are_one_act_in_every_order(codes: tuple[str, str], order: str) -> None:
    seen = 0
    for taken, effects in interleavings(codes, order):
        assert effects == 1, taken
        seen += 1
    assert seen > 10


async def test_g11_a_pointer_without_its_record_is_used_by_who_meets_it(any_world: World) -> None:
    newer = any_world.process()
    pay = any_world.payer(newer, name="pay_new", formerly=("pay_old",))
    for order in ("order-1", "order-2", "order-3", "order-4"):
        await pay(order)
    rows = await any_world.records()
    assert sum(row.kind == KIND for row in rows) == 4
    older = any_world.process()
    for order in ("order-1", "order-2", "order-3", "order-4"):
        assert (await any_world.payer(older, name="pay_old").outcome(order)).replayed
        for name in ("pay_old", "pay_new"):
            found = await older.find(name, order)
            assert found is not None
            assert (found.kind, found.name) == ("effect", "pay_new")
        assert any_world.bank.count(order) == 1
    assert (await newer.in_doubt()).items == ()
    assert (await newer.recover()).settled == ()


def test_g11_a_pointer_leads_to_a_lesser_id() -> None:
    act = Record(id="rec_b", root_id="rec_b", kind="effect", name="pay", fingerprint="f")
    assert target(pointer(act, "rec_b", "rec_a")) == "rec_a"
    assert target(act) is None
    with pytest.raises(ValueError, match="lesser"):
        pointer(act, "rec_a", "rec_b")
