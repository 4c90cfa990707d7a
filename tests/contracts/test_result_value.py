"""V-05 to V-10 and V-43 to V-47: the result as a value."""

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest

from indoubt.contracts import ProviderProbeResult, ProviderProbeStatus

FIELDS = (
    "status",
    "execution_id",
    "external_ref",
    "result",
    "error",
    "supports_reattach",
    "supports_cancel_after_restart",
    "raw",
)


def made(**fields: Any) -> ProviderProbeResult:
    """A result of which a test says only what matters."""
    required: dict[str, Any] = {"status": "active", "execution_id": "exec-1"}
    return ProviderProbeResult(**required | fields)


def nested() -> ProviderProbeResult:
    """A result with something at every depth."""
    data: dict[str, Any] = {"a": [1, {"b": [2.5, None, "x"]}], "c": {"d": {}}, "e": []}
    return made(result=data, error={"code": [7]}, raw={"state": data}, external_ref="ref-1")


@pytest.mark.parametrize("name", FIELDS)
def test_v05_frozen(name: str) -> None:
    """V-05 [S] frozen: assignment → FrozenInstanceError."""
    result = made()
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(result, name, getattr(result, name))
    with pytest.raises(dataclasses.FrozenInstanceError):
        delattr(result, name)


def test_v06_slots() -> None:
    """V-06 [S] slots: no `__dict__`; [M] a new attribute raises TypeError on 3.11-3.13.

    (broken super), so assert (AttributeError, TypeError).
    """
    result: Any = made()
    assert not hasattr(result, "__dict__")
    with pytest.raises((AttributeError, TypeError)):
        result.extra = 1


def test_v07_field_order_and_defaults() -> None:
    """V-07 [S] field order, positional construction and defaults as printed."""
    assert tuple(inspect.signature(ProviderProbeResult).parameters) == FIELDS
    bare = ProviderProbeResult(ProviderProbeStatus.ACTIVE, "exec-1")
    values = [getattr(bare, name) for name in FIELDS]
    assert values == [ProviderProbeStatus.ACTIVE, "exec-1", None, None, None, False, False, {}]


def test_v07_positional_construction() -> None:
    """V-07 [S] field order, positional construction and defaults as printed."""
    values: Any = (ProviderProbeStatus.ACTIVE, "e", "r", {"a": 1}, {"b": 2}, True, True, {"c": 3})
    result = ProviderProbeResult(*values)
    assert tuple(getattr(result, name) for name in FIELDS) == values


def test_v08_two_instances_share_nothing_mutable() -> None:
    """V-08 [M] the printed `raw = {}` cannot be written.

    (ValueError mutable default): use a default factory; two instances share nothing mutable.
    """
    spec = {f.name: f for f in dataclasses.fields(ProviderProbeResult)}["raw"]
    assert spec.default is dataclasses.MISSING
    assert spec.default_factory is not dataclasses.MISSING
    first: Any = made()
    with pytest.raises(TypeError):
        first.raw["x"] = 1
    assert made().raw == {}


def test_v09_a_subclass_with_slots_validates_too() -> None:
    """V-09 [M] zero-argument `super()` in `__post_init__` breaks under slots.

    → use `object.__setattr__` only.
    """

    @dataclasses.dataclass(frozen=True, slots=True)
    class Labelled(ProviderProbeResult):
        label: str = ""

    assert Labelled(ProviderProbeStatus.ACTIVE, "e", label="x").label == "x"
    with pytest.raises(ValueError, match="execution_id"):
        Labelled(ProviderProbeStatus.ACTIVE, " ")


def test_v10_replace_validates_again() -> None:
    """V-10 [I] `dataclasses.replace` re-validates.

    (succeeded+result → replace(status=FAILED) → ValueError).
    """
    result = made(status="succeeded", result={"id": 1})
    with pytest.raises(ValueError, match="failed cannot include a result"):
        dataclasses.replace(result, status=ProviderProbeStatus.FAILED)
    assert dataclasses.replace(result, external_ref="r").result == {"id": 1}


def test_v43_equal_content_is_equal() -> None:
    """V-43 [I] equal content ⇒ equal, key order irrelevant."""
    one = made(raw={"a": 1, "b": {"c": [1, 2], "d": 4}})
    two = made(raw={"b": {"d": 4, "c": [1, 2]}, "a": 1})
    assert one == two
    assert hash(one) == hash(two)
    assert one != made(raw={"a": 1, "b": {"c": [2, 1], "d": 4}})


def test_v44_hashable() -> None:
    """V-44 [R] hashable ([M] mappingproxy fields make hash raise on 3.11-3.13)."""
    assert {nested(): "x"}[nested()] == "x"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_v45_picklable(protocol: int) -> None:
    """V-45 [R] picklable, copyable, deepcopy-able, `asdict`-able ([M] all four raise with ...)."""
    back = pickle.loads(pickle.dumps(nested(), protocol))  # noqa: S301 - our own bytes
    assert back == nested()
    assert type(back.raw["state"]["a"]) is type(nested().raw["state"]["a"])


def test_v45_copies() -> None:
    """V-45 [R] picklable, copyable, deepcopy-able, `asdict`-able ([M] all four raise with ...)."""
    assert copy.copy(nested()) == nested()
    assert copy.deepcopy(nested()) == nested()
    assert dataclasses.asdict(nested()) == nested().to_dict() | {"status": "active"}


def test_v46_nested_data_equals_plain_dicts_and_lists() -> None:
    """V-46 [M] a small frozen Mapping with `__hash__`, `__reduce__`, `__deepcopy__` passes ...

    but nested tuples ≠ lists, so `r.result == {"k":[1]}` is False: use a frozen list type that
    equals lists.
    """
    result = made(result={"k": [1, [2]]}).result
    assert result == {"k": [1, [2]]}
    assert {"k": [1, [2]]} == result  # noqa: SIM300 - the other side is asked first
    assert result == {"k": (1, (2,))}
    assert (result != {"k": [1, [2]]}) is False
    assert result != {"k": [1, [3]]}


def test_v47_repr_shows_no_raw() -> None:
    """V-47 [R] repr must not dump `raw` (may hold backend secrets)."""
    shown = repr(made(raw={"token": "sk-secret"}))
    assert "sk-secret" not in shown
    assert "exec-1" in shown
