"""Says which extra brings a package that is missing."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def needed(package: str, extra: str) -> Generator[None]:
    """Import inside; where the package is missing, name the extra.

    Raises:
        ModuleNotFoundError: naming the command that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise ModuleNotFoundError(
            f"this kind of store needs {package}: pip install 'indoubt[{extra}]'", name=package
        ) from error


__all__ = ["needed"]
