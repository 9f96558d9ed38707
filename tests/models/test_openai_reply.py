"""What a Chat Completions answer becomes, whole and streamed."""

import msgspec
import pytest

from agentkit.core.contracts.errors import ModelError
from agentkit.core.contracts.model import ModelReply
from agentkit.core.contracts.types import JSON, JSONObject, Usage
from agentkit.models.providers._openai_reply import ChunkStream, reply_from
from tests.models.kit import chunk_of, completion, completion_chunks, native

STOPS = {"stop": "end", "length": "length", "content_filter": "refusal"}
ENTRY: JSONObject = {
    "id": "c1",
    "type": "function",
    "function": {"name": "add", "arguments": '{"b": 1,"a":2}'},
}


def _whole(body: JSON, *, accept: bool = False) -> ModelReply:
    return reply_from(body, provider="P", origin="openai", accept_missing_finish_reason=accept)


def _fed(*chunks: JSON, accept: bool = False) -> ChunkStream:
    stream = ChunkStream(provider="P", origin="openai", accept_missing_finish_reason=accept)
    for chunk in chunks:
        stream.feed(chunk if isinstance(chunk, str) else msgspec.json.encode(chunk).decode())
    return stream


def _calls(*pieces: JSON) -> ModelReply:
    chunks = [chunk_of({"tool_calls": [piece]}) for piece in pieces]
    return _fed(*chunks, chunk_of({}, finish="tool_calls"), "[DONE]").reply()


def _piece(index: int | None, arguments: str, **fields: JSON) -> JSON:
    function: JSONObject = {"arguments": arguments}
    if "name" in fields:
        function = {"name": fields.pop("name"), **function}
    numbered: JSONObject = {} if index is None else {"index": index}
    return {**numbered, **fields, "function": function}


def test_a_stream_gives_what_the_whole_completion_would() -> None:
    """Text, calls and fields that only one server knows are put together as if they came whole."""
    details: list[JSON] = [{"index": 0, "type": "t", "text": "Hm, well"}, {"index": 1, "s": "x"}]
    second: JSON = {
        "id": "",
        "type": "function",
        "function": {"name": "now", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "c2ln"}},
    }
    whole_message: JSON = {
        "role": "assistant",
        "content": "See here",
        "reasoning_content": "Hm, well",
        "reasoning_details": details,
        "tool_calls": [ENTRY, second],
    }
    signature: JSON = {"google": {"thought_signature": "c2ln"}}
    streamed = _fed(
        chunk_of({"role": "assistant", "content": "", "reasoning_content": "Hm, "}),
        chunk_of({"reasoning_content": "well", "reasoning_details": [{**details[0], "text": ""}]}),  # type: ignore[dict-item] # a table
        chunk_of({"content": None, "reasoning_details": [{"index": 0, "text": "Hm, well"}]}),
        chunk_of({"reasoning_details": [details[1]]}),
        chunk_of({"content": "See "}),
        {"choices": [{"index": 1, "delta": {"content": "another choice"}}]},
        chunk_of({"role": "assistant", "content": "here"}),
        chunk_of({"tool_calls": [_piece(0, "", id="c1", type="function", name="add")]}),
        chunk_of({"tool_calls": [_piece(0, '{"b": 1')]}),
        chunk_of(
            {
                "tool_calls": [
                    _piece(0, ',"a":2}'),
                    _piece(1, "{}", id="", type="function", name="now"),
                ]
            }
        ),
        chunk_of({"tool_calls": [{"index": 1, "extra_content": signature}]}),
        *completion_chunks()[-3:],
    ).reply()
    whole = _whole(completion(whole_message, finish="tool_calls"))

    assert whole_message == native(whole) == native(streamed)
    assert ["role", "content"] == list(native(streamed))[:2]  # type: ignore[arg-type] # a table
    assert whole.calls == streamed.calls
    assert whole.usage == streamed.usage == Usage(5, 7, requests=1)
    assert ("tool_use", "See here") == (streamed.stop, streamed.text)
    assert ("gpt-x", "chatcmpl-1") == (streamed.model, streamed.response_id)
    assert '{"b": 1,"a":2}' == streamed.calls[0].arguments


def test_f052_calls_are_told_apart_however_a_server_numbers_them() -> None:
    """By index, by a new id under an old index, by a new id without index; ids stay as they are."""
    by_index = _calls(
        _piece(0, "{", id="c1", name="a"),
        _piece(1, "[", id="c1", name="b"),
        _piece(0, "}"),
        _piece(1, "]"),
    )
    one_index = _calls(
        _piece(0, "{", id="x", name="a"), _piece(0, "}"), _piece(0, "[]", id="y", name="b")
    )
    no_index = _calls(
        _piece(None, "{", id="x", name="a"), _piece(None, "}"), _piece(None, "[]", id="y", name="b")
    )

    for reply, ids in ((by_index, ["c1", "c1"]), (one_index, ["x", "y"]), (no_index, ["x", "y"])):
        assert ids == [call.id for call in reply.calls]
        assert ["{}", "[]"] == [call.arguments for call in reply.calls]
        assert ["a", "b"] == [call.name for call in reply.calls]


def test_a_name_that_is_repeated_with_each_piece_is_one_name() -> None:
    """Some servers send id and name with every piece, others split the name."""
    repeated = _calls(
        _piece(0, "{", id="c1", type="function", name="add"),
        _piece(0, "}", id="c1", type="function", name="add"),
    )
    split = _calls(_piece(0, "", id="c1", name="a"), _piece(0, "{}", name="dd"))

    assert [("c1", "add", "{}")] == [(c.id, c.name, c.arguments) for c in repeated.calls]
    assert "add" == split.calls[0].name


@pytest.mark.parametrize(("reason", "stop"), STOPS.items())
def test_finish_reasons_are_mapped(reason: str, stop: str) -> None:
    """Each documented reason has its neutral word."""
    message: JSON = {"role": "assistant", "content": "x"}

    assert stop == _whole(completion(message, finish=reason)).stop
    assert stop == _fed(*completion_chunks(finish=reason)).reply().stop


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "function_call"])
def test_calls_decide_between_end_and_tool_use(finish: str) -> None:
    """`stop` with calls wants their results; `tool_calls` without any has none to wait for."""
    called: JSON = {"role": "assistant", "content": None, "tool_calls": [ENTRY]}
    bare: JSON = {"role": "assistant", "content": "x", "tool_calls": []}

    assert "tool_use" == _whole(completion(called, finish=finish)).stop
    assert "end" == _whole(completion(bare, finish=finish)).stop


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("error", "server"),
        ("insufficient_system_resource", "overloaded"),
        ("from_the_future", "invalid_request"),
        (5, "server"),
    ],
)
def test_other_finish_reasons_are_failures(reason: JSON, kind: str) -> None:
    """What a reason means is not guessed."""
    body = completion({"role": "assistant", "content": "x"}, finish=reason)  # type: ignore[arg-type] # wrong on purpose
    with pytest.raises(ModelError) as caught:
        _whole(body)

    assert (kind, True) == (caught.value.kind, caught.value.may_be_paid)


def test_a_server_without_finish_reasons_parks_and_names_the_option() -> None:
    """An answer that ended in order but without a reason is not retried: it would not change."""
    with pytest.raises(ModelError, match="accept_missing_finish_reason=True") as whole:
        _whole(completion({"role": "assistant", "content": "x"}, finish=None))
    with pytest.raises(ModelError, match="accept_missing_finish_reason=True") as streamed:
        _fed(*completion_chunks(finish=None)).reply()

    for error in (whole.value, streamed.value):
        assert ("truncated", False, True) == (error.kind, error.should_retry, error.may_be_paid)


def test_the_option_accepts_an_answer_without_a_finish_reason() -> None:
    """With it the answer counts, calls and all; nothing at all is still no answer."""
    called: JSON = {"role": "assistant", "content": None, "tool_calls": [ENTRY]}

    assert "tool_use" == _whole(completion(called, finish=None), accept=True).stop
    assert "Hi there" == _fed(*completion_chunks(finish=None), accept=True).reply().text
    with pytest.raises(ModelError):
        _fed("[DONE]", accept=True).reply()


def test_a_refusal_is_told_apart_from_an_answer() -> None:
    """The text of a refusal is shown, and the stop says what it is."""
    refused: JSON = {"role": "assistant", "content": None, "refusal": "I will not."}
    streamed = _fed(
        chunk_of({"role": "assistant", "content": None, "refusal": "I will "}),
        chunk_of({"refusal": "not."}),
        *completion_chunks()[-3:],
    ).reply()

    assert ("refusal", "I will not.") == (
        _whole(completion(refused)).stop,
        _whole(completion(refused)).text,
    )
    assert ("refusal", "I will not.") == (streamed.stop, streamed.text)


def test_the_old_form_of_a_call_is_read() -> None:
    """`function_call` is a call without an id."""
    old: JSON = {"role": "assistant", "function_call": {"name": "add", "arguments": "{}"}}
    reply = _whole(completion(old, finish="function_call"))

    assert [("", "add", "{}")] == [(c.id, c.name, c.arguments) for c in reply.calls]


def test_a_custom_call_is_read() -> None:
    """A custom tool's input is its text."""
    custom: JSON = {"id": "c1", "type": "custom", "custom": {"name": "run", "input": "ls"}}
    body = completion({"role": "assistant", "tool_calls": [custom]}, finish="tool_calls")

    assert [("c1", "run", "ls")] == [(c.id, c.name, c.arguments) for c in _whole(body).calls]


def test_arguments_of_another_form_become_json_text() -> None:
    """Servers that send objects, or nothing, are read as well."""
    entries: list[JSON] = [
        {"id": "c1", "function": {"name": "add", "arguments": {"b": 1, "a": 2}}},
        {"id": "c2", "function": {"name": "now"}},
    ]
    reply = _whole(completion({"role": "assistant", "tool_calls": entries}, finish="tool_calls"))

    assert ['{"b":1,"a":2}', "{}"] == [call.arguments for call in reply.calls]


def test_content_in_parts_is_joined() -> None:
    """Text parts are the text; others are not."""
    parts: list[JSON] = [
        {"type": "text", "text": "a"},
        {"type": "other", "text": "x"},
        {"type": "text", "text": "b"},
    ]

    assert "ab" == _whole(completion({"role": "assistant", "content": parts})).text


def test_usage_that_is_missing_is_unknown() -> None:
    """No usage is not zero usage: it counts as unknown. Cached tokens are part of the input."""
    message: JSON = {"role": "assistant", "content": "x"}
    usage: JSON = {
        "prompt_tokens": 10,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 8},
    }

    assert Usage(requests=1, unknown=1) == _whole(completion(message, usage=None)).usage
    cached = Usage(10, 2, requests=1, cached_tokens=8)
    assert cached == _whole(completion(message, usage=usage)).usage
    assert Usage(requests=1, unknown=1) == _fed(*completion_chunks()[:-2]).reply().usage


@pytest.mark.parametrize(
    "message",
    [
        None,
        {"role": "assistant", "tool_calls": 5},
        {"role": "assistant", "tool_calls": [5]},
        {"role": "assistant", "tool_calls": [{"id": "c1"}]},
    ],
)
def test_a_message_of_another_form_is_an_error(message: JSON) -> None:
    """What cannot be read is not skipped."""
    with pytest.raises(ModelError):
        _whole(completion(message))
