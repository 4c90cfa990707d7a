"""How a guarded function's arguments are recorded, and rebuilt for a replay.

Promises: what is recorded was checked before anything is sent; one call has one fingerprint, in
every process; arguments equal to their defaults are left out, so that a new parameter with
a default changes no fingerprint; `rebuild` gives all that was recorded, in the annotated types, or
raises.
"""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, cast

import msgspec

from indoubt.core.bounds import PAYLOAD_BYTES
from indoubt.guard.from_json import (
    DoesNotFit,
    can_convert,
    covers,
    from_json,
    needs_conversion,
    resolved,
)
from indoubt.guard.signature import Bound, Parameters
from indoubt.guard.to_json import to_json
from indoubt.json_values import Encoded, Json, NotJson, canonical, detach

__all__ = ["REDACTED", "Arguments", "Bound", "NotRebuildable", "Recorded"]

REDACTED = {"redacted": True}
"""Stands in the stored text where an argument was not to be kept."""

_EXACT = frozenset({str, int, bool, type(None)})
"""Values of these types that are equal have the same JSON text."""

_PLAIN = frozenset({str, int, float, bool, type(None), dict, list, tuple})


class NotRebuildable(TypeError):
    """The call cannot be made again from what was recorded of it; the caller's own repeat can."""


class Recorded(msgspec.Struct, frozen=True):
    """What is kept of one call's arguments."""

    text: bytes
    """JSON object: parameter name to value, in the caller's order."""
    fingerprint: str
    """Of all the arguments but the ignored ones, with the true value of what is redacted."""
    redacted: bool
    """Whether `text` hides a value."""
    rebuildable: bool = True
    """Whether `rebuild` can give these arguments: values that are no JSON need annotations."""


class Arguments:
    """The arguments of one guarded function, as they are recorded.

    Args:
        fn: the function; `self` or `cls` of a method in a class is ignored.
        ignore: parameters that are no part of what is done (a framework's context).
        redact: parameters whose value is hashed but not stored. A hash of a short secret can be
            guessed: what must not be found out at all belongs in `ignore`.
        injected: the parameter that the ledger gives, if the function has it.

    Raises:
        ValueError: a name in `ignore` or `redact` is no parameter, or is in both.
        TypeError: the signature cannot be guarded.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        ignore: Iterable[str] = (),
        redact: Iterable[str] = (),
        injected: str = "effect",
    ) -> None:
        self._fn = fn
        self._parameters = Parameters(fn, injected)
        self._ignore = self._names("ignore", ignore)
        self._redact = self._names("redact", redact)
        if self._ignore & self._redact:
            raise ValueError("redact: a parameter that is ignored is not recorded at all")
        if self._parameters.receiver:
            self._ignore |= {self._parameters.receiver}
        self._where = self._parameters.label
        self.injects = self._parameters.injects
        self.signature = self._parameters.signature
        self.annotations = self._parameters.annotations
        self.hide = self._parameters.hide
        self.bind = self._parameters.bind
        self._defaults = self._recorded_defaults()

    def record(self, bound: Bound) -> Recorded:
        """Return what is kept of a call; see the module for what it promises.

        Raises:
            NotJson: (a TypeError) an argument has no JSON form; the parameter is named.
            TooLarge: (a ValueError) the text is above `PAYLOAD_BYTES`.
            ValueError: a datetime without a time zone.
        """
        data = self._data(bound.values)
        encoded, rebuildable = self._plain(data), True
        if encoded is None:
            encoded, rebuildable = self._convert(data)
        if self._redact:
            return self._hide_values(encoded, rebuildable=rebuildable)
        return Recorded(
            encoded.text, encoded.fingerprint(), redacted=False, rebuildable=rebuildable
        )

    @cached_property
    def replayable(self) -> bool:
        """Whether a call can be made again from its record, as far as the function tells.

        Asked when it is needed and not when the function is defined: annotations may name what
        is defined later.
        """
        if self._ignore or self._redact:
            return False
        return all(map(can_convert, self._kinds.values()))

    def rebuild(self, text: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a recorded call: values of the annotated types, else JSON.

        Raises:
            NotRebuildable: something was not recorded, or does not come back as it was.
        """
        if self._ignore or self._redact:
            raise NotRebuildable(f"{self._where}: not all of its arguments are recorded")
        entries = cast("dict[str, Json]", msgspec.json.decode(text))
        values = {name: self._value(name, entry) for name, entry in entries.items()}
        try:
            bound = self._parameters.call_with(values)
        except TypeError as error:
            raise NotRebuildable(str(error)) from None
        return bound.args, bound.kwargs

    def ask(self, fn: Callable[..., Any], bound: Bound) -> Any:
        """Call a function that takes the same arguments, a key function for one, with defaults."""
        args, kwargs = self._parameters.spread(bound.values)
        return fn(*args, **kwargs)

    def _names(self, which: str, names: Iterable[str]) -> frozenset[str]:
        if isinstance(names, str):
            raise TypeError(f"{which} takes names, not one str: write ({names!r},)")
        found = frozenset(names)
        unknown = sorted(found - set(self._parameters.names), key=str)
        if unknown:
            raise ValueError(f"{which}: {self._parameters.label} has no {unknown[0]!r}")
        return found

    def _recorded_defaults(self) -> dict[str, tuple[Any, bytes | None]]:
        """Return each default with its text, if it has one: a sentinel has none."""
        defaults: dict[str, tuple[Any, bytes | None]] = {}
        for name, default in self._parameters.defaults.items():
            defaults[name] = default, self._text(name, default)
        for name, empty in self._parameters.variable.items():
            defaults[name] = empty, canonical(empty)
        return {name: entry for name, entry in defaults.items() if name not in self._ignore}

    def _data(self, values: dict[str, Any]) -> dict[str, Any]:
        """Leave out what is ignored, and what the function would take by itself."""
        if self._ignore:
            data = {name: value for name, value in values.items() if name not in self._ignore}
        else:
            data = dict(values)
        for name, (default, text) in self._defaults.items():
            value = data[name]
            if value is default or self._is_default(name, value, default, text):
                del data[name]
        return data

    def _is_default(self, name: str, value: Any, default: Any, text: bytes | None) -> bool:
        try:
            if text is None or value != default:
                return False
        except (TypeError, ValueError):  # arrays compare to arrays
            return False
        if type(value) is type(default) and type(value) in _EXACT:
            return True
        return self._text(name, value) == text

    def _text(self, name: str, value: Any) -> bytes | None:
        try:
            converted = to_json(value, where=self._where, secret=name in self._redact)
            return canonical(converted.value)
        except (TypeError, ValueError):
            return None

    def _plain(self, data: dict[str, Any]) -> Encoded | None:
        """Take arguments that are JSON through the door as they are; None if some are not."""
        if not _PLAIN.issuperset(map(type, data.values())):
            return None
        try:
            return detach(data, where=self._where, max_bytes=PAYLOAD_BYTES)
        except NotJson:
            return None

    def _convert(self, data: dict[str, Any]) -> tuple[Encoded, bool]:
        """Write as JSON what is not, and see whether it would come back."""
        written = {
            name: to_json(value, where=f"{self._where}.{name}", secret=name in self._redact)
            for name, value in data.items()
        }
        plain = {name: entry.value for name, entry in written.items()}
        encoded = detach(plain, where=self._where, max_bytes=PAYLOAD_BYTES)
        entries = cast("dict[str, Json]", encoded.value)
        special = [name for name, entry in written.items() if entry.special]
        rebuildable = all(
            self._comes_back(name, entries[name], data[name])
            for name in special
            if name not in self._redact
        )
        return encoded, rebuildable

    def _comes_back(self, name: str, entry: Json, value: Any) -> bool:
        kind = self._kinds.get(name)
        if kind is None:
            return False
        try:
            made = from_json(entry, kind)
            return type(made) is type(value) and bool(made == value)
        except (TypeError, ValueError):
            return False

    def _hide_values(self, encoded: Encoded, *, rebuildable: bool) -> Recorded:
        entries = cast("dict[str, Json]", encoded.value)
        hidden = {name: REDACTED for name in entries if name in self._redact}
        text = msgspec.json.encode({**entries, **hidden}) if hidden else encoded.text
        return Recorded(text, encoded.fingerprint(), bool(hidden), rebuildable and not hidden)

    @cached_property
    def _kinds(self) -> dict[str, Any]:
        """The types of the parameters whose values are more than JSON."""
        found: dict[str, Any] = {}
        for parameter in self.signature.parameters.values():
            kind = resolved(parameter.annotation, self._fn)
            if parameter.kind is parameter.VAR_POSITIONAL and needs_conversion(kind):
                kind = tuple[kind, ...]
            if parameter.kind is parameter.VAR_KEYWORD and needs_conversion(kind):
                kind = dict[str, kind]
            if needs_conversion(kind):
                found[parameter.name] = kind
        return found

    def _value(self, name: str, entry: Json) -> Any:
        kind = self._kinds.get(name)
        if kind is None or entry is None:
            return entry
        try:
            made = from_json(entry, kind)
            again = to_json(made, where=name).value
        except (DoesNotFit, NotJson, ValueError):
            made = again = _NOTHING
        if again is _NOTHING or not covers(msgspec.json.decode(canonical(again)), entry):
            raise NotRebuildable(f"{self._where}: {name!r} is not recorded as its annotation says")
        return made


_NOTHING = object()
