"""Values that are not JSON, written as JSON.

Promises: what is written says all that the value holds, or the value is refused; one value has one
text in every process; a refusal names the path and the rule and never the value. What is JSON
already, and what has no form here, is passed on for the JSON door to judge.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, TypeAlias, cast
from uuid import UUID

import msgspec

from indoubt.json_values import DEPTH_MAX, NotJson

_SCALARS = frozenset({str, int, float, bool, type(None)})
_MINUTE = timedelta(minutes=1)
_KEY_SHOWN_MAX = 40
_KINDS_KEPT = 1_024


class Written(NamedTuple):
    """What `to_json` gives."""

    value: Any
    """A copy in which every part that has a form here is in that form."""
    special: bool
    """Whether some part has changed its type by that, so that only an annotation brings it back."""


def to_json(value: object, *, where: str, naive: bool = False, secret: bool = False) -> Written:
    """Write Decimal, dates, UUID, enums, dataclasses, Structs and models as JSON, at every depth.

    Args:
        value: anything; it is not changed.
        where: what the value is to the caller; errors start with it.
        naive: whether a datetime may come without its time zone.
        secret: whether the text is hashed only, so that what hides itself is written out.

    Raises:
        NotJson: the value has no JSON form that says all it holds.
        ValueError: a datetime has no time zone, or one that its text cannot say.
    """
    walk = _Walk(where, naive=naive, secret=secret)
    return Written(walk.copy(value), walk.special)


class _Walk:
    """One walk: `_path` leads from the top to the value in hand, `_open` has what contains it."""

    __slots__ = ("_open", "_path", "_where", "naive", "revealed", "secret", "special")

    def __init__(self, where: str, *, naive: bool, secret: bool) -> None:
        self._where = where
        self._path: list[object] = []
        self._open: set[int] = set()
        self.naive = naive
        self.secret = secret
        self.special = False
        self.revealed = 0

    def copy(self, value: object) -> object:
        kind = type(value)
        return value if kind in _SCALARS else _writer(kind)(self, value)

    def step(self, key: object, value: object) -> object:
        """Copy what stands under `key` of the container in hand."""
        if type(value) in _SCALARS:
            return value
        self._path.append(key)
        written = self.copy(value)
        self._path.pop()
        return written

    def enter(self, container: object) -> None:
        if id(container) in self._open:
            raise self.refusal("it contains itself")
        if len(self._open) == DEPTH_MAX:
            raise self.refusal(f"more than {DEPTH_MAX} levels deep")
        self._open.add(id(container))

    def leave(self, container: object) -> None:
        self._open.discard(id(container))

    def refusal(self, rule: str) -> NotJson:
        return NotJson(self.at(), rule)

    def at(self) -> str:
        return self._where + "".join(map(_shown, self._path))


def _as_it_is(walk: _Walk, value: object) -> object:
    del walk
    return value


def _refused(walk: _Walk, value: object) -> object:
    raise walk.refusal(f"{type(value).__name__} is not JSON")


def _items(walk: _Walk, value: list[object] | tuple[object, ...]) -> object:
    walk.enter(value)
    written = [walk.step(index, item) for index, item in enumerate(value)]
    walk.leave(value)
    return written


def _entries(walk: _Walk, value: Mapping[object, object]) -> object:
    walk.enter(value)
    written = {key: walk.step(key, item) for key, item in value.items()}
    walk.leave(value)
    return written


def _enum(walk: _Walk, value: Enum) -> object:
    walk.special = True
    return walk.copy(value.value)


def _decimal(walk: _Walk, value: Decimal) -> object:
    if not value.is_finite():
        raise walk.refusal("a Decimal must be finite")
    walk.special = True
    # The caller's decimal context may ask for a small "e"; the fingerprint must not change.
    return Decimal.__str__(value).upper()


def _instant(walk: _Walk, value: datetime) -> object:
    if value.utcoffset() is None and not walk.naive:
        raise ValueError(f"{walk.at()}: a datetime must have a time zone")
    return _clock(walk, value, datetime.isoformat(value))


def _time_of_day(walk: _Walk, value: time) -> object:
    return _clock(walk, value, time.isoformat(value))


def _clock(walk: _Walk, value: datetime | time, text: str) -> str:
    offset = value.utcoffset()
    if offset is not None and offset % _MINUTE:
        raise ValueError(f"{walk.at()}: an offset from UTC must be in whole minutes")
    walk.special = True
    return text[:-6] + "Z" if text.endswith("+00:00") else text


def _day(walk: _Walk, value: date) -> object:
    walk.special = True
    return date.isoformat(value)


def _duration(walk: _Walk, value: timedelta) -> object:
    walk.special = True
    return msgspec.to_builtins(timedelta(value.days, value.seconds, value.microseconds))


def _uuid(walk: _Walk, value: UUID) -> object:
    walk.special = True
    return str(value)


def _dataclass(walk: _Walk, value: Any) -> object:
    """Write what it is made from; what it computes by itself follows from that."""
    walk.special = True
    walk.enter(value)
    names = _init_fields(cast("type[Any]", type(value)))
    written = {name: walk.step(name, getattr(value, name)) for name in names}
    walk.leave(value)
    return written


def _struct(walk: _Walk, value: msgspec.Struct) -> object:
    """Write a Struct as msgspec does: its names, its tag, and as an array if it is one."""
    walk.special = True
    walk.enter(value)
    config = value.__struct_config__
    written = {name: walk.step(name, part) for name, part in _struct_parts(value)}
    walk.leave(value)
    if config.array_like:
        return [*([] if config.tag is None else [config.tag]), *written.values()]
    return written if config.tag is None else {config.tag_field: config.tag, **written}


def _model(walk: _Walk, value: Any) -> object:
    """Write a model by its own rules, but see first that they hide or lose nothing."""
    walk.enter(value)
    revealed = walk.revealed
    whole = walk.copy(value.model_dump(mode="python"))
    walk.leave(value)
    walk.special = True
    return value.model_dump(mode="json") if walk.revealed == revealed else whole


def _hidden(walk: _Walk, value: Any) -> object:
    if not walk.secret:
        raise walk.refusal(f"{type(value).__name__} hides its value: redact the parameter")
    walk.special = True
    walk.revealed += 1
    return walk.copy(value.get_secret_value())


_Writer: TypeAlias = Callable[[_Walk, Any], object]

# The first that fits: an enum of texts is a text, a datetime is a date too.
_WRITERS: tuple[tuple[type | tuple[type, ...], _Writer], ...] = (
    ((str, int, float), _as_it_is),
    (Enum, _enum),
    ((list, tuple), _items),
    (Decimal, _decimal),
    (datetime, _instant),
    (date, _day),
    (time, _time_of_day),
    (timedelta, _duration),
    (UUID, _uuid),
    (msgspec.Struct, _struct),
    ((bytes, bytearray, memoryview, set, frozenset), _refused),
    (Mapping, _entries),
)


@functools.lru_cache(maxsize=_KINDS_KEPT)
def _writer(kind: type) -> _Writer:
    """Return how values of a type are written."""
    for kinds, writer in _WRITERS:
        if issubclass(kind, kinds):
            return writer
    if callable(getattr(kind, "model_dump", None)):
        return _model
    if callable(getattr(kind, "get_secret_value", None)):
        return _hidden
    return _dataclass if dataclasses.is_dataclass(kind) else _as_it_is


@functools.lru_cache(maxsize=_KINDS_KEPT)
def _init_fields(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind) if field.init)


@functools.lru_cache(maxsize=_KINDS_KEPT)
def _struct_fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def _struct_parts(value: msgspec.Struct) -> list[tuple[str, object]]:
    """Return what msgspec would write of a Struct, by the names that it writes."""
    config = value.__struct_config__
    may_omit = config.omit_defaults and not config.array_like
    parts: list[tuple[str, object]] = []
    for field in _struct_fields(type(value)):
        part = cast("object", getattr(value, field.name))
        if part is not msgspec.UNSET and not (may_omit and _is_default(field, part)):
            parts.append((field.encode_name, part))
    return parts


def _is_default(field: msgspec.structs.FieldInfo, part: object) -> bool:
    if field.default is not msgspec.NODEFAULT:
        return part is field.default
    return field.default_factory is type(part) and not part


def _shown(key: object) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    if not isinstance(key, str):
        return f"[{type(key).__name__}]"
    if key.isidentifier() and key.isascii() and len(key) <= _KEY_SHOWN_MAX:
        return f".{key}"
    return f"[{key[:_KEY_SHOWN_MAX]!a}]"
