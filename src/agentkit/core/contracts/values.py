"""The one way from Python values to JSON and back.

Everything that a tool returns, a step records or a caller snapshots passes `normalise` before it is
stored, and the live run goes on with what reading it back gives. So a resumed run sees exactly what
the live one saw.

JSON has no form for NaN, infinities, bytes and lone surrogates. They are written as an object with
one reserved member: `{"$float": "nan"}`, `{"$bytes": "<base64>"}`, `{"$str": "<escaped>"}`. An
object of the user's that would read as one of these, or whose names hold lone surrogates, is
written as `{"$object": [[name, value], …]}`. `decode_value` undoes exactly that and nothing else.
"""

from __future__ import annotations

import base64
import binascii
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
from hashlib import blake2b
from pathlib import PurePath
from typing import NoReturn, TypeAlias
from uuid import UUID

import msgspec

from agentkit.core.contracts.errors import ResultNotStorable
from agentkit.core.contracts.types import JSON, JSONObject

__all__ = [
    "MAX_DEPTH",
    "MAX_INT_BITS",
    "canonical",
    "decode_value",
    "digest",
    "encode_value",
    "normalise",
    "parse_arguments",
    "to_text",
]

MAX_DEPTH = 100
"""Deepest nesting of objects and arrays in a value."""

MAX_INT_BITS = 14_000
"""Largest integer, in bits (about 4,200 digits: what Python reads back without being asked)."""

_Place: TypeAlias = "tuple[_Place | None, str | int | None, object, int]"
"""Where the walk is: the place around it, the key there, the container, its depth."""

_FLOAT, _BYTES, _STR, _OBJECT = "$float", "$bytes", "$str", "$object"
_TAGS = frozenset({_FLOAT, _BYTES, _STR, _OBJECT})
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPABLE = re.compile("[\\\\\ud800-\udfff]")
_ESCAPED = re.compile(r"\\(?:u(d[89a-f][0-9a-f]{2})|\\)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
_SHOWN_KEY = 64
_SMALL_INT = 1 << 63


def normalise(value: object) -> JSON:
    """Turn a Python value into plain JSON data, by the rules of the reference page "Values".

    The result holds `dict`, `list`, `str`, `int`, `float`, `bool` and `None` alone, no NaN, no
    infinity and no lone surrogate. Normalising what `decode_value` gives changes nothing.

    Args:
        value: anything. It is read, never changed.

    Raises:
        ResultNotStorable: the value holds something without a rule, two keys that would become
            one, a cycle, or nests deeper than `MAX_DEPTH`. The message names path and type.
    """
    try:
        return _plain(value, None, None)
    except ResultNotStorable:
        raise
    except Exception as exc:  # the value's own code: properties, model_dump, iterators
        raise ResultNotStorable(
            f"a value of type {_type_name(value)} cannot be read: {type(exc).__name__}: {exc}"
        ) from exc


def to_text(value: object) -> str:
    """What a model sees of a value.

    A string stays itself, and so does a value whose plain form is a string (a date, an Enum of
    strings, a path). Surrogate halves that stand together are joined; a lone one becomes U+FFFD.
    `None` is the empty string. Everything else is the compact JSON text of `normalise(value)`,
    members in their order.

    Raises:
        ResultNotStorable: as `normalise`.
    """
    plain = value if type(value) is str else normalise(value)
    if plain is None:
        return ""
    if isinstance(plain, dict) and len(plain) == 1 and _STR in plain:
        plain = _untag(plain, 0)
    if isinstance(plain, str):
        return plain if plain.isascii() else _joined(plain)
    return _dump(plain)


def encode_value(value: object) -> str:
    """JSON text of `normalise(value)`.

    Raises:
        ResultNotStorable: as `normalise`.
    """
    return _dump(normalise(value))


def decode_value(text: str) -> JSON:
    """Read what `encode_value` wrote; tagged floats, bytes and strings come back as themselves.

    `bytes` are the one type in the result that is not JSON. An object that looks like a tag and is
    none is an ordinary object.

    Raises:
        ValueError: the text is not JSON, or nests deeper than `MAX_DEPTH`.
    """
    try:
        value: JSON = msgspec.json.decode(text)
    except RecursionError:
        raise ValueError(f"value nests deeper than {MAX_DEPTH} levels") from None
    if "$" in text or "\\u0024" in text or _may_be_deep(text):
        return _untag(value, 0)
    return value


def canonical(arguments: object) -> str:
    """The one text for all spellings of the same arguments: sorted names, no whitespace.

    Args:
        arguments: a value, or JSON text (a `str` is always taken as text). A text that is no
            strict JSON stands for itself, as a JSON string.

    Raises:
        ResultNotStorable: as `normalise`.
    """
    value = arguments
    if isinstance(arguments, str):
        try:
            value = _strict(arguments)
        except ValueError:
            value = arguments
    return _sorted_dump(normalise(value))


def digest(name: str, arguments: object) -> str:
    """32 hex digits that identify a tool's name and `canonical(arguments)`.

    Equal for equal arguments in any spelling, in every process and release.
    """
    text = f"{canonical([name])}{canonical(arguments)}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def parse_arguments(text: str) -> JSONObject | None:
    """Read a model's arguments. Nothing is guessed or mended.

    Returns:
        The object; `None` where the text is not exactly one JSON object, holds NaN, an infinity or
        a number beyond the range of a float, names a member twice, or nests deeper than
        `MAX_DEPTH`. The empty text is no object.
    """
    try:
        value = _strict(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


# --- the walk -------------------------------------------------------------------------------------


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
            return {_BYTES: base64.b64encode(value).decode()}
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
        _refuse(at, key, f"the class {_qualified(value)} cannot be kept as JSON")
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return _object(((field.name, getattr(value, field.name)) for field in fields), place)
    model_dump = getattr(type(value), "model_dump", None)
    if callable(model_dump):
        return _plain(model_dump(value), place, None)
    _refuse(at, key, f"a value of type {_type_name(value)} cannot be kept as JSON")


def _enter(at: _Place | None, key: str | int | None, container: object) -> _Place:
    if at is None:
        return (None, key, container, 1)
    depth = at[3] + 1
    if depth > MAX_DEPTH:
        place: _Place | None = at
        while place is not None:
            if place[2] is container:
                _refuse(at, key, f"the {_type_name(container)} contains itself")
            place = place[0]
        _refuse(at, key, f"the value nests deeper than {MAX_DEPTH} levels")
    return (at, key, container, depth)


def _object(members: Iterable[tuple[object, object]], place: _Place) -> JSON:
    plain: JSONObject = {}
    escape = False
    name = ""
    for key, item in members:
        if type(key) is str:
            name = key
        else:
            name = _key(key, place)
        if name in plain:
            _refuse(place, name, f"two keys of the {_type_name(place[2])} become {name!r} in JSON")
        if not name.isascii() and _SURROGATE.search(name):
            escape = True
        plain[name] = _plain(item, place, name)
    if escape or (len(plain) == 1 and name in _TAGS):
        return {_OBJECT: [[_text(key), item] for key, item in plain.items()]}
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
            _refuse(place, None, f"a key of type {_type_name(key)} cannot be kept as JSON")


def _array(items: Iterable[object], place: _Place) -> list[JSON]:
    return [_plain(item, place, index) for index, item in enumerate(items)]


def _sorted(items: AbstractSet[object], place: _Place) -> list[JSON]:
    """Sets have no order of their own that two processes agree on."""
    plain = [_plain(item, place, None) for item in items]
    if all(type(item) is int or type(item) is float for item in plain):
        return sorted(plain)  # type: ignore[type-var]  # numbers alone
    return sorted(plain, key=_sorted_dump)


def _text(text: str) -> JSON:
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return {_STR: _ESCAPABLE.sub(_escape, text)}


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return "\\\\" if character == "\\" else f"\\u{ord(character):04x}"


def _int(number: int, at: _Place | None, key: str | int | None) -> int:
    if -_SMALL_INT < number < _SMALL_INT or number.bit_length() <= MAX_INT_BITS:
        return number
    _refuse(at, key, f"an integer of {number.bit_length()} bits is over the limit {MAX_INT_BITS}")


def _float(number: float) -> JSON:
    if math.isfinite(number):
        return number
    return {_FLOAT: repr(number)}


# --- the way back ---------------------------------------------------------------------------------


def _untag(value: JSON, depth: int) -> JSON:
    if not isinstance(value, dict | list):
        return value
    if depth >= MAX_DEPTH:
        raise ValueError(f"value nests deeper than {MAX_DEPTH} levels")
    if isinstance(value, list):
        return [_untag(item, depth + 1) for item in value]
    if len(value) == 1:
        [(tag, content)] = value.items()
        if tag in _TAGS:
            return _untagged(value, tag, content, depth)
    return {key: _untag(item, depth + 1) for key, item in value.items()}


def _untagged(value: JSONObject, tag: str, content: JSON, depth: int) -> JSON:
    if isinstance(content, str):
        if tag == _FLOAT and content in _FLOATS:
            return _FLOATS[content]
        if tag == _BYTES and (data := _base64(content)) is not None:
            return data  # type: ignore[return-value]  # the one type beyond JSON, see decode_value
        if tag == _STR:
            return _ESCAPED.sub(_unescape, content)
    if tag == _OBJECT and (pairs := _pairs(content)) is not None:
        return {key: _untag(item, depth + 1) for key, item in pairs}
    return {tag: _untag(content, depth + 1)}


def _base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None


def _pairs(content: JSON) -> list[tuple[str, JSON]] | None:
    """The members of an escaped object, or `None` where it is none."""
    if not isinstance(content, list):
        return None
    members: JSONObject = {}
    for pair in content:
        if not isinstance(pair, list) or len(pair) != 2:
            return None
        key = _untag(pair[0], 0)
        if not isinstance(key, str) or key in members:
            return None
        members[key] = pair[1]
    return list(members.items())


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match.group(1), 16)) if match.group(1) else "\\"


def _joined(text: str) -> str:
    """The text with surrogate halves joined, lone ones replaced."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# --- JSON text ------------------------------------------------------------------------------------


def _dump(plain: JSON) -> str:
    try:
        return msgspec.json.encode(plain).decode()
    except OverflowError:  # releases of msgspec that write 64-bit integers alone
        return json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _sorted_dump(plain: JSON) -> str:
    # Not msgspec: digests outlive releases, and how it writes 1e16 is not promised.
    return json.dumps(
        plain, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )


def _strict(text: str) -> JSON:
    try:
        value: JSON = _STRICT.decode(text)
    except RecursionError:
        raise ValueError(f"the text nests deeper than {MAX_DEPTH} levels") from None
    if _may_be_deep(text):
        _untag(value, 0)
    return value


def _may_be_deep(text: str) -> bool:
    return text.count("[") + text.count("{") > MAX_DEPTH


def _unique(members: list[tuple[str, JSON]]) -> JSONObject:
    value = dict(members)
    if len(value) != len(members):
        raise ValueError("a member is named twice")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is beyond the range of a float")
    return number


_STRICT = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
)


# --- refusing -------------------------------------------------------------------------------------


def _refuse(at: _Place | None, key: str | int | None, what: str) -> NoReturn:
    raise ResultNotStorable(f"{_path(at, key)}: {what}")


def _path(at: _Place | None, key: str | int | None) -> str:
    steps = [key]
    while at is not None:
        steps.append(at[1])
        at = at[0]
    return "$" + "".join(_step(step) for step in reversed(steps))


def _step(key: str | int | None) -> str:
    if key is None:
        return ""
    if isinstance(key, int):
        return f"[{key}]"
    if _NAME.match(key):
        return f".{key}"
    shown = key if len(key) <= _SHOWN_KEY else key[:_SHOWN_KEY] + "…"
    return f"[{json.dumps(shown)}]"


def _type_name(value: object) -> str:
    return _qualified(type(value))


def _qualified(kind: type) -> str:
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"
