"""How the fake provider can be told to misbehave: one table of behaviours, read by both sides.

A behaviour changes some points of what happens to a request; the points are the fields of `Plan`,
in the order in which they take effect. Faults that match the same request add up, and where two
speak of the same point the one that was set later wins. The client checks a fault with the same
function as the server, so a wrong one is a `ValueError` where it was written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

Behaviour = Literal[
    "apply_then_drop",
    "drop_before_apply",
    "apply_late",
    "apply_then_error",
    "reject",
    "unique",
    "hide",
    "forget_key",
    "slow",
    "gate",
    "hang",
    "lookup",
]
Drop = Literal["rst", "fin"]
Then = Literal["answer", "error", "rst", "fin", "hang"]
LookupAnswer = Literal["unavailable", "unknown", "active", "not_found", "drop"]
On = Literal["act", "find"]
Answer = Literal["answer", "error", "rejection", "rst", "fin"]


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """A fault as it travels: which requests it meets, how often, and what it does to them."""

    behaviour: Behaviour
    key: str | None = None
    times: int | None = None
    on: On = "act"
    delay_ms: int = 0
    how: Drop = "rst"
    then: Then = "answer"
    code: str = "declined"
    status: LookupAnswer = "unavailable"

    def __post_init__(self) -> None:
        _one_of("behaviour", self.behaviour, Behaviour)
        _one_of("on", self.on, On)
        _one_of("how", self.how, Drop)
        _one_of("then", self.then, Then)
        _one_of("status", self.status, LookupAnswer)
        if self.times is not None and self.times < 1:
            raise ValueError("times must be at least 1")
        if self.delay_ms < 0:
            raise ValueError("a delay cannot be negative")
        self._check_options()

    def _check_options(self) -> None:
        allowed = BEHAVIOURS[self.behaviour][0] | {"behaviour", "key", "times"}
        for one in fields(self):
            if one.name not in allowed and getattr(self, one.name) != one.default:
                raise ValueError(f"{self.behaviour!r} takes no {one.name.removesuffix('_ms')!r}")

    @property
    def meets(self) -> On:
        """Which kind of request this fault is for."""
        return "find" if self.behaviour == "lookup" else self.on

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> FaultSpec:
        """Read a spec from JSON.

        Raises:
            ValueError: a name or a value in it is none of ours.
        """
        try:
            return cls(**data)
        except TypeError as wrong:
            raise ValueError(str(wrong)) from wrong


@dataclass(slots=True)
class LiveFault:
    """A fault in the server: what it still has to do, and what has met it so far."""

    id: str
    spec: FaultSpec
    left: int | None
    reached: int = 0
    ended: Literal["", "released", "dropped"] = ""

    def take(self, on: str, key: str | None) -> bool:
        """Whether the fault meets this request; one that counts is used up by it."""
        if self.spec.meets != on or self.left == 0 or self.spec.key not in {None, key}:
            return False
        if self.left is not None:
            self.left -= 1
        return True


@dataclass(slots=True)
class Plan:
    """What will happen to one request, in this order. ``None`` leaves a point to the provider."""

    slow_ms: int = 0
    before: list[LiveFault] = field(default_factory=list["LiveFault"])
    applies: bool = True
    unique: bool = False
    late_ms: int | None = None
    hide_ms: int | None = None
    keep_key_ms: int | None = None
    after: list[LiveFault] = field(default_factory=list["LiveFault"])
    answer: Answer = "answer"
    code: str = ""
    status: LookupAnswer | None = None
    passing: list[LiveFault] = field(default_factory=list["LiveFault"])

    def add(self, fault: LiveFault) -> None:
        """Lay one more fault over the plan."""
        spec = fault.spec
        holds = spec.behaviour in {"gate", "hang"} or spec.then == "hang"
        if not holds:
            self.passing.append(fault)
        elif spec.behaviour == "gate":
            self.before.append(fault)
        else:
            self.after.append(fault)
        for name, value in BEHAVIOURS[spec.behaviour][1](spec).items():
            setattr(self, name, value)


# Which options a behaviour reads (any other is a mistake worth an error), and what it changes.
BEHAVIOURS: dict[str, tuple[set[str], Callable[[FaultSpec], dict[str, Any]]]] = {
    "apply_then_drop": ({"how"}, lambda it: {"applies": True, "answer": it.how}),
    "drop_before_apply": ({"how"}, lambda it: {"applies": False, "answer": it.how}),
    "apply_late": (
        {"delay_ms", "then"},
        lambda it: {
            "applies": True,
            "late_ms": it.delay_ms,
            "answer": "answer" if it.then == "hang" else it.then,
        },
    ),
    "apply_then_error": (set(), lambda _: {"applies": True, "answer": "error"}),
    "reject": ({"code"}, lambda it: {"applies": False, "answer": "rejection", "code": it.code}),
    "unique": (set(), lambda _: {"unique": True}),
    "hide": ({"delay_ms"}, lambda it: {"hide_ms": it.delay_ms}),
    "forget_key": ({"delay_ms"}, lambda it: {"keep_key_ms": it.delay_ms}),
    "slow": ({"delay_ms", "on"}, lambda it: {"slow_ms": it.delay_ms}),
    "gate": ({"on"}, lambda _: {}),
    "hang": ({"on"}, lambda _: {}),
    "lookup": ({"status"}, lambda it: {"status": it.status}),
}


def _one_of(name: str, value: str, literal: Any) -> None:
    if value not in get_args(literal):
        raise ValueError(f"{name} must be one of {', '.join(get_args(literal))}; not {value!r}")
