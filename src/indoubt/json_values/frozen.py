"""JSON values that nobody can change: `freeze` makes them, `thaw` gives a fresh plain copy back.

Frozen values are hashable, picklable and copyable at every depth, and equal to the dicts and lists
they were made from. Equality is Python's, so 1 == True == 1.0: never take it for sameness of JSON,
take the fingerprint (V-32).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn, SupportsIndex, TypeAlias, cast, final, overload

from .exact import Json, walk

Frozen: TypeAlias = "bool | int | float | str | FrozenList | FrozenMap | None"
"""A JSON value whose containers are frozen at every depth."""


@final
class FrozenMap(Mapping[str, "Frozen"]):
    """A frozen JSON object: equal to a dict of equal content, hashable, picklable.

    Raises:
        NotJson: the content is not JSON.
    """

    __slots__ = ("_entries",)
    _entries: dict[str, "Frozen"]

    def __new__(cls, entries: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> "FrozenMap":
        plain = entries if isinstance(entries, FrozenMap) else dict(entries)
        return cast("FrozenMap", freeze(plain))

    def __getitem__(self, key: str, /) -> "Frozen":
        return self._entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrozenMap):
            return self._entries == other._entries
        if isinstance(other, dict):
            return self._entries == other
        return NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._entries.items()))

    def __repr__(self) -> str:
        return f"FrozenMap({thaw(self)!r})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        del value
        raise _frozen(name)

    def __delattr__(self, name: str) -> NoReturn:
        raise _frozen(name)

    def __copy__(self) -> "FrozenMap":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "FrozenMap":
        return self

    def __reduce__(self) -> tuple[type["FrozenMap"], tuple[Json]]:
        return FrozenMap, (thaw(self),)


@final
class FrozenList(tuple["Frozen", ...]):
    """A frozen JSON array: equal to a list or tuple of equal content, hashable, picklable.

    Raises:
        NotJson: the content is not JSON.
    """

    __slots__ = ()

    def __new__(cls, items: Iterable[Any] = ()) -> "FrozenList":
        return cast("FrozenList", freeze(items if isinstance(items, FrozenList) else list(items)))

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> "Frozen": ...
    @overload
    def __getitem__(self, index: "slice[Any, Any, Any]", /) -> "FrozenList": ...
    def __getitem__(self, index: "SupportsIndex | slice[Any, Any, Any]", /) -> "Frozen":
        if isinstance(index, slice):
            return _list(super().__getitem__(index))
        return super().__getitem__(index)

    def __eq__(self, other: object) -> bool:
        return super().__eq__(_as_tuple(other))

    def __ne__(self, other: object) -> bool:
        return super().__ne__(_as_tuple(other))

    def __hash__(self) -> int:
        return super().__hash__()

    def __repr__(self) -> str:
        return f"FrozenList({thaw(self)!r})"

    def __copy__(self) -> "FrozenList":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "FrozenList":
        return self

    def __reduce__(self) -> tuple[type["FrozenList"], tuple[Json]]:
        return FrozenList, (thaw(self),)


def freeze(value: object, *, where: str = "value") -> Frozen:
    """Return `value` as frozen JSON that shares nothing changeable with it (V-21, V-22).

    Args:
        value: any JSON-compatible Python value; a frozen one is returned as it is.
        where: what the value is to the caller; error paths start with it.

    Raises:
        NotJson: the value is not JSON by the rules of `indoubt.json_values.exact`.
    """
    if isinstance(value, FrozenMap | FrozenList):
        return value
    return cast("Frozen", walk(value, where=where, array=_list, mapping=_map))


def thaw(frozen: "Frozen") -> Json:
    """Return a fresh plain copy of a frozen value, dicts and lists, for the caller (V-33)."""
    if isinstance(frozen, FrozenMap):
        return {key: thaw(frozen[key]) for key in frozen}
    if isinstance(frozen, FrozenList):
        return [thaw(item) for item in frozen]
    return frozen


def _as_tuple(other: object) -> object:
    return tuple(cast("list[object]", other)) if isinstance(other, list) else other


def _frozen(name: str) -> AttributeError:
    return AttributeError(f"a FrozenMap cannot be changed (attribute {name!r})")


def _map(entries: dict[str, Any]) -> FrozenMap:
    """Take over a dict that the walk has built, its values frozen already."""
    made = object.__new__(FrozenMap)
    object.__setattr__(made, "_entries", entries)
    return made


def _list(items: Iterable[Any]) -> FrozenList:
    """Take items that are frozen already."""
    return tuple.__new__(FrozenList, items)  # pyright: ignore[reportUnknownMemberType]
