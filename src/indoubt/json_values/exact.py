"""The exact rules of JSON at the door, as one walk over a Python value.

JSON here is: None, bool, int below 2**4096 in size, finite float, str without lone surrogates, list
or tuple, mapping with str keys; at most 64 containers deep and without cycles. Subclasses (enums
with a str or int in them, OrderedDict, named tuples) are taken as the plain value they hold.
Everything else is refused with `NotJson`.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""Plain JSON: fresh dicts and lists that belong to whoever holds them."""

DEPTH_MAX = 64
"""How many containers may stand inside one another: deeper data is a mistake or an attack."""

INT_BITS_MAX = 4096
"""Integers of this many bits pass, of one more not: 1,234 digits; CPython's limit is 4,300."""

_KEY_SHOWN_MAX = 40
_PATH_ENDS_SHOWN = 4


class NotJson(TypeError):
    """The value is not JSON: `path` says where, `rule` says why. Neither holds the value itself.

    A caller can do nothing but pass something else; nothing was written or sent.
    """

    def __init__(self, path: str, rule: str) -> None:
        super().__init__(path, rule)
        self.path = path
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.path}: {self.rule}"


def exact(value: object, *, where: str = "value") -> Json:
    """Return a plain, fresh copy of `value`, which shares no container with it.

    Args:
        value: anything.
        where: what the value is to the caller; error paths start with it.

    Raises:
        NotJson: the value breaks a rule of this module.
    """
    return cast("Json", walk(value, where=where, array=list, mapping=_same))


def walk(
    value: object,
    *,
    where: str,
    array: Callable[[Iterable[Any]], object],
    mapping: Callable[[dict[str, Any]], object],
) -> object:
    """Copy `value` by the rules of this module, building its containers with `array` and `mapping`.

    Raises:
        NotJson: the value breaks a rule of this module.
    """
    return _Walk(where, array, mapping).copy(value)


def _same(built: dict[str, Any]) -> dict[str, Any]:
    return built


class _Walk:
    """One walk: `_path` leads from the top to the value in hand, `_open` has what contains it."""

    __slots__ = ("_array", "_mapping", "_open", "_path", "_where")

    def __init__(
        self,
        where: str,
        array: Callable[[Iterable[Any]], object],
        mapping: Callable[[dict[str, Any]], object],
    ) -> None:
        self._where = where
        self._array = array
        self._mapping = mapping
        self._path: list[str | int] = []
        self._open: set[int] = set()

    def copy(self, value: object) -> object:
        # The type decides, not isinstance: a mock may claim any __class__.
        kind = type(value)
        if value is None or kind is bool:
            return value
        if issubclass(kind, str):
            return self._text(cast("str", value), "text")
        if issubclass(kind, int):
            return self._integer(cast("int", value))
        if issubclass(kind, float):
            return self._number(cast("float", value))
        if issubclass(kind, list | tuple):
            return self._items(cast("list[object] | tuple[object, ...]", value))
        if issubclass(kind, Mapping):
            return self._entries(cast("Mapping[object, object]", value))
        raise self._refusal(f"{kind.__name__} is not JSON")

    def _text(self, value: str, what: str) -> str:
        # Past any override: what a str enum, or a str with markup, really holds.
        plain = str.__str__(value)
        if _has_lone_surrogate(plain):
            raise self._refusal(f"{what} must not hold a lone surrogate")
        return plain

    def _integer(self, value: int) -> int:
        plain = int.__int__(value)
        if plain.bit_length() > INT_BITS_MAX:
            raise self._refusal(f"an integer must be smaller than 2**{INT_BITS_MAX}")
        return plain

    def _number(self, value: float) -> float:
        plain = float.__float__(value)
        if not math.isfinite(plain):
            raise self._refusal("a float must be finite")
        return plain

    def _items(self, value: list[object] | tuple[object, ...]) -> object:
        self._enter(value)
        built: list[object] = []
        for index, item in enumerate(value):
            self._path.append(index)
            built.append(self.copy(item))
            self._path.pop()
        self._open.discard(id(value))
        return self._array(built)

    def _entries(self, value: Mapping[object, object]) -> object:
        self._enter(value)
        built: dict[str, Any] = {}
        for key, item in value.items():
            name = self._key(key)
            if name in built:
                raise self._refusal("two keys have the same text")
            self._path.append(name)
            built[name] = self.copy(item)
            self._path.pop()
        self._open.discard(id(value))
        return self._mapping(built)

    def _key(self, key: object) -> str:
        kind = type(key)
        if not issubclass(kind, str):
            raise self._refusal(f"keys must be str, not {kind.__name__}")
        return self._text(cast("str", key), "a key")

    def _enter(self, container: object) -> None:
        if id(container) in self._open:
            raise self._refusal("it contains itself")
        if len(self._open) == DEPTH_MAX:
            raise self._refusal(f"more than {DEPTH_MAX} levels deep")
        self._open.add(id(container))

    def _refusal(self, rule: str) -> NotJson:
        steps = [_step(key) for key in self._path]
        if len(steps) > 2 * _PATH_ENDS_SHOWN:
            steps[_PATH_ENDS_SHOWN:-_PATH_ENDS_SHOWN] = ["..."]
        return NotJson(self._where + "".join(steps), rule)


def _has_lone_surrogate(text: str) -> bool:
    # A plain answer instead of a chained error: the codec's exception carries the text.
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _step(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    if key.isidentifier() and key.isascii() and len(key) <= _KEY_SHOWN_MAX:
        return f".{key}"
    shown = key if len(key) <= _KEY_SHOWN_MAX else key[:_KEY_SHOWN_MAX] + "..."
    return f"[{shown!a}]"
