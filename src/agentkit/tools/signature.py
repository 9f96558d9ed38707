"""Which functions may be tools, and what their parameters are. No pydantic here."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Union

from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.contracts.transactions import Transaction
from agentkit.tools.context import ToolContext

__all__ = ["Parameter", "Signature", "read_signature"]

_GIVEN = {"context": ToolContext, "transaction": Transaction}
"""What the runtime gives, by the field of `Signature` that names the parameter."""

_GIVEN_TEXT = re.compile(
    r"(?:[\w.]*\.)?(?:Optional\[)?(?:[\w.]*\.)?(ToolContext|Transaction)\]?(?:\s*\|\s*None)?\Z"
)
_KIND = {
    inspect.Parameter.VAR_POSITIONAL: "takes any number of positional arguments",
    inspect.Parameter.VAR_KEYWORD: "takes any keyword arguments",
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only",
}


@dataclass(frozen=True, eq=False)
class Parameter:
    """One argument that the model gives.

    Args:
        name: its name.
        annotation: its type, or text that could not be resolved yet.
        default: its default, or `inspect.Parameter.empty`.
    """

    name: str
    annotation: object
    default: object

    @property
    def required(self) -> bool:
        """Whether the model must give it."""
        return self.default is inspect.Parameter.empty


@dataclass(frozen=True, eq=False)
class Signature:
    """What calling a tool takes.

    Args:
        function: the callable itself.
        parameters: what the model gives, in order.
        context: name of the parameter that gets the `ToolContext`; empty for none.
        transaction: name of the parameter that gets the `Transaction`; empty for none.
        is_async: whether calling it gives a coroutine.
    """

    function: Callable[..., object]
    parameters: tuple[Parameter, ...]
    context: str
    transaction: str
    is_async: bool

    def resolved(self) -> tuple[Parameter, ...]:
        """The parameters, with names that were not defined yet at decoration looked up again.

        Raises:
            InvalidSpec: an annotation names something that still cannot be found.
        """
        names = _globals(self.function)
        found = []
        for parameter in self.parameters:
            try:
                annotation = _resolve(parameter.annotation, names, {})
            except NameError as exc:
                raise InvalidSpec(
                    f"the annotation {parameter.annotation!r} of parameter {parameter.name!r} "
                    f"cannot be resolved ({exc}): import what it names at run time, not under "
                    "TYPE_CHECKING, and define it where the function's module can see it"
                ) from exc
            found.append(Parameter(parameter.name, annotation, parameter.default))
        return tuple(found)


def read_signature(function: Callable[..., object], namespace: Mapping[str, object]) -> Signature:
    """Check that `function` can be a tool and read its parameters.

    Args:
        function: a function, bound method, `functools.partial`, or object with `__call__`.
        namespace: local names of the place where it is decorated.

    Raises:
        InvalidSpec: it cannot be one; the message says why and what to do.
    """
    code = _code(function)
    if inspect.isasyncgenfunction(code) or inspect.isgeneratorfunction(code):
        raise InvalidSpec("a tool returns its result at once: return a list instead of yielding")
    bound = function.keywords if isinstance(function, functools.partial) else {}
    parameters: list[Parameter] = []
    given = dict.fromkeys(_GIVEN, "")
    for parameter in _parameters(function):
        if parameter.name in bound:
            continue
        _check(parameter)
        annotation = parameter.annotation
        # A name that is defined further down in the module is looked up again at first use.
        with contextlib.suppress(NameError):
            annotation = _resolve(annotation, _globals(function), namespace)
        kind = _given(annotation, parameter.name)
        if kind is None:
            parameters.append(Parameter(parameter.name, annotation, parameter.default))
        elif given[kind]:
            name = _GIVEN[kind].__name__
            raise InvalidSpec(f"both {given[kind]!r} and {parameter.name!r} ask for a {name}")
        else:
            given[kind] = parameter.name
    is_async = inspect.iscoroutinefunction(code)
    return Signature(function, tuple(parameters), given["context"], given["transaction"], is_async)


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError as exc:
        raise InvalidSpec(f"its parameters cannot be read ({exc}): wrap it in a function") from exc


def _check(parameter: inspect.Parameter) -> None:
    name = parameter.name
    if parameter.kind in _KIND:
        raise InvalidSpec(
            f"parameter {name!r} {_KIND[parameter.kind]}: a model gives named arguments, so each "
            "parameter must have a name of its own"
        )
    if name == "idempotency_key":
        raise InvalidSpec(
            "a parameter named 'idempotency_key' would be filled in by the model, with a new key "
            "each time: take a `ToolContext` and use its `idempotency_key`"
        )
    if parameter.annotation is inspect.Parameter.empty:
        advice = (
            "; to make a tool of a method, decorate the bound one: tool(…)(thing.method)"
            if name in {"self", "cls"}
            else ": the model needs its type"
        )
        raise InvalidSpec(f"parameter {name!r} has no annotation{advice}")
    if type(parameter.default).__name__ == "FieldInfo":
        raise InvalidSpec(
            f"parameter {name!r} has a pydantic Field as its default: write "
            f"`{name}: Annotated[<type>, Field(…)]` and a plain default"
        )


def _given(annotation: object, name: str) -> str | None:
    """Which of `_GIVEN` the parameter asks for, if it is not for the model to give."""
    by_name = {asked.__name__: kind for kind, asked in _GIVEN.items()}
    if isinstance(annotation, str):
        found = _GIVEN_TEXT.match(annotation.strip())
        return by_name[found[1]] if found else None
    if typing.get_origin(annotation) is Annotated:
        annotation = typing.get_args(annotation)[0]
    members: Sequence[object] = [annotation]
    if typing.get_origin(annotation) in {Union, types.UnionType}:
        members = typing.get_args(annotation)
    for kind, asked in _GIVEN.items():
        if asked in members:
            if any(member not in {asked, type(None)} for member in members):
                text = f"parameter {name!r} mixes {asked.__name__} with types of the model's"
                raise InvalidSpec(text)
            return kind
    return None


def _resolve(
    annotation: object, names: Mapping[str, object], local: Mapping[str, object]
) -> object:
    """The type that `annotation` stands for.

    Raises:
        NameError: it names something that is not defined (yet).
    """

    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    # What the runtime gives is known even where it is imported for type checkers alone.
    ours = {asked.__name__: asked for asked in _GIVEN.values()}
    known = {**{name: names.get(name, asked) for name, asked in ours.items()}, **local}
    try:
        return typing.get_type_hints(holder, dict(names), known, include_extras=True)["it"]
    except (TypeError, SyntaxError) as exc:
        raise InvalidSpec(f"the annotation {annotation!r} is not a type: {exc}") from exc


def _code(function: Callable[..., object]) -> Callable[..., object]:
    """What is run in the end: through partials, and the `__call__` of an object."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function):
        return function
    return type(function).__call__


def _globals(function: Callable[..., object]) -> Mapping[str, object]:
    code = inspect.unwrap(_code(function))
    names: Mapping[str, object] = getattr(code, "__globals__", {})
    return names
