"""An answer on its way to the wire: frames that a fault may cut between."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from agentkit.testing.provider.script import Api

__all__ = ["PIECE", "Reply", "json_reply", "pieces", "sse"]

PIECE = 12
"""Characters of text or arguments in one event of a stream."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A rendered response.

    Args:
        api: whose error shape a fault within the stream takes.
        status: HTTP status.
        content_type: value of the header.
        frames: the body; an event each for a stream, two halves for JSON.
        headers: further headers.
        streamed: sent with chunked encoding, frame by frame.
    """

    api: Api
    status: int
    content_type: str
    frames: Sequence[bytes]
    headers: tuple[tuple[str, str], ...] = ()
    streamed: bool = False


def json_reply(
    api: Api, body: object, *, status: int = 200, headers: tuple[tuple[str, str], ...] = ()
) -> Reply:
    """Render a JSON response."""
    raw = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    half = (len(raw) + 1) // 2
    return Reply(api, status, "application/json", (raw[:half], raw[half:]), headers)


def sse(data: object, *, event: str | None = None) -> bytes:
    """Render one server-sent event."""
    head = f"event: {event}\n" if event is not None else ""
    payload = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"{head}data: {payload}\n\n".encode()


def pieces(value: str) -> list[str]:
    """Cut a string as a model streams it."""
    return [value[start : start + PIECE] for start in range(0, len(value), PIECE)]
