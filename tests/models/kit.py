"""What the tests of both adapters share: requests, answers, and asking once."""

from collections.abc import Sequence

import msgspec
import pytest

from agentkit.core.contracts.errors import ModelError
from agentkit.core.contracts.model import LLMPort, ModelReply, ModelRequest, TextDelta
from agentkit.core.contracts.types import (
    JSON,
    CallRecord,
    Message,
    Native,
    ToolCall,
    ToolDefinition,
)
from agentkit.models.providers import frontiers
from agentkit.models.providers._json import load

KEY = "sk-test-8f2b"
PROVIDERS = ("anthropic", "openai")


def port(name: str, url: str, **settings: object) -> LLMPort:
    """The adapter of that provider for a server at `url`."""
    if name == "anthropic":
        return frontiers.claude(api_key=KEY, base_url=url, **settings)  # type: ignore[arg-type] # settings of either builder
    return frontiers.openai(api_key=KEY, base_url=f"{url}/v1", **settings)  # type: ignore[arg-type] # settings of either builder


def request(
    *messages: Message,
    stream: bool = False,
    system: str = "",
    tools: Sequence[ToolDefinition] = (),
    timeout_seconds: float = 20.0,
) -> ModelRequest:
    """A request; a single user message where none is given."""
    return ModelRequest(
        model="m-1",
        system=system,
        tools=tuple(tools),
        messages=list(messages) or [user("Hello")],
        stream=stream,
        timeout_seconds=timeout_seconds,
    )


def user(text: str) -> Message:
    """A user message."""
    return Message(role="user", content=text)


def answered(reply: ModelReply) -> Message:
    """The assistant message that a transcript holds after this reply."""
    return Message(
        role="assistant",
        content=reply.text,
        tool_calls=tuple(called(call) for call in reply.calls),
        native=reply.native,
    )


def called(call: CallRecord) -> ToolCall:
    """A call with its arguments decoded; they stay text where they are no object."""
    try:
        arguments = load(call.arguments)
    except ValueError:
        arguments = None
    return ToolCall(
        id=call.id,
        name=call.name,
        arguments=arguments if isinstance(arguments, dict) else call.arguments,
    )


def results(reply: ModelReply) -> list[Message]:
    """One result for each call."""
    return [
        Message(role="tool", content=f"result {n}", tool_call_id=call.id)
        for n, call in enumerate(reply.calls)
    ]


def native(reply: ModelReply) -> JSON:
    """The decoded native content."""
    assert reply.native is not None
    return load(bytes(reply.native.content))


def recorded(origin: str, content: JSON) -> Native:
    """Native content as a journal holds it."""
    return Native(origin=origin, content=msgspec.Raw(msgspec.json.encode(content)))


async def ask(llm: LLMPort, what: ModelRequest) -> tuple[ModelReply, str]:
    """The reply, and all text deltas joined."""
    items = [item async for item in llm.attempt(what)]
    deltas = [item.text for item in items[:-1] if isinstance(item, TextDelta)]
    assert len(deltas) == len(items) - 1
    assert isinstance(items[-1], ModelReply)
    return items[-1], "".join(deltas)


async def failure(llm: LLMPort, what: ModelRequest) -> ModelError:
    """The error of an attempt that must fail; no reply may have come before it."""
    with pytest.raises(ModelError) as caught:
        await _only_text(llm, what)
    return caught.value


async def _only_text(llm: LLMPort, what: ModelRequest) -> None:
    async for item in llm.attempt(what):
        assert isinstance(item, TextDelta)


def message(*content: JSON, stop: str | None = "end_turn", **fields: JSON) -> dict[str, JSON]:
    """A whole answer of the Messages API."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 5, "output_tokens": 7},
        **fields,
    }


def completion(reply: JSON, *, finish: str | None = "stop", **fields: JSON) -> dict[str, JSON]:
    """A whole answer of the Chat Completions API."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-x",
        "choices": [{"index": 0, "message": reply, "finish_reason": finish}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 7},
        **fields,
    }


def message_events(text: str = "Hi there", stop: str | None = "end_turn") -> list[JSON]:
    """A streamed answer of the Messages API."""
    start: JSON = message(stop=None, usage={"input_tokens": 5, "output_tokens": 1})
    return [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        delta_event("text_delta", text=text[:2]),
        delta_event("text_delta", text=text[2:]),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": {"output_tokens": 7},
        },
        {"type": "message_stop"},
    ]


def delta_event(kind: str, *, index: int = 0, **fields: JSON) -> JSON:
    """One delta of a block."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def completion_chunks(text: str = "Hi there", finish: str | None = "stop") -> list[JSON]:
    """A streamed answer of the Chat Completions API."""
    usage: JSON = {"prompt_tokens": 5, "completion_tokens": 7}
    return [
        chunk_of({"role": "assistant", "content": ""}),
        chunk_of({"content": text[:2]}),
        chunk_of({"content": text[2:]}),
        chunk_of({}, finish=finish),
        {"id": "chatcmpl-1", "model": "gpt-x", "choices": [], "usage": usage},
        "[DONE]",
    ]


def chunk_of(delta: JSON, *, finish: str | None = None) -> JSON:
    """One chunk of a completion."""
    choice: JSON = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "model": "gpt-x", "choices": [choice], "usage": None}


def events_of(name: str, text: str = "Hi there") -> list[JSON]:
    """A streamed answer of that provider."""
    return message_events(text) if name == "anthropic" else completion_chunks(text)


def answer_of(name: str) -> dict[str, JSON]:
    """A whole answer of that provider."""
    if name == "anthropic":
        return message({"type": "text", "text": "Hi there"})
    return completion({"role": "assistant", "content": "Hi there"})
