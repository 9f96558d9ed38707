"""What a person may answer to a tool: a small part of JSON Schema that anybody can check.

The one who decides may be a program without the tool's code, so what an answer must be stands in
the journal, and whatever cannot be checked is refused when the tool asks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import msgspec

from agentkit.core.contracts.types import JSON, JSONObject

__all__ = ["answer_problem", "schema_problem"]

_TYPES: dict[str, Callable[[JSON], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}
_BOUNDS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
_KNOWN = frozenset(
    {"type", "enum", "properties", "required", "additionalProperties", "items", *_BOUNDS}
)
_IGNORED = frozenset({"title", "description", "default", "examples"})


def schema_problem(schema: object, path: str = "$") -> str:
    """Why answers cannot be checked by this schema; empty where they can."""
    if not isinstance(schema, dict):
        return f"{path} is no JSON object"
    unknown = sorted(str(key) for key in schema.keys() - _KNOWN - _IGNORED)
    if unknown:
        return f"{path} uses {', '.join(unknown)}; known are {', '.join(sorted(_KNOWN))}"
    names = schema.get("type", "object")
    if not set(names if isinstance(names, list) else [names]) <= _TYPES.keys():
        return f"{path}: {names!r} is no type; known are {', '.join(_TYPES)}"
    if not isinstance(schema.get("enum", [0]), list) or not schema.get("enum", [0]):
        return f"{path}: enum is a list of values"
    if not isinstance(schema.get("additionalProperties", True), bool):
        return f"{path}: additionalProperties is true or false"
    if not all(_is_number(schema.get(bound, 0)) for bound in _BOUNDS):
        return f"{path}: bounds are numbers"
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        return f"{path}: properties is an object, and required a list of names"
    inner = [(f"{path}.{name}", part) for name, part in properties.items()]
    if "items" in schema:
        inner.append((f"{path}[]", schema["items"]))
    return next(filter(None, (schema_problem(part, place) for place, part in inner)), "")


def answer_problem(schema: Mapping[str, JSON], value: JSON, path: str = "the answer") -> str:
    """Why `value` is no answer by this schema; empty where it is one."""
    names = schema.get("type")
    types = names if isinstance(names, list) else [] if names is None else [names]
    if types and not any(_TYPES[str(name)](value) for name in types):
        return f"{path} must be {' or '.join(map(str, types))}"
    choices = schema.get("enum")
    if isinstance(choices, list) and not any(_equal(value, choice) for choice in choices):
        return f"{path} must be one of {msgspec.json.encode(choices).decode()}"
    return (
        _size_problem(schema, value, path)
        or (_items_problem(schema, value, path) if isinstance(value, list) else "")
        or (_members_problem(schema, value, path) if isinstance(value, dict) else "")
    )


def _size_problem(schema: Mapping[str, JSON], value: JSON, path: str) -> str:
    kinds = (("imum", value), ("Length", value), ("Items", value))
    fits: tuple[bool, ...] = (_is_number(value), isinstance(value, str), isinstance(value, list))
    for (suffix, _), fit in zip(kinds, fits, strict=True):
        if not fit:
            continue
        size = value if isinstance(value, int | float) else len(value)  # type: ignore[arg-type]  # fits
        least, most = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
        if _is_number(least) and size < least:  # type: ignore[operator]  # a number
            return f"{path} is less than {least}"
        if _is_number(most) and size > most:  # type: ignore[operator]  # a number
            return f"{path} is more than {most}"
    return ""


def _items_problem(schema: Mapping[str, JSON], value: list[JSON], path: str) -> str:
    items = schema.get("items")
    if not isinstance(items, dict):
        return ""
    problems = (answer_problem(items, one, f"{path}[{at}]") for at, one in enumerate(value))
    return next(filter(None, problems), "")


def _members_problem(schema: Mapping[str, JSON], value: JSONObject, path: str) -> str:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        return ""
    missing = [str(name) for name in required if name not in value]
    if missing:
        return f"{path} lacks {', '.join(missing)}"
    unknown = sorted(value.keys() - properties.keys())
    if unknown and schema.get("additionalProperties") is False:
        return f"{path} has unknown members: {', '.join(unknown)}"
    problems = (
        answer_problem(part, value[name], f"{path}.{name}")
        for name, part in properties.items()
        if name in value and isinstance(part, dict)
    )
    return next(filter(None, problems), "")


def _equal(one: JSON, other: JSON) -> bool:
    """Equal as JSON: `1` is not `true`."""
    return type(one) is type(other) and one == other


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
