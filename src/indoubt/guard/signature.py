"""A function's parameters as its callers see them: without the one that the ledger gives."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, Signature
from typing import Any

from msgspec import Struct

from indoubt.guard.from_json import resolved

_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_VARIABLE = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_DATA = (str, int, float, bool, bytes, list, dict)
_DATA_NAMES = tuple(kind.__name__ for kind in _DATA)


class Bound(Struct, frozen=True):
    """One call's arguments."""

    args: tuple[Any, ...]
    """What the function is called with by place, once the ledger adds its own by name."""
    kwargs: dict[str, Any]
    """What it is called with by name."""
    values: dict[str, Any]
    """Every parameter but the ledger's, by name, with defaults: what a key function is told."""


class Parameters:
    """The parameters of one function, taken apart once."""

    def __init__(self, fn: Callable[..., Any], injected: str = "effect") -> None:
        whole = _signature(fn)
        self.label = f"{getattr(fn, '__qualname__', type(fn).__name__)}()"
        self.injects = injected in whole.parameters
        self._injected = injected
        self._shift = self._place_of(whole)
        visible = [p for p in whole.parameters.values() if p.name != injected]
        shown = [p.replace(annotation=resolved(p.annotation, fn, extras=True)) for p in visible]
        returns = resolved(whole.return_annotation, fn, extras=True)
        self.signature = whole.replace(parameters=shown, return_annotation=returns)
        self.annotations = _annotations(self.signature)
        self.receiver = _receiver(fn, visible)
        self._take_apart(shown)

    def hide(self, wrapper: Callable[..., Any]) -> None:
        """Make a wrapper show the parameters that its callers see.

        Frameworks read either attribute, and resolve texts in the wrapper's module, where the
        author's names do not exist: so both are set, with what the texts name.
        """
        wrapper.__signature__ = self.signature  # pyright: ignore[reportFunctionMemberAccess]
        wrapper.__annotations__ = dict(self.annotations)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Bound:
        """Match one call's arguments to the parameters.

        Raises:
            TypeError: they do not match, in the words of `inspect.Signature.bind`.
        """
        if len(args) > len(self._by_place) or self.variable:
            return self._bind_slowly(args, kwargs)
        values: dict[str, Any] = dict(zip(self._by_place, args, strict=False))
        if kwargs:
            if not (kwargs.keys() <= self._by_name and values.keys().isdisjoint(kwargs)):
                return self._bind_slowly(args, kwargs)
            values |= kwargs
        if len(values) < self._count:
            for name, default in self.defaults.items():
                values.setdefault(name, default)
            if len(values) < self._count:
                return self._bind_slowly(args, kwargs)
        return self._bound(args, kwargs, values)

    def call_with(self, values: Mapping[str, Any]) -> Bound:
        """Return the call that gives these values; what is not among them has its default.

        Raises:
            TypeError: a value has no parameter, or a required one has no value.
        """
        if not values.keys() <= set(self.names):
            raise TypeError(f"{self.label} has lost a parameter")
        return self.bind(*self.spread(values))

    def spread(self, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return values by place and by name, as a function of the same parameters takes them.

        By place wherever it can be, so that a key function may name its parameters as it likes.

        Raises:
            TypeError: a required parameter has no value.
        """
        rest = dict(values)
        variable: Iterable[Any] = rest.pop(self._var_args, ())
        more: dict[str, Any] = rest.pop(self._var_kwargs, {})
        args: list[Any] = []
        for name in self._by_place:
            if name in rest:
                args.append(rest.pop(name))
            elif name in self.defaults:
                args.append(self.defaults[name])
            else:
                raise TypeError(f"{self.label} missing a required argument: {name!r}")
        return (*args, *variable), {**rest, **more}

    def _take_apart(self, shown: list[Parameter]) -> None:
        self.names = tuple(p.name for p in shown)
        self.defaults: dict[str, Any] = {
            p.name: p.default for p in shown if p.default is not Parameter.empty
        }
        self._count = len(shown)
        self._by_place = tuple(p.name for p in shown if p.kind in _BY_PLACE)
        self._by_name = frozenset(p.name for p in shown if p.kind in _BY_NAME)
        named = {p.kind: p.name for p in shown if p.kind in _VARIABLE}
        self._var_args = named.get(Parameter.VAR_POSITIONAL, "")
        self._var_kwargs = named.get(Parameter.VAR_KEYWORD, "")
        self.variable: dict[str, Any] = {
            name: () if kind is Parameter.VAR_POSITIONAL else {} for kind, name in named.items()
        }

    def _place_of(self, whole: Signature) -> int | None:
        """Return how many arguments stand before the injected one, if others may follow it.

        Raises:
            TypeError: the ledger could not give it, or it is the caller's own data.
        """
        parameter = whole.parameters.get(self._injected)
        if parameter is None or parameter.kind is Parameter.KEYWORD_ONLY:
            self._check_is_no_data(parameter)
            return None
        kinds = {p.kind for p in whole.parameters.values()}
        if parameter.kind not in _BY_NAME or Parameter.VAR_POSITIONAL in kinds:
            raise TypeError(f"{self.label} must take {self._injected!r} by name: put it after a *")
        self._check_is_no_data(parameter)
        return list(whole.parameters).index(self._injected)

    def _check_is_no_data(self, parameter: Parameter | None) -> None:
        if parameter is None:
            return
        if parameter.annotation in _DATA or parameter.annotation in _DATA_NAMES:
            raise TypeError(
                f"{self.label}: the ledger gives {self._injected!r}, an EffectContext: "
                "rename a parameter that is data"
            )

    def _bind_slowly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Bound:
        if self.injects and self._injected in kwargs:
            raise TypeError(f"{self.label} is given {self._injected!r} by the ledger, not by you")
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.label} {error}") from None
        bound.apply_defaults()
        return self._bound(args, kwargs, dict(bound.arguments))

    def _bound(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], values: dict[str, Any]
    ) -> Bound:
        if self._shift is None or len(args) <= self._shift:
            return Bound(args, kwargs, values)
        later = dict(zip(self._by_place[self._shift :], args[self._shift :], strict=False))
        return Bound(args[: self._shift], {**later, **kwargs}, values)


def _signature(fn: Callable[..., Any]) -> Signature:
    if isinstance(fn, classmethod):
        raise TypeError("a classmethod is guarded below its @classmethod, not above it")
    try:
        return inspect.signature(fn)
    except ValueError:
        raise TypeError("a guarded function must have a signature that Python can show") from None


def _annotations(signature: Signature) -> dict[str, Any]:
    shown = {
        p.name: p.annotation
        for p in signature.parameters.values()
        if p.annotation is not Parameter.empty
    }
    if signature.return_annotation is not Signature.empty:
        shown["return"] = signature.return_annotation
    return shown


def _receiver(fn: Callable[..., Any], visible: list[Parameter]) -> str | None:
    """Return the name of the parameter that a method gets its object in."""
    inner = getattr(fn, "__qualname__", "").rpartition("<locals>.")[2]
    if not visible or "." not in inner or inspect.ismethod(fn):
        return None
    first = visible[0]
    is_receiver = first.kind in _BY_PLACE and first.name in ("self", "cls")
    return first.name if is_receiver else None
