"""The walk from a Python value to plain JSON data. `values` is the door to it."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import re
from collections import deque
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import TypeAlias
from uuid import UUID

import msgspec

from agentkit.core.contracts.errors import ResultNotStorable
from agentkit.core.contracts.types import JSON, JSONObject

__all__ = [
    "BYTES",
    "FLOAT",
    "MAX_DEPTH",
    "MAX_INT_BITS",
    "OBJECT",
    "STR",
    "SURROGATE",
    "plain",
    "sorted_text",
    "type_name",
]

MAX_DEPTH = 100
"""Deepest nesting of objects and arrays in a value."""

MAX_INT_BITS = 14_000
"""Largest integer, in bits (about 4,200 digits: what Python reads back without being asked)."""

FLOAT = "$float"
BYTES = "$bytes"
STR = "$str"
OBJECT = "$object"
_TAGS = frozenset({FLOAT, BYTES, STR, OBJECT})
SURROGATE = re.compile("[\ud800-\udfff]")

_Place: TypeAlias = "tuple[_Place | None, str | int | None, object, int]"
"""Where the walk is: the place around it, the key there, the container, its depth."""

_ESCAPABLE = re.compile("[\\\\\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
_SHOWN_KEY = 64
_SHOWN_STEPS = 12
_SMALL_INT = 1 << 63


def plain(value: object) -> JSON:
    """See `values.normalise`; errors of the value's own code come out as they are."""
    return _plain(value, None, None)


def sorted_text(value: JSON) -> str:
    """The JSON text of plain data with sorted names, the same in every release."""
    return _SORTED.encode(value)


# Not msgspec: digests outlive releases, and how it writes 1e16 is not promised.
_SORTED = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
)


def type_name(value: object) -> str:
    """The value's type as a message shows it: `socket.socket`, `dict`."""
    return _qualified(type(value))


def _plain(value: object, at: _Place | None, key: str | int | None) -> JSON:
    kind = type(value)
    if kind is str:
        return _text(value)  # type: ignore[arg-type]  # mypy does not narrow by `type(x) is`
    if kind is bool or value is None:
        return value  # type: ignore[return-value]  # as above
    if kind is int:
        return _int(value, at, key)  # type: ignore[arg-type]  # as above
    if kind is float:
        return _float(value)  # type: ignore[arg-type]  # as above
    if kind is dict:
        return _object(value.items(), _enter(at, key, value))  # type: ignore[attr-defined]  # as above
    if kind is list or kind is tuple:
        return _array(value, _enter(at, key, value))  # type: ignore[arg-type]  # as above
    return _by_rule(value, at, key)


def _by_rule(value: object, at: _Place | None, key: str | int | None) -> JSON:
    """Types that are not JSON by themselves."""
    match value:
        case Enum():
            return _plain(value.value, at, key)
        case str():
            return _text(str.__str__(value))
        case int():
            return _int(int.__pos__(value), at, key)
        case float():
            return _float(float.__pos__(value))
        case bytes() | bytearray() | memoryview():
            return {BYTES: base64.b64encode(value).decode()}
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal() | UUID():
            return str(value)
        case PurePath():
            return _text(str(value))
        case _:
            return _container(value, at, key)


def _container(value: object, at: _Place | None, key: str | int | None) -> JSON:
    place = _enter(at, key, value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _object(zip(value._fields, value, strict=True), place)
    if isinstance(value, list | tuple | deque):
        return _array(value, place)
    if isinstance(value, set | frozenset):
        return _sorted(value, place)
    if isinstance(value, Mapping):
        return _object(value.items(), place)
    if isinstance(value, msgspec.Struct):
        return _object(((name, getattr(value, name)) for name in value.__struct_fields__), place)
    if isinstance(value, type):
        raise _refusal(at, key, f"the class {_qualified(value)} cannot be kept as JSON")
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return _object(((field.name, getattr(value, field.name)) for field in fields), place)
    model_dump = getattr(type(value), "model_dump", None)
    if callable(model_dump):
        return _plain(model_dump(value), place, None)
    raise _refusal(at, key, f"a value of type {type_name(value)} cannot be kept as JSON")


def _enter(at: _Place | None, key: str | int | None, container: object) -> _Place:
    if at is None:
        return (None, key, container, 1)
    depth = at[3] + 1
    if depth > MAX_DEPTH:
        place: _Place | None = at
        while place is not None:
            if place[2] is container:
                raise _refusal(at, key, f"the {type_name(container)} contains itself")
            place = place[0]
        raise _refusal(at, key, f"the value nests deeper than {MAX_DEPTH} levels")
    return (at, key, container, depth)


def _object(members: Iterable[tuple[object, object]], place: _Place) -> JSON:
    plain: JSONObject = {}
    escape = False
    name = ""
    for key, item in members:
        name = key if type(key) is str else _key(key, place)
        if name in plain:
            raise _refusal(
                place, name, f"two keys of the {type_name(place[2])} become {name!r} in JSON"
            )
        if not name.isascii() and SURROGATE.search(name):
            escape = True
        plain[name] = _plain(item, place, name)
    if escape or (len(plain) == 1 and name in _TAGS):
        return {OBJECT: [[_text(key), item] for key, item in plain.items()]}
    return plain


def _key(key: object, place: _Place) -> str:
    if isinstance(key, Enum):
        key = key.value
    match key:
        case str():
            return str.__str__(key)
        case None | bool():
            return json.dumps(key)
        case int() | float():
            plain = _int(int.__pos__(key), place, None) if isinstance(key, int) else float(key)
            return repr(plain)
        case _:
            raise _refusal(place, None, f"a key of type {type_name(key)} cannot be kept as JSON")


def _array(items: Iterable[object], place: _Place) -> list[JSON]:
    return [_plain(item, place, index) for index, item in enumerate(items)]


def _sorted(items: AbstractSet[object], place: _Place) -> list[JSON]:
    """Sets have no order of their own that two processes agree on."""
    plain = [_plain(item, place, None) for item in items]
    if all(type(item) is int or type(item) is float for item in plain):
        return sorted(plain)  # type: ignore[type-var]  # numbers alone
    return sorted(plain, key=sorted_text)


def _text(text: str) -> JSON:
    if text.isascii() or not SURROGATE.search(text):
        return text
    return {STR: _ESCAPABLE.sub(_escape, text)}


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return "\\\\" if character == "\\" else f"\\u{ord(character):04x}"


def _int(number: int, at: _Place | None, key: str | int | None) -> int:
    if -_SMALL_INT < number < _SMALL_INT or number.bit_length() <= MAX_INT_BITS:
        return number
    raise _refusal(
        at, key, f"an integer of {number.bit_length()} bits is over the limit {MAX_INT_BITS}"
    )


def _float(number: float) -> JSON:
    if math.isfinite(number):
        return number
    return {FLOAT: repr(number)}


# --- refusing -------------------------------------------------------------------------------------


def _refusal(at: _Place | None, key: str | int | None, what: str) -> ResultNotStorable:
    return ResultNotStorable(f"{_path(at, key)}: {what}")


def _path(at: _Place | None, key: str | int | None) -> str:
    steps = [key]
    while at is not None:
        steps.append(at[1])
        at = at[0]
    shown = [_step(step) for step in reversed(steps)]
    if len(shown) > _SHOWN_STEPS:
        shown[_SHOWN_STEPS // 2 : -_SHOWN_STEPS // 2] = ["…"]
    return "$" + "".join(shown)


def _step(key: str | int | None) -> str:
    if key is None:
        return ""
    if isinstance(key, int):
        return f"[{key}]"
    if _NAME.match(key):
        return f".{key}"
    shown = key if len(key) <= _SHOWN_KEY else key[:_SHOWN_KEY] + "…"
    return f"[{json.dumps(shown)}]"


def _qualified(kind: type) -> str:
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"
