"""Ids of acts: frozen for ever, and equal exactly if the acts are the same."""

import base64
import functools
import hashlib
import itertools
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from indoubt.core.bounds import KEY_CHARS, NAME_CHARS
from indoubt.errors import ScopeRequired
from indoubt.guard.identity import (
    check_key,
    check_name,
    check_scope,
    check_tenant,
    effect_name,
    idempotency_key,
    record_id,
)

ZEROS = "v1:" + "0" * 64
# (tenant, name, key, scope, fingerprint) -> record id, idempotency keys of series 1 and 2. Never
# edit a line: records in people's stores have these ids, and their providers these keys.
GOLDEN: dict[tuple[str | None, ...], tuple[str, str, str]] = {
    (None, "refund", "order-7", None, None): (
        "rec_vhecvxbjz5gphkerwktl3gxh4f",
        "idk_kuahlwk7cflqp6cz5iroabfxchuluvdt",
        "idk_oc3nh4ykkx6txsoe6qq3kpsvfdlquvbd",
    ),
    ("acme", "refund", "order-7", None, None): (
        "rec_nmiwoclh5rneyizbkzxiqbsgal",
        "idk_4lbfn67gvsrmu3m3ldwwhx2mepkisvsr",
        "idk_akr3qn3bbqggd5n42yxcagbg72e5p2gg",
    ),
    ("acme", "refund", None, "run-42", ZEROS): (
        "rec_mnzcttwhhfn3x2hh2zlhtdybhp",
        "idk_ipr727s56u3sgjt6il7osvxis7dqwr7z",
        "idk_uf6d2lukgj622w52y7qh6pccvb57prmm",
    ),
    (None, "Shop.refund", None, "run-42", ZEROS): (
        "rec_7pahjm6nuq2x5hdikpklhhmyon",
        "idk_xjzwn5mnplqzcpolslyudqdmhej3mgxh",
        "idk_keqdzivqljyjwhwpmc46f4v6akclcfgl",
    ),
    ("acm\xe9", "\u8fd4\u91d1", "\U0001f4b6", None, None): (
        "rec_w3zu4u4k2eoj2ounh4wjv4flbj",
        "idk_h5h7cabx5cgw5fof4vw6txlqnily3doz",
        "idk_5w732lfgdl4jl54t5vw5ndafgabclgwq",
    ),
    (None, "a", "bc", None, None): (
        "rec_zhzo5c7jrpgs3vi6gtet4ftvyc",
        "idk_ihuj2fbaztx32tbmzjseveqbwz3tgnba",
        "idk_pxkqj3u4sygy3xoimuahazwz2qh5adjl",
    ),
    (None, "ab", "c", None, None): (
        "rec_p2orfcfyxatzbhmlcbb6mdmsmt",
        "idk_lhk5wijlheowp2fpjmkbyaoavn5nqyut",
        "idk_yrhpu4typzyplvgsfysgavy4vfrcy6kn",
    ),
    ("t" * 256, "n" * 256, "k" * 1024, None, None): (
        "rec_sbdknsfupplne4lzkjjeqzq2uf",
        "idk_mlx7v6qo3y4hcncyj2q3w3uuud6bknpx",
        "idk_75nlezmdxdkm65yck7ydo73btl3iudg2",
    ),
}

Check = Callable[..., str | None]
CHECKS: list[tuple[Check, int]] = [
    (check_key, KEY_CHARS),
    (check_name, NAME_CHARS),
    (check_scope, NAME_CHARS),
    (check_tenant, NAME_CHARS),
]
checks = pytest.mark.parametrize(
    ("check", "chars_max"), CHECKS, ids=lambda x: getattr(x, "__name__", "")
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
acts = st.one_of(
    st.tuples(st.none() | texts, texts, texts, st.none(), st.none()),
    st.tuples(st.none() | texts, texts, st.none(), texts, texts),
)


@pytest.mark.parametrize("act", GOLDEN, ids=repr)
def test_golden_vectors(act: tuple[Any, ...]) -> None:
    made = record_id(*act), idempotency_key(*act), idempotency_key(*act, series=2)
    assert made == GOLDEN[act]


def test_what_is_hashed() -> None:
    hashed = hashlib.sha256(b"2:v1,6:record,-,6:refund,3:key,7:order-7,").digest()
    digits = base64.b32encode(hashed).decode().lower()
    assert record_id(None, "refund", "order-7") == f"rec_{digits[:26]}"
    hashed = hashlib.sha256(b"2:v1,3:key,4:acme,1:n,5:scope,1:s,2:fp,1:2,").digest()
    digits = base64.b32encode(hashed).decode().lower()
    assert idempotency_key("acme", "n", None, "s", "fp", series=2) == f"idk_{digits[:32]}"


@given(acts, acts)
def test_other_acts_have_other_ids(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    assume(one != other)
    assert record_id(*one) != record_id(*other)
    assert idempotency_key(*one) != idempotency_key(*other)


@pytest.mark.parametrize(
    "acts",
    [
        [(None, "a", "bc"), (None, "ab", "c"), ("a", "b", "c"), (None, "a,b", "c")],
        [(None, "n", "k"), ("None", "n", "k"), ("-", "n", "k"), ("", "n", "k")],
        [(None, "n", "k"), (None, "n", None, "k", "k"), (None, "n", "scope", "k", "k")],
        [(None, "n", None, "a", "bc"), (None, "n", None, "ab", "c")],
        [(None, "n", "\u00e9"), (None, "n", "e\u0301")],
        [(None, "n", "k"), (None, "n", "K"), (None, "n", " k"), (None, "N", "k")],
        [(None, "n", "1:k,"), (None, "n", "k"), (None, "n,3:key,1:k", "k")],
    ],
    ids=["borders", "no tenant", "ways", "scopes", "unicode", "folding", "the encoding itself"],
)
def test_what_could_be_confused_is_not(acts: list[tuple[Any, ...]]) -> None:
    assert len({record_id(*act) for act in acts}) == len(acts)
    assert len({idempotency_key(*act) for act in acts}) == len(acts)


def test_a_key_names_the_act_whatever_the_scope_and_the_arguments() -> None:
    alone = record_id("acme", "refund", "order-7")
    assert alone == record_id("acme", "refund", "order-7", "run-1", "v1:aa")
    assert alone == record_id("acme", "refund", "order-7", "run-2", "v1:bb")


def test_without_a_key_scope_and_arguments_name_the_act() -> None:
    places = itertools.product(["run-1", "run-2"], ["v1:aa", "v1:bb"])
    assert len({record_id("acme", "refund", None, *place) for place in places}) == 4


def test_neither_key_nor_scope() -> None:
    with pytest.raises(ScopeRequired, match=r"refund: give the effect a key="):
        record_id(None, "refund", fingerprint="v1:aa")
    with pytest.raises(ScopeRequired):
        idempotency_key(None, "refund", fingerprint="v1:aa")


def test_a_scope_without_arguments_names_nothing() -> None:
    with pytest.raises(ValueError, match="fingerprint"):
        record_id(None, "refund", scope="run-1")


@given(acts, st.integers(1, 10**6))
def test_form(act: tuple[Any, ...], series: int) -> None:
    assert re.fullmatch(r"rec_[a-z2-7]{26}", record_id(*act))
    assert re.fullmatch(r"idk_[a-z2-7]{32}", idempotency_key(*act, series=series))


def test_the_series_makes_another_key() -> None:
    keys = {idempotency_key(None, "refund", "order-7", series=series) for series in range(1, 50)}
    assert len(keys) == 49


def test_an_idempotency_key_says_nothing_about_the_record() -> None:
    act = "acme", "refund", "order-7"
    assert record_id(*act)[4:20] not in idempotency_key(*act)


class Order(StrEnum):
    SEVEN = "order-7"


@checks
@pytest.mark.parametrize(
    "text", ["x", " x ", "\u00e9", "e\u0301", "\U0001f4b6", "a\nb", "0", "\u200bx"]
)
def test_text_is_taken_as_it_is(check: Check, chars_max: int, text: str) -> None:
    del chars_max
    assert check(text) == text


@checks
def test_a_text_enum_is_its_text(check: Check, chars_max: int) -> None:
    del chars_max
    made = check(Order.SEVEN)
    assert (made, type(made)) == ("order-7", str)


@checks
@pytest.mark.parametrize(
    "value",
    [1, 1.0, True, b"order-7", ["order-7"], object(), ("a", "b")],
    ids=lambda value: type(value).__name__,
)
def test_only_text(check: Check, chars_max: int, value: object) -> None:
    del chars_max
    with pytest.raises(TypeError, match=f"must be str, not {type(value).__name__}"):
        check(value)


@checks
@pytest.mark.parametrize(
    "blank", ["", " ", "\t\n", "\u00a0", "\u200b", "\ufeff", "\x00"], ids=ascii
)
def test_blank(check: Check, chars_max: int, blank: str) -> None:
    del chars_max
    with pytest.raises(ValueError, match="must not be blank"):
        check(blank)


@checks
def test_bounds(check: Check, chars_max: int) -> None:
    assert check("\u00e9" * chars_max) == "\u00e9" * chars_max
    with pytest.raises(ValueError, match=f"{chars_max + 1:,} characters, at most {chars_max:,}"):
        check("x" * (chars_max + 1))


@checks
@pytest.mark.parametrize(("text", "rule"), [("se\0cret", "NUL"), ("se\ud800cret", "surrogate")])
def test_what_no_store_can_hold(check: Check, chars_max: int, text: str, rule: str) -> None:
    del chars_max
    with pytest.raises(ValueError, match=rule) as caught:
        check(text, "the field")
    assert str(caught.value).startswith("the field ")
    assert "cret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_only_a_tenant_may_be_none() -> None:
    assert check_tenant(None) is None
    for check in (check_key, check_name, check_scope):
        with pytest.raises(TypeError, match="NoneType"):
            check(None)


def on_module_level() -> None: ...


class Shop:
    def refund(self) -> None: ...

    @staticmethod
    def notify() -> None: ...

    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (on_module_level, "on_module_level"),
        (Shop.refund, "Shop.refund"),
        (Shop().refund, "Shop.refund"),
        (Shop.notify, "Shop.notify"),
        (functools.wraps(on_module_level)(functools.partial(on_module_level)), "on_module_level"),
    ],
    ids=["function", "method", "bound", "static", "wrapped"],
)
def test_a_function_is_named_by_its_qualified_name(fn: Callable[..., Any], name: str) -> None:
    assert effect_name(fn) == name


def nameless() -> dict[str, Callable[..., Any]]:
    def inner() -> None: ...

    return {
        "inner": inner,
        "lambda": lambda: None,
        "partial": functools.partial(on_module_level),
        "object": Shop(),
    }


@pytest.mark.parametrize("fn", nameless().values(), ids=nameless())
def test_what_has_no_lasting_name_needs_one(fn: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="name: "):
        effect_name(fn)
    assert effect_name(fn, "refund order") == "refund order"


def test_a_given_name_wins_and_is_checked() -> None:
    assert effect_name(on_module_level, "old.name") == "old.name"
    with pytest.raises(ValueError, match="name must not be blank"):
        effect_name(on_module_level, "")
    with pytest.raises(ValueError, match="name has 257 characters"):
        effect_name(on_module_level, "x" * 257)
