"""What callers and frameworks see of a guarded function, and how calls are matched to it."""

import functools
import inspect
import typing
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, cast

import pytest
from pydantic import TypeAdapter, validate_call

from indoubt.guard.arguments import Arguments

if TYPE_CHECKING:
    from indoubt.guard.context import EffectContext


class Given:
    """Stands for an EffectContext."""


def by_name(order: str, cents: int = 100, *, effect: Given) -> dict[str, Any]:
    return {"order": order, "cents": cents, "effect": effect}


def in_between(order: str, effect: Given, cents: int = 100, *, note: str = "") -> dict[str, Any]:
    return {"order": order, "cents": cents, "note": note, "effect": effect}


def first(effect: Given, order: str, cents: int = 100) -> dict[str, Any]:
    return {"order": order, "cents": cents, "effect": effect}


def unannotated(order, cents=100, *, effect=None):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
    return {"order": order, "cents": cents, "effect": effect}  # pyright: ignore[reportUnknownVariableType]


def only_for_the_checker(order: str, cents: "Decimal", *, effect: "EffectContext") -> "Decimal":
    del order, effect
    return cents


def by_place_only(order: str, /, cents: int = 100, *more: int, note: str = "", **rest: Any) -> Any:
    return order, cents, more, note, rest


class Shop:
    def refund(self, order: str, cents: int = 100, *, effect: Given) -> Any:
        return order, cents, effect

    @classmethod
    def close(cls, order: str) -> str:
        return order

    @staticmethod
    def notify(order: str) -> str:
        return order


INJECTED: list[Callable[..., Any]] = [by_name, in_between, first, unannotated]


@pytest.mark.parametrize("fn", INJECTED)
def test_the_ledgers_parameter_is_hidden(fn: Callable[..., Any]) -> None:
    arguments = Arguments(fn)
    assert arguments.injects
    assert list(arguments.signature.parameters)[:2] == ["order", "cents"]
    assert "effect" not in arguments.signature.parameters
    assert "effect" not in arguments.annotations


def test_only_that_name_is_injected() -> None:
    def other(order: str, *, context: Given) -> None: ...

    assert not Arguments(other).injects
    assert list(Arguments(other).signature.parameters) == ["order", "context"]
    assert Arguments(other, injected="context").injects


@pytest.mark.parametrize("fn", INJECTED)
@pytest.mark.parametrize(
    ("args", "kwargs", "cents"),
    [
        (("o", 7), {}, 7),
        (("o",), {"cents": 7}, 7),
        ((), {"cents": 7, "order": "o"}, 7),
        (("o",), {}, 100),
        ((), {"order": "o"}, 100),
    ],
    ids=["by place", "mixed", "by name", "default", "default by name"],
)
def test_the_function_gets_what_the_caller_gave(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], cents: int
) -> None:
    bound = Arguments(fn).bind(args, kwargs)
    given = Given()
    made = fn(*bound.args, **bound.kwargs, effect=given)
    assert (made["order"], made["cents"], made["effect"]) == ("o", cents, given)
    assert (bound.values["order"], bound.values["cents"]) == ("o", cents)
    assert "effect" not in bound.values


def test_values_have_every_default() -> None:
    assert Arguments(in_between).bind(("o",), {}).values == {"order": "o", "cents": 100, "note": ""}
    bound = Arguments(by_place_only).bind(("o",), {})
    assert bound.values == {"order": "o", "cents": 100, "more": (), "note": "", "rest": {}}


def test_variable_parameters_are_a_tuple_and_a_mapping() -> None:
    bound = Arguments(by_place_only).bind(("o", 1, 2, 3), {"note": "n", "order": "x", "rest": 4})
    more = {"more": (2, 3), "note": "n", "rest": {"order": "x", "rest": 4}}
    assert bound.values == {"order": "o", "cents": 1, **more}
    assert by_place_only(*bound.args, **bound.kwargs) == tuple(bound.values.values())


@pytest.mark.parametrize(
    ("fn", "args", "kwargs", "said"),
    [
        (by_name, (), {}, "by_name() missing a required argument: 'order'"),
        (by_name, ("o", 1, 2), {}, "by_name() too many positional arguments"),
        (by_name, ("o",), {"order": "p"}, "by_name() multiple values for argument 'order'"),
        (by_name, ("o",), {"sum": 1}, "by_name() got an unexpected keyword argument 'sum'"),
        (by_name, ("o",), {"effect": 1}, "by_name() is given 'effect' by the ledger, not by you"),
        (first, (), {"effect": 1, "order": "o"}, "first() is given 'effect' by the ledger"),
        (in_between, ("o", 1, 2), {}, "in_between() too many positional arguments"),
        (by_place_only, (), {}, "by_place_only() missing a required"),
    ],
)
def test_wrong_arguments_are_refused_in_pythons_words(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError) as caught:
        Arguments(fn).bind(args, kwargs)
    assert str(caught.value).startswith(said)


def test_a_function_without_it_may_take_effect_as_data() -> None:
    def anything(**facts: Any) -> Any:
        return facts

    bound = Arguments(anything).bind((), {"effect": "a b c"})
    assert bound.values == {"facts": {"effect": "a b c"}}


def test_the_quick_way_binds_like_python() -> None:
    def fn(a: int, b: int = 2, *, c: int, d: int = 4) -> None: ...

    arguments = Arguments(fn)
    for args in ((), (1,), (1, 2), (1, 2, 3)):
        for names in ("", "a", "c", "ac", "bc", "acd", "abcd", "cd", "cx"):
            kwargs = dict.fromkeys(names, 9)
            try:
                bound = inspect.signature(fn).bind(*args, **kwargs)
            except TypeError:
                with pytest.raises(TypeError):
                    arguments.bind(args, kwargs)
                continue
            bound.apply_defaults()
            assert arguments.bind(args, kwargs).values == dict(bound.arguments)


def wrapped(fn: Callable[..., Any]) -> Callable[..., Any]:
    """What the decorator returns, as far as its looks go."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        bound = Arguments(fn).bind(args, kwargs)
        return fn(*bound.args, **bound.kwargs, effect=None)

    Arguments(fn).hide(wrapper)
    return wrapper


@pytest.mark.parametrize("fn", [*INJECTED, only_for_the_checker])
def test_frameworks_see_the_callers_parameters(fn: Callable[..., Any]) -> None:
    wrapper = wrapped(fn)
    assert list(inspect.signature(wrapper).parameters)[:2] == ["order", "cents"]
    assert "effect" not in inspect.signature(wrapper).parameters
    assert "effect" not in typing.get_type_hints(wrapper)
    schema = TypeAdapter(cast("Any", wrapper)).json_schema()
    assert set(schema["properties"]) == set(inspect.signature(wrapper).parameters)


def test_texts_are_resolved_where_the_function_was_written() -> None:
    """Frameworks look for the names in the module of the wrapper, where they are not."""
    wrapper = wrapped(only_for_the_checker)
    assert wrapper.__annotations__ == {"order": str, "cents": Decimal, "return": Decimal}
    assert inspect.signature(wrapper).parameters["cents"].annotation is Decimal
    assert validate_call(wrapper)("o", "1.50") == Decimal("1.50")  # type: ignore[arg-type]


def test_what_frameworks_write_into_annotations_stays() -> None:
    def fn(order: Annotated[str, "path"], effect: Given) -> None: ...

    assert wrapped(fn).__annotations__["order"] == Annotated[str, "path"]


def test_a_name_that_is_defined_later_stays_a_text() -> None:
    def fn(order: str, *, effect: Given) -> None: ...

    fn.__annotations__["order"] = "DefinedLater"
    assert Arguments(fn).annotations["order"] == "DefinedLater"


def test_hiding_changes_the_wrapper_only() -> None:
    before = dict(by_name.__annotations__)
    wrapped(by_name).__annotations__["order"] = int
    assert by_name.__annotations__ == before
    assert Arguments(by_name).annotations["order"] is str


def arguments(which: str, names: Any) -> Arguments:
    given: dict[str, Any] = {which: names}
    return Arguments(by_name, **given)


@pytest.mark.parametrize("which", ["ignore", "redact"])
def test_unknown_names_are_refused_at_decoration(which: str) -> None:
    for names in (("ordr",), ("order", "effect"), {"self"}):
        with pytest.raises(ValueError, match=rf"{which}: by_name\(\) has no '(ordr|effect|self)'"):
            arguments(which, names)
    with pytest.raises(TypeError, match=f"{which} takes names, not one str"):
        arguments(which, "order")


def test_a_parameter_is_ignored_or_redacted() -> None:
    with pytest.raises(ValueError, match="redact"):
        Arguments(by_name, ignore=["order"], redact=["order"])


def refused() -> dict[str, tuple[Callable[..., Any], str]]:
    def by_place(effect: Given, /, order: str) -> None: ...

    def variable(*effect: Given) -> None: ...

    def mapping(**effect: Given) -> None: ...

    def followed(order: str, effect: Given, *more: str) -> None: ...

    def data(order: str, effect: str) -> None: ...

    def data_as_text(order: str, *, effect: "dict") -> None: ...  # type: ignore[type-arg]  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType]

    cases: list[tuple[Callable[..., Any], str]] = [
        (by_place, "by name"),
        (variable, "by name"),
        (mapping, "by name"),
        (followed, "by name"),
        (data, "rename"),
        (data_as_text, "rename"),
        (dict, "signature"),
        (vars(Shop)["close"], "classmethod"),
    ]
    return {getattr(fn, "__name__", "?"): (fn, said) for fn, said in cases}


@pytest.mark.parametrize("case", refused())
def test_what_cannot_be_guarded_is_refused_at_decoration(case: str) -> None:
    fn, said = refused()[case]
    with pytest.raises(TypeError, match=said):
        Arguments(fn)


def test_the_object_of_a_method_is_no_argument() -> None:
    arguments = Arguments(Shop.refund)
    recorded = arguments.record(arguments.bind((Shop(), "o"), {}))
    assert recorded.text == b'{"order":"o"}'
    assert not arguments.replayable


def test_a_bound_method_has_its_object() -> None:
    arguments = Arguments(Shop().refund)
    assert arguments.record(arguments.bind(("o",), {})).text == b'{"order":"o"}'
    assert arguments.replayable


def test_only_in_a_class_is_self_an_object() -> None:
    def fn(self: str, order: str) -> None: ...

    arguments = Arguments(fn)
    assert arguments.record(arguments.bind(("s", "o"), {})).text == b'{"self":"s","order":"o"}'


def test_partials_and_callable_objects() -> None:
    class Act:
        def __call__(self, order: str, *, effect: Given) -> None: ...

    arguments = Arguments(functools.partial(by_name, "o"))
    assert arguments.record(arguments.bind((), {"cents": 5})).text == b'{"cents":5}'
    arguments = Arguments(Act())
    assert arguments.record(arguments.bind(("o",), {})).text == b'{"order":"o"}'


def test_a_key_function_is_asked_with_defaults_and_may_name_them_as_it_likes() -> None:
    def key(what: str, how_much: int, note: str) -> tuple[str, int, str]:
        return what, how_much, note

    arguments = Arguments(in_between)
    for args, kwargs in ((("o",), {}), ((), {"order": "o"}), (("o", 100), {"note": ""})):
        assert arguments.ask(key, arguments.bind(args, kwargs)) == ("o", 100, "")
