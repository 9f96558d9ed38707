"""JSON as providers send it and want it: order kept, any integer, no NaN, no half characters."""

from __future__ import annotations

import json
import math

from agentkit.core.contracts.types import JSON

__all__ = ["dump", "load", "mend", "mend_all"]


def load(text: str | bytes) -> JSON:
    """Decode JSON; keys stay in order.

    Raises:
        ValueError: not JSON (NaN and infinities are not), or nested too deeply to read.
    """
    try:
        value: JSON = json.loads(text, parse_constant=_refuse)
    except RecursionError as exc:
        raise ValueError("JSON is nested too deeply") from exc
    return value


def dump(value: JSON) -> bytes:
    """Encode compactly, keys in their order; equal values give equal bytes.

    Numbers that JSON has no word for become null, and half characters U+FFFD.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode()
    except ValueError:  # NaN, an infinity, or a lone surrogate (UnicodeEncodeError is a ValueError)
        text = json.dumps(mend_all(value), ensure_ascii=False, separators=(",", ":"))
        return text.encode()


def mend(text: str) -> str:
    """The same text with split surrogate pairs joined and lone halves replaced by U+FFFD.

    Some servers cut their stream within an escaped pair, so that each event holds half of one.
    """
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def mend_all(value: JSON) -> JSON:
    """`mend` on each string and key of a value; numbers that JSON has no word for become null."""
    match value:
        case str():
            return mend(value)
        case list():
            return [mend_all(item) for item in value]
        case dict():
            return {mend(key): mend_all(item) for key, item in value.items()}
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def _refuse(constant: str) -> JSON:
    raise ValueError(f"{constant} is not JSON")
