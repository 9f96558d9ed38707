"""Scripts decide from the transcript alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentkit.testing.provider import (
    Answer,
    CallSpec,
    ProviderRequest,
    ScriptError,
    StrictProvider,
    TurnScript,
    UsageSpec,
)
from tests.testing.provider.raw import (
    ASK,
    anthropic_request,
    assistant,
    call,
    events,
    openai_request,
    post_anthropic,
    post_openai,
    result,
    tool_call,
    tool_message,
    user,
)

HI = {"role": "assistant", "content": "Hi."}
FULL = {
    "text": "Adding.",
    "thinking": "Hm.",
    "redacted_thinking": "secret",
    "blocks": [{"type": "surprise"}],
    "tool_calls": [{"name": "add", "arguments": {"a": 1}, "id": "x"}, {"name": "add"}],
    "stop_reason": "max_tokens",
    "usage": {"input_tokens": 3, "output_tokens": 4},
}


def _text_of(provider: StrictProvider, *messages: object) -> object:
    content = post_anthropic(provider, anthropic_request(*messages)).json["content"]
    assert isinstance(content, list)
    return content[0]["text"]


def test_the_answer_follows_the_history() -> None:
    """The k-th answer belongs to a history of k assistant messages, however often it is asked."""
    with StrictProvider([Answer(text="one"), Answer(text="two")]) as provider:
        texts = [_text_of(provider, *history) for history in [(ASK, HI, ASK), (ASK,), (ASK,)]]

    assert texts == ["two", "one", "one"]


def test_the_end_of_a_script_is_a_refusal() -> None:
    """A history longer than the script gets status 400 that says so."""
    with StrictProvider([Answer(text="one")]) as provider:
        response = post_anthropic(provider, anthropic_request(ASK, HI, ASK))

        assert response.status == 400
        assert b"the script has 1 turns and the history holds 1 assistant" in response.body
        assert not provider.calls[0].bought


def test_a_failing_script_is_a_refusal() -> None:
    """What a function raises reaches the client as status 400 that names it."""

    def broken(request: ProviderRequest) -> Answer:
        raise KeyError(request.model)

    with StrictProvider(broken) as provider:
        response = post_openai(provider, openai_request(ASK))

    assert response.status == 400
    assert b"KeyError('gpt-fake')" in response.body


def test_a_function_sees_the_transcript() -> None:
    """A function is given prompt, turn and the results since the last answer, on both APIs."""
    seen: list[object] = []

    def look(request: ProviderRequest) -> Answer:
        seen.append((request.api, request.turn, request.prompt, request.results))
        return Answer(text="Yes.")

    with StrictProvider(look) as provider:
        post_anthropic(
            provider,
            anthropic_request(
                ASK,
                assistant(call("a"), call("b")),
                user(result("a"), result("b", content=[{"type": "text", "text": "4"}])),
            ),
        )
        calls = {"role": "assistant", "tool_calls": [tool_call("a"), tool_call("b")]}
        post_openai(provider, openai_request(ASK, calls, tool_message("a"), tool_message("b", "4")))

    assert seen == [
        ("anthropic", 1, "What is 1 + 2?", [("a", "3"), ("b", "4")]),
        ("openai", 1, "What is 1 + 2?", [("a", "3"), ("b", "4")]),
    ]


def test_a_script_from_json() -> None:
    """Each field of an answer can be written in JSON."""
    expected = Answer(
        text="Adding.",
        thinking="Hm.",
        redacted_thinking="secret",
        blocks=({"type": "surprise"},),
        tool_calls=(CallSpec("add", {"a": 1}, "x"), CallSpec("add")),
        stop_reason="max_tokens",
        usage=UsageSpec(input_tokens=3, output_tokens=4),
    )

    assert TurnScript.from_json({"turns": [FULL]}) == TurnScript((expected,))
    assert TurnScript.from_json([FULL]) == TurnScript((expected,))


@pytest.mark.parametrize("as_file", [True, False])
def test_a_script_from_a_file_or_a_value(tmp_path: Path, *, as_file: bool) -> None:
    """A provider takes a JSON script as a path or as parsed content."""
    value: dict[str, object] = {"turns": [{"text": "one"}]}
    path = tmp_path / "script.json"
    path.write_text(json.dumps(value))
    with StrictProvider(path if as_file else value) as provider:
        assert _text_of(provider, ASK) == "one"


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"turn": []}, id="no turns"),
        pytest.param(["Hi."], id="no object"),
        pytest.param([{"say": "Hi."}], id="unknown field"),
        pytest.param([{"text": 3}], id="text"),
        pytest.param([{"blocks": 3}], id="blocks"),
        pytest.param([{"usage": {"tokens": 3}}], id="unknown usage"),
        pytest.param([{"usage": {"input_tokens": "3"}}], id="usage"),
        pytest.param([{"tool_calls": [{"name": "add", "args": {}}]}], id="unknown call field"),
        pytest.param([{"tool_calls": [{"name": "add", "arguments": 3}]}], id="arguments"),
    ],
)
def test_malformed_scripts_are_errors(value: object) -> None:
    """A script that cannot be read is an error before anything is served."""
    with pytest.raises(ScriptError):
        TurnScript.from_json(value)


def test_a_malformed_file_is_named(tmp_path: Path) -> None:
    """The error about a file names it."""
    path = tmp_path / "script.json"
    path.write_text("{")
    with pytest.raises(ScriptError, match=r"script\.json"):
        StrictProvider(path)


def test_stop_reasons_speak_the_words_of_each_api() -> None:
    """A stop reason in the words of one API is said in the words of the other."""
    with StrictProvider([Answer(text="one", stop_reason="max_tokens")]) as provider:
        anthropic = post_anthropic(provider, anthropic_request(ASK)).json
        choices = post_openai(provider, openai_request(ASK)).json["choices"]

    assert isinstance(choices, list)
    assert (anthropic["stop_reason"], choices[0]["finish_reason"]) == ("max_tokens", "length")


def test_damaged_calls_go_out_as_they_are() -> None:
    """Half a JSON text, an empty id and a NUL in a name are played to the client unchanged."""
    damaged = Answer(
        tool_calls=[CallSpec("a\x00b", '{"half": ', id=""), CallSpec("add", id="")],
        stop_reason="length",
    )
    with StrictProvider([damaged]) as provider:
        choices = post_openai(provider, openai_request(ASK)).json["choices"]
        raw = post_anthropic(provider, anthropic_request(ASK, stream=True)).body
        whole = post_anthropic(provider, anthropic_request(ASK)).json["content"]

    assert isinstance(choices, list)
    assert isinstance(whole, list)
    first, second = choices[0]["message"]["tool_calls"]
    assert (first["id"], second["id"]) == ("", "")
    assert first["function"] == {"name": "a\x00b", "arguments": '{"half": '}
    parts = [data["delta"] for name, data in events(raw) if name == "content_block_delta"]  # type: ignore[index]
    assert "".join(part["partial_json"] for part in parts) == '{"half": {}'
    assert whole[0]["input"] == {}


def test_scripts_can_be_exchanged(provider: StrictProvider) -> None:
    """The next request is answered by the new script."""
    provider.use_script([Answer(text="Other.")])

    assert _text_of(provider, ASK) == "Other."


def test_the_record_of_a_call(provider: StrictProvider) -> None:
    """A record holds path, model, request and digest; equal requests have equal digests."""
    body = anthropic_request(ASK)
    for sent in (body, dict(reversed(body.items())), anthropic_request(ASK, HI, ASK)):
        post_anthropic(provider, sent)

    first, same, later = provider.calls
    assert provider.settle()
    assert (first.number, first.path, first.model) == (1, "/v1/messages", "claude-fake")
    assert (first.request, first.turn, later.turn) == (body, 0, 1)
    assert first.digest == same.digest != later.digest
    assert [(call.status, call.bought, call.answered) for call in provider.calls] == [
        (200, True, True)
    ] * 3
