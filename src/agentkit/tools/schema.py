"""From a signature to what the model is told, and from what the model says to real arguments.

pydantic and docstring-parser are imported inside the functions: importing this module is cheap.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NotRequired, cast

from agentkit.core.contracts.errors import AgentkitError, InvalidSpec
from agentkit.core.contracts.types import JSON, JSONObject, ToolDefinition
from agentkit.tools.signature import Parameter, Signature

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

__all__ = ["ArgumentsInvalid", "Schema", "build_schema"]

_MAX_PROBLEMS = 5
_MAX_PROBLEM_CHARACTERS = 300
_MAX_NAME_CHARACTERS = 64

_NAMED = frozenset({"properties", "$defs", "patternProperties", "dependentSchemas"})
"""Keywords whose members are names, not keywords."""
_DATA = frozenset({"default", "const", "enum", "examples"})
"""Keywords whose content is data, not schema."""


class ArgumentsInvalid(AgentkitError, ValueError):
    """Arguments do not fit the tool. The message is for the model; it never repeats their values.

    The tool was not run.
    """


class Schema:
    """A tool's definition and the check of its arguments; made by `build_schema`."""

    def __init__(self, definition: ToolDefinition, adapter: TypeAdapter[dict[str, object]]) -> None:
        self.definition = definition
        self._adapter = adapter

    def bind(self, arguments: Mapping[str, JSON]) -> dict[str, object]:
        """See `Tool.bind`."""
        from pydantic import ValidationError

        try:
            text = json.dumps(arguments, allow_nan=False)
            return self._adapter.validate_json(text, strict=True)
        except ValidationError as exc:
            raise ArgumentsInvalid(self._explain(exc)) from None
        except Exception as exc:  # no JSON, or a validator of the user's that breaks
            raise ArgumentsInvalid(
                f"The arguments of {self.definition.name} cannot be read: {type(exc).__name__}."
            ) from exc

    def _explain(self, exc: ValidationError) -> str:
        problems = exc.errors(include_url=False, include_context=False, include_input=False)
        shown = [
            self._problem(problem["type"], problem["loc"], problem["msg"])
            for problem in problems[:_MAX_PROBLEMS]
        ]
        if len(problems) > _MAX_PROBLEMS:
            shown.append(f"and {len(problems) - _MAX_PROBLEMS} more")
        return f"Invalid arguments for {self.definition.name}, which was not run: " + (
            "; ".join(shown) + "."
        )

    def _problem(self, kind: str, path: tuple[int | str, ...], message: str) -> str:
        where = _where(path)
        if kind == "missing":
            return f"{where} is required and missing"
        if kind == "extra_forbidden":
            known = cast("JSONObject", self.definition.parameters.get("properties", {}))
            if len(path) > 1:
                return f"{where} is not known"
            return f"{where} is not known (known: {', '.join(known) or 'none'})"
        return f"{where}: {message[:_MAX_PROBLEM_CHARACTERS]}"


def build_schema(signature: Signature, *, name: str, description: str | None) -> Schema:
    """Make a tool's definition and argument check from its type hints and docstring.

    Args:
        signature: of the function.
        name: the tool's name.
        description: instead of the docstring's.

    Raises:
        InvalidSpec: a parameter's type has no JSON Schema, or cannot be resolved.
    """
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

    try:
        parameters = signature.resolved()
        adapter = TypeAdapter(_arguments_type(name, parameters))
        schema = adapter.json_schema()
    except (InvalidSpec, PydanticUserError, PydanticInvalidForJsonSchema, TypeError) as exc:
        raise InvalidSpec(f"tool {name!r} cannot be described to a model: {exc}") from exc
    text, about = _documentation(signature.function)
    definition = ToolDefinition(
        name=name,
        description=text if description is None else description,
        parameters=_object_schema(schema, parameters, about),
    )
    return Schema(definition, adapter)


def _arguments_type(name: str, parameters: tuple[Parameter, ...]) -> type[dict[str, object]]:
    # A TypedDict, because a model class forbids many names ("schema", "copy", "_x") and would
    # hand defaults around; an argument that is left out is left to the function's own default.
    from pydantic import ConfigDict, with_config
    from typing_extensions import TypedDict

    fields = {
        parameter.name: (
            parameter.annotation if parameter.required else NotRequired[parameter.annotation]
        )
        for parameter in parameters
    }
    # Through a variable: a type checker takes the functional form for a declaration.
    make = cast("Callable[[str, dict[str, object]], type[dict[str, object]]]", TypedDict)
    return with_config(ConfigDict(extra="forbid"))(make(name, fields))


def _object_schema(
    schema: Mapping[str, object], parameters: tuple[Parameter, ...], about: Mapping[str, str]
) -> JSONObject:
    found = cast("JSONObject", _untitled(cast("JSON", schema)))
    properties = cast("dict[str, JSONObject]", found.get("properties", {}))
    for parameter in parameters:
        shape = properties[parameter.name]
        if parameter.name in about:
            shape.setdefault("description", about[parameter.name])
        if not parameter.required:
            _add_default(shape, parameter.default)
    shown: JSONObject = {"type": "object", "properties": cast("JSON", properties)}
    for keyword in ("required", "$defs"):
        if keyword in found:
            shown[keyword] = found[keyword]
    shown["additionalProperties"] = False
    return shown


def _add_default(shape: JSONObject, default: object) -> None:
    """Show the default where it can be shown; the function applies it in any case."""
    from pydantic_core import to_jsonable_python

    try:
        shown = to_jsonable_python(default)
        json.dumps(shown, allow_nan=False)
    except ValueError:
        return
    shape.setdefault("default", shown)


def _untitled(schema: JSON) -> JSON:
    """The schema without `title`, which repeats names and costs tokens."""
    if isinstance(schema, list):
        return [_untitled(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    shown: JSONObject = {}
    for keyword, content in schema.items():
        if keyword in _NAMED and isinstance(content, dict):
            shown[keyword] = {name: _untitled(item) for name, item in content.items()}
        elif keyword in _DATA:
            shown[keyword] = content
        elif keyword != "title":
            shown[keyword] = _untitled(content)
    return shown


def _documentation(function: Callable[..., object]) -> tuple[str, dict[str, str]]:
    """The docstring's description and what it says of each argument."""
    from docstring_parser import ParseError, parse

    text = _docstring(function)
    try:
        parsed = parse(text)
    except ParseError:
        return text, {}
    about = {
        parameter.arg_name: " ".join(parameter.description.split())
        for parameter in parsed.params
        if parameter.description
    }
    return parsed.description or "", about


def _docstring(function: Callable[..., object]) -> str:
    while hasattr(function, "func") and hasattr(function, "keywords"):  # a partial's is its own
        function = function.func
    if not inspect.isroutine(function) and type(function).__call__.__doc__:
        return inspect.cleandoc(type(function).__call__.__doc__ or "")
    return inspect.getdoc(function) or ""


def _where(path: tuple[int | str, ...]) -> str:
    shown = ""
    for step in path:
        if isinstance(step, int):
            shown += f"[{step}]"
        else:
            name = step if step.isprintable() else json.dumps(step)[1:-1]
            if len(name) > _MAX_NAME_CHARACTERS:
                name = name[:_MAX_NAME_CHARACTERS] + "…"
            shown += f".{name}" if shown else name
    return f"`{shown}`" if shown else "the arguments"
