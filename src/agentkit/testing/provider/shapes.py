"""Reading untrusted JSON: strict parsing, total accessors, one canonical form and its digest."""

from __future__ import annotations

import hashlib
import json
from typing import NoReturn, TypeAlias

__all__ = ["BadJson", "Body", "canonical", "digest", "parse", "rows", "table", "text"]

Body: TypeAlias = dict[str, object]
"""A JSON object as it came over the wire: nothing about its values is known yet."""


class BadJson(ValueError):
    """The bytes are not what RFC 8259 calls JSON; the message says where and why."""


def parse(raw: bytes | str) -> object:
    """Parse JSON as the services do: UTF-8, no NaN or Infinity, no lone surrogate.

    Args:
        raw: the body of a request, or a string that should hold JSON.

    Returns:
        The value.

    Raises:
        BadJson: anything else than one JSON value.
    """
    try:
        source = raw.decode() if isinstance(raw, bytes) else raw
        value: object = json.loads(source, parse_constant=_refuse_constant)
        # `json` accepts an escaped half of a surrogate pair; no encoder can write it down again.
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise BadJson(f"str is not valid UTF-8: {error.reason} (byte {error.start})") from error
    except UnicodeEncodeError as error:
        raise BadJson(f"no low surrogate in string (char {error.start})") from error
    except RecursionError as error:
        raise BadJson("nested too deeply") from error
    except ValueError as error:
        raise BadJson(str(error)) from error
    return value


def table(value: object) -> Body:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def rows(value: object) -> list[object]:
    """Return the value if it is an array, else an empty one."""
    return value if isinstance(value, list) else []


def text(value: object) -> str:
    """Return the value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def canonical(value: object) -> bytes:
    """Encode so that equal JSON gives equal bytes, whatever the order of keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def digest(value: object) -> str:
    """Name a JSON value by the SHA-256 of its canonical form, in hex."""
    return hashlib.sha256(canonical(value)).hexdigest()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"unexpected character: {name} is not JSON")
