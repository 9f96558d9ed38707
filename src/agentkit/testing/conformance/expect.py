"""What a check says when a store does not do as it promised."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["Broken", "equal", "holds", "refused"]

_E = TypeVar("_E", bound=Exception)
_LONGEST = 400


class Broken(AssertionError):
    """A promise is not kept; the message says what was expected and what came."""


def equal(what: str, *, expected: object, actual: object) -> None:
    """See that `actual`, which is called `what` in the report, is as expected.

    Raises:
        Broken: it is not.
    """
    if expected != actual:
        raise Broken(f"{what}: expected {_short(expected)}, got {_short(actual)}")


def holds(what: str, *, true: object) -> None:
    """See that `what` is true.

    Raises:
        Broken: it is not.
    """
    if not true:
        raise Broken(f"expected that {what}; it is not so")


async def refused(error: type[_E], attempt: Awaitable[object], *, what: str) -> _E:
    """See that `attempt`, which is called `what` in the report, raises `error`; returns that.

    Raises:
        Broken: it went through, or raised something else.
    """
    try:
        answer = await attempt
    except error as exc:
        return exc
    except Exception as exc:
        raise Broken(
            f"{what}: expected {error.__name__}, got {type(exc).__name__}: {_short(str(exc))}"
        ) from exc
    raise Broken(f"{what}: expected {error.__name__}, but it went through: {_short(answer)}")


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
