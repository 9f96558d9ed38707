"""A neutral request as a body of the Anthropic Messages API. Pure; equal requests, equal bytes.

- Tool results become one user message, in order, in front of any user text that follows them;
  consecutive user (and assistant) messages become one.
- Assistant content that Anthropic wrote goes back byte for byte. Only where the transcript says
  otherwise is a `tool_use` block changed: its id, its name, its input. Empty text blocks are left
  out, since the API refuses them.
- Content of another provider is rendered plainly: its text and its calls.
- No `cache_control` is added; `extra_body={"cache_control": {"type": "ephemeral"}}` asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec

from agentkit.core.contracts.model import ModelRequest
from agentkit.core.contracts.types import JSON, Message, ToolCall, ToolDefinition
from agentkit.models.providers._json import dump, mend
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

ORIGIN = "anthropic"


def render(
    request: ModelRequest,
    *,
    model: str,
    max_tokens: int,
    extra_body: Mapping[str, JSON],
    origin: str = ORIGIN,
) -> bytes:
    """The body of `POST /v1/messages`.

    Args:
        request: what to ask; it is not changed.
        model: the model where the request names none.
        max_tokens: the longest answer.
        extra_body: further fields, sent as they are.
        origin: whose native content is sent back.

    Returns:
        JSON bytes.
    """
    body: dict[str, object] = {"model": request.model or model, "max_tokens": max_tokens}
    system = [request.system, *(m.content for m in request.messages if m.role == "system")]
    if prompt := "\n\n".join(mend(text) for text in system if not is_blank(text)):
        body["system"] = prompt
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    body["messages"] = list(_messages(request.messages, origin))
    for name, value in extra_body.items():
        body[name] = msgspec.Raw(dump(value))
    if request.stream:
        body["stream"] = True
    return msgspec.json.encode(body)


def _tool(tool: ToolDefinition) -> dict[str, object]:
    rendered: dict[str, object] = {"name": tool.name}
    if not is_blank(tool.description):
        rendered["description"] = mend(tool.description)
    rendered["input_schema"] = msgspec.Raw(dump(schema(tool.parameters)))
    return rendered


def _messages(messages: Iterable[Message], origin: str) -> Iterator[dict[str, object]]:
    spoken = (message for message in messages if message.role != "system")
    for of_assistant, group in groupby(spoken, key=lambda message: message.role == "assistant"):
        if of_assistant:
            yield {"role": "assistant", "content": _assistant_content(list(group), origin)}
        else:
            yield {"role": "user", "content": _user_content(list(group))}


def _user_content(messages: Sequence[Message]) -> list[dict[str, object]]:
    results = [_result(message) for message in messages if message.role == "tool"]
    texts = [_text(m.content) for m in messages if m.role == "user" and not is_blank(m.content)]
    return results + texts or [_text(NO_TEXT)]


def _text(text: str) -> dict[str, object]:
    return {"type": "text", "text": mend(text)}


def _result(message: Message) -> dict[str, object]:
    block: dict[str, object] = {
        "type": "tool_result",
        "tool_use_id": message.tool_call_id,
        "content": plain(message.content, placeholder=NO_OUTPUT),
    }
    if message.is_error:
        block["is_error"] = True
    return block


def _assistant_content(messages: Sequence[Message], origin: str) -> object:
    parts = [part for message in messages if (part := _one_assistant(message, origin))]
    if not parts:
        return [_text(NO_TEXT)]
    # Each part is the inside of a JSON array, so that recorded bytes stay as they are.
    return msgspec.Raw(b"[" + b",".join(parts) + b"]")


def _one_assistant(message: Message, origin: str) -> bytes:
    """The blocks of one message as JSON, without the brackets around them; empty for none."""
    content = native_content(message, origin)
    if not isinstance(content, list):
        return _inside(msgspec.json.encode(_plain_blocks(message)))
    blocks, changed = _native_blocks(content, message.tool_calls)
    if blocks is None:
        return _inside(msgspec.json.encode(_plain_blocks(message)))
    if changed or message.native is None:
        return _inside(dump(blocks))
    return _inside(bytes(message.native.content))


def _inside(array: bytes) -> bytes:
    return array.strip()[1:-1].strip()


def _plain_blocks(message: Message) -> list[dict[str, object]]:
    blocks = [] if is_blank(message.content) else [_text(message.content)]
    for call in message.tool_calls:
        given = msgspec.Raw(argument_text(call))
        blocks += [{"type": "tool_use", "id": call.id, "name": call.name, "input": given}]
    return blocks


def _native_blocks(
    content: Sequence[JSON], calls: Sequence[ToolCall]
) -> tuple[list[JSON] | None, bool]:
    """The blocks to send, and whether they differ from the recorded ones.

    `None` where the recorded calls are not those of the transcript: then the plain form is right.
    """
    uses = [block for block in content if _is(block, "tool_use")]
    if len(uses) != len(calls):
        return None, True
    left = iter(calls)
    blocks: list[JSON] = []
    for block in content:
        if isinstance(block, dict) and _is(block, "tool_use"):
            blocks.append(_as_called(block, next(left)))
        elif not (isinstance(block, dict) and _is(block, "text") and is_blank(block.get("text"))):
            blocks.append(block)
    return blocks, blocks != content


def _is(block: JSON, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind


def _as_called(block: dict[str, JSON], call: ToolCall) -> dict[str, JSON]:
    arguments: JSON = call.arguments if isinstance(call.arguments, dict) else {}
    wanted: dict[str, JSON] = {"id": call.id, "name": call.name, "input": arguments}
    if all(block.get(key) == value for key, value in wanted.items()):
        return block
    return {**block, **wanted}
