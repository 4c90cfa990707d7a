"""Values that are not JSON as JSON, and JSON as what an annotation names.

Promises: what `to_json` returns says all that the value holds, or the value is refused; one value
has one text in every process; a refusal names the path and the rule and never the value. What is
JSON already, or is no JSON at all, is passed on for the door to judge.
"""

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, cast
from uuid import UUID

import msgspec
from msgspec import inspect as kinds

from indoubt.json_values import DEPTH_MAX, Json, NotJson, canonical

_SCALARS = frozenset({str, int, float, bool, type(None)})
_MINUTE = timedelta(minutes=1)
_KEY_SHOWN_MAX = 40

# What these hold is JSON as it stands: an annotation made of them has nothing to convert.
_JSON_KINDS = (
    kinds.AnyType,
    kinds.NoneType,
    kinds.BoolType,
    kinds.IntType,
    kinds.FloatType,
    kinds.StrType,
    kinds.LiteralType,
    kinds.ListType,
    kinds.DictType,
    kinds.TypedDictType,
    kinds.UnionType,
    kinds.Field,
)


class DoesNotFit(ValueError):
    """The JSON is not of the annotated type; neither it nor the message holds the value."""


class Converted(typing.NamedTuple):
    """What `to_json` gives."""

    value: Any
    """The value with every part that has a JSON form of ours in that form; the door checks it."""
    special: bool
    """Whether any part changed its type by that, so that only an annotation brings it back."""


def to_json(value: object, *, where: str, naive: bool = False, secret: bool = False) -> Converted:
    """Write Decimal, dates, UUID, enums, dataclasses, Structs and models as JSON, at every depth.

    Args:
        value: anything; it is copied, not changed.
        where: what the value is to the caller; errors start with it.
        naive: whether a datetime may come without its time zone.
        secret: whether the text is hashed only, so that what hides itself is written out.

    Raises:
        NotJson: the value has no JSON form that says all it holds.
        ValueError: a datetime without a time zone.
    """
    walk = _Walk(where, naive=naive, secret=secret)
    copied = walk.copy(value)
    return Converted(copied, walk.special)


class _Walk:
    """One walk: `_path` leads from the top to the value in hand, `_open` has what contains it."""

    __slots__ = ("_naive", "_open", "_path", "_secret", "_where", "special")

    def __init__(self, where: str, *, naive: bool, secret: bool) -> None:
        self._where = where
        self._naive = naive
        self._secret = secret
        self._path: list[str | int] = []
        self._open: set[int] = set()
        self.special = False

    def copy(self, value: object) -> object:
        kind = type(value)
        if kind in _SCALARS:
            return value
        if issubclass(kind, Enum) and not issubclass(kind, str | int | float):
            self.special = True
            return self.copy(cast("Enum", value).value)
        if issubclass(kind, list | tuple):
            return self._items(cast("list[object] | tuple[object, ...]", value))
        if issubclass(kind, Mapping):
            return self._inside(value, self._entries, cast("Mapping[object, object]", value))
        text = self._text(value)
        if text is not None:
            self.special = True
            return text
        return self._object(value)

    def _text(self, value: object) -> str | None:
        match value:
            case Decimal():
                return self._decimal(value)
            case datetime():
                self._check_zone(value)
                return _zulu(datetime.isoformat(value))
            case date():
                return date.isoformat(value)
            case time():
                self._check_offset(value)
                return _zulu(time.isoformat(value))
            case timedelta():
                plain = timedelta(value.days, value.seconds, value.microseconds)
                return cast("str", msgspec.to_builtins(plain))
            case UUID():
                return str(value)
            case _:
                return None

    def _decimal(self, value: Decimal) -> str:
        if not value.is_finite():
            raise self._refusal("a Decimal must be finite")
        # The caller's decimal context may ask for a small "e"; the fingerprint must not.
        return Decimal.__str__(value).upper()

    def _check_zone(self, value: datetime) -> None:
        if value.utcoffset() is None and not self._naive:
            raise ValueError(f"{self._at()}: a datetime must have a time zone")
        self._check_offset(value)

    def _check_offset(self, value: datetime | time) -> None:
        offset = value.utcoffset()
        if offset is not None and offset % _MINUTE:
            raise ValueError(f"{self._at()}: the offset from UTC must be in whole minutes")

    def _object(self, value: object) -> object:
        kind = type(value)
        if callable(getattr(kind, "model_dump", None)):
            return self._inside(value, self._model, value)
        if issubclass(kind, msgspec.Struct):
            return self._inside(value, self._struct, cast("msgspec.Struct", value))
        if dataclasses.is_dataclass(kind):
            return self._inside(value, self._entries, _fields(value))
        if callable(getattr(kind, "get_secret_value", None)):
            return self._hidden(value)
        if issubclass(kind, bytes | bytearray | set | frozenset):
            raise self._refusal(f"{kind.__name__} is not JSON")
        return value

    def _items(self, value: list[object] | tuple[object, ...]) -> object:
        return self._inside(value, self._each, value)

    def _each(self, value: list[object] | tuple[object, ...]) -> list[object]:
        return [self._step(index, item) for index, item in enumerate(value)]

    def _entries(self, value: Mapping[object, object]) -> dict[object, object]:
        return {key: self._step(_shown(key), item) for key, item in value.items()}

    def _struct(self, value: msgspec.Struct) -> object:
        """Write a Struct as msgspec does: its names, its tag, and as an array if it is one."""
        self.special = True
        config = value.__struct_config__
        entries = self._entries(_struct_fields(value))
        if config.tag is not None and not config.array_like:
            return {config.tag_field: config.tag, **entries}
        if config.array_like:
            return [*([] if config.tag is None else [config.tag]), *entries.values()]
        return entries

    def _model(self, value: Any) -> object:
        """Write a model by its own rules, but see first that they hide nothing."""
        self.copy(value.model_dump(mode="python"))
        self.special = True
        return value.model_dump(mode="json")

    def _hidden(self, value: Any) -> object:
        if not self._secret:
            raise self._refusal(f"{type(value).__name__} hides its value: redact the parameter")
        self.special = True
        return self.copy(value.get_secret_value())

    def _inside(self, value: object, write: Callable[[Any], object], content: object) -> object:
        if id(value) in self._open:
            raise self._refusal("it contains itself")
        if len(self._open) > DEPTH_MAX:
            raise self._refusal(f"more than {DEPTH_MAX} levels deep")
        self._open.add(id(value))
        written = write(content)
        self._open.discard(id(value))
        self.special = self.special or dataclasses.is_dataclass(value)
        return written

    def _step(self, key: str | int, value: object) -> object:
        self._path.append(key)
        written = self.copy(value)
        self._path.pop()
        return written

    def _refusal(self, rule: str) -> NotJson:
        return NotJson(self._at(), rule)

    def _at(self) -> str:
        return self._where + "".join(
            [f"[{key}]" if isinstance(key, int) else f".{key}" for key in self._path]
        )


def _shown(key: object) -> str:
    text = key if isinstance(key, str) else type(key).__name__
    return ascii(text[:_KEY_SHOWN_MAX])[1:-1]


def _zulu(text: str) -> str:
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text


def _fields(value: Any) -> dict[str, object]:
    """What a dataclass is made from; what it computes by itself follows from that."""
    return {
        field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init
    }


def _struct_fields(value: msgspec.Struct) -> dict[str, object]:
    config = value.__struct_config__
    may_omit = config.omit_defaults and not config.array_like
    entries: dict[str, object] = {}
    for field in msgspec.structs.fields(value):
        content = cast("object", getattr(value, field.name))
        if content is msgspec.UNSET or (may_omit and _is_default(field, content)):
            continue
        entries[field.encode_name] = content
    return entries


def _is_default(field: msgspec.structs.FieldInfo, content: object) -> bool:
    if field.default is not msgspec.NODEFAULT:
        return content is field.default
    return field.default_factory is type(content) and not content


def from_json(value: Json, kind: Any) -> Any:
    """Return a JSON value as an instance of an annotated type.

    Unlike the laxer ways to read JSON this one takes no text for a number: with `int | str` the
    text "7" must stay a text.

    Raises:
        DoesNotFit: it is no such value, or the type is one that JSON cannot be read into.
    """
    try:
        return msgspec.convert(value, kind, dec_hook=_from_model)
    except TypeError:
        pass  # msgspec does not take this type: a union of classes that JSON does not tell apart
    except Exception:  # noqa: BLE001 - constructors and validators of the caller's classes run here
        raise DoesNotFit(_name(kind)) from None
    return _one_of(value, kind)


def _from_model(kind: type[Any], value: object) -> Any:
    """Read a model by its own rules: by the names it reads, else by those it writes."""
    validate = getattr(kind, "model_validate_json", None) or getattr(kind, "model_validate", None)
    if validate is None:
        raise DoesNotFit(_name(kind))
    given = msgspec.json.encode(value) if hasattr(kind, "model_validate_json") else value
    for names in ({}, {"by_alias": False, "by_name": True}):
        try:
            made = validate(given, **names)
        except Exception:  # noqa: BLE001, S112 - validators are the caller's own code
            continue
        if covers(made.model_dump(mode="json"), value):
            return made
    return validate(given)


def _one_of(value: Json, kind: Any) -> Any:
    """Read a member of a union; only one may write itself as exactly this JSON."""
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        raise DoesNotFit(_name(kind))
    fitting: list[Any] = []
    for member in typing.get_args(kind):
        try:
            made = from_json(value, member)
            if canonical(to_json(made, where="value", naive=True).value) == canonical(value):
                fitting.append(made)
        except (TypeError, ValueError):
            continue
    if len(fitting) != 1:
        raise DoesNotFit(_name(kind))
    return fitting[0]


def covers(made: object, recorded: object) -> bool:
    """Whether nothing recorded is lost or changed in what was made; new fields may be there."""
    if isinstance(recorded, dict) and isinstance(made, dict):
        entries = cast("dict[str, object]", made)
        return all(
            key in entries and covers(entries[key], item)
            for key, item in cast("dict[str, object]", recorded).items()
        )
    if isinstance(recorded, list) and isinstance(made, list):
        items = cast("list[object]", made)
        content = cast("list[object]", recorded)
        return len(items) == len(content) and all(map(covers, items, content))
    if isinstance(recorded, bool) or isinstance(made, bool):
        return recorded is made
    return recorded == made


def resolved(annotation: Any, fn: Callable[..., Any], *, extras: bool = False) -> Any:
    """Return what an annotation of `fn` names; a text that names nothing is returned as it is."""
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, _globals(fn), include_extras=extras)["it"]
    except Exception:  # noqa: BLE001 - an annotation may be any expression
        return annotation


def _globals(fn: Any) -> dict[str, Any]:
    inner = inspect.unwrap(getattr(fn, "func", fn))
    inner = getattr(inner, "__func__", inner)
    if not hasattr(inner, "__globals__"):
        inner = type(inner).__call__
    return getattr(inner, "__globals__", {})


def needs_conversion(kind: Any) -> bool:
    """Whether a value of this type is more than the JSON it is written as."""
    if kind is None or isinstance(kind, str) or kind in (object, inspect.Parameter.empty):
        return False
    try:
        return any(not isinstance(node, _JSON_KINDS) for node in _nodes(kind))
    except TypeError:
        return True


def can_convert(kind: Any) -> bool:
    """Whether `from_json` can make values of this type at all."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return all(map(can_convert, typing.get_args(kind)))
    try:
        return all(
            hasattr(node.cls, "model_validate")
            for node in _nodes(kind)
            if isinstance(node, kinds.CustomType)
        )
    except TypeError:
        return False


def _nodes(kind: Any) -> Iterator[Any]:
    """Yield every type that stands in a type.

    Raises:
        TypeError: JSON cannot be read into it.
    """
    todo: list[Any] = [kinds.type_info(kind)]
    seen: set[int] = set()
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        for name in type(node).__struct_fields__:
            part = getattr(node, name)
            parts = part if isinstance(part, tuple) else (part,)
            todo += [item for item in parts if isinstance(item, kinds.Type | kinds.Field)]


def _name(kind: Any) -> str:
    return getattr(kind, "__qualname__", None) or str(kind)
