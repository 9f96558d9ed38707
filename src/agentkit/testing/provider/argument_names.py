"""The one rule about argument names that both APIs share."""

from __future__ import annotations

from agentkit.testing.provider.shapes import Body

__all__ = ["MAX_ARGUMENT_NAME", "bad_argument_name"]

MAX_ARGUMENT_NAME = 256


def bad_argument_name(arguments: Body) -> str | None:
    """Return the first argument name that makes services reject the whole replay, if there is one.

    A name is bad when it is empty, longer than 256 characters or not printable (NUL above all).
    """
    for name in arguments:
        if not name or len(name) > MAX_ARGUMENT_NAME or not name.isprintable():
            return name
    return None
