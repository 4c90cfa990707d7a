"""Around every command: run it, and turn however it ends into words and an exit code."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any, ParamSpec

import typer

from .escape import visible
from .exits import Exit, told
from .output import Output

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

P = ParamSpec("P")


def command(fn: Callable[P, Awaitable[Exit | None] | Exit | None]) -> Callable[P, None]:
    """Make a command of a function, ``async`` or not, that returns an exit code or None."""

    @functools.wraps(fn)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        _prepare()
        try:
            code = _call(functools.partial(fn, *args, **kwargs))
        except KeyboardInterrupt:
            code = Exit.INTERRUPTED
        except BrokenPipeError:  # the reader has seen enough; nothing more can be said to it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = Exit.ERROR
        except Exception as error:  # noqa: BLE001 - a person gets a sentence, whatever happened
            if _debugging():
                traceback.print_exc()
            end = told(error)
            Output(as_json=bool(kwargs.get("as_json"))).error(end)
            code = end.code
        raise typer.Exit(int(code or Exit.DONE))

    # The mark keeps the lines of an example as they are; it has no place in a docstring.
    run.__doc__ = (fn.__doc__ or "").replace("\n    Example:", "\n    \b\n    Example:")
    return run


class _Sentences(logging.Handler):
    """What the library logs is for people too: a sentence each, without its traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = f"indoubt: {record.getMessage()}" + (f": {error!r}" if error else "")
        print(visible(text), file=sys.stderr)  # noqa: T201


def _prepare() -> None:
    """Talk to a person: logs as sentences unless they debug, and no locale that stops an answer."""
    log = logging.getLogger("indoubt")
    if not log.handlers and not _debugging():
        log.addHandler(_Sentences(logging.WARNING))
        log.propagate = False
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _debugging() -> bool:
    return os.environ.get("INDOUBT_DEBUG") == "1"


def _call(fn: Callable[[], Any]) -> Any:
    """Call it; stdout is flushed here, so that a reader that has gone is noticed here."""
    answer = fn()
    if inspect.iscoroutine(answer):
        answer = asyncio.run(answer)
    sys.stdout.flush()
    return answer
