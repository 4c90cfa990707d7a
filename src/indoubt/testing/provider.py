"""A fake provider to test against: a real process, a real network, and a count that cannot lie.

    with FakeProvider() as bank:
        bank.next("apply_then_drop")
        with pytest.raises(ConnectionError):
            act(bank.url, "order-7", 1200)
        assert bank.count("order-7") == 1

What it is honest about: `FakeProvider.count` is the number of effects that happened, kept by the
provider itself in a file that is fsynced before anybody is told, so it is the oracle of a test: no
fault, read lag or forgotten key changes it, and ``kill -9`` of worker or provider does not either.
A request that arrived goes on when its client dies, as with a real provider. A lost connection is
a lost connection (RST or FIN), not an exception raised by a mock. What it is not: fast, secure or a
model of a particular provider; and a machine that loses power may lose the log, though no effect.

Waits are on conditions in the server, with a limit: nothing here polls or sleeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from indoubt.testing.provider_client import (
    Act,
    Lookup,
    ProbedAttempt,
    ProviderFailed,
    ProviderRejected,
    Result_co,
    act,
    act_async,
    async_probe,
    blocking_probe,
    exchange,
    exchange_async,
    find,
    find_async,
)
from indoubt.testing.provider_faults import Behaviour, Drop, FaultSpec, LookupAnswer, On, Then
from indoubt.testing.provider_process import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from indoubt.testing.provider_wire import Reply

__all__ = [
    "Act",
    "FakeProvider",
    "Fault",
    "Lookup",
    "ProviderClock",
    "ProviderFailed",
    "ProviderRejected",
    "act",
    "act_async",
    "async_probe",
    "blocking_probe",
    "find",
    "find_async",
]

NO_TIME = timedelta(0)


class FaultOptions(TypedDict, total=False):
    """What `FakeProvider.fault` and `FakeProvider.next` take besides the behaviour and the key."""

    on: On
    delay: timedelta
    how: Drop
    then: Then
    code: str
    status: LookupAnswer


class Fault:
    """A fault that was set: wait until it was met, let go whom it holds, take it back."""

    def __init__(self, url: str, fault_id: str) -> None:
        """Take the provider's address and the fault's id there."""
        self._url, self._path = url, f"/faults/{fault_id}"

    @classmethod
    def at(cls, address: str) -> Fault:
        """The fault of another process, by its ``address``."""
        url, _, fault_id = address.rpartition("/faults/")
        return cls(url, fault_id)

    @property
    def address(self) -> str:
        """Where this fault is found from other processes."""
        return self._url + self._path

    def wait_reached(self, timeout: float = 10.0, *, requests: int = 1) -> None:
        """Wait until that many requests have reached the gate (or, if none holds, met the fault).

        Raises:
            TimeoutError: they have not, in that many seconds.
        """
        query, limit = _waiting(timeout, {"requests": str(requests)})
        self._check(exchange(self._url, "GET", self._path, query=query, timeout=limit), requests)

    async def wait_reached_async(self, timeout: float = 10.0, *, requests: int = 1) -> None:
        """`wait_reached` for a test whose own event loop sends the requests."""
        query, limit = _waiting(timeout, {"requests": str(requests)})
        reply = await exchange_async(self._url, "GET", self._path, query=query, timeout=limit)
        self._check(reply, requests)

    def release(self) -> None:
        """Let held requests go on, and hold none from now on."""
        _control(self._url, "POST", f"{self._path}/release")

    def drop(self) -> None:
        """Let held requests go no further: their connections are reset, and all later ones too."""
        _control(self._url, "POST", f"{self._path}/drop")

    def clear(self) -> None:
        """Stop meeting new requests; those it holds stay held."""
        _control(self._url, "POST", f"{self._path}/clear")

    def __enter__(self) -> Self:
        """Use the fault for the length of a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let everybody go, and meet nobody else."""
        with contextlib.suppress(ConnectionError, LookupError):  # the server may be killed by now
            self.clear()
            self.release()

    def _check(self, reply: Reply, requests: int) -> None:
        reached = _checked(reply)["reached"]
        if reached < requests:
            raise TimeoutError(f"{reached} of {requests} requests reached {self._path}")


class ProviderClock:
    """The provider's own clock: read lag, key retention, slowness and late effects go by it."""

    def __init__(self, provider: FakeProvider) -> None:
        """Speak to one provider."""
        self._provider = provider

    def now_ms(self) -> int:
        """Milliseconds; of a `manual_clock`, nothing but `advance` moves them."""
        return _control(self._provider.url, "GET", "/status")["now_ms"]

    def advance(self, by: timedelta) -> None:
        """Put the clock forward; late effects that became due have happened when this returns."""
        _control(self._provider.url, "POST", "/clock", {"advance_ms": _ms(by)})


class FakeProvider:
    """A provider in a process of its own, for ``with`` and ``async with``.

    Leaving the block, or the death of this process in whatever way, ends the server; a directory
    it made itself goes too. One that was given stays, and the next provider there remembers it.
    """

    def __init__(
        self,
        dir: str | Path | None = None,  # noqa: A002
        *,
        not_found_lag: timedelta = NO_TIME,
        key_retention: timedelta | None = None,
        manual_clock: bool = False,
        port: int = 0,
    ) -> None:
        """Prepare; nothing runs before the block is entered.

        Args:
            dir: where its memory lies; default: a temporary directory.
            not_found_lag: how long reads do not see a new object.
            key_retention: how long an idempotency key is honoured; zero: not at all; default: for
                ever.
            manual_clock: the provider's time stands still but for ``clock.advance``.
            port: the port to listen on; 0 takes a free one.
        """
        self.clock = ProviderClock(self)
        options = ["--not-found-lag-ms", str(_ms(not_found_lag))]
        if key_retention is not None:
            options += ["--key-retention-ms", str(_ms(key_retention))]
        if manual_clock:
            options.append("--manual-clock")
        self._server = ServerProcess(dir, port, options)

    @property
    def url(self) -> str:
        """The address for `act` and `find`; the same after a restart."""
        if self._server.port == 0:
            raise RuntimeError("not started yet: use `with FakeProvider() as provider:`")
        return f"http://127.0.0.1:{self._server.port}"

    # -- the oracle --------------------------------------------------------------------------

    def count(self, key: str, *, at_least: int = 0, timeout: float = 10.0) -> int:
        """Effects that happened for a business key.

        Args:
            key: the business key.
            at_least: wait for so many first, as for an effect that lands late.
            timeout: how many seconds to wait for them; what has happened by then is returned.
        """
        query, limit = _waiting(timeout, {"key": key, "at_least": str(at_least)})
        return _checked(exchange(self.url, "GET", "/count", query=query, timeout=limit))["count"]

    def counts(self) -> dict[str, int]:
        """Effects that happened, by business key."""
        return _control(self.url, "GET", "/count")["counts"]

    def log(self) -> list[dict[str, Any]]:
        """Every request a client made, in order of arrival: who asked what, and what was done.

        An entry has ``n``, ``at_ms``, ``request`` (``act``, ``find`` or ``other``), ``method``,
        ``path``, ``key``, ``idempotency_key``, ``mutates``, ``did`` (a list of texts) and
        ``answer`` (None while it is held, or for ever if the provider was killed meanwhile).
        """
        return _control(self.url, "GET", "/log")["entries"]

    def mutations_during(self, call: Callable[[], object]) -> int:
        """How many requests that ask for a change arrived while `call` ran, whatever they changed.

        A late effect of an earlier request is not counted, a repeated idempotency key is: a probe
        that sends the act again has not merely looked. If `call` returns an awaitable, it is run
        to its end, in an event loop of its own.
        """
        before = _control(self.url, "GET", "/status")["mutations"]
        answer = call()
        if inspect.isawaitable(answer):
            _run_elsewhere(answer)
        return _control(self.url, "GET", "/status")["mutations"] - before

    # -- faults ------------------------------------------------------------------------------

    def fault(
        self,
        behaviour: Behaviour,
        *,
        key: str | None = None,
        times: int | None = None,
        **options: Unpack[FaultOptions],
    ) -> Fault:
        """Misbehave from now on, for one business key or for all.

        Faults add up; where two contradict each other the later one wins. The behaviours:

        - ``apply_then_drop(how="rst" | "fin")``: the effect happens, the connection ends.
        - ``drop_before_apply(how=)``: the connection ends, nothing happens.
        - ``apply_late(delay=, then="answer" | "error" | "rst" | "fin" | "hang")``: that is the
          answer; the effect happens `delay` later, even if the server is killed meanwhile.
        - ``apply_then_error``: the effect happens, the answer is 500.
        - ``reject(code=)``: 402, no effect; a repeat of the idempotency key is refused too.
        - ``unique``: a second act of the same business key is refused with 409 ``exists``.
        - ``hide(delay=)``: new objects are invisible to lookups for so long.
        - ``forget_key(delay=)``: idempotency keys are honoured for so long; zero: not at all.
        - ``slow(delay=, on="act" | "find")``: wait first.
        - ``gate(on=)``: hold before anything happens, until released.
        - ``hang(on=)``: let it happen, then hold the answer back until released.
        - ``lookup(status="unavailable" | "unknown" | "active" | "not_found" | "drop")``: what
          lookups answer, true or not.

        Raises:
            ValueError: the behaviour does not take that option.
        """
        delay = options.pop("delay", NO_TIME)
        given = {"behaviour": behaviour, "key": key, "times": times, "delay_ms": _ms(delay)}
        spec = FaultSpec.from_dict({**given, **options})
        made = _control(self.url, "POST", "/faults", spec.to_dict())
        return Fault(self.url, made["id"])

    def next(
        self,
        behaviour: Behaviour,
        *,
        times: int = 1,
        key: str | None = None,
        **options: Unpack[FaultOptions],
    ) -> Fault:
        """Misbehave for the next request, or the next few; then behave again. See `fault`."""
        return self.fault(behaviour, key=key, times=times, **options)

    def gate(self, key: str | None = None, *, on: On = "act", times: int | None = None) -> Fault:
        """Hold requests at the point where nothing has happened yet; see `Fault`."""
        return self.fault("gate", key=key, on=on, times=times)

    async def probe(self, attempt: ProbedAttempt[Result_co]) -> Result_co:
        """Look an attempt up: ready to be an effect's ``probe=``. See `async_probe`."""
        return await async_probe(self.url)(attempt)

    # -- life --------------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill the server with ``kill -9``: held requests, faults and gates are gone with it."""
        self._server.kill()

    def restart(self) -> None:
        """Start the server, again or for the first time: same memory, same port, no faults.

        Raises:
            RuntimeError: it did not start; its own words are on standard error.
        """
        self._server.start()

    def close(self) -> None:
        """End the server and remove the directory it made; safe to repeat."""
        self._server.close()

    def __enter__(self) -> Self:
        """Start the server."""
        self.restart()
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    async def __aenter__(self) -> Self:
        """Start the server without blocking the event loop."""
        await asyncio.to_thread(self.restart)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await asyncio.to_thread(self.close)


def _ms(time: timedelta) -> int:
    return time // timedelta(milliseconds=1)


def _waiting(timeout: float, query: dict[str, str]) -> tuple[dict[str, str], float]:
    """A question the server may take `timeout` seconds to answer, and a limit well after that."""
    return {**query, "wait_ms": str(int(timeout * 1000))}, timeout + 10


def _control(
    url: str, method: str, path: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    return _checked(exchange(url, method, path, body=body))


def _checked(reply: Reply) -> dict[str, Any]:
    status, body = reply
    if status == 400:
        raise ValueError(body.get("message"))
    if status != 200:
        raise LookupError(body.get("code"))
    return body


def _run_elsewhere(answer: Awaitable[object]) -> None:
    """Run an awaitable to its end, also where an event loop is running already."""

    async def wait() -> None:
        await answer

    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, wait()).result()
