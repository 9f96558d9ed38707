"""Each request that the Messages API refuses, sent raw."""

import pytest

from agentkit.testing.provider import StrictProvider
from tests.testing.provider.raw import (
    ASK,
    TOOL,
    anthropic_request,
    assistant,
    call,
    post_anthropic,
    result,
    user,
)

TEXT = {"type": "text", "text": "Hello."}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


def _tools(**fields: object) -> list[object]:
    return [TOOL | fields]


def _properties(name: str) -> dict[str, object]:
    return {"type": "object", "properties": {name: {"type": "string"}}}


PAIRING: dict[str, list[tuple[object, ...]]] = {
    "dangling_call": [
        (ASK, assistant(call("a"))),
        (ASK, assistant(call("a")), user(TEXT)),
        (ASK, assistant(call("a"), call("b")), user(result("a"))),
        (ASK, assistant(call("a")), user(result("wrong"))),
        (ASK, assistant(call("a")), assistant(TEXT), user(result("a"))),
        (ASK, assistant(SEARCH), user(TEXT)),
    ],
    "orphan_result": [
        (user(result("a")),),
        (ASK, assistant(TEXT), user(result("a"))),
        (ASK, assistant(call("a")), user(result("a"), result("b"))),
        (ASK, assistant(call("a")), user(result("a")), assistant(TEXT), user(result("a"))),
        (ASK, assistant(FOUND), user(TEXT)),
    ],
    "duplicate_result": [(ASK, assistant(call("a")), user(result("a"), result("a")))],
    "duplicate_call_id": [
        (ASK, assistant(call("a"), call("a")), user(result("a"))),
        (ASK, assistant(call("a")), user(result("a")), assistant(call("a")), user(result("a"))),
    ],
    "reordered_results": [(ASK, assistant(call("a"), call("b")), user(result("b"), result("a")))],
    "results_not_first": [
        (ASK, assistant(call("a")), user(TEXT, result("a"))),
        (ASK, assistant(call("a"), call("b")), user(result("a"), TEXT, result("b"))),
        (ASK, assistant(call("a")), user(TEXT), user(result("a"))),
    ],
}

CONTENT: dict[str, list[tuple[object, ...]]] = {
    "empty_text": [
        ({"role": "user", "content": "  \n"},),
        (user({"type": "text", "text": ""}),),
        (user({"type": "text", "text": " \t\n"}),),
        (ASK, assistant({"type": "text", "text": ""}), ASK),
        (ASK, assistant(call("a")), user(result("a", content=""))),
        (ASK, assistant(call("a")), user(result("a", content=[{"type": "text", "text": ""}]))),
    ],
    "empty_content": [
        ({"role": "user", "content": ""},),
        ({"role": "user", "content": []},),
        (ASK, {"role": "assistant", "content": []}, ASK),
        (ASK, assistant(call("a")), user(result("a", content=[], is_error=True))),
    ],
    "bad_message": [
        ("hello",),
        ({"role": "user"},),
        ({"role": "user", "content": {"type": "text"}},),
    ],
    "bad_role": [({"role": "tool", "content": "3"},)],
    "bad_block": [
        (user({"text": "no type"}),),
        (user({"type": "surprise"}),),
        (user({"type": "text"}),),
        (user({"type": "text", "text": 3}),),
        (user({"type": "image"}),),
        (ASK, assistant({"type": "thinking", "thinking": "hm"}), ASK),
        (ASK, assistant(call("a")), user(result("a", content=3))),
        (ASK, assistant(call("a")), user(result("a", is_error="no"))),
    ],
    "unknown_field": [
        ({"role": "user", "content": "Hi", "name": "me"},),
        (user({"type": "text", "text": "Hi", "extra": 1}),),
        (ASK, assistant(call("a", index=0)), user(result("a"))),
    ],
    "misplaced_block": [
        (user(call("a")),),
        (ASK, assistant(result("a"))),
        (user({"type": "redacted_thinking", "data": "x"}),),
    ],
    "bad_tool_name": [
        (ASK, assistant(call("a", name="a\x00b")), user(result("a"))),
        (ASK, assistant(call("a", name="")), user(result("a"))),
        (ASK, assistant(call("a", name="x" * 129)), user(result("a"))),
        (ASK, assistant(call("a", name="no spaces")), user(result("a"))),
    ],
    "bad_call_id": [
        (ASK, assistant(call("")), user(result(""))),
        (ASK, assistant(call("a b")), user(result("a b"))),
    ],
    "bad_arguments": [
        (ASK, assistant(call("a", input="{}")), user(result("a"))),
        (ASK, assistant(call("a", input=[])), user(result("a"))),
        (ASK, assistant(call("a", input=None)), user(result("a"))),
    ],
    "bad_argument_name": [
        (ASK, assistant(call("a", input={"x" * 300: 1})), user(result("a"))),
        (ASK, assistant(call("a", input={"a\x00": 1})), user(result("a"))),
    ],
    "prefill": [(ASK, {"role": "assistant", "content": "The answer is"})],
    "no_messages": [()],
}

FIELDS: list[tuple[str, dict[str, object]]] = [
    ("missing_field", {"max_tokens": None}),
    ("missing_field", {"model": None}),
    ("missing_field", {"messages": None}),
    ("bad_field", {"max_tokens": 0}),
    ("bad_field", {"max_tokens": "100"}),
    ("bad_field", {"max_tokens": True}),
    ("bad_field", {"model": 3}),
    ("bad_field", {"messages": "Hi"}),
    ("bad_field", {"stream": "yes"}),
    ("bad_field", {"system": 3}),
    ("bad_field", {"tool_choice": {"type": "required"}}),
    ("unknown_field", {"max_completion_tokens": 3}),
    ("empty_text", {"system": ""}),
    ("empty_text", {"system": [{"type": "text", "text": ""}]}),
    ("bad_block", {"system": [{"type": "image"}]}),
    ("bad_tool_name", {"tools": _tools(name="a.b")}),
    ("bad_tool_name", {"tools": _tools(name="x" * 129)}),
    ("duplicate_tool_name", {"tools": [TOOL, TOOL]}),
    ("bad_tool_schema", {"tools": _tools(input_schema=None)}),
    ("bad_tool_schema", {"tools": _tools(input_schema={})}),
    ("bad_tool_schema", {"tools": _tools(input_schema=_properties("a b"))}),
    ("bad_tool_schema", {"tools": _tools(input_schema=_properties("x" * 65))}),
    ("unknown_field", {"tools": _tools(parameters={})}),
    ("choice_without_tools", {"tools": None, "tool_choice": {"type": "auto"}}),
    ("unknown_tool_choice", {"tool_choice": {"type": "tool", "name": "subtract"}}),
    ("bad_thinking_budget", {"thinking": {"type": "enabled", "budget_tokens": 10}}),
    ("bad_thinking_budget", {"thinking": {"type": "enabled", "budget_tokens": 2000}}),
    (
        "thinking_with_forced_tool",
        {
            "max_tokens": 3000,
            "thinking": {"type": "enabled", "budget_tokens": 2000},
            "tool_choice": {"type": "any"},
        },
    ),
]

MESSAGES = [
    pytest.param(rule, messages, id=f"{rule}-{index}")
    for rule, cases in (PAIRING | CONTENT).items()
    for index, messages in enumerate(cases)
]


def _assert_refused(provider: StrictProvider, body: dict[str, object], rule: str) -> None:
    response = post_anthropic(provider, body)

    error = response.json["error"]
    assert isinstance(error, dict)
    assert response.status == 400
    assert error.keys() == {"type", "message"}
    assert error["type"] == "invalid_request_error"
    assert response.json["type"] == "error"
    assert response.json["request_id"] == response.headers["request-id"]
    (refused,) = provider.refusals
    assert refused.refusal is not None
    assert (rule, error["message"]) == (refused.refusal.rule, refused.refusal.message)
    assert not refused.bought


@pytest.mark.parametrize(("rule", "messages"), MESSAGES)
def test_bad_messages_are_refused(
    provider: StrictProvider, rule: str, messages: tuple[object, ...]
) -> None:
    """A history that breaks a rule gets status 400, the API's error object, and is not sold."""
    _assert_refused(provider, anthropic_request(*messages), rule)


@pytest.mark.parametrize(("rule", "fields"), FIELDS)
def test_bad_fields_are_refused(
    provider: StrictProvider, rule: str, fields: dict[str, object]
) -> None:
    """A request that breaks a rule outside its messages gets status 400."""
    _assert_refused(provider, anthropic_request(ASK, **fields), rule)


def test_calls_in_the_history_need_tools(provider: StrictProvider) -> None:
    """A history with calls is refused when the request defines no tools."""
    history = (ASK, assistant(call("a")), user(result("a")))

    _assert_refused(provider, anthropic_request(*history, tools=None), "tools_missing")


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param((ASK,), id="first"),
        pytest.param((ASK, ASK), id="two users are combined"),
        pytest.param((assistant(TEXT), ASK), id="assistant first"),
        pytest.param((ASK, assistant(TEXT), assistant(TEXT), ASK), id="two assistants"),
        pytest.param((ASK, assistant(call("a")), user(result("a"))), id="answered"),
        pytest.param((ASK, assistant(call("a")), user(result("a"), TEXT)), id="text after result"),
        pytest.param((ASK, assistant(call("a")), user(result("a", content=[]))), id="no output"),
        pytest.param(
            (ASK, assistant(call("a"), call("b")), user(result("a")), user(result("b"))),
            id="results in two messages",
        ),
        pytest.param((ASK, assistant(SEARCH, FOUND, TEXT), ASK), id="server tool"),
        pytest.param((ASK, assistant(SEARCH)), id="paused turn"),
        pytest.param((ASK, assistant(SEARCH), assistant(FOUND), ASK), id="resumed turn"),
        pytest.param((ASK, assistant({"type": "surprise", "x": 1}), ASK), id="unknown block"),
    ],
)
def test_valid_messages_are_answered(
    provider: StrictProvider, messages: tuple[object, ...]
) -> None:
    """What the service accepts is answered."""
    response = post_anthropic(provider, anthropic_request(*messages))

    assert response.status == 200, response.body
    assert response.json["content"] == [{"type": "text", "text": "Yes."}]
