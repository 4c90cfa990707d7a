"""Calls of scripts on the partitions of one ledger, and what is known of each partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...errors import SchemaMissing, SchemaTooNew, StoreRewound
from .faults import answer_lost, trouble
from .wire import Call, Failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...errors import StoreError
    from .keys import Keys
    from .schema import Meta
    from .scripts import Script
    from .wire import Wire

SCHEMA: Final = 1
_encode = msgspec.msgpack.Encoder().encode


class Partitions:
    """Any thread may call. Every call says what this process knows, so a loss is noticed."""

    def __init__(self, wire: Wire, keys: Keys, meta: Meta) -> None:
        self.wire = wire
        self.keys = keys
        self.meta = meta
        self._writes = [0] * keys.partitions
        self._rewound: StoreRewound | None = None

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.keys.partitions))

    def call(
        self,
        script: Script,
        partition: int,
        keys: Sequence[str] = (),
        args: Sequence[bytes | str] = (),
        **head: Any,
    ) -> Call:
        """One call of a script; ``head`` is what it is asked."""
        head |= {
            "schema": SCHEMA,
            "incarnation": self.meta.incarnation,
            "writes": self._writes[partition],
            "partition": partition,
        }
        return Call(script, (self.keys.meta(partition), *keys), (_encode(head), *args))

    def told(self, partition: int, answer: Any) -> list[Any] | StoreError:
        """The answer of a partition, or what is wrong with it."""
        place = self.wire.place
        if self._rewound is not None:
            return self._rewound
        if isinstance(answer, Failure):
            return (answer_lost if answer.sent else trouble)(answer.error, place)
        if answer[0] == b"ok":
            self._writes[partition] = max(self._writes[partition], answer[3])
            return answer
        return self._refused(partition, answer)

    def _refused(self, partition: int, answer: Any) -> StoreError:
        place = self.wire.place
        if answer[0] == b"newer":
            return SchemaTooNew(
                f"{place.shown}: schema {int(answer[1])}, this version knows {SCHEMA}: use a newer"
                " indoubt"
            )
        if answer[0] == b"missing" and not self._writes[partition]:
            return SchemaMissing(
                f"{place.shown}: there is no ledger here: run `indoubt db upgrade`"
            )
        self._rewound = StoreRewound(
            f"{place.shown}: partition {partition} has forgotten writes that this process saw (a"
            " fail-over, a restore or a FLUSHALL): nothing more is written by it; see what is in"
            " doubt, then open the ledger anew"
        )
        return self._rewound

    def read(self, calls: Iterable[tuple[int, Call]]) -> list[list[Any]]:
        """Answers of partitions to questions, all asked at once.

        Raises:
            StoreError: one of them has none.
        """
        asked = list(calls)
        if self._rewound is not None:
            raise self._rewound
        answers = self.wire.run([call for _, call in asked])
        found: list[list[Any]] = []
        for (partition, _), answer in zip(asked, answers, strict=True):
            if isinstance(answer, Failure):
                raise trouble(answer.error, self.wire.place)
            told = self.told(partition, answer)
            if not isinstance(told, list):
                raise told
            found.append(told)
        return found

    def write(self, calls: Sequence[tuple[int, Call]]) -> list[list[Any] | StoreError]:
        """Answers of partitions to calls that write; raises none of them."""
        if self._rewound is not None:
            return [self._rewound] * len(calls)
        answers = self.wire.run([call for _, call in calls], writes=True)
        return [
            self.told(partition, answer)
            for (partition, _), answer in zip(calls, answers, strict=True)
        ]
