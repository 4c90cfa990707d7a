"""Is there a ledger here, and of which age? Makes it, and brings an older one up to date.

Every partition says what it is part of. The last step of making it calls all of them whole: where
one is whole and another is missing, a part of the ledger has been lost.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...errors import SchemaMissing, SchemaTooNew, SchemaTooOld, StoreBroken, StoreRewound
from ..schema import SchemaStatus
from .faults import trouble
from .keys import PARTITIONS, PARTITIONS_MAX, Keys
from .partitions import SCHEMA
from .scripts import LOOK, OPEN
from .wire import Call, Failure, Wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from .place import Place

    Progress = Callable[[int, int, str], object]

SCHEME: Final = "v1"
_FIRST: Final = "0001_initial"


class Meta(NamedTuple):
    """What a partition, and so the ledger, says of itself."""

    schema: int
    incarnation: str
    scheme: str
    partitions: int
    epoch: int
    whole: bool


def prepare(
    wire: Wire, *, create: bool, upgrade: bool, progress: Progress | None = None
) -> tuple[Keys, Meta]:
    """Make sure that there is a ledger of this version's schema.

    Raises:
        SchemaMissing: there is none, and ``create`` is not given.
        SchemaTooOld: it is older, and ``upgrade`` is not given.
        SchemaTooNew: a newer version made it.
        StoreRewound: a part of it was lost, and ``upgrade`` is not given.
        ValueError: it has another number of partitions.
        StoreUnavailable, StoreBroken: a server cannot be reached or used.
    """
    place = wire.place
    found = _look(wire)
    metas = {n: meta for n, meta in found.items() if meta is not None}
    whole = [meta for meta in metas.values() if meta.whole]
    count = _count(place, whole)
    keys = Keys(place.namespace, count)
    if not whole:
        if not create:
            raise SchemaMissing(f"{place.shown}: there is no ledger: run `indoubt db upgrade`")
        if progress:
            progress(0, 1, _FIRST)
        return keys, _make(wire, keys, metas, epoch=1)
    meta = max(whole, key=lambda known: known.epoch)
    _admit(meta, place, upgrade=upgrade)
    lost = [n for n in range(count) if n not in metas or metas[n].incarnation != meta.incarnation]
    if lost:
        if not upgrade:
            raise StoreRewound(
                f"{place.shown}: partitions {lost} have lost their data, so what was sent from them"
                " is not known: run `indoubt db upgrade`, then see what is in doubt"
            )
        meta = _mend(wire, keys, meta, lost)
    return keys, meta


def schema_status(place: Place) -> SchemaStatus:
    """Look at a ledger without changing it.

    Raises:
        StoreUnavailable, StoreBroken: it cannot be reached or read.
    """
    wire = _wire(place)
    try:
        whole = [meta for meta in _look(wire).values() if meta and meta.whole]
    finally:
        wire.close()
    found = min([meta.schema for meta in whole], default=None)
    return SchemaStatus(found, SCHEMA, () if found is not None else (_FIRST,))


def upgrade(place: Place, progress: Progress | None = None) -> SchemaStatus:
    """Bring a ledger to this version's schema; makes it where there is none.

    Raises:
        SchemaTooNew: a newer version made it; nothing was written.
        StoreUnavailable, StoreBroken: it cannot be reached, or this user may not.
    """
    wire = _wire(place)
    try:
        prepare(wire, create=True, upgrade=True, progress=progress)
    finally:
        wire.close()
    return schema_status(place)


def open_wire(place: Place) -> Wire:
    """A way to the servers; errors are ours.

    Raises:
        StoreUnavailable, StoreBroken: none of them answers.
    """
    return _wire(place)


def _wire(place: Place) -> Wire:
    try:
        return Wire(place)
    except TypeError:
        raise
    except Exception as error:
        raise trouble(error, place) from error


def _look(wire: Wire) -> dict[int, Meta | None]:
    """What every partition says; None where there is none. Asked of as many as there may be."""
    keys = Keys(wire.place.namespace, PARTITIONS_MAX)
    calls = [Call(LOOK, [keys.meta(n)], ()) for n in range(PARTITIONS_MAX)]
    return dict(enumerate(_metas(wire, calls, writes=False)))


def _metas(wire: Wire, calls: list[Call], *, writes: bool) -> list[Meta | None]:
    answers = wire.run(calls, writes=writes)
    for answer in answers:
        if isinstance(answer, Failure):
            raise trouble(answer.error, wire.place)
    return [_meta(answer, wire.place) for answer in answers]


def _meta(answer: list[Any], place: Place) -> Meta | None:
    if answer[0] is None:
        return None
    try:
        schema, incarnation, scheme, partitions, epoch = [text.decode() for text in answer[:5]]
        whole = answer[5] == b"1"
        return Meta(int(schema), incarnation, scheme, int(partitions), int(epoch), whole)
    except (AttributeError, ValueError) as error:
        raise StoreBroken(f"{place.shown}: the ledger's own description is garbled") from error


def _count(place: Place, whole: list[Meta]) -> int:
    kept = {meta.partitions for meta in whole}
    if not kept:
        return place.partitions or PARTITIONS
    (count, *others) = kept
    if others or place.partitions not in {None, count}:
        # Another count would look for records elsewhere, not find them, and run effects again.
        raise ValueError(
            f"{place.shown}: this ledger has {count} partitions, not {place.partitions}"
        )
    return count


def _admit(meta: Meta, place: Place, *, upgrade: bool) -> None:
    if meta.schema > SCHEMA or meta.scheme != SCHEME:
        raise SchemaTooNew(
            f"{place.shown}: schema {meta.schema}, ids of scheme {meta.scheme}; this version knows"
            f" {SCHEMA} and {SCHEME}: use a newer indoubt"
        )
    if meta.schema < SCHEMA and not upgrade:
        raise SchemaTooOld(
            f"{place.shown}: schema {meta.schema}, this version needs {SCHEMA}: run"
            " `indoubt db upgrade`"
        )


def _make(wire: Wire, keys: Keys, begun: dict[int, Meta], *, epoch: int) -> Meta:
    """Make all partitions, then call them whole; of several makers the first one names it."""
    mine = begun[0].incarnation if 0 in begun else secrets.token_hex(8)
    (first,) = _metas(wire, [_open("claim", keys, 0, mine, epoch)], writes=True)
    name = first.incarnation if first else mine
    for act in ("make", "whole"):
        calls = [_open(act, keys, n, name, epoch) for n in range(keys.partitions)]
        made = _metas(wire, calls, writes=True)
    meta = made[0]
    if meta is None or not meta.whole:
        raise StoreBroken(f"{wire.place.shown}: the ledger was removed while it was made")
    return meta


def _mend(wire: Wire, keys: Keys, meta: Meta, lost: list[int]) -> Meta:
    """Make what was lost anew in a later epoch: what is older is in doubt from now on."""
    epoch = meta.epoch + 1
    kept = [n for n in range(keys.partitions) if n not in lost]
    calls = [_open("epoch", keys, n, meta.incarnation, epoch) for n in kept]
    calls += [_open("make", keys, n, meta.incarnation, epoch) for n in lost]
    calls += [_open("whole", keys, n, meta.incarnation, epoch) for n in lost]
    _metas(wire, calls, writes=True)
    return meta._replace(epoch=epoch)


def _open(act: str, keys: Keys, partition: int, incarnation: str, epoch: int) -> Call:
    numbers = (str(keys.partitions), str(epoch))
    args = (act, str(SCHEMA), incarnation, SCHEME, *numbers)
    return Call(OPEN, [keys.meta(partition)], args)
