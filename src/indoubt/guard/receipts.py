"""How the result of a guarded function is recorded, and given back.

Promises: the first caller gets what every later one gets, because all of them get it from the
record; what the record holds is never lost by the way it is shown.
"""

import collections.abc
import inspect
import logging
import typing
from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec

from indoubt.core.bounds import RECEIPT_BYTES
from indoubt.guard.from_json import DoesNotFit, from_json, needs_conversion, resolved
from indoubt.guard.to_json import to_json
from indoubt.json_values import NotJson, detach

_log = logging.getLogger(__name__)
_AWAITED = (collections.abc.Awaitable, collections.abc.Coroutine)


def encode_receipt(value: object) -> bytes:
    """Return a result as JSON text, written as arguments are.

    A datetime without a time zone is taken here, though not as an argument: its text comes back
    as it was, and to refuse it after the effect happened would cost the receipt.

    Raises:
        NotJson: (a TypeError) it has no JSON form.
        TooLarge: (a ValueError) the text is above `RECEIPT_BYTES`.
        ValueError: a date or time in it has no text that says all it holds.
    """
    try:
        return detach(value, where="receipt", max_bytes=RECEIPT_BYTES).text
    except NotJson:
        plain = to_json(value, where="receipt", naive=True).value
        return detach(plain, where="receipt", max_bytes=RECEIPT_BYTES).text


class Receipts:
    """The results of one guarded function, as its callers get them."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn
        self._told = False

    def give_back(self, text: bytes | msgspec.Raw) -> Any:
        """Return a recorded receipt as a fresh value of the type that the function is said to give.

        Without a return annotation, or where that says no more than JSON does, it is plain JSON;
        null is None whatever is annotated. JSON that is not of the annotated type (the class has
        changed since, or a person or probe reported something else) is given as plain JSON too:
        the effect has happened, and a caller who gets an exception instead of its receipt can do
        nothing but lose it. That is the same on every call, and logged once per function, not
        warned about, because a warning may be made an error.
        """
        value = msgspec.json.decode(text)
        if value is None or self._kind is None:
            return value
        try:
            return from_json(value, self._kind)
        except DoesNotFit as misfit:
            self._tell(misfit)
            return value

    @cached_property
    def _kind(self) -> Any:
        """The annotated type if its values are more than JSON, else None."""
        kind = resolved(inspect.signature(self._fn).return_annotation, self._fn)
        if typing.get_origin(kind) in _AWAITED:
            kind = typing.get_args(kind)[-1]
        return kind if needs_conversion(kind) else None

    def _tell(self, misfit: DoesNotFit) -> None:
        if not self._told:
            self._told = True
            name = getattr(self._fn, "__qualname__", type(self._fn).__name__)
            _log.warning("a receipt of %s is no %s: it is given as plain JSON", name, misfit)
