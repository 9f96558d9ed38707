"""What leaves for the Chat Completions API."""

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
from agentkit.models.providers._openai_wire import render
from agentkit.models.providers._transcript import NO_OUTPUT, NO_TEXT
from tests.models.kit import recorded, request, user

CALL = ToolCall(id="c1", name="add", arguments={"b": 1, "a": 2})
ENTRY: JSONObject = {
    "id": "c1",
    "type": "function",
    "function": {"name": "add", "arguments": '{"b":1,"a":2}'},
}


def _sent(*messages: Message, origin: str = "openai") -> list[JSON]:
    data = render(request(*messages), model="gpt-x", extra_body={}, origin=origin)
    sent = msgspec.json.decode(data, type=dict[str, JSON])["messages"]
    assert isinstance(sent, list)
    return sent


def _bytes(what: ModelRequest) -> bytes:
    return render(what, model="gpt-x", extra_body={})


def _assistant(
    content: str = "", calls: Sequence[ToolCall] = (), native: Native | None = None
) -> Message:
    return Message(role="assistant", content=content, tool_calls=tuple(calls), native=native)


def _native(**fields: JSON) -> Native:
    return recorded("openai", {"role": "assistant", **fields})


def test_a_request_in_full() -> None:
    """System, user, calls, results and tools, in one fixed order; usage is asked for in streams."""
    tool = ToolDefinition(name="add", description="Adds.", parameters={"type": "object"})
    what = request(
        user("Hi"),
        _assistant("Well.", [CALL]),
        Message(role="tool", content="3", tool_call_id="c1"),
        system="Be brief.",
        tools=[tool],
        stream=True,
    )
    data = render(what, model="gpt-x", extra_body={"temperature": 0.5})

    assert (
        b'{"model":"m-1","messages":[{"role":"system","content":"Be brief."},'
        b'{"role":"user","content":"Hi"},'
        b'{"role":"assistant","content":"Well.","tool_calls":[{"id":"c1","type":"function",'
        b'"function":{"name":"add","arguments":"{\\"b\\":1,\\"a\\":2}"}}]},'
        b'{"role":"tool","tool_call_id":"c1","content":"3"}],'
        b'"tools":[{"type":"function","function":{"name":"add","description":"Adds.",'
        b'"parameters":{"type":"object"}}}],"stream":true,"stream_options":{"include_usage":true},'
        b'"temperature":0.5}'
    ) == data


def test_the_model_of_the_adapter_is_the_default() -> None:
    """A request without a model takes the adapter's; without a stream none is asked for."""
    data = _bytes(msgspec.structs.replace(request(), model=""))

    assert b'{"model":"gpt-x","messages":[{"role":"user","content":"Hello"}]}' == data


@pytest.mark.parametrize("blank", ["", " \n"])
def test_f094_empty_text_never_leaves(blank: str) -> None:
    """Blank text goes as null beside calls, else as a placeholder."""
    part: JSON = {"type": "text", "text": blank}
    sent = _sent(
        user(blank),
        _assistant(blank),
        _assistant(blank, [CALL]),
        Message(role="tool", content=blank, tool_call_id="c1"),
        _assistant(native=_native(content=blank)),
        _assistant(native=_native(content=[part])),
        _assistant("", [CALL], _native(content=blank, tool_calls=[ENTRY])),
        _assistant(native=_native(content=None, refusal="I will not.")),
    )

    assert [
        {"role": "user", "content": NO_TEXT},
        {"role": "assistant", "content": NO_TEXT},
        {"role": "assistant", "content": None, "tool_calls": [ENTRY]},
        {"role": "tool", "tool_call_id": "c1", "content": NO_OUTPUT},
        {"role": "assistant", "content": NO_TEXT},
        {"role": "assistant", "content": NO_TEXT},
        {"role": "assistant", "content": None, "tool_calls": [ENTRY]},
        {"role": "assistant", "content": None, "refusal": "I will not."},
    ] == sent


def test_f097_recorded_content_goes_back_byte_for_byte() -> None:
    """Unknown fields, such as a signature on the call, come back untouched and in their order."""
    raw = (
        b'{"tool_calls": [{"extra_content":{"google":{"thought_signature":"c2ln"}},"id":"c1",'
        b'"function":{"arguments":"{ \\"b\\": 1,\\"a\\":2}","name":"add"},"type":"function"}],'
        b'"reasoning_content":"hm","content":null,"role":"assistant","annotations":[]}'
    )
    native = Native(origin="openai", content=msgspec.Raw(raw))

    assert raw in _bytes(request(user("Go"), _assistant("", [CALL], native)))


def test_f052_ids_of_the_transcript_replace_those_of_the_provider() -> None:
    """Repeated and empty ids go out as the transcript made them; all else stays."""
    entries: list[JSON] = [ENTRY, {**ENTRY, "x": 1}, {**ENTRY, "id": ""}]
    calls = [ToolCall(id=f"u{n}", name="add", arguments={"b": 1, "a": 2}) for n in range(3)]
    sent = _sent(_assistant("", calls, _native(content=None, tool_calls=entries)))

    assert [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {**ENTRY, "id": "u0"},
                {**ENTRY, "x": 1, "id": "u1"},
                {**ENTRY, "id": "u2"},
            ],
        }
    ] == sent


@pytest.mark.parametrize("text", ['{"a": 1, "b', "", "[1]", "null", "NaN"])
@pytest.mark.parametrize("is_native", [True, False])
def test_f011_arguments_that_are_no_object_go_as_an_empty_one(text: str, is_native: bool) -> None:
    """Half JSON stays in the journal; what leaves is valid."""
    entry: JSON = {**ENTRY, "function": {"name": "add", "arguments": text}}
    call = ToolCall(id="c1", name="add", arguments=text)
    native = _native(content=None, tool_calls=[entry]) if is_native else None
    sent = _sent(_assistant("", [call], native))

    expected: JSON = {**ENTRY, "function": {"name": "add", "arguments": "{}"}}
    assert [{"role": "assistant", "content": None, "tool_calls": [expected]}] == sent


def test_f012_sanitised_names_and_arguments_replace_the_recorded_ones() -> None:
    """A name or argument that the API would refuse for ever goes as the transcript has it."""
    bad: JSON = {**ENTRY, "function": {"name": "a\x00b", "arguments": '{"' + "k" * 300 + '":1}'}}
    call = ToolCall(id="c1", name="a_b", arguments={"k": 1})
    sent = _sent(_assistant("", [call], _native(content="x", tool_calls=[bad])))

    expected: JSON = {**ENTRY, "function": {"name": "a_b", "arguments": '{"k":1}'}}
    assert [{"role": "assistant", "content": "x", "tool_calls": [expected]}] == sent


@pytest.mark.parametrize(
    "native",
    [
        recorded("anthropic", [{"type": "thinking", "thinking": "", "signature": "c2ln"}]),
        recorded(
            "elsewhere", {"role": "assistant", "content": "Hm", "tool_calls": [ENTRY], "x": 1}
        ),
        _native(content="Hm"),
        _native(content="Hm", tool_calls="odd"),
        _native(content="Hm", tool_calls=["odd"]),
        _native(content="Hm", tool_calls=[{"id": "c1"}]),
        _native(content="Hm", function_call={"name": "add", "arguments": "{}"}),
    ],
)
def test_f096_what_is_not_ours_or_does_not_fit_is_rendered_plainly(native: Native) -> None:
    """Other providers' content, and calls that are not the transcript's, are never sent."""
    sent = _sent(_assistant("Hm", [CALL], native))

    assert [{"role": "assistant", "content": "Hm", "tool_calls": [ENTRY]}] == sent


def test_an_old_form_of_call_without_calls_is_rendered_plainly() -> None:
    """`function_call` names no id that a result could answer."""
    native = _native(content="Hm", function_call={"name": "add", "arguments": "{}"})

    assert [{"role": "assistant", "content": "Hm"}] == _sent(_assistant("Hm", (), native))


def test_an_empty_list_of_calls_is_not_sent() -> None:
    """The API refuses `tool_calls: []`, which some servers answer with."""
    sent = _sent(_assistant("Hm", (), _native(content="Hm", tool_calls=[])))

    assert [{"role": "assistant", "content": "Hm"}] == sent


def test_equal_requests_are_equal_bytes_and_stay_a_prefix() -> None:
    """Prompt caching works by prefix: what was sent once is sent again, byte for byte."""
    history = [
        user("Go"),
        _assistant("", [CALL], _native(content=None, tool_calls=[ENTRY])),
        Message(role="tool", content="3", tool_call_id="c1"),
    ]
    first, again = _bytes(request(*history)), _bytes(request(*list(history)))
    later = _bytes(request(*history, _assistant("Three."), user("And?")))

    assert first == again
    assert later.startswith(first[: -len(b"]}")])


def test_nothing_is_changed_by_rendering() -> None:
    """The request, its messages and their arguments are as before."""
    what = request(user(""), _assistant("", [CALL], _native(content="", tool_calls=[ENTRY])))
    before = msgspec.json.encode(what)
    _bytes(what)

    assert before == msgspec.json.encode(what)


def test_system_messages_of_a_transcript_are_sent_as_such() -> None:
    """This API has a role for them."""
    assert [{"role": "system", "content": "S"}] == _sent(Message(role="system", content="S"))
