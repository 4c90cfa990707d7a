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
    walk = Walk(where, naive=naive, secret=secret)
    return Written(walk.copy(value), walk.special)


class Walk:
    """One walk: `_path` leads from the top to the value in hand, `_open` has what contains it."""

    __slots__ = ("_naive", "_open", "_path", "_secret", "_where", "special")

    def __init__(self, where: str, *, naive: bool, secret: bool) -> None:
        self._where = where
        self._naive = naive
        self._secret = secret
        self._path: list[object] = []
        self._open: set[int] = set()
        self.special = False

    def copy(self, value: object) -> object:
        kind = type(value)
        if kind in _SCALARS:
            return value
        return _writer(kind)(self, value)

    def as_it_is(self, value: object) -> object:
        return value

    def refused(self, value: object) -> object:
        raise self._refusal(f"{type(value).__name__} is not JSON")

    def items(self, value: list[object] | tuple[object, ...]) -> object:
        self._enter(value)
        written = [self._step(index, item) for index, item in enumerate(value)]
        self._open.discard(id(value))
        return written

    def entries(self, value: Mapping[object, object]) -> object:
        self._enter(value)
        written = {key: self._step(key, item) for key, item in value.items()}
        self._open.discard(id(value))
        return written

    def enum(self, value: Enum) -> object:
        self.special = True
        return self.copy(value.value)

    def decimal(self, value: Decimal) -> object:
        if not value.is_finite():
            raise self._refusal("a Decimal must be finite")
        self.special = True
        # The caller's decimal context may ask for a small "e"; the fingerprint must not change.
        return Decimal.__str__(value).upper()

    def instant(self, value: datetime) -> object:
        if value.utcoffset() is None and not self._naive:
            raise ValueError(f"{self._at()}: a datetime must have a time zone")
        return self._clock(value, datetime.isoformat(value))

    def time_of_day(self, value: time) -> object:
        return self._clock(value, time.isoformat(value))

    def day(self, value: date) -> object:
        self.special = True
        return date.isoformat(value)

    def duration(self, value: timedelta) -> object:
        self.special = True
        return msgspec.to_builtins(timedelta(value.days, value.seconds, value.microseconds))

    def uuid(self, value: UUID) -> object:
        self.special = True
        return str(value)

    def dataclass(self, value: Any) -> object:
        """Write what it is made from; what it computes by itself follows from that."""
        self.special = True
        self._enter(value)
        kind: type[Any] = type(value)
        written = {name: self._step(name, getattr(value, name)) for name in _init_fields(kind)}
        self._open.discard(id(value))
        return written

    def struct(self, value: msgspec.Struct) -> object:
        """Write a Struct as msgspec does: its names, its tag, and as an array if it is one."""
        self.special = True
        self._enter(value)
        config = value.__struct_config__
        written = {name: self._step(name, part) for name, part in _struct_parts(value)}
        self._open.discard(id(value))
        if config.array_like:
            return [*([] if config.tag is None else [config.tag]), *written.values()]
        return written if config.tag is None else {config.tag_field: config.tag, **written}

    def model(self, value: Any) -> object:
        """Write a model by its own rules, but see first that they hide or lose nothing."""
        self._enter(value)
        self.copy(value.model_dump(mode="python"))
        self._open.discard(id(value))
        self.special = True
        return value.model_dump(mode="json")

    def hidden(self, value: Any) -> object:
        if not self._secret:
            raise self._refusal(f"{type(value).__name__} hides its value: redact the parameter")
        self.special = True
        return self.copy(value.get_secret_value())

    def _clock(self, value: datetime | time, text: str) -> str:
        offset = value.utcoffset()
        if offset is not None and offset % _MINUTE:
            raise ValueError(f"{self._at()}: an offset from UTC must be in whole minutes")
        self.special = True
        return text[:-6] + "Z" if text.endswith("+00:00") else text

    def _enter(self, container: object) -> None:
        if id(container) in self._open:
            raise self._refusal("it contains itself")
        if len(self._open) == DEPTH_MAX:
            raise self._refusal(f"more than {DEPTH_MAX} levels deep")
        self._open.add(id(container))

    def _step(self, key: object, value: object) -> object:
        if type(value) in _SCALARS:
            return value
        self._path.append(key)
        written = self.copy(value)
        self._path.pop()
        return written

    def _refusal(self, rule: str) -> NotJson:
        return NotJson(self._at(), rule)

    def _at(self) -> str:
        return self._where + "".join(map(_shown, self._path))


_Writer: TypeAlias = Callable[[Walk, Any], object]

# The first that fits: an enum of texts is a text, a datetime is a date too.
_WRITERS: tuple[tuple[type | tuple[type, ...], _Writer], ...] = (
    ((str, int, float), Walk.as_it_is),
    (Enum, Walk.enum),
    ((list, tuple), Walk.items),
    (Decimal, Walk.decimal),
    (datetime, Walk.instant),
    (date, Walk.day),
    (time, Walk.time_of_day),
    (timedelta, Walk.duration),
    (UUID, Walk.uuid),
    (msgspec.Struct, Walk.struct),
    ((bytes, bytearray, memoryview, set, frozenset), Walk.refused),
    (Mapping, Walk.entries),
)


@functools.lru_cache(maxsize=_KINDS_KEPT)
def _writer(kind: type) -> _Writer:
    """Return how values of a type are written."""
    for kinds, writer in _WRITERS:
        if issubclass(kind, kinds):
            return writer
    if callable(getattr(kind, "model_dump", None)):
        return Walk.model
    if callable(getattr(kind, "get_secret_value", None)):
        return Walk.hidden
    return Walk.dataclass if dataclasses.is_dataclass(kind) else Walk.as_it_is


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
