"""Messages API: an answer as a JSON message or as a stream of events."""

from __future__ import annotations

import json
from collections.abc import Iterator

from agentkit.testing.provider.reply import Reply, json_reply, pieces, sse
from agentkit.testing.provider.script import Answer, CallSpec, ProviderRequest
from agentkit.testing.provider.shapes import BadJson, Body, parse, rows, table, text
from agentkit.testing.provider.thinking import (
    BETWEEN_TOOLS_ID,
    THINKING_TYPES,
    prefix_of,
    seal_blocks,
)

__all__ = ["render"]

_STOP_REASONS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


def render(request: ProviderRequest, answer: Answer, *, message_id: str, stops: bool) -> Reply:
    """Render an answer as the request asks for it.

    Args:
        request: decides between JSON and a stream, and what the thinking seals bind.
        answer: what to say.
        message_id: id of the message.
        stops: False leaves the stop reason null.
    """
    message: Body = {
        "id": f"msg_{message_id}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": _content(request, answer),
        "stop_reason": _stop_reason(answer) if stops else None,
        "stop_sequence": None,
        "usage": _usage(answer),
    }
    if not request.body.get("stream"):
        whole = [_with_object_input(table(block)) for block in rows(message["content"])]
        return json_reply("anthropic", {**message, "content": whole})
    frames = tuple(_events(message))
    return Reply("anthropic", 200, "text/event-stream; charset=utf-8", frames, streamed=True)


def _content(request: ProviderRequest, answer: Answer) -> list[Body]:
    blocks: list[Body] = []
    if answer.thinking is not None:
        blocks.append({"type": "thinking", "thinking": answer.thinking})
    elif _must_think(request) and answer.redacted_thinking is None:
        blocks.append({"type": "thinking", "thinking": "The request asks for thinking."})
    if answer.redacted_thinking is not None:
        blocks.append({"type": "redacted_thinking", "data": answer.redacted_thinking})
    if answer.text is not None:
        blocks.append({"type": "text", "text": answer.text})
    blocks += [dict(block) for block in answer.blocks]
    thinks = any(block.get("type") in THINKING_TYPES for block in blocks)
    blocks += [
        _call(call, index, request, thinks=thinks) for index, call in enumerate(answer.tool_calls)
    ]
    return seal_blocks(blocks, prefix=prefix_of(request.body, len(request.messages)))


def _must_think(request: ProviderRequest) -> bool:
    """With thinking enabled the service never opens a tool loop without it."""
    enabled = table(request.body.get("thinking")).get("type") == "enabled"
    return enabled and not request.results


def _call(call: CallSpec, index: int, request: ProviderRequest, *, thinks: bool) -> Body:
    label = call.id
    if label is None:
        start = BETWEEN_TOOLS_ID if thinks else "toolu_fake_"
        label = f"{start}{request.digest[:16]}_{index}"
    return {"type": "tool_use", "id": label, "name": call.name, "input": call.arguments}


def _with_object_input(block: Body) -> Body:
    """Outside a stream the input is an object; of half a JSON text nothing is left."""
    if not isinstance(block.get("input"), str):
        return block
    try:
        return {**block, "input": table(parse(text(block["input"])))}
    except BadJson:
        return {**block, "input": {}}


def _stop_reason(answer: Answer) -> str:
    if answer.stop_reason is not None:
        return _STOP_REASONS.get(answer.stop_reason, answer.stop_reason)
    calls = any(block.get("type") == "tool_use" for block in answer.blocks)
    return "tool_use" if answer.tool_calls or calls else "end_turn"


def _usage(answer: Answer) -> Body:
    return {
        "input_tokens": answer.usage.input_tokens,
        "cache_creation_input_tokens": answer.usage.cache_write_tokens,
        "cache_read_input_tokens": answer.usage.cache_read_tokens,
        "output_tokens": answer.usage.output_tokens,
        "service_tier": "standard",
    }


def _events(message: Body) -> Iterator[bytes]:
    usage = table(message["usage"])
    opening = {
        **message,
        "content": [],
        "stop_reason": None,
        "usage": {**usage, "output_tokens": 1},
    }
    yield _event("message_start", message=opening)
    yield _event("ping")
    for index, block in enumerate(rows(message["content"])):
        start, deltas = _streamed(table(block))
        yield _event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    closing = {name: count for name, count in usage.items() if name != "service_tier"}
    yield _event("message_delta", delta=ending, usage=closing)
    yield _event("message_stop")


def _event(kind: str, **fields: object) -> bytes:
    return sse({"type": kind, **fields}, event=kind)


def _streamed(block: Body) -> tuple[Body, list[Body]]:
    """Split a block into how it opens and what is added to it, as the service does."""
    kind = block.get("type")
    if kind == "text":
        return {**block, "text": ""}, _deltas("text_delta", "text", pieces(text(block["text"])))
    if kind == "thinking":
        deltas = _deltas("thinking_delta", "thinking", pieces(text(block["thinking"])))
        deltas += _deltas("signature_delta", "signature", [text(block["signature"])])
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if kind in ("tool_use", "server_tool_use"):
        arguments = block.get("input", {})
        raw = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return {**block, "input": {}}, _deltas(
            "input_json_delta", "partial_json", ["", *pieces(raw)]
        )
    return block, []


def _deltas(kind: str, name: str, parts: list[str]) -> list[Body]:
    return [{"type": kind, name: part} for part in parts]
