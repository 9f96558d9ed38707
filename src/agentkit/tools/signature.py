"""Which functions may be tools, and what their parameters are. No pydantic here."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Union

from agentkit.core.contracts.errors import InvalidSpec
from agentkit.tools.context import ToolContext

__all__ = ["Parameter", "Signature", "read_signature"]

_CONTEXT_TEXT = re.compile(
    r"(?:[\w.]*\.)?(?:Optional\[)?(?:[\w.]*\.)?ToolContext\]?(?:\s*\|\s*None)?\Z"
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
        is_async: whether calling it gives a coroutine.
    """

    function: Callable[..., object]
    parameters: tuple[Parameter, ...]
    context: str
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
    context = ""
    for parameter in _parameters(function):
        if parameter.name in bound:
            continue
        _check(parameter)
        annotation = parameter.annotation
        # A name that is defined further down in the module is looked up again at first use.
        with contextlib.suppress(NameError):
            annotation = _resolve(annotation, _globals(function), namespace)
        if _is_context(annotation, parameter.name):
            if context:
                raise InvalidSpec(f"both {context!r} and {parameter.name!r} ask for a ToolContext")
            context = parameter.name
        else:
            parameters.append(Parameter(parameter.name, annotation, parameter.default))
    return Signature(function, tuple(parameters), context, inspect.iscoroutinefunction(code))


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


def _is_context(annotation: object, name: str) -> bool:
    if isinstance(annotation, str):
        return bool(_CONTEXT_TEXT.match(annotation.strip()))
    if typing.get_origin(annotation) is Annotated:
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) in {Union, types.UnionType}:
        members = typing.get_args(annotation)
        if ToolContext not in members:
            return False
        if set(members) != {ToolContext, type(None)}:
            raise InvalidSpec(f"parameter {name!r} mixes ToolContext with types of the model's")
        return True
    return annotation is ToolContext


def _resolve(
    annotation: object, names: Mapping[str, object], local: Mapping[str, object]
) -> object:
    """The type that `annotation` stands for.

    Raises:
        NameError: it names something that is not defined (yet).
    """

    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    # ToolContext is known even where it is imported for type checkers alone.
    known = {"ToolContext": names.get("ToolContext", ToolContext), **local}
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
