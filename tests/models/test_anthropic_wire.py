"""What leaves for the Messages API."""

from collections.abc import Sequence

import msgspec
import pytest

from agentkit.core.contracts.model import ModelRequest
from agentkit.core.contracts.types import (
    JSON,
    JSONObject,
    Message,
    Native,
    ToolCall,
    ToolDefinition,
)
from agentkit.models.providers._anthropic_wire import render
from agentkit.models.providers._transcript import NO_OUTPUT, NO_TEXT
from tests.models.kit import recorded, request, user

CALL = ToolCall(id="c1", name="add", arguments={"b": 1, "a": 2})
THINKING: JSON = {"type": "thinking", "thinking": "", "signature": "c2ln"}
REDACTED: JSON = {"type": "redacted_thinking", "data": "ZGF0YQ=="}
USE: JSONObject = {"type": "tool_use", "id": "c1", "name": "add", "input": {"b": 1, "a": 2}}


def _body(what: ModelRequest, **settings: JSON) -> dict[str, JSON]:
    data = render(what, model="claude-x", max_tokens=100, extra_body=settings)
    return msgspec.json.decode(data, type=dict[str, JSON])


def _content(*messages: Message) -> list[JSON]:
    """The content of each message that is sent."""
    sent = _body(request(*messages))["messages"]
    assert isinstance(sent, list)
    return [message["content"] for message in sent if isinstance(message, dict)]


def _assistant(
    content: str = "", calls: Sequence[ToolCall] = (), native: Native | None = None
) -> Message:
    return Message(role="assistant", content=content, tool_calls=tuple(calls), native=native)


def _result(content: str, identity: str = "c1", *, is_error: bool = False) -> Message:
    return Message(role="tool", content=content, tool_call_id=identity, is_error=is_error)


def _text(text: str) -> JSON:
    return {"type": "text", "text": text}


def test_a_request_in_full() -> None:
    """Model, limit, system, tools, messages and stream stand in one fixed order."""
    tool = ToolDefinition(name="add", description="Adds.", parameters={"type": "object"})
    data = render(
        request(user("Hi"), system="Be brief.", tools=[tool], stream=True),
        model="claude-x",
        max_tokens=100,
        extra_body={"temperature": 0.5},
    )

    assert (
        b'{"model":"m-1","max_tokens":100,"system":"Be brief.",'
        b'"tools":[{"name":"add","description":"Adds.","input_schema":{"type":"object"}}],'
        b'"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}],'
        b'"temperature":0.5,"stream":true}'
    ) == data


def test_what_is_empty_is_left_out() -> None:
    """No system prompt, no tools, no description: no field for them."""
    bare = _body(request(system=" ", tools=[ToolDefinition(name="now")]))

    assert "system" not in bare
    assert [{"name": "now", "input_schema": {"type": "object", "properties": {}}}] == bare["tools"]
    assert "tools" not in _body(request())


def test_the_model_of_the_adapter_is_the_default() -> None:
    """A request without a model takes the adapter's."""
    assert "claude-x" == _body(msgspec.structs.replace(request(), model=""))["model"]


def test_results_are_one_user_message_in_front_of_the_text() -> None:
    """Results keep their order, carry their error, and stand before what the user adds."""
    second = ToolCall(id="c2", name="add")
    sent = _content(
        user("Go"),
        _assistant(calls=[CALL, second]),
        _result("3", "c1"),
        _result("no", "c2", is_error=True),
        user("And?"),
    )

    assert [
        {"type": "tool_result", "tool_use_id": "c1", "content": "3"},
        {"type": "tool_result", "tool_use_id": "c2", "content": "no", "is_error": True},
        _text("And?"),
    ] == sent[2]


def test_neighbours_of_one_role_become_one_message() -> None:
    """Users that follow each other are one message, and so are assistants (after a pause)."""
    sent = _content(
        user("A"),
        user("B"),
        _assistant(native=recorded("anthropic", [THINKING])),
        _assistant("C"),
        user("D"),
    )

    assert [[_text("A"), _text("B")], [THINKING, _text("C")], [_text("D")]] == sent


@pytest.mark.parametrize("blank", ["", " ", "\n\t "])
def test_f094_empty_text_never_leaves(blank: str) -> None:
    """Blank text is dropped, or replaced where nothing else is left."""
    sent = _content(
        user(blank),
        _assistant(blank),
        user("Go"),
        _assistant(blank, [CALL]),
        _result(blank),
        user(blank),
        _assistant(native=recorded("anthropic", [_text(blank), THINKING, _text("x"), _text("")])),
    )

    assert [
        [_text(NO_TEXT)],
        [_text(NO_TEXT)],
        [_text("Go")],
        [USE],
        [{"type": "tool_result", "tool_use_id": "c1", "content": NO_OUTPUT}],
        [THINKING, _text("x")],
    ] == sent


@pytest.mark.parametrize("content", [[], [_text("")]])
def test_f094_an_answer_without_content_gets_a_placeholder(content: JSON) -> None:
    """A recorded answer of nothing goes back as something."""
    sent = _content(user("Go"), _assistant(native=recorded("anthropic", content)), user("Well?"))

    assert [_text(NO_TEXT)] == sent[1]


def test_f092_recorded_content_goes_back_byte_for_byte() -> None:
    """Thinking, signatures, server tools, unknown blocks, odd spacing: nothing is touched."""
    raw = (
        b'[ {"type":"thinking","signature":"c2ln","thinking":""},'
        b'{"data":"x","type":"redacted_thinking"},\n{"type":"from_the_future","n":1.0,'
        b'"big":123456789012345678901234567890,"s":"\\u00e9"},'
        b'{"input":{"b":1,"a":2},"name":"add","id":"c1","type":"tool_use","caller":{}} ]'
    )
    message = _assistant("", [CALL], Native(origin="anthropic", content=msgspec.Raw(raw)))
    data = render(request(user("Go"), message), model="", max_tokens=1, extra_body={})

    assert raw[1:-1].strip() in data


def test_f052_ids_of_the_transcript_replace_those_of_the_provider() -> None:
    """Repeated and empty ids go out as the transcript made them; all else stays in its order."""
    again: JSON = {"name": "add", "input": {"x": 1}, "type": "tool_use", "id": "c1", "extra": 5}
    empty: JSON = {"type": "tool_use", "id": "", "name": "add", "input": {}}
    server: JSON = {"type": "server_tool_use", "id": "s1", "name": "web", "input": {}}
    calls = [
        ToolCall(id="u0", name="add", arguments={"b": 1, "a": 2}),
        ToolCall(id="u1", name="add", arguments={"x": 1}),
        ToolCall(id="u2", name="add"),
    ]
    native = recorded("anthropic", [THINKING, USE, server, again, empty])
    data = render(
        request(user("Go"), _assistant("", calls, native)), model="", max_tokens=1, extra_body={}
    )

    assert b'{"name":"add","input":{"x":1},"type":"tool_use","id":"u1","extra":5}' in data
    assert b'{"type":"server_tool_use","id":"s1","name":"web","input":{}}' in data
    assert data.index(b'"id":"u0"') < data.index(b'"id":"u1"') < data.index(b'"id":"u2"')
    assert b'"id":"c1"' not in data


def test_f012_sanitised_names_and_arguments_replace_the_recorded_ones() -> None:
    """A name or argument that the API would refuse for ever goes as the transcript has it."""
    bad: JSON = {"type": "tool_use", "id": "c1", "name": "a\x00b", "input": {"k" * 300: 1}}
    calls = [ToolCall(id="c1", name="a_b", arguments={})]
    sent = _content(user("Go"), _assistant("", calls, recorded("anthropic", [THINKING, bad])))

    assert [THINKING, {"type": "tool_use", "id": "c1", "name": "a_b", "input": {}}] == sent[1]


@pytest.mark.parametrize("native", [None, recorded("anthropic", [{**USE, "input": '{"a": 1, "b'}])])
def test_f011_arguments_that_are_no_object_go_as_an_empty_one(native: Native | None) -> None:
    """Half JSON stays in the journal; what leaves is valid."""
    call = ToolCall(id="c1", name="add", arguments='{"a": 1, "b')
    sent = _content(user("Go"), _assistant("", [call], native))

    assert [{**USE, "input": {}}] == sent[1]


@pytest.mark.parametrize(
    "native",
    [
        recorded("openai", {"role": "assistant", "content": "Hm", "reasoning_content": "no"}),
        recorded("elsewhere", [THINKING, {"type": "text", "text": "Hm"}, USE]),
    ],
)
def test_f096_content_of_another_provider_is_rendered_plainly(native: Native) -> None:
    """Text and calls are kept; what only the other provider understands is not sent."""
    sent = _content(user("Go"), _assistant("Hm", [CALL], native))

    assert [_text("Hm"), USE] == sent[1]


def test_recorded_calls_that_are_not_the_transcript_s_are_rendered_plainly() -> None:
    """Where the two do not agree about the number of calls, the transcript is right."""
    sent = _content(user("Go"), _assistant("Hm", [CALL], recorded("anthropic", [_text("Hm")])))

    assert [_text("Hm"), USE] == sent[1]


def test_equal_requests_are_equal_bytes_and_stay_a_prefix() -> None:
    """Prompt caching works by prefix: what was sent once is sent again, byte for byte."""
    history = [
        user("Go"),
        _assistant("", [CALL], recorded("anthropic", [THINKING, USE])),
        _result("3"),
    ]
    longer = [*history, _assistant("Three."), user("And?")]

    first, again, later = (
        render(request(*messages, system="S"), model="", max_tokens=1, extra_body={})
        for messages in (history, list(history), longer)
    )

    assert first == again
    assert later.startswith(first[: -len(b"]}")])


def test_nothing_is_changed_by_rendering() -> None:
    """The request, its messages and their arguments are as before."""
    what = request(user("Go"), _assistant("", [CALL], recorded("anthropic", [USE])), _result(""))
    before = msgspec.json.encode(what)
    _body(what)

    assert before == msgspec.json.encode(what)


def test_half_characters_and_odd_numbers_do_not_stop_a_request() -> None:
    """Lone surrogates become U+FFFD, split pairs are joined, NaN becomes null."""
    call = ToolCall(id="c1", name="add", arguments={"x": float("nan"), "\ud83d": "\ud83d\udc4b"})
    sent = _content(user("a\ud800b"), _assistant("", [call]), _result("\ud83d\udc4b"))

    assert [_text("a\ufffdb")] == sent[0]
    assert [{**USE, "input": {"x": None, "\ufffd": "👋"}}] == sent[1]


def test_system_messages_of_a_transcript_join_the_system_prompt() -> None:
    """The API has no system role among its messages."""
    body = _body(request(Message(role="system", content="Also."), user("Go"), system="Be brief."))

    assert "Be brief.\n\nAlso." == body["system"]
    assert isinstance(body["messages"], list)
    assert 1 == len(body["messages"])
