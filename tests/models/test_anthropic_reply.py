"""What a Messages answer becomes, whole and streamed."""

import msgspec
import pytest

from agentkit.core.contracts.errors import ModelError
from agentkit.core.contracts.model import ModelReply
from agentkit.core.contracts.types import JSON, JSONObject, Usage
from agentkit.models.providers._anthropic_reply import MessageStream, reply_from
from tests.models.kit import delta_event, message, native

STOPS = {
    "end_turn": "end",
    "stop_sequence": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "pause_turn": "pause",
}


def _whole(body: JSON) -> ModelReply:
    return reply_from(body, provider="P", origin="anthropic")


def _fed(*events: JSON) -> MessageStream:
    stream = MessageStream(provider="P", origin="anthropic")
    for event in events:
        stream.feed(msgspec.json.encode(event).decode())
    return stream


def _start(**fields: JSON) -> JSON:
    return {"type": "message_start", "message": {**message(stop=None), **fields}}


def _block(index: int, block: JSON, *deltas: JSON) -> list[JSON]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *deltas,
        {"type": "content_block_stop", "index": index},
    ]


def _end(stop: JSON = "end_turn", **usage: JSON) -> list[JSON]:
    delta: JSON = {"stop_reason": stop, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7, **usage}},
        {"type": "message_stop"},
    ]


def test_a_stream_gives_what_the_whole_message_would() -> None:
    """Every kind of block, known and unknown, is put together as if it had come whole."""
    citation: JSON = {"type": "char_location", "cited_text": "x"}
    blocks: list[JSONObject] = [
        {"type": "thinking", "thinking": "Hm, well", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "ZGF0YQ=="},
        {"type": "text", "text": "See here", "citations": [citation, citation]},
        {"type": "server_tool_use", "id": "s1", "name": "web", "input": {"q": [1, None]}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"url": "u"}]},
        {"type": "tool_use", "id": "c1", "name": "add", "input": {"b": 1, "a": 2}, "caller": {}},
        {"type": "tool_use", "id": "", "name": "now", "input": {}},
        {"type": "future", "n": 1, "s": "ab", "items": [1, 2], "flag": True},
    ]
    events: list[JSON] = [
        _start(),
        *_block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            delta_event("thinking_delta", thinking="Hm, "),
            {"type": "ping"},
            delta_event("thinking_delta", thinking="well"),
            delta_event("signature_delta", signature="c2ln"),
        ),
        *_block(1, blocks[1]),
        *_block(
            2,
            {"type": "text", "text": ""},
            delta_event("citations_delta", index=2, citation=citation),
            delta_event("text_delta", index=2, text="See "),
            delta_event("citations_delta", index=2, citation=citation),
            delta_event("text_delta", index=2, text="here"),
        ),
        *_block(
            3,
            {"type": "server_tool_use", "id": "s1", "name": "web", "input": {}},
            delta_event("input_json_delta", index=3, partial_json=""),
            delta_event("input_json_delta", index=3, partial_json='{"q": [1,'),
            delta_event("input_json_delta", index=3, partial_json=" null]}"),
        ),
        *_block(4, blocks[4]),
        *_block(
            5,
            {"type": "tool_use", "id": "c1", "name": "add", "input": {}, "caller": {}},
            delta_event("input_json_delta", index=5, partial_json='{"b":1,"a":2}'),
        ),
        *_block(6, blocks[6]),
        *_block(
            7,
            {"type": "future", "n": 0, "s": "a", "items": [1]},
            delta_event("future_delta", index=7, n=1, s="b", items=[2], flag=True),
        ),
        {"type": "from_the_future"},
        *_end("tool_use", cache_read_input_tokens=3),
    ]
    usage: JSON = {"input_tokens": 5, "output_tokens": 7, "cache_read_input_tokens": 3}
    whole = _whole(message(*blocks, stop="tool_use", usage=usage))
    stream = _fed(*events)
    streamed = stream.reply()

    assert stream.done
    assert stream.ended
    assert msgspec.json.encode(whole) == msgspec.json.encode(streamed)
    assert blocks == native(whole)
    assert ["type", "thinking", "signature"] == list(blocks[0])
    assert "See here" == whole.text
    assert [("c1", "add", '{"b":1,"a":2}'), ("", "now", "{}")] == [
        (call.id, call.name, call.arguments) for call in whole.calls
    ]
    assert ("claude-x", "msg_1", "tool_use") == (whole.model, whole.response_id, whole.stop)
    assert Usage(8, 7, requests=1, cached_tokens=3) == whole.usage


@pytest.mark.parametrize(("reason", "stop"), STOPS.items())
def test_stop_reasons_are_mapped(reason: str, stop: str) -> None:
    """Each documented reason has its neutral word."""
    assert stop == _whole(message(stop=reason)).stop
    assert stop == _fed(_start(), *_end(reason)).reply().stop


def test_calls_decide_between_end_and_tool_use() -> None:
    """A message that ends with calls wants their results; one without has none to wait for."""
    use: JSON = {"type": "tool_use", "id": "c1", "name": "add", "input": {}}

    assert "tool_use" == _whole(message(use, stop="end_turn")).stop
    assert "end" == _whole(message(stop="tool_use")).stop
    assert "length" == _whole(message(use, stop="max_tokens")).stop


@pytest.mark.parametrize("reason", ["from_the_future", 5])
def test_an_unknown_stop_reason_parks(reason: JSON) -> None:
    """It was paid and is complete, but what it means is not guessed, and a retry buys the same."""
    with pytest.raises(ModelError, match=str(reason)) as caught:
        _whole(message(stop=reason))  # type: ignore[arg-type] # wrong on purpose

    assert ("invalid_request", True) == (caught.value.kind, caught.value.may_be_paid)


def test_no_stop_reason_is_no_answer() -> None:
    """Neither a whole message nor a stream without one is taken for an answer."""
    with pytest.raises(ModelError) as whole:
        _whole(message(stop=None))
    with pytest.raises(ModelError) as streamed:
        _fed(_start(), {"type": "message_stop"}).reply()

    assert "truncated" == whole.value.kind == streamed.value.kind


def test_a_stop_reason_before_the_end_of_a_block_is_no_answer() -> None:
    """All blocks must have come to their end."""
    opened = _block(0, {"type": "text", "text": ""})[:1]
    stream = _fed(_start(), *opened, *_end())

    assert not stream.done
    with pytest.raises(ModelError):
        stream.reply()


def test_f011_an_input_that_was_cut_stays_the_text_that_came() -> None:
    """The half JSON is kept as it is and never completed by a guess."""
    half = '{"path": "a.txt", "text": "Once upon'
    events = _block(
        0,
        {"type": "tool_use", "id": "c1", "name": "write", "input": {}},
        delta_event("input_json_delta", partial_json=half),
    )
    reply = _fed(_start(), *events, *_end("max_tokens")).reply()

    assert ("length", half) == (reply.stop, reply.calls[0].arguments)


def test_usage_that_is_missing_is_unknown() -> None:
    """No usage is not zero usage: it counts as unknown. Cache writes are input too."""
    body = message()
    del body["usage"]
    cached: JSON = {
        "input_tokens": 1,
        "cache_creation_input_tokens": 10,
        "cache_read_input_tokens": 100,
        "output_tokens": 1000,
    }

    assert Usage(requests=1, unknown=1) == _whole(body).usage
    assert Usage(111, 1000, requests=1, cached_tokens=100) == _whole(message(usage=cached)).usage


def test_half_characters_are_mended() -> None:
    """A pair that was split over two events is one character again; a lone half is U+FFFD."""
    events = _block(0, {"type": "text", "text": ""})
    stream = MessageStream(provider="P", origin="anthropic")
    for data in (
        msgspec.json.encode(_start()).decode(),
        msgspec.json.encode(events[0]).decode(),
        '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\ud83d"}}',
        '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\udc4b"}}',
        '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\ud800!"}}',
        msgspec.json.encode(events[1]).decode(),
        *(msgspec.json.encode(event).decode() for event in _end()),
    ):
        stream.feed(data)
    reply = stream.reply()

    assert "👋\ufffd!" == reply.text
    assert [{"type": "text", "text": "👋\ufffd!"}] == native(reply)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_start", "content_block": {"type": "text"}},
        {"type": "content_block_start", "index": 0, "content_block": 5},
        {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta"}},
        {"type": "message_start"},
        {"type": "message_delta"},
    ],
)
def test_an_event_of_another_form_is_an_error(event: JSON) -> None:
    """What cannot be put together is not skipped."""
    with pytest.raises(ModelError):
        _fed(_start(), event)
