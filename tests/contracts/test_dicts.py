"""V-33 to V-42: `to_dict` and `from_dict`."""

import copy
import json
from types import MappingProxyType
from typing import Any

import pytest

from indoubt.contracts import ProviderProbeResult, ProviderProbeStatus

KEYS = (
    "status",
    "execution_id",
    "external_ref",
    "result",
    "error",
    "supports_reattach",
    "supports_cancel_after_restart",
    "raw",
)
DATA: dict[str, Any] = {"id": "ch_1", "lines": [1, {"n": 2.5}], "none": None, "m": {}}


def made(**fields: Any) -> ProviderProbeResult:
    """A result of which a test says only what matters."""
    required: dict[str, Any] = {"status": "active", "execution_id": "exec-1"}
    return ProviderProbeResult(**required | fields)


def read(**fields: Any) -> ProviderProbeResult:
    """What `from_dict` makes of the required fields and these."""
    required: dict[str, Any] = {"status": "active", "execution_id": "exec-1"}
    return ProviderProbeResult.from_dict(required | fields)


def shape(status: str, *facts: str) -> ProviderProbeResult:
    """A result with the named facts."""
    return made(status=status, raw=DATA, external_ref="r", **dict.fromkeys(facts, DATA))


SHAPES = [
    shape("active"),
    shape("active", "error"),
    shape("active", "result"),
    shape("active", "result", "error"),
    shape("succeeded"),
    shape("succeeded", "result"),
    shape("failed"),
    shape("failed", "error"),
    shape("cancelled"),
    shape("cancelled", "error"),
    shape("cancelled", "result"),
    shape("cancelled", "result", "error"),
    shape("not_found"),
    shape("unknown"),
    shape("unavailable"),
]


def test_v33_plain_dict_with_a_plain_status() -> None:
    """V-33 [S] plain dict; status exactly `str`; nested data thawed to fresh dict/list each call.

    "to_dict() returns enum values as strings and thaws JSON mappings."
    """
    told = made(status=ProviderProbeStatus.ACTIVE, result=DATA, error=DATA, raw=DATA).to_dict()
    assert type(told) is dict
    assert type(told["status"]) is str
    for name in ("result", "error", "raw"):
        assert type(told[name]) is dict
        assert type(told[name]["lines"]) is list
        assert type(told[name]["lines"][1]) is dict
        assert told[name] == DATA


def test_v33_each_call_gives_fresh_data() -> None:
    """V-33 [S] plain dict; nested data thawed to fresh dict/list each call."""
    probe = made(raw=DATA)
    first = probe.to_dict()
    first["raw"]["lines"][1]["n"] = "changed"
    first["raw"]["m"]["x"] = "changed"
    assert probe.to_dict()["raw"] == DATA
    assert probe.raw == DATA


@pytest.mark.parametrize("probe", [made(), *SHAPES], ids=range(16))
def test_v34_all_eight_keys(probe: ProviderProbeResult) -> None:
    """V-34 [R] all eight keys always present."""
    assert tuple(probe.to_dict()) == KEYS


@pytest.mark.parametrize("probe", SHAPES, ids=range(15))
def test_v35_json_dumps(probe: ProviderProbeResult) -> None:
    """V-35 [I] `json.dumps(to_dict())` works.

    ([M] mappingproxy/abc Mapping are not JSON-serialisable).
    """
    assert json.loads(json.dumps(probe.to_dict())) == probe.to_dict()


@pytest.mark.parametrize("probe", SHAPES, ids=range(15))
def test_v36_round_trip(probe: ProviderProbeResult) -> None:
    """V-36 [I] from_dict(to_dict(r)) == r, also through json text, for all 15 valid shapes."""
    back = ProviderProbeResult.from_dict(probe.to_dict())
    assert back == probe
    assert back.status is probe.status
    assert ProviderProbeResult.from_dict(json.loads(json.dumps(probe.to_dict()))) == probe


def test_v37_omitted_fields() -> None:
    """V-37 [S] omitted flags → False, omitted raw → {}; [I] omitted others → None."""
    told = read().to_dict()
    assert told == {
        "status": "active",
        "execution_id": "exec-1",
        "external_ref": None,
        "result": None,
        "error": None,
        "supports_reattach": False,
        "supports_cancel_after_restart": False,
        "raw": {},
    }
    assert told["supports_reattach"] is told["supports_cancel_after_restart"] is False


@pytest.mark.parametrize("name", ["status", "execution_id"])
def test_v38_missing_required_fields(name: str) -> None:
    """V-38 [S] missing `status` or `execution_id` → KeyError."""
    data = made().to_dict()
    del data[name]
    with pytest.raises(KeyError, match=name):
        ProviderProbeResult.from_dict(data)


def test_v38_order_of_errors() -> None:
    """V-38 [R] KeyError first, then TypeError for shape, then ValueError for combination."""
    wrong: dict[str, Any] = {"status": "bogus", "result": [], "raw": b"x"}
    with pytest.raises(KeyError, match="execution_id"):
        ProviderProbeResult.from_dict(wrong)
    with pytest.raises(TypeError, match="result must be a mapping"):
        read(**wrong)
    with pytest.raises(TypeError, match=r"raw.a: bytes is not JSON"):
        read(status="bogus", execution_id=" ", result={}, raw={"a": b"x"})
    with pytest.raises(TypeError, match="supports_reattach"):
        read(status="bogus", supports_reattach=1)
    with pytest.raises(TypeError, match="execution_id must be a str"):
        read(status="bogus", execution_id=1)
    with pytest.raises(ValueError, match="status must be one of"):
        read(status="bogus", execution_id=" ")


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "bogus"},
        {"status": "succeeded", "error": {}},
        {"status": "failed", "result": {}},
        {"status": "not_found", "result": {}},
        {"status": "unknown", "error": {}},
        {"status": "unavailable", "error": {"a": 1}},
        {"execution_id": " "},
    ],
    ids=str,
)
def test_v39_invalid_values(fields: dict[str, Any]) -> None:
    """V-39 [S] unknown status, invalid combination → ValueError; [I] blank id → ValueError."""
    with pytest.raises(ValueError, match=r"must be one of|cannot include|must not be blank"):
        read(**fields)


@pytest.mark.parametrize("field", ["result", "error", "raw"])
@pytest.mark.parametrize("wrong", [b"x", {1}, float("nan"), {1: 2}, object], ids=str)
def test_v40_data_that_is_not_json(field: str, wrong: Any) -> None:
    """V-40 [S] non-JSON data → TypeError."""
    with pytest.raises(TypeError, match=rf"{field}\.x"):
        read(**{field: {"x": wrong}})


def test_v41_unknown_keys_are_ignored() -> None:
    """V-41 unknown extra keys ignored (forward compatible)."""
    assert read(observed_at="2024-01-01", version=b"2") == made()


@pytest.mark.parametrize("wrong", [None, [], "{}", b"", 1, made()])
def test_v41_only_mappings(wrong: Any) -> None:
    """V-41 non-mapping input → TypeError."""
    with pytest.raises(TypeError, match="data must be a mapping"):
        ProviderProbeResult.from_dict(wrong)


def test_v41_any_mapping() -> None:
    """V-41 non-mapping input → TypeError; so every mapping will do."""
    data = made(raw=DATA).to_dict()
    assert ProviderProbeResult.from_dict(MappingProxyType(data)) == made(raw=DATA)


def test_v41_input_is_neither_mutated_nor_aliased() -> None:
    """V-41 input not mutated or aliased."""
    data = shape("active", "result", "error").to_dict()
    before = copy.deepcopy(data)
    probe = ProviderProbeResult.from_dict(data)
    assert data == before
    for name in ("result", "error", "raw"):
        data[name]["lines"].append("late")
        data[name]["late"] = 1
    assert probe.to_dict() == before


@pytest.mark.parametrize("flag", ["supports_reattach", "supports_cancel_after_restart"])
def test_v41_null_flag(flag: str) -> None:
    """V-41 null flag → TypeError; V-20: so is a null raw."""
    with pytest.raises(TypeError, match=flag):
        read(**{flag: None})
    with pytest.raises(TypeError, match="raw must be a mapping"):
        read(raw=None)


def test_v42_a_subclass_reads_itself() -> None:
    """V-42 [I] a subclass's from_dict returns the subclass."""

    class Labelled(ProviderProbeResult):
        pass

    assert type(Labelled.from_dict(made().to_dict())) is Labelled
