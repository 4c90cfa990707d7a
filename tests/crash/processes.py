"""One guarded effect in every way it can be declared, and a process that performs it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tests.crash.bank import Bank, BankProvider, Request

from indoubt import EffectContext, Ledger
from indoubt.store import Store
from indoubt.testing import Crash, CrashStore, Fate, ManualClock
from indoubt.testing.clock import step_renewals

if TYPE_CHECKING:
    from collections.abc import Callable

LEASE = timedelta(seconds=30)
SETTLE = timedelta(seconds=5)
MOMENT = 0.001

Probing = Literal["none", "function", "authoritative", "provider", "resend"]
SAFETIES = (
    "pure",
    "idempotent",
    "retry_safe",
    "status_query_required",
    "non_idempotent",
    "human_confirmation_required",
)
ONCE = {"status_query_required", "non_idempotent", "human_confirmation_required"}
"""For these the bank honours no idempotency key: sent twice, it happens twice."""


def itself(order: str) -> str:
    """The key of an act is its order."""
    return order


class Case(NamedTuple):
    """One way to declare the effect."""

    safety: str
    probing: Probing

    @property
    def absence(self) -> bool:
        """Whether "not found" may come to prove something."""
        return self.probing in {"authoritative", "provider", "resend"}

    @property
    def once(self) -> bool:
        """Whether sending it twice is what must not be."""
        return self.safety in ONCE

    @property
    def needs_nobody(self) -> bool:
        """Whether a doubt ends without a person once its holders are proven dead."""
        if self.safety == "status_query_required":
            return self.absence
        return not self.once or self.probing == "resend"

    def policy(self, bank: Bank) -> dict[str, Any]:
        """The keywords of ``Ledger.effect``."""
        declared: dict[str, Any] = {"safety": self.safety, "key": itself}
        if self.probing == "provider":
            declared["provider"] = BankProvider(bank, self.safety)
        elif self.probing != "none":
            declared["probe"] = bank.probe
        if self.absence:
            declared |= {"settle_time": SETTLE, "not_found_is_authoritative": True}
        if self.probing == "resend":
            declared["resend_on_proven_absence"] = True
        return declared


CASES = [
    *(Case(safety, "none") for safety in SAFETIES if safety != "status_query_required"),
    *(Case(safety, "function") for safety in SAFETIES),
    *(Case(safety, "authoritative") for safety in SAFETIES),
    *(Case(safety, "provider") for safety in SAFETIES),
    Case("non_idempotent", "resend"),
]


def named(case: Case) -> str:
    """The id of a test that is about one case."""
    return f"{case.safety}-{case.probing}"


class Process:
    """One process on the store: it sees it, and the bank, through its fate.

    ``late``: a request lost on the way lands as late as the provider says it can: the settle time
    after the permit's end or (``lingers`` False) after its sender's death. ``witness`` is called
    before each request with what is about to be sent.
    """

    def __init__(
        self,
        case: Case,
        bank: Bank,
        store: Store,
        fate: Fate,
        *,
        late: bool = False,
        lingers: bool = True,
        witness: Callable[[EffectContext], None] | None = None,
    ) -> None:
        self.case, self.bank, self.clock, self.fate = case, bank, bank.clock, fate
        self.store = CrashStore(store, fate)
        self.ledger = Ledger(self.store, lease=LEASE, allow_ledger_loss=True, clock=self.clock)
        self.beat = step_renewals(self.ledger, self.clock)
        self._late, self._lingers, self._witness = late, lingers, witness
        self._send = fate.sending(bank.act)
        self.pay: Any = self._guarded(plain=False)
        self.pay_blocking: Any = self._guarded(plain=True)

    def _guarded(self, *, plain: bool) -> Any:
        """The act as an ``async def``, or the same act as a ``def``."""
        policy = self.case.policy(self.bank)
        if "probe" in policy:
            policy["probe"] = self.fate.sending(policy["probe"], name="probe")

        def pay(order: str, *, effect: EffectContext) -> dict[str, Any]:
            return self._request(order, effect)

        async def pay_async(order: str, *, effect: EffectContext) -> dict[str, Any]:
            return self._request(order, effect)

        # Two functions of one ledger have two names, so these are two acts.
        name = "pay_blocking" if plain else "pay"
        return self.ledger.effect(name=name, **policy)(pay if plain else pay_async)

    def _request(self, order: str, effect: EffectContext) -> dict[str, Any]:
        request = Request(order, effect.idempotency_key, effect.execution_id)
        if self._witness is not None:
            self._witness(effect)
        known = len(self.bank.requests)
        try:
            return self._send(request)
        except Crash:
            self._lost(request, known, effect.remaining() if self._lingers else 0.0)
            raise
        except ConnectionResetError:  # it lives, and reports that nothing more is sent
            self._lost(request, known, 0.0)
            raise

    def _lost(self, request: Request, known: int, sending_s: float) -> None:
        if self._late and len(self.bank.requests) == known:
            settle = SETTLE.total_seconds() if self.case.absence else 0.0
            lands = self.clock.now() + max(0.0, sending_s + settle - MOMENT)
            self.bank.send_late(request, lands)

    def freeze(self) -> None:
        """It stands still: it renews nothing."""
        self.clock.remove(self.beat)

    def thaw(self) -> None:
        """It goes on where it stood."""
        self.clock.add(self.beat)

    def free_locks(self) -> None:
        """The kernel frees the locks of a dead process: that is the proof."""
        self.store.declare_owners_dead()


def fate_of(*blows: Any, clock: ManualClock) -> Fate:
    """The fate of a process whose delays, if any, are a second."""
    return Fate(*blows, clock=clock, delay=timedelta(seconds=1))
