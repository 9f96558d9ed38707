"""Chat Completions: an answer as a JSON completion or as a stream of chunks."""

from __future__ import annotations

import json
from collections.abc import Iterator

from agentkit.testing.provider.reply import Reply, json_reply, pieces, sse
from agentkit.testing.provider.script import Answer, ProviderRequest
from agentkit.testing.provider.shapes import Body, rows, table, text

__all__ = ["render"]

_CREATED = 1_700_000_000  # a fixed moment: nothing here reads a clock
_STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
}


def render(request: ProviderRequest, answer: Answer, *, message_id: str, stops: bool) -> Reply:
    """Render an answer as the request asks for it.

    Args:
        request: decides between JSON and a stream, and whether a usage chunk is sent.
        answer: what to say; thinking and blocks have no place in this API.
        message_id: id of the completion.
        stops: False leaves the finish reason null.
    """
    message = _message(request, answer)
    finish = _finish_reason(answer) if stops else None
    base: Body = {
        "id": f"chatcmpl-{message_id}",
        "object": "chat.completion",
        "created": _CREATED,
        "model": request.model,
        "service_tier": "default",
        "system_fingerprint": "fp_fake",
    }
    if not request.body.get("stream"):
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return json_reply("openai", {**base, "choices": [choice], "usage": _usage(answer)})
    base["object"] = "chat.completion.chunk"
    frames = [_chunk(base, delta, None) for delta in _deltas(message)]
    frames.append(_chunk(base, {}, finish))
    if table(request.body.get("stream_options")).get("include_usage"):
        frames.append(sse({**base, "choices": [], "usage": _usage(answer)}))
    frames.append(sse("[DONE]"))
    return Reply("openai", 200, "text/event-stream; charset=utf-8", frames, streamed=True)


def _message(request: ProviderRequest, answer: Answer) -> Body:
    message: Body = {
        "role": "assistant",
        "content": answer.text,
        "refusal": None,
        "annotations": [],
    }
    if answer.tool_calls:
        message["tool_calls"] = [
            {
                "id": f"call_{request.digest[:16]}_{index}" if call.id is None else call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": call.arguments
                    if isinstance(call.arguments, str)
                    else json.dumps(call.arguments, ensure_ascii=False),
                },
            }
            for index, call in enumerate(answer.tool_calls)
        ]
    return message


def _deltas(message: Body) -> Iterator[Body]:
    opening = None if message["content"] is None else ""
    yield {"role": "assistant", "content": opening, "refusal": None}
    for piece in pieces(text(message["content"])):
        yield {"content": piece}
    for index, call in enumerate(rows(message.get("tool_calls"))):
        opened = table(call)
        function = table(opened["function"])
        start = {"name": function["name"], "arguments": ""}
        yield {"tool_calls": [{**opened, "index": index, "function": start}]}
        for piece in pieces(text(function["arguments"])):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _chunk(base: Body, delta: Body, finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return sse({**base, "choices": [choice], "usage": None})


def _finish_reason(answer: Answer) -> str:
    if answer.stop_reason is not None:
        return _STOP_REASONS.get(answer.stop_reason, answer.stop_reason)
    return "tool_calls" if answer.tool_calls else "stop"


def _usage(answer: Answer) -> Body:
    usage = answer.usage
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output_tokens,
        "total_tokens": prompt + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
