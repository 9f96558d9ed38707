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
import json
import math
import re
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import NoReturn, cast

import msgspec

from agentkit.core.contracts.errors import ResultNotStorable
from agentkit.core.contracts.plain import (
    BYTES,
    FLOAT,
    MAX_DEPTH,
    OBJECT,
    STR,
    SURROGATE,
    plain,
    sorted_text,
    type_name,
)
from agentkit.core.contracts.types import JSON, JSONObject

__all__ = [
    "canonical",
    "decode_value",
    "digest",
    "encode_value",
    "normalise",
    "parse_arguments",
    "to_text",
]

_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_ESCAPED = re.compile(r"\\(?:u(d[89a-f][0-9a-f]{2})|\\)")


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
        return plain(value)
    except ResultNotStorable:
        raise
    except Exception as exc:  # the value's own code: properties, model_dump, iterators
        raise ResultNotStorable(
            f"a value of type {type_name(value)} cannot be read: {type(exc).__name__}: {exc!s:.200}"
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
    if type(value) is str and value.isascii():
        return value
    data = value if type(value) is str else normalise(value)
    if data is None:
        return ""
    if isinstance(data, dict) and len(data) == 1 and STR in data:
        data = _untag(data, 0)
    if isinstance(data, str):
        return data if data.isascii() else _joined(data)
    return _dump(data)


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
        raise _too_deep() from None
    if "$" in text or "\\u0024" in text or _may_be_deep(text):
        return _untag(value, 0)
    return value


def canonical(arguments: object) -> str:
    """The one text for all spellings of the same arguments: sorted names, no whitespace.

    Args:
        arguments: a value, or JSON text (a `str` is always taken as text). A text that is no
            strict JSON stands for itself, as a JSON string.

    Raises:
        ResultNotStorable: as `normalise`; never for a text.
    """
    data: JSON = None
    if isinstance(arguments, str):
        try:
            data = normalise(_strict(arguments))
        except (ValueError, ResultNotStorable):
            data = normalise(arguments)
    else:
        data = normalise(arguments)
    text = sorted_text(data)
    return sorted_text(_ordered(data)) if OBJECT in text else text


def digest(name: str, arguments: object) -> str:
    """32 hex digits that identify a tool's name and `canonical(arguments)`.

    Equal for equal arguments in any spelling, in every process and release.
    """
    text = f"{_canonical_name(name)}{canonical(arguments)}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=256)
def _canonical_name(name: str) -> str:
    return canonical([name])


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


# --- the way back ---------------------------------------------------------------------------------


def _untag(value: JSON, depth: int) -> JSON:
    if not isinstance(value, dict | list):
        return value
    pairs: Iterable[tuple[str, JSON]] | None = None
    if isinstance(value, dict):
        pairs = value.items()
        if len(value) == 1:
            [(tag, content)] = pairs
            if isinstance(content, str) and (leaf := _leaf(tag, content)) is not None:
                return leaf
            if tag == OBJECT and (members := _members(content)) is not None:
                pairs = members.items()
    if depth >= MAX_DEPTH:
        raise _too_deep()
    if pairs is None:
        return [_untag(item, depth + 1) for item in value]
    return {key: _untag(item, depth + 1) for key, item in pairs}


def _leaf(tag: str, content: str) -> JSON:
    """The float, bytes or text that a tag stands for; `None` where it is no tag."""
    if tag == FLOAT:
        return _FLOATS.get(content)
    if tag == BYTES:
        return _base64(content)  # type: ignore[return-value]  # beyond JSON, see decode_value
    return _ESCAPED.sub(_unescape, content) if tag == STR else None


def _base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None


def _members(content: JSON) -> JSONObject | None:
    """The members of an escaped object; `None` where it is none."""
    if not isinstance(content, list):
        return None
    members: JSONObject = {}
    for pair in content:
        match pair:
            case [name, item] if isinstance(key := _name(name), str) and key not in members:
                members[key] = item
            case _:
                return None
    return members


def _name(name: JSON) -> JSON:
    match name:
        case {"$str": str(content), **others} if not others:
            return _leaf(STR, content)
        case _:
            return name


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match.group(1), 16)) if match.group(1) else "\\"


def _joined(text: str) -> str:
    """The text with surrogate halves joined, lone ones replaced."""
    if not SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# --- JSON text ------------------------------------------------------------------------------------


def _dump(data: JSON) -> str:
    try:
        return msgspec.json.encode(data).decode()
    except OverflowError:  # releases of msgspec that write 64-bit integers alone
        return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _ordered(data: JSON) -> JSON:
    """The data with the members of escaped objects sorted, which are no JSON members."""
    if isinstance(data, list):
        return [_ordered(item) for item in data]
    if not isinstance(data, dict):
        return data
    if len(data) == 1 and OBJECT in data:
        pairs = cast("list[list[JSON]]", data[OBJECT])
        members: list[JSON] = [[name, _ordered(item)] for name, item in pairs]
        return {OBJECT: sorted(members, key=sorted_text)}
    return {name: _ordered(item) for name, item in data.items()}


def _strict(text: str) -> JSON:
    try:
        value: JSON = _STRICT.decode(text)
    except RecursionError:
        raise _too_deep() from None
    if _may_be_deep(text):
        _check_depth(value, 0)
    return value


def _check_depth(value: JSON, depth: int) -> None:
    if isinstance(value, dict | list):
        if depth >= MAX_DEPTH:
            raise _too_deep()
        for item in value.values() if isinstance(value, dict) else value:
            _check_depth(item, depth + 1)


def _too_deep() -> ValueError:
    return ValueError(f"the value nests deeper than {MAX_DEPTH} levels")


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
