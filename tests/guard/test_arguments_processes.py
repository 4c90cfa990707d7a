"""S10: one call has one fingerprint, whatever process, locale and hash seed it is made in."""

import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from msgspec import Struct
from pydantic import BaseModel

from indoubt.guard.arguments import Arguments, Recorded
from indoubt.guard.identity import record_id

# Frozen: an unkeyed act is found again by this text. A change of it needs another prefix than v1.
EXPECTED = (
    "v1:c945ad9c14493d59ef0f540c8c3b7b0019046e3e7864b963f965e1fc48241fec",
    "rec_hf4gnwehb4o5cajdzoosc632jw",
)

SETTINGS = [
    {"PYTHONHASHSEED": "0", "LANG": "C", "LC_ALL": "C", "TZ": "UTC"},
    {"PYTHONHASHSEED": "1", "LANG": "tr_TR.UTF-8", "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Kolkata"},
    {
        "PYTHONHASHSEED": "4294967295",
        "LANG": "de_DE.UTF-8",
        "PYTHONUTF8": "0",
        "TZ": "America/Lima",
    },
    {"PYTHONHASHSEED": "random", "LANG": "", "PYTHONOPTIMIZE": "2", "PYTHONIOENCODING": "ascii"},
]


class Color(Enum):
    RED = "I\u0131\u0130i"


class Kind(StrEnum):
    CARD = "card"


@dataclass
class Line:
    sku: str
    price: Decimal


class Pair(NamedTuple):
    at: datetime
    took: timedelta


class Wire(Struct, tag=True):
    day: date
    at: time


class Order(BaseModel):
    id: UUID
    lines: dict[str, Line]


def act(  # noqa: PLR0917
    zeta: Any, alpha: Any, line: Line, pair: Pair, wire: Wire, order: Order,
    color: Color = Color.RED, kind: Kind = Kind.CARD, *more: Any, secret: str, **rest: Any,
) -> None: ...  # fmt: skip


def record(order_of_keys: int) -> Recorded:
    """Record one call; its mappings are filled in one order or the other."""
    keys = ["b", "a", "\u00e9", "e\u0301", "\U0001f4b6", "\uff5e", "B", ""][::order_of_keys]
    values = {key: [1, 1.0, True, None, -0.0, 1e16, 5e-324, 2**70, key] for key in keys}
    lines = {key: Line(key, Decimal("1.50")) for key in keys}
    arguments = Arguments(act, redact=["secret"])
    kwargs: dict[str, Any] = {"secret": "hunter2", **dict.fromkeys(keys[:4], Decimal(7))}
    kwargs |= dict.fromkeys(keys[4:], Decimal(7))
    bound = arguments.bind(
        (
            values, lines, Line("a", Decimal("1E+3")),
            Pair(datetime(2024, 2, 29, tzinfo=UTC), timedelta(seconds=-1)),
            Wire(date(2024, 2, 29), time(1, 2, 3, 4)), Order(id=UUID(int=7), lines=lines),
            Color.RED, Kind.CARD, 1, 2,
        ),
        kwargs,
    )  # fmt: skip
    return arguments.record(bound)


def told(order_of_keys: int) -> tuple[str, str]:
    """What tells that call from every other one."""
    made = record(order_of_keys).fingerprint
    return made, record_id("acm\u00e9", "act", None, "run", made)


def in_another_process(settings: dict[str, str]) -> tuple[str, ...]:
    program = "import runpy, sys; print(*runpy.run_path(sys.argv[1])['told'](-1))"
    ran = subprocess.run(
        [sys.executable, "-c", program, __file__],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return tuple(ran.stdout.split())


def test_s10_here() -> None:
    assert told(1) == told(-1) == EXPECTED


@pytest.mark.parametrize("settings", SETTINGS, ids=[s["PYTHONHASHSEED"] for s in SETTINGS])
def test_s10_in_another_process(settings: dict[str, str]) -> None:
    assert in_another_process(settings) == EXPECTED
