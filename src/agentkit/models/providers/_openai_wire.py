"""A neutral request as a body of the Chat Completions API. Pure; equal requests, equal bytes.

- Each tool result is one `tool` message.
- An assistant message that this provider wrote goes back byte for byte, unknown fields included.
  Only where the transcript says otherwise is a call changed: its id, its name, its arguments; empty
  text goes as null, or as a placeholder where nothing else is in the message.
- Content of another provider is rendered plainly: its text and its calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from agentkit.core.contracts.model import ModelRequest
from agentkit.core.contracts.types import JSON, JSONObject, Message, ToolCall, ToolDefinition
from agentkit.models.providers._json import dump, load, mend
from agentkit.models.providers._transcript import (
    NO_OUTPUT,
    NO_TEXT,
    argument_text,
    is_blank,
    native_content,
    plain,
    schema,
)

__all__ = ["ORIGIN", "render"]

ORIGIN = "openai"


def render(
    request: ModelRequest,
    *,
    model: str,
    extra_body: Mapping[str, JSON],
    origin: str = ORIGIN,
) -> bytes:
    """The body of `POST /chat/completions`.

    Args:
        request: what to ask; it is not changed.
        model: the model where the request names none.
        extra_body: further fields, sent as they are.
        origin: whose native content is sent back.

    Returns:
        JSON bytes.
    """
    body: dict[str, object] = {
        "model": request.model or model,
        "messages": list(_messages(request, origin)),
    }
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if request.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    for name, value in extra_body.items():
        body[name] = msgspec.Raw(dump(value))
    return msgspec.json.encode(body)


def _tool(tool: ToolDefinition) -> dict[str, object]:
    function: dict[str, object] = {"name": tool.name}
    if not is_blank(tool.description):
        function["description"] = mend(tool.description)
    function["parameters"] = msgspec.Raw(dump(schema(tool.parameters)))
    return {"type": "function", "function": function}


def _messages(request: ModelRequest, origin: str) -> Iterator[object]:
    if not is_blank(request.system):
        yield {"role": "system", "content": mend(request.system)}
    for message in request.messages:
        match message.role:
            case "assistant":
                yield _assistant(message, origin)
            case "tool":
                yield {
                    "role": "tool",
                    "tool_call_id": message.tool_call_id,
                    "content": plain(message.content, placeholder=NO_OUTPUT),
                }
            case role:
                yield {"role": role, "content": plain(message.content, placeholder=NO_TEXT)}


def _assistant(message: Message, origin: str) -> object:
    recorded = native_content(message, origin)
    if not isinstance(recorded, dict) or message.native is None:
        return _plain_assistant(message)
    sent = _native_assistant(recorded, message.tool_calls)
    if sent is None:
        return _plain_assistant(message)
    return message.native.content if sent == recorded else msgspec.Raw(dump(sent))


def _plain_assistant(message: Message) -> dict[str, object]:
    if not message.tool_calls:
        return {"role": "assistant", "content": plain(message.content, placeholder=NO_TEXT)}
    return {
        "role": "assistant",
        "content": None if is_blank(message.content) else mend(message.content),
        "tool_calls": [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": argument_text(call).decode()},
            }
            for call in message.tool_calls
        ],
    }


def _native_assistant(recorded: JSONObject, calls: Sequence[ToolCall]) -> JSONObject | None:
    """The message to send; `None` where its calls are not those of the transcript."""
    entries = recorded.get("tool_calls") or []
    if not isinstance(entries, list) or len(entries) != len(calls):
        return None
    if recorded.get("function_call"):  # the old form has no id that a result could name
        return None
    sent = {**recorded, "role": "assistant"}
    if entries:
        changed = [_as_called(entry, call) for entry, call in zip(entries, calls, strict=True)]
        if None in changed:
            return None
        sent["tool_calls"] = changed
    elif "tool_calls" in sent:  # an empty list is refused
        del sent["tool_calls"]
    return _without_blank_text(sent)


def _without_blank_text(message: JSONObject) -> JSONObject:
    content = message.get("content")
    if isinstance(content, list):
        kept: JSON = [part for part in content if not _is_blank_part(part)] or None
    else:
        kept = None if is_blank(content) else content
    says_else = message.get("tool_calls") or not is_blank(message.get("refusal"))
    if kept is None and not says_else:
        kept = NO_TEXT
    return message if kept == content else {**message, "content": kept}


def _is_blank_part(part: JSON) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and is_blank(part.get("text"))


def _as_called(entry: JSON, call: ToolCall) -> JSON:
    """The recorded call under the transcript's id, name and arguments; `None` if it has none."""
    function = entry.get("function") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(function, dict):
        return None
    arguments = function.get("arguments")
    if _object(arguments) != call.arguments:
        arguments = argument_text(call).decode()
    named: JSONObject = {**function, "name": call.name, "arguments": arguments}
    return {**entry, "id": call.id, "function": named}


def _object(text: JSON) -> JSON:
    try:
        value = load(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
