"""Each request that the Chat Completions API refuses, sent raw."""

import pytest

from agentkit.testing.provider import StrictProvider
from tests.testing.provider.raw import ASK, openai_request, post_openai, tool_call, tool_message


def _says(**fields: object) -> dict[str, object]:
    return {"role": "assistant"} | fields


def _asks(*calls: object) -> dict[str, object]:
    return _says(tool_calls=list(calls))


def _part(text: object) -> dict[str, object]:
    return {"type": "text", "text": text}


A, B = tool_call("a"), tool_call("b")
PAIRING: dict[str, list[tuple[object, ...]]] = {
    "dangling_call": [
        (ASK, _asks(A)),
        (ASK, _asks(A), ASK),
        (ASK, _asks(A, B), tool_message("a")),
        (ASK, _asks(A), ASK, tool_message("a")),
    ],
    "orphan_result": [
        (ASK, tool_message("a")),
        (ASK, _says(content="Hi"), tool_message("a")),
        (ASK, _asks(A), tool_message("wrong")),
        (ASK, _asks(A), tool_message("a"), tool_message("b")),
        (ASK, _asks(A), tool_message("a"), _says(content="3"), tool_message("a")),
    ],
    "duplicate_result": [(ASK, _asks(A), tool_message("a"), tool_message("a"))],
    "duplicate_call_id": [(ASK, _asks(A, A), tool_message("a"))],
    "reordered_results": [(ASK, _asks(A, B), tool_message("b"), tool_message("a"))],
}

CONTENT: dict[str, list[tuple[object, ...]]] = {
    "empty_text": [
        ({"role": "user", "content": ""},),
        ({"role": "system", "content": ""}, ASK),
        ({"role": "user", "content": [_part("")]},),
        (ASK, _says(content="", tool_calls=[A]), tool_message("a")),
        (ASK, _says(content=" \n"), ASK),
        (ASK, _asks(A), tool_message("a", "")),
    ],
    "empty_content": [
        ({"role": "user", "content": None},),
        ({"role": "user", "content": []},),
        (ASK, _says(content=None), ASK),
        (ASK, _says(content="Hi", tool_calls=[]), ASK),
    ],
    "missing_field": [
        ({"role": "user"},),
        (ASK, _says(), ASK),
        (ASK, _asks(A), {"role": "tool", "content": "3"}),
        (ASK, _asks(tool_call("")), tool_message("")),
        (
            ASK,
            _asks({"id": "a", "function": {"name": "add", "arguments": "{}"}}),
            tool_message("a"),
        ),
    ],
    "bad_role": [("hello",), ({"role": "robot", "content": "Hi"},), ({"content": "Hi"},)],
    "bad_message": [
        ({"role": "user", "content": 3},),
        (ASK, _says(tool_calls="a"), ASK),
    ],
    "bad_block": [
        ({"role": "user", "content": [{"type": "surprise"}]},),
        ({"role": "system", "content": [{"type": "image_url"}]}, ASK),
    ],
    "bad_tool_name": [
        (ASK, _asks(tool_call("a", name="a\x00b")), tool_message("a")),
        (ASK, _asks(tool_call("a", name="")), tool_message("a")),
        (ASK, _asks(tool_call("a", name="x" * 65)), tool_message("a")),
    ],
    "bad_call_id": [(ASK, _asks(tool_call("x" * 41)), tool_message("x" * 41))],
    "bad_arguments": [
        (ASK, _asks(tool_call("a", arguments={})), tool_message("a")),
        (ASK, _asks(tool_call("a", arguments='{"half": ')), tool_message("a")),
        (ASK, _asks(tool_call("a", arguments="")), tool_message("a")),
        (ASK, _asks(tool_call("a", arguments="[1]")), tool_message("a")),
        (ASK, _asks(tool_call("a", arguments='{"x": NaN}')), tool_message("a")),
    ],
    "bad_argument_name": [
        (ASK, _asks(tool_call("a", arguments='{"' + "x" * 300 + '": 1}')), tool_message("a")),
        (ASK, _asks(tool_call("a", arguments='{"a\\u0000": 1}')), tool_message("a")),
    ],
    "empty_array": [()],
}

FIELDS: list[tuple[str, dict[str, object]]] = [
    ("missing_field", {"model": None}),
    ("missing_field", {"messages": None}),
    ("bad_field", {"messages": "Hi"}),
    ("bad_field", {"stream": "yes"}),
    ("unknown_field", {"max_token": 3}),
    ("empty_array", {"tools": []}),
    ("stream_options_without_stream", {"stream_options": {"include_usage": True}}),
    ("unsupported", {"n": 2}),
    ("choice_without_tools", {"tools": None, "tool_choice": "auto"}),
    ("choice_without_tools", {"tools": None, "parallel_tool_calls": True}),
    (
        "unknown_tool_choice",
        {"tool_choice": {"type": "function", "function": {"name": "subtract"}}},
    ),
    ("bad_field", {"tools": [{"type": "surprise"}]}),
    ("missing_field", {"tools": [{"type": "function", "function": {}}]}),
    ("bad_tool_name", {"tools": [{"type": "function", "function": {"name": "a.b"}}]}),
    ("bad_tool_name", {"tools": [{"type": "function", "function": {"name": "x" * 65}}]}),
    (
        "bad_tool_schema",
        {"tools": [{"type": "function", "function": {"name": "add", "parameters": {}}}]},
    ),
]

MESSAGES = [
    pytest.param(rule, messages, id=f"{rule}-{index}")
    for rule, cases in (PAIRING | CONTENT).items()
    for index, messages in enumerate(cases)
]


def _assert_refused(provider: StrictProvider, body: dict[str, object], rule: str) -> None:
    response = post_openai(provider, body)

    error = response.json["error"]
    assert isinstance(error, dict)
    assert response.status == 400
    assert response.json.keys() == {"error"}
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert response.headers["x-request-id"].startswith("req_")
    (refused,) = provider.refusals
    assert refused.refusal is not None
    assert (rule, error["message"]) == (refused.refusal.rule, refused.refusal.message)
    assert not refused.bought


@pytest.mark.parametrize(("rule", "messages"), MESSAGES)
def test_bad_messages_are_refused(
    provider: StrictProvider, rule: str, messages: tuple[object, ...]
) -> None:
    """A history that breaks a rule gets status 400, the API's error object, and is not sold."""
    _assert_refused(provider, openai_request(*messages), rule)


@pytest.mark.parametrize(("rule", "fields"), FIELDS)
def test_bad_fields_are_refused(
    provider: StrictProvider, rule: str, fields: dict[str, object]
) -> None:
    """A request that breaks a rule outside its messages gets status 400."""
    _assert_refused(provider, openai_request(ASK, **fields), rule)


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param((ASK,), id="first"),
        pytest.param((_says(content="Hello."), ASK), id="assistant first"),
        pytest.param(({"role": "developer", "content": "Be brief."}, ASK, ASK), id="two users"),
        pytest.param((ASK, _asks(A), tool_message("a")), id="answered"),
        pytest.param((ASK, _asks(A, B), tool_message("a"), tool_message("b")), id="parallel"),
        pytest.param(
            (ASK, _asks(A), tool_message("a"), _asks(A), tool_message("a")),
            id="id of an earlier turn",
        ),
        pytest.param((ASK, _says(content=None, refusal="No."), ASK), id="refusal"),
        pytest.param((ASK, _says(content=[_part("Hi")], annotations=[]), ASK), id="echoed message"),
    ],
)
def test_valid_messages_are_answered(
    provider: StrictProvider, messages: tuple[object, ...]
) -> None:
    """What the service accepts is answered."""
    response = post_openai(provider, openai_request(*messages))

    assert response.status == 200, response.body
