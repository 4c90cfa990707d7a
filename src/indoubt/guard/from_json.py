"""JSON read into what an annotation names.

Promises: nothing here raises what the caller's classes raise, nor says what the JSON holds; a text
is never taken for a number.
"""

import collections.abc
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec
from msgspec import inspect as kinds

from indoubt.guard.to_json import to_json
from indoubt.json_values import Json, canonical

_UNIONS = (typing.Union, types.UnionType)

# What these hold is JSON as it stands: an annotation made of them has nothing to convert.
_JSON_KINDS = (
    kinds.AnyType,
    kinds.BoolType,
    kinds.DictType,
    kinds.Field,
    kinds.FloatType,
    kinds.IntType,
    kinds.ListType,
    kinds.LiteralType,
    kinds.NoneType,
    kinds.StrType,
    kinds.TypedDictType,
    kinds.UnionType,
)
# What msgspec knows as classes, though any JSON may stand there.
_ANYTHING = (object, collections.abc.Iterable)


class DoesNotFit(ValueError):
    """The JSON is not of the annotated type; the message is the type's name, never the value."""


def from_json(value: Json, kind: Any) -> Any:
    """Return a JSON value as an instance of an annotated type.

    This is msgspec's strict reading. The lax one takes "7" for a number where `int | str` is
    annotated, and such a text is everyday (an order's id).

    Raises:
        DoesNotFit: it is no such value, or the type is one that JSON cannot be read into.
    """
    made = _attempt(_convert, value, kind)
    if made is _MISFIT and typing.get_origin(kind) in _UNIONS:
        made = _one_of(value, typing.get_args(kind))
    if made is _MISFIT:
        raise DoesNotFit(getattr(kind, "__qualname__", None) or str(kind))
    return made


def covers(made: object, recorded: object) -> bool:
    """Whether nothing of the recorded JSON is lost or changed in what was made of it.

    Fields may be new: a class got one with a default since. 3 may have become 3.0.
    """
    if isinstance(recorded, dict) and isinstance(made, dict):
        entries = cast("dict[str, object]", made)
        return all(
            key in entries and covers(entries[key], item)
            for key, item in cast("dict[str, object]", recorded).items()
        )
    if isinstance(recorded, list) and isinstance(made, list):
        made_items = cast("list[object]", made)
        items = cast("list[object]", recorded)
        return len(made_items) == len(items) and all(map(covers, made_items, items))
    if isinstance(recorded, bool) or isinstance(made, bool):
        return recorded is made
    return recorded == made


def resolved(annotation: Any, fn: Callable[..., Any], *, extras: bool = False) -> Any:
    """Return what an annotation of `fn` names; a text that names nothing here stays a text.

    Each is resolved by itself: one that is imported for the type checker only must not leave the
    others without their meaning.
    """
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, _globals(fn), include_extras=extras)["it"]
    except Exception:  # noqa: BLE001 - an annotation may be any expression
        return annotation


def needs_conversion(kind: Any) -> bool:
    """Whether a value of this type is more than the JSON that it is written as."""
    if isinstance(kind, str) or kind is inspect.Parameter.empty:
        return False
    nodes = _nodes(kind)
    return nodes is None or not all(map(_is_json, nodes))


def can_convert(kind: Any) -> bool:
    """Whether `from_json` can make values of this type at all."""
    if typing.get_origin(kind) in _UNIONS:
        return all(map(can_convert, typing.get_args(kind)))
    nodes = _nodes(kind)
    return nodes is not None and all(
        _is_json(node) or hasattr(node.cls, "model_validate")
        for node in nodes
        if isinstance(node, kinds.CustomType)
    )


_MISFIT = object()


def _attempt(make: Callable[..., Any], *args: Any) -> Any:
    """Call what runs constructors and validators of the caller's classes: they raise anything.

    What they raise holds values, so it is not chained to what we raise.
    """
    try:
        return make(*args)
    except Exception:  # noqa: BLE001
        return _MISFIT


def _convert(value: Json, kind: Any) -> Any:
    return msgspec.convert(value, kind, dec_hook=_read_model)


def _read_model(kind: type[Any], value: Json) -> Any:
    """Read a model by its own rules: by the names that it reads, else by those that it writes."""
    by_text = getattr(kind, "model_validate_json", None)
    validate = by_text or getattr(kind, "model_validate", None)
    if validate is None:
        raise DoesNotFit(kind.__qualname__)
    # Strict models take the text of a date only where they know that they read JSON.
    given = msgspec.json.encode(value) if by_text else value
    by_written_names = functools.partial(validate, by_alias=False, by_name=True)
    for read in (validate, by_written_names):
        made = _attempt(read, given)
        if made is not _MISFIT and covers(made.model_dump(mode="json"), value):
            return made
    return validate(given)


def _one_of(value: Json, members: tuple[Any, ...]) -> Any:
    """Read the member of a union that writes itself as exactly this JSON, if only one does."""
    fitting: list[Any] = []
    for member in members:
        made = _attempt(from_json, value, member)
        if made is not _MISFIT and _attempt(_text, made) == canonical(value):
            fitting.append(made)
    return fitting[0] if len(fitting) == 1 else _MISFIT


def _text(made: Any) -> bytes:
    return canonical(to_json(made, where="value", naive=True).value)


def _globals(fn: Any) -> dict[str, Any]:
    inner = inspect.unwrap(getattr(fn, "func", fn))  # of a partial
    inner = getattr(inner, "__func__", inner)  # of a bound method
    if not hasattr(inner, "__globals__"):
        inner = type(inner).__call__  # of an object that can be called
    return getattr(inner, "__globals__", {})


def _nodes(kind: Any) -> list[Any] | None:
    """Return every type that stands in a type; None if JSON cannot be read into it."""
    top = _attempt(kinds.type_info, kind)
    return None if top is _MISFIT else list(_walk(top))


def _is_json(node: Any) -> bool:
    if isinstance(node, kinds.CustomType):
        return node.cls in _ANYTHING
    return isinstance(node, _JSON_KINDS)


def _walk(top: kinds.Type) -> Iterator[Any]:
    todo: list[Any] = [top]
    seen: set[int] = set()  # a class may hold itself
    while todo:
        node = todo.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            todo += _parts(node)


def _parts(node: Any) -> Iterator[Any]:
    for name in cast("tuple[str, ...]", node.__struct_fields__):
        part = getattr(node, name)
        parts = cast("tuple[Any, ...]", part) if isinstance(part, tuple) else (part,)
        yield from [item for item in parts if isinstance(item, kinds.Type | kinds.Field)]
