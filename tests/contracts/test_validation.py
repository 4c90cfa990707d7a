"""V-11 to V-20: what a result refuses."""

from itertools import product
from types import MappingProxyType
from typing import Any

import pytest

from indoubt.contracts import ExecutionSafetyClass, ProviderProbeResult, ProviderProbeStatus

BLANK = ["", " ", "\t\n", "\u00a0", "\u200b", "\ufeff", "\u2060\u200d", " \u200b ", "\x00"]
NO_TEXT: list[object] = [None, 1, b"exec-1", ["exec-1"], True]
NO_MAPPING: list[object] = [[("a", 1)], (), "a", 1, ProviderProbeResult, object(), True]


def made(**fields: Any) -> ProviderProbeResult:
    """A result of which a test says only what matters."""
    required: dict[str, Any] = {"status": "active", "execution_id": "exec-1"}
    return ProviderProbeResult(**required | fields)


@pytest.mark.parametrize("blank", BLANK, ids=ascii)
def test_v11_blank_execution_id(blank: str) -> None:
    """V-11 [S] blank execution_id → ValueError: "", " ", tab and newline, NBSP.

    (all strip to empty). Zero-width only (U+200B, U+FEFF: strip keeps them) → ValueError too.
    """
    with pytest.raises(ValueError, match="execution_id must not be blank"):
        made(execution_id=blank)


@pytest.mark.parametrize("wrong", NO_TEXT)
def test_v12_execution_id_is_text(wrong: object) -> None:
    """V-12 [R] non-str → TypeError; value kept verbatim, not stripped."""
    with pytest.raises(TypeError, match="execution_id must be a str"):
        made(execution_id=wrong)


@pytest.mark.parametrize("kept", [" e ", "e\u200b", "\ne", "\U0001f600", "e\x00"])
def test_v12_execution_id_is_kept_verbatim(kept: str) -> None:
    """V-12 [R] non-str → TypeError; value kept verbatim, not stripped."""
    assert made(execution_id=kept).execution_id == kept


def test_v12_execution_id_without_utf8_is_refused() -> None:
    """V-12 with V-29: text that no store can write is refused here, not later."""
    with pytest.raises(TypeError, match="execution_id: text must not hold a lone surrogate"):
        made(execution_id="e\ud800")


@pytest.mark.parametrize("status", list(ProviderProbeStatus))
def test_v13_plain_status_becomes_the_member(status: ProviderProbeStatus) -> None:
    """V-13 plain-string status is coerced (so `to_dict` and `is` checks work), ..."""
    assert made(status=status.value).status is status
    assert made(status=status).status is status


@pytest.mark.parametrize("wrong", ["bogus", "ACTIVE", "", ExecutionSafetyClass.PURE])
def test_v13_unknown_status(wrong: str) -> None:
    """V-13 ... unknown string → ValueError, other type → TypeError."""
    with pytest.raises(ValueError, match="status must be one of active, succeeded") as caught:
        made(status=wrong)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("wrong", [None, 1, b"active", ProviderProbeStatus, ["active"]])
def test_v13_status_of_another_type(wrong: object) -> None:
    """V-13 ... unknown string → ValueError, other type → TypeError."""
    with pytest.raises(TypeError, match="status must be a str"):
        made(status=wrong)


# (status, result present, error present): written out, not derived from the rules.
VALID = {
    ("active", False, False),
    ("active", False, True),
    ("active", True, False),
    ("active", True, True),
    ("succeeded", False, False),
    ("succeeded", True, False),
    ("failed", False, False),
    ("failed", False, True),
    ("cancelled", False, False),
    ("cancelled", False, True),
    ("cancelled", True, False),
    ("cancelled", True, True),
    ("not_found", False, False),
    ("unknown", False, False),
    ("unavailable", False, False),
}
MATRIX = list(product([s.value for s in ProviderProbeStatus], [False, True], [False, True]))


def test_v14_the_matrix_has_28_cells_15_of_them_valid() -> None:
    """V-14 [S] full matrix of 7 statuses x result present x error present = 28: 15 valid."""
    assert (len(MATRIX), len(VALID)) == (28, 15)
    assert set(MATRIX) >= VALID


@pytest.mark.parametrize("content", [{}, {"a": 1}], ids=["empty", "filled"])
@pytest.mark.parametrize(("status", "has_result", "has_error"), MATRIX)
def test_v14_full_matrix_of_28(
    status: str, content: dict[str, Any], *, has_result: bool, has_error: bool
) -> None:
    """V-14 [S] full matrix of 7 statuses x result present x error present = 28: 15 valid.

    active 4, cancelled 4, succeeded 2 (error absent), failed 2 (result absent),
    not_found/unknown/unavailable 1 each (both absent); 13 → ValueError.
    V-15 [I] "include" means `is not None`: an empty mapping counts as included.
    """
    result, error = content if has_result else None, content if has_error else None
    if (status, has_result, has_error) in VALID:
        probe = made(status=status, result=result, error=error)
        assert (probe.result, probe.error) == (result, error)
    else:
        with pytest.raises(ValueError, match=f"{status} cannot include an? (result|error)"):
            made(status=status, result=result, error=error)


def test_v15_an_empty_mapping_counts_as_included() -> None:
    """V-15 [I] "include" means `is not None`: an empty mapping counts as included."""
    with pytest.raises(ValueError, match="unknown cannot include a result"):
        made(status="unknown", result={})
    with pytest.raises(ValueError, match="succeeded cannot include an error"):
        made(status="succeeded", error={})
    assert made(result={}).result is not None


def test_v16_facts_may_be_missing() -> None:
    """V-16 [S] succeeded without result and failed without error are fine."""
    assert made(status="succeeded").result is None
    assert made(status="failed").error is None


@pytest.mark.parametrize("reattach", [False, True])
@pytest.mark.parametrize("cancel", [False, True])
@pytest.mark.parametrize("status", list(ProviderProbeStatus))
def test_v17_raw_and_flags_are_free(status: str, *, reattach: bool, cancel: bool) -> None:
    """V-17 [I] raw and support flags are unrestricted for every status."""
    raw = {"backend_state": "RUNNING"}
    flags = {"supports_reattach": reattach, "supports_cancel_after_restart": cancel}
    probe = made(status=status, raw=raw, **flags)
    assert probe.to_dict() == made(status=status).to_dict() | flags | {"raw": raw}


@pytest.mark.parametrize("flag", ["supports_reattach", "supports_cancel_after_restart"])
@pytest.mark.parametrize("wrong", [0, 1, "false", "", None, [], 1.0], ids=repr)
def test_v18_flags_are_exactly_bool(flag: str, wrong: object) -> None:
    """V-18 support flags exactly bool; 0, 1, "false", None → TypeError.

    (bool is an int, "false" is truthy).
    """
    with pytest.raises(TypeError, match=f"{flag} must be True or False"):
        made(**{flag: wrong})


@pytest.mark.parametrize("kept", [None, "", " ", "ref-1", "\u200b"])
def test_v19_external_ref_may_be_blank(kept: str | None) -> None:
    """V-19 [R] external_ref str or None, else TypeError; blank accepted (no rule stated)."""
    assert made(external_ref=kept).external_ref == kept


@pytest.mark.parametrize("wrong", [1, b"r", ["r"], False])
def test_v19_external_ref_of_another_type(wrong: object) -> None:
    """V-19 [R] external_ref str or None, else TypeError; blank accepted (no rule stated)."""
    with pytest.raises(TypeError, match="external_ref must be a str"):
        made(external_ref=wrong)


@pytest.mark.parametrize("field", ["result", "error", "raw"])
@pytest.mark.parametrize("wrong", NO_MAPPING, ids=lambda wrong: type(wrong).__name__)
def test_v20_facts_are_mappings(field: str, wrong: object) -> None:
    """V-20 [I] result/error: mapping or None; list, str, dataclass → TypeError.

    raw must be a mapping; None in the constructor → TypeError.
    """
    with pytest.raises(TypeError, match=f"{field} must be a mapping, not {type(wrong).__name__}"):
        made(**{field: wrong})


def test_v20_a_dataclass_is_no_mapping() -> None:
    """V-20 [I] result/error: mapping or None; list, str, dataclass → TypeError."""
    with pytest.raises(TypeError, match="result must be a mapping"):
        made(result=made())


def test_v20_raw_is_never_none() -> None:
    """V-20 ... raw must be a mapping; None in the constructor → TypeError."""
    with pytest.raises(TypeError, match="raw must be a mapping, not NoneType"):
        made(raw=None)


def test_v20_any_mapping_will_do() -> None:
    """V-20 [I] result/error: mapping or None."""
    assert made(result=MappingProxyType({"a": 1})).result == {"a": 1}
