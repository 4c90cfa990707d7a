"""Sends calls of scripts, each at most once, and says for every failure whether it may have run.

All that goes to one server goes in one piece, and is answered in order.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from redis.exceptions import AskError, ConnectionError, MovedError, RedisError, ResponseError  # noqa: A004

from ...errors import StoreUnavailable
from .faults import code_of
from .nodes import nodes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .place import Place
    from .scripts import Script

TURNS: Final = 4
"""How often a call follows a slot that moves before its caller is told to call again."""
_REFUSED: Final = frozenset({"MOVED", "ASK", "NOSCRIPT", "TRYAGAIN"})


class Call(NamedTuple):
    """One script, its keys (all in one slot) and its arguments."""

    script: Script
    keys: Sequence[str]
    args: Sequence[bytes | str]

    def command(self) -> tuple[bytes | str | int, ...]:
        return ("EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.args)


class Failure(NamedTuple):
    """No answer. ``sent``: the server may have run it although it did not say so."""

    error: BaseException
    sent: bool


class Wire:
    """Any thread may call."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.nodes = nodes_of(place)
        self._wait = _durability(place)

    def run(self, calls: Sequence[Call], *, writes: bool = False) -> list[Any]:
        """The answer or ``Failure`` of each; where the place asks for it, wait for copies."""
        answers: list[Any] = [None] * len(calls)
        waiting = list(range(len(calls)))
        asking: dict[int, Any] = {}
        for turn in range(TURNS):
            for pool, numbers in self._by_server(calls, waiting, asking, answers):
                found = self._exchange(
                    pool, [calls[n] for n in numbers], asking=bool(asking), writes=writes
                )
                for number, answer in zip(numbers, found, strict=True):
                    answers[number] = answer
            waiting = [n for n in waiting if _elsewhere(answers[n])]
            if not waiting or turn == TURNS - 1:
                break
            asking = self._redirected(answers, waiting)
        return answers

    def close(self) -> None:
        self.nodes.close()

    def _by_server(
        self,
        calls: Sequence[Call],
        waiting: Sequence[int],
        asking: dict[int, Any],
        answers: list[Any],
    ) -> list[tuple[Any, list[int]]]:
        groups: dict[int, tuple[Any, list[int]]] = {}
        for number in waiting:
            try:
                pool = asking.get(number) or self.nodes.holder(calls[number].keys[0])
            except (RedisError, OSError) as error:
                answers[number] = Failure(error, sent=False)
                continue
            groups.setdefault(id(pool), (pool, []))[1].append(number)
        return list(groups.values())

    def _redirected(self, answers: Sequence[Any], waiting: Sequence[int]) -> dict[int, Any]:
        """Where those calls are to be asked for instead that are on the move."""
        asking: dict[int, Any] = {}
        moved = False
        for number in waiting:
            error = answers[number].error
            if isinstance(error, MovedError):
                moved = True
            elif isinstance(error, AskError):
                with suppress(RedisError, OSError):
                    asking[number] = self.nodes.at(str(error.host), error.port)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        if moved:
            with suppress(RedisError, OSError):
                self.nodes.look_again()
        return asking

    def _exchange(
        self, pool: Any, calls: Sequence[Call], *, asking: bool, writes: bool
    ) -> list[Any]:
        try:
            connection = pool.get_connection()
        except (RedisError, OSError) as error:
            self._lost()
            return [Failure(error, sent=False)] * len(calls)
        try:
            return self._over(connection, calls, asking=asking, writes=writes)
        finally:
            pool.release(connection)

    def _over(
        self, connection: Any, calls: Sequence[Call], *, asking: bool, writes: bool
    ) -> list[Any]:
        answers = self._sent(connection, calls, asking=asking, writes=writes)
        unknown = [n for n, answer in enumerate(answers) if _code(answer) == "NOSCRIPT"]
        if unknown:
            missing = [calls[n] for n in unknown]
            try:
                for text in dict.fromkeys(call.script.text for call in missing):
                    connection.send_command("SCRIPT", "LOAD", text)
                    connection.read_response(disable_decoding=True)
            except (RedisError, OSError) as error:
                again: list[Any] = [Failure(error, sent=False)] * len(missing)
            else:
                again = self._sent(connection, missing, asking=asking, writes=writes)
            for number, answer in zip(unknown, again, strict=True):
                answers[number] = answer
        if any(_code(answer) == "READONLY" for answer in answers):
            self._lost()
            connection.disconnect()
        return answers

    def _sent(
        self, connection: Any, calls: Sequence[Call], *, asking: bool, writes: bool
    ) -> list[Any]:
        commands: list[tuple[Any, ...]] = []
        for call in calls:
            if asking:
                commands.append(("ASKING",))
            commands.append(call.command())
        waits = self._wait if writes else ()
        commands += waits
        answers: list[Any] = []
        try:
            connection.send_packed_command(connection.pack_commands(commands), check_health=False)
            answers += [_response(connection) for _ in commands]
        except BaseException as error:
            connection.disconnect()
            if not isinstance(error, RedisError | OSError):
                raise
            self._lost()
            answers += [Failure(error, sent=True)] * (len(commands) - len(answers))
        waited = answers[len(answers) - len(waits) :]
        answers = answers[: len(answers) - len(waits)]
        if asking:
            answers = answers[1::2]
        return answers if self._copied(waited) else [_uncopied(answer) for answer in answers]

    def _copied(self, waited: Sequence[Any]) -> bool:
        """Whether as many copies were made as the place asks for."""
        for answer in waited:
            if isinstance(answer, Failure):
                return False
            if isinstance(answer, list):  # WAITAOF: how many here, how many elsewhere
                if answer[0] < 1 or answer[1] < self.place.wait_replicas:
                    return False
            elif answer < self.place.wait_replicas:
                return False
        return True

    def _lost(self) -> None:
        with suppress(RedisError, OSError):
            self.nodes.look_again()


def _durability(place: Place) -> tuple[tuple[str | int, ...], ...]:
    """The command behind a group of writes that waits until they are safe."""
    patience = max(1, place.patience_ms // 2)
    if place.wait_aof:
        return (("WAITAOF", 1, place.wait_replicas, patience),)
    if place.wait_replicas:
        return (("WAIT", place.wait_replicas, patience),)
    return ()


def _response(connection: Any) -> Any:
    try:
        return connection.read_response(disable_decoding=True, disconnect_on_error=False)
    except ResponseError as error:
        return Failure(error, sent=False)
    except ConnectionError as error:
        if code_of(error) in {"LOADING", "MASTERDOWN"}:  # classes of redis-py, yet said by a server
            return Failure(error, sent=False)
        raise


def _uncopied(answer: Any) -> Any:
    if isinstance(answer, Failure):
        return answer
    return Failure(StoreUnavailable("too few copies were made in time"), sent=True)


def _code(answer: Any) -> str:
    return code_of(answer.error) if isinstance(answer, Failure) and not answer.sent else ""


def _elsewhere(answer: Any) -> bool:
    return _code(answer) in _REFUSED
