"""Requests written by hand, so that no SDK can mend what a test wants to be refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from urllib.parse import urlsplit

from agentkit.testing.provider import StrictProvider

__all__ = [
    "ASK",
    "TOOL",
    "Response",
    "anthropic_request",
    "assistant",
    "call",
    "events",
    "openai_request",
    "post_anthropic",
    "post_openai",
    "request",
    "result",
    "tool_call",
    "tool_message",
    "user",
]

TOOL = {"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}
ASK = {"role": "user", "content": "What is 1 + 2?"}


@dataclass(frozen=True)
class Response:
    """Status, headers (names in lower case) and body, as they came."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        """The body as a JSON object."""
        value = json.loads(self.body)
        assert isinstance(value, dict)
        return value


def request(
    url: str,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Send one request on a connection of its own."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=20)
    try:
        connection.request(method, path, body=body, headers=dict(headers or {}))
        reply = connection.getresponse()
        names = {name.lower(): value for name, value in reply.getheaders()}
        return Response(reply.status, names, reply.read())
    finally:
        connection.close()


def post_anthropic(
    provider: StrictProvider, body: object, *, path: str = "/v1/messages", key: str = "test-key"
) -> Response:
    """Post a body to the Messages API; bytes go out as they are."""
    headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
    return request(provider.url, "POST", path, body=_encode(body), headers=headers)


def post_openai(
    provider: StrictProvider,
    body: object,
    *,
    path: str = "/v1/chat/completions",
    key: str = "test-key",
) -> Response:
    """Post a body to the Chat Completions API; bytes go out as they are."""
    headers = {"authorization": f"Bearer {key}"}
    return request(provider.url, "POST", path, body=_encode(body), headers=headers)


def events(body: bytes) -> Iterator[tuple[str, object]]:
    """Read a stream of server-sent events: name (or an empty string) and data."""
    for block in body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if line)
        if "data" in lines:
            data = lines["data"]
            yield lines.get("event", ""), data if data == "[DONE]" else json.loads(data)


def anthropic_request(*messages: object, **fields: object) -> dict[str, object]:
    """Build a Messages request; a field given as None is left out."""
    body: dict[str, object] = {
        "model": "claude-fake",
        "max_tokens": 100,
        "messages": list(messages),
        "tools": [TOOL],
    }
    return {name: value for name, value in (body | fields).items() if value is not None}


def openai_request(*messages: object, **fields: object) -> dict[str, object]:
    """Build a Chat Completions request; a field given as None is left out."""
    function = {"name": "add", "parameters": {"type": "object"}}
    body: dict[str, object] = {
        "model": "gpt-fake",
        "messages": list(messages),
        "tools": [{"type": "function", "function": function}],
    }
    return {name: value for name, value in (body | fields).items() if value is not None}


def user(*blocks: object) -> dict[str, object]:
    """Build a Messages user message of blocks."""
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: object) -> dict[str, object]:
    """Build a Messages assistant message of blocks."""
    return {"role": "assistant", "content": list(blocks)}


def call(label: object, **fields: object) -> dict[str, object]:
    """Build a tool_use block."""
    return {"type": "tool_use", "id": label, "name": "add", "input": {}} | fields


def result(label: object, **fields: object) -> dict[str, object]:
    """Build a tool_result block."""
    return {"type": "tool_result", "tool_use_id": label, "content": "3"} | fields


def tool_call(
    label: object, *, name: object = "add", arguments: object = "{}"
) -> dict[str, object]:
    """Build one entry of `tool_calls`."""
    return {"id": label, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool_message(label: object, content: object = "3") -> dict[str, object]:
    """Build a Chat Completions tool message."""
    return {"role": "tool", "tool_call_id": label, "content": content}


def _encode(body: object) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()
