"""What stood still between its verdict and its write sends nothing too late (P13)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.conftest import World

from indoubt import DoubtfulAttempt, OutcomeUnknown, ProviderProbeResult, StoreUnavailable

DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("pause", "sent"), [(timedelta(hours=1), True), (DAY, False)], ids=["short", "long"]
)
async def test_p13_a_replay_that_is_written_after_the_keys_window_is_not_sent(
    any_world: World, pause: timedelta, *, sent: bool
) -> None:
    world = any_world

    async def slow(_: DoubtfulAttempt) -> ProviderProbeResult:
        """The window is open when the probe is sent; the process sleeps; it learns nothing."""
        world.clock.advance(pause)
        raise ConnectionRefusedError

    ledger = world.process()
    pay = world.payer(ledger, safety="idempotent", key_retention=2 * DAY)
    world.bank.next = ["dropped", "dropped"]
    with pytest.raises(OutcomeUnknown):
        await pay("order-7")
    pay = world.payer(ledger, safety="idempotent", key_retention=2 * DAY, probe=slow)
    world.clock.advance(DAY + timedelta(hours=12))
    calls = world.bank.calls
    if sent:
        assert (await pay("order-7"))["id"] == "pay_1"
    else:
        with pytest.raises(StoreUnavailable, match="nothing was sent"):
            await pay("order-7")
        with pytest.raises(OutcomeUnknown):  # the class has fallen back to a status query
            await pay("order-7")
    assert world.bank.calls - calls == sent
