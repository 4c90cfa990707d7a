"""The truth in memory: what really happened, what is still under way, and what a look-up sees."""

from __future__ import annotations

from typing import Any, NamedTuple

from indoubt import (
    BaseCapabilityProvider,
    DoubtfulAttempt,
    ExecutionSafetyClass,
    ProviderProbeResult,
    ProviderProbeStatus,
)
from indoubt.testing import ManualClock

ORDER = "order-7"


class Request(NamedTuple):
    """One request as it reached the bank."""

    key: str
    idempotency_key: str
    execution_id: str


class Bank:
    """Counts effects; nothing that happens to a process changes its count.

    ``honours_keys``: a second request with the same idempotency key has no second effect.
    """

    def __init__(self, clock: ManualClock, *, honours_keys: bool) -> None:
        self.clock = clock
        self.honours_keys = honours_keys
        self.effects: list[Request] = []
        self.requests: list[Request] = []
        self._under_way: list[tuple[float, Request]] = []

    def act(self, request: Request) -> dict[str, Any]:
        """Do it now."""
        self.requests.append(request)
        repeated = request.idempotency_key in {one.idempotency_key for one in self.effects}
        if not (self.honours_keys and repeated):
            self.effects.append(request)
        return receipt(request)

    def send_late(self, request: Request, lands_at: float) -> None:
        """It is under way, and does not need its sender any more."""
        self._under_way.append((lands_at, request))

    def count(self) -> int:
        """How often it happened."""
        self._land()
        return len(self.effects)

    def under_way(self) -> int:
        """How many requests have not landed yet."""
        self._land()
        return len(self._under_way)

    def land_all(self) -> None:
        """Wait until everything has landed."""
        ends = [at for at, _ in self._under_way]
        if ends:
            self.clock.sleep(max(0.0, max(ends) - self.clock.now()))
        self._land()

    async def probe(self, attempt: DoubtfulAttempt) -> ProviderProbeResult:
        """Look the act up by its key: read-only, and true at this moment."""
        if self.count() and attempt.key == ORDER:
            return attempt.succeeded(receipt(self.effects[0]))
        return attempt.not_found()

    def _land(self) -> None:
        landed = [one for one in self._under_way if one[0] <= self.clock.now()]
        self._under_way = [one for one in self._under_way if one not in landed]
        for _, request in sorted(landed):
            self.act(request)


class BankProvider(BaseCapabilityProvider):
    """The same bank, asked about one execution at a time."""

    def __init__(self, bank: Bank, safety: str) -> None:
        self._bank = bank
        self._safety = ExecutionSafetyClass(safety)

    @property
    def supports_status_query(self) -> bool:
        return True

    @property
    def execution_safety_class(self) -> ExecutionSafetyClass:
        return self._safety

    async def probe_execution(
        self, execution_id: str, external_ref: str | None
    ) -> ProviderProbeResult:
        self._bank.count()
        for one in self._bank.effects:
            if one.execution_id == execution_id:
                return ProviderProbeResult(
                    ProviderProbeStatus.SUCCEEDED,
                    execution_id,
                    external_ref=external_ref,
                    result=receipt(one),
                )
        return ProviderProbeResult(ProviderProbeStatus.NOT_FOUND, execution_id)


def receipt(request: Request) -> dict[str, Any]:
    """What the bank says about an effect."""
    return {"paid": request.key}
