"""The official SDKs read the right answer, streaming and not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import anthropic
import openai
import pytest

from agentkit.testing.provider import Answer, CallSpec, Fault, StrictProvider, UsageSpec

ANSWER = Answer(
    thinking="I should add, then say so.",
    text="Adding 1 and 2. Grüße, 世界 🌍!",
    blocks=[{"type": "surprise", "kept": [1, 2]}],
    tool_calls=[CallSpec("add", {"a": 1, "b": "zwölf"}), CallSpec("add", {}, id="mine")],
    usage=UsageSpec(input_tokens=11, output_tokens=7, cache_read_tokens=3, reasoning_tokens=2),
)
LAST = Answer(text="Three.")
SCRIPT = [ANSWER, LAST]
QUESTION = "What is 1 + 2?"
TOOLS: list[anthropic.types.ToolParam] = [{"name": "add", "input_schema": {"type": "object"}}]
FUNCTIONS: list[openai.types.chat.ChatCompletionFunctionToolParam] = [
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
]


def _anthropic_client(provider: StrictProvider) -> anthropic.Anthropic:
    return anthropic.Anthropic(
        base_url=provider.anthropic_url, api_key=provider.api_key, max_retries=0
    )


def _openai_client(provider: StrictProvider) -> openai.OpenAI:
    return openai.OpenAI(base_url=provider.openai_url, api_key=provider.api_key, max_retries=0)


def _ask_anthropic(
    client: anthropic.Anthropic,
    messages: Sequence[Mapping[str, object]],
    *,
    streaming: bool,
) -> anthropic.types.Message:
    fields = {"model": "claude-fake", "max_tokens": 100, "messages": messages, "tools": TOOLS}
    if not streaming:
        return client.messages.create(**fields)  # type: ignore[call-overload, no-any-return]
    with client.messages.stream(**fields) as stream:  # type: ignore[arg-type]
        return stream.get_final_message()


def _ask_openai(
    client: openai.OpenAI,
    messages: Sequence[Mapping[str, object]],
    *,
    streaming: bool,
) -> openai.types.chat.ChatCompletion:
    fields = {"model": "gpt-fake", "messages": messages, "tools": FUNCTIONS}
    if not streaming:
        return client.chat.completions.create(**fields)  # type: ignore[call-overload, no-any-return]
    options = {"include_usage": True}
    with client.chat.completions.stream(**fields, stream_options=options) as stream:  # type: ignore[arg-type]
        return stream.get_final_completion()


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streaming"])
def test_anthropic_conversation(*, streaming: bool) -> None:
    """Two turns with thinking, text, an unknown block and calls, sent back as the SDK has them."""
    with StrictProvider(SCRIPT) as provider, _anthropic_client(provider) as client:
        first = _ask_anthropic(client, [{"role": "user", "content": QUESTION}], streaming=streaming)
        content = first.to_dict(warnings=False)["content"]
        assert isinstance(content, list)
        labels = [block["id"] for block in content if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": label} for label in labels]
        history: list[Mapping[str, object]] = [
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": content},
            {"role": "user", "content": results},
        ]
        second = _ask_anthropic(client, history, streaming=streaming)

    thinking, text, surprise, call, other = content
    assert thinking["thinking"] == ANSWER.thinking
    assert text == {"type": "text", "text": ANSWER.text}
    assert surprise == {"type": "surprise", "kept": [1, 2]}
    assert (call["name"], call["input"]) == ("add", {"a": 1, "b": "zwölf"})
    assert (other["id"], other["input"]) == ("mine", {})
    assert (first.stop_reason, second.stop_reason) == ("tool_use", "end_turn")
    usage = first.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_input_tokens) == (11, 7, 3)
    assert [(call.turn, call.model) for call in provider.calls] == [
        (0, "claude-fake"),
        (1, "claude-fake"),
    ]
    assert provider.refusals == []


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streaming"])
def test_openai_conversation(*, streaming: bool) -> None:
    """Two turns with text and parallel calls, sent back as the SDK gives them."""
    with StrictProvider(SCRIPT) as provider, _openai_client(provider) as client:
        first = _ask_openai(client, [{"role": "user", "content": QUESTION}], streaming=streaming)
        message = first.choices[0].message
        assert message.tool_calls is not None
        labels = [call.id for call in message.tool_calls]
        sent_back = {
            "role": "assistant",
            "content": message.content,
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.function.name, "arguments": call.function.arguments},
                }
                for call in message.tool_calls
                if call.type == "function"
            ],
        }
        results = [{"role": "tool", "tool_call_id": label, "content": "3"} for label in labels]
        second = _ask_openai(
            client,
            [{"role": "user", "content": QUESTION}, sent_back, *results],
            streaming=streaming,
        )

    call, other = message.tool_calls
    assert call.type == other.type == "function"
    assert message.content == ANSWER.text
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "add",
        {"a": 1, "b": "zwölf"},
    )
    assert (other.id, other.function.arguments) == ("mine", "{}")
    assert (first.choices[0].finish_reason, second.choices[0].finish_reason) == (
        "tool_calls",
        "stop",
    )
    assert first.usage is not None
    assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (14, 7)
    assert second.choices[0].message.content == "Three."
    assert provider.refusals == []


def test_openai_usage_chunk_only_on_demand() -> None:
    """Without `include_usage` a stream has no usage."""
    with StrictProvider([LAST]) as provider, _openai_client(provider) as client:
        chunks = list(
            client.chat.completions.create(
                model="gpt-fake", messages=[{"role": "user", "content": QUESTION}], stream=True
            )
        )

    assert {chunk.usage for chunk in chunks} == {None}


def test_anthropic_errors_are_the_sdks_own() -> None:
    """A refusal and a fault become the SDK's exceptions, with their request ids."""
    with StrictProvider([LAST]) as provider, _anthropic_client(provider) as client:
        with pytest.raises(anthropic.BadRequestError, match="text content blocks") as refused:
            _ask_anthropic(client, [{"role": "user", "content": " "}], streaming=False)
        provider.fail_next(Fault.rate_limit(retry_after=2), Fault.overloaded())
        with pytest.raises(anthropic.RateLimitError) as limited:
            _ask_anthropic(client, [{"role": "user", "content": QUESTION}], streaming=True)
        with pytest.raises(anthropic.InternalServerError, match="overloaded_error"):
            _ask_anthropic(client, [{"role": "user", "content": QUESTION}], streaming=False)

    assert refused.value.request_id is not None
    assert limited.value.response.headers["retry-after"] == "2"


def test_openai_errors_are_the_sdks_own() -> None:
    """A refusal and a fault become the SDK's exceptions, with their codes."""
    with StrictProvider([LAST]) as provider, _openai_client(provider) as client:
        with pytest.raises(openai.BadRequestError, match="text must be non-empty"):
            _ask_openai(client, [{"role": "user", "content": " "}], streaming=False)
        provider.fail_next(Fault.spend_limit())
        with pytest.raises(openai.RateLimitError) as limited:
            _ask_openai(client, [{"role": "user", "content": QUESTION}], streaming=False)

    assert limited.value.code == "insufficient_quota"
