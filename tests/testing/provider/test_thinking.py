"""Sealed thinking: what the provider issued must come back as it was, in the place it had."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from agentkit.testing.provider import Answer, CallSpec, ProviderRequest, StrictProvider
from tests.testing.provider.raw import (
    TOOL,
    Response,
    anthropic_request,
    assistant,
    post_anthropic,
    result,
    user,
)

History: TypeAlias = dict[str, Any]  # a request that tests alter at any depth

ASK = user({"type": "text", "text": "What is 1 + 2?"})
FIRST = Answer(
    thinking="I should add.",
    redacted_thinking="secret",
    text="Adding.",
    tool_calls=[CallSpec("add", {"a": 1, "b": 2})],
)
ENABLED = {"type": "enabled", "budget_tokens": 1024}


def _script(request: ProviderRequest) -> Answer:
    return FIRST if request.turn == 0 else Answer(text="Three.")


def _continued(provider: StrictProvider, **fields: object) -> History:
    """Ask once, and return the request of the next turn."""
    opening = anthropic_request(ASK, system="Be brief.", max_tokens=2000, **fields)
    answer = post_anthropic(provider, opening).json
    content = answer["content"]
    assert isinstance(content, list)
    label = content[-1]["id"]
    turn = [ASK, {"role": "assistant", "content": content}, user(result(label))]
    return copy.deepcopy(opening | {"messages": turn})


def _refused_rules(provider: StrictProvider) -> list[str]:
    return [call.refusal.rule for call in provider.refusals if call.refusal is not None]


def _send(provider: StrictProvider, body: object) -> Response:
    return post_anthropic(provider, body)


def _blocks(body: History) -> list[dict[str, object]]:
    content: list[dict[str, object]] = body["messages"][1]["content"]
    return content


def test_untouched_thinking_is_accepted() -> None:
    """The answer sent back as it came, with its result, is answered."""
    with StrictProvider(_script) as provider:
        body = _continued(provider)

        assert [block["type"] for block in _blocks(body)] == [
            "thinking",
            "redacted_thinking",
            "text",
            "tool_use",
        ]
        assert _send(provider, body).status == 200


def test_seals_outlive_the_provider() -> None:
    """Nothing is remembered: another provider verifies what this one has issued."""
    with StrictProvider(_script) as first:
        body = _continued(first)
    altered = copy.deepcopy(body)
    _blocks(altered)[0]["thinking"] = "I should subtract."
    with StrictProvider(_script) as second:
        assert _send(second, altered).status == 400
        assert _send(second, body).status == 200


def test_cache_markers_are_no_part_of_the_prefix() -> None:
    """A cache breakpoint that moves along, and text given as a string, change nothing."""
    with StrictProvider(_script) as provider:
        body = _continued(provider)
        prompt = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
        moved = body | {"system": [prompt], "tools": [TOOL | {"cache_control": None}]}
        moved["messages"][0] = {"role": "user", "content": "What is 1 + 2?"}

        assert _send(provider, moved).status == 200


def _flip(block: dict[str, object], field: str, position: int) -> None:
    value = str(block[field])
    other = "A" if value[position] != "A" else "B"
    block[field] = value[:position] + other + value[position + 1 :]


ALTERATIONS: dict[str, tuple[str, Callable[[History], object]]] = {
    "text emptied": ("altered_signature", lambda b: _blocks(b)[0].update(thinking="")),
    "text changed": ("altered_signature", lambda b: _blocks(b)[0].update(thinking="I should.")),
    "signature emptied": ("altered_signature", lambda b: _blocks(b)[0].update(signature="")),
    "signature replaced": ("altered_signature", lambda b: _blocks(b)[0].update(signature="c2ln")),
    "not base64": ("altered_signature", lambda b: _blocks(b)[0].update(signature="!")),
    "signature cut": (
        "altered_signature",
        lambda b: _blocks(b)[0].update(signature=str(_blocks(b)[0]["signature"])[:-4]),
    ),
    "data changed": ("altered_signature", lambda b: _flip(_blocks(b)[1], "data", -2)),
    "system changed": ("changed_prefix", lambda b: b.update(system="Be long.")),
    "tools changed": (
        "changed_prefix",
        lambda b: b.update(tools=[TOOL | {"description": "Adds two numbers."}]),
    ),
    "question changed": (
        "changed_prefix",
        lambda b: b["messages"][0].update(content=[{"type": "text", "text": "What?"}]),
    ),
    "message put before": ("changed_prefix", lambda b: b["messages"].insert(0, ASK)),
    "one block dropped": ("thinking_moved", lambda b: _blocks(b).pop(0)),
    "blocks exchanged": ("thinking_moved", lambda b: _blocks(b).insert(0, _blocks(b).pop(1))),
    "text put first": ("thinking_moved", lambda b: _blocks(b).insert(0, _blocks(b).pop(2))),
    "call put first": ("thinking_moved", lambda b: _blocks(b).insert(0, _blocks(b).pop(3))),
    "thinking stripped": ("thinking_missing", lambda b: _blocks(b).__delitem__(slice(0, 2))),
}


@pytest.mark.parametrize("name", ALTERATIONS)
@pytest.mark.parametrize("thinking", [None, ENABLED], ids=["adaptive", "enabled"])
def test_altered_thinking_is_refused(name: str, thinking: object) -> None:
    """Each change of a thinking block, of its place, or of what stood before it is refused."""
    rule, alter = ALTERATIONS[name]
    with StrictProvider(_script) as provider:
        body = _continued(provider, thinking=thinking)
        alter(body)
        response = _send(provider, body)

        assert response.status == 400
        assert _refused_rules(provider) == [rule]
        assert response.json["type"] == "error"


def test_every_character_of_a_signature_counts() -> None:
    """No single character of a signature can be replaced unnoticed."""
    with StrictProvider(_script) as provider:
        body = _continued(provider)
        length = len(str(_blocks(body)[0]["signature"]))
        for position in range(length):
            altered = copy.deepcopy(body)
            _flip(_blocks(altered)[0], "signature", position)

            assert _send(provider, altered).status == 400, position


def test_enabled_thinking_must_open_the_tool_loop() -> None:
    """With thinking enabled, a tool loop whose first answer has none is refused (any ids)."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}
    history = (ASK, assistant(call), user(result("toolu_1")))
    with StrictProvider(_script) as provider:
        body = anthropic_request(*history, max_tokens=2000, thinking=ENABLED)
        response = _send(provider, body)

        assert _refused_rules(provider) == ["thinking_missing"]
        assert "Expected `thinking` or `redacted_thinking`, but found `tool_use`" in str(
            response.json["error"]
        )
        assert _send(provider, anthropic_request(*history)).status == 200


def test_a_request_that_enables_thinking_gets_some() -> None:
    """Where the script thinks nothing, the provider thinks in its place, as the service would."""
    turns = [Answer(tool_calls=[CallSpec("add")]), Answer(text="Three.")]
    with StrictProvider(turns) as provider:
        body = _continued(provider, thinking=ENABLED)

        assert [block["type"] for block in _blocks(body)] == ["thinking", "tool_use"]
        assert _send(provider, body).status == 200


def test_thinking_without_text_keeps_its_signature() -> None:
    """An answer whose thinking is shown as nothing comes with a signature, and goes back so."""
    turns = [Answer(thinking="", tool_calls=[CallSpec("add")]), Answer(text="Three.")]
    with StrictProvider(turns) as provider:
        body = _continued(provider)

        assert _blocks(body)[0]["thinking"] == ""
        assert _send(provider, body).status == 200


def test_signatures_from_elsewhere_are_accepted() -> None:
    """What looks like a signature of the real service is not verified."""
    foreign = {"type": "thinking", "thinking": "Hm.", "signature": "EqEECkYICxgC"}
    with StrictProvider(lambda request: Answer(text="Yes.")) as provider:
        body = anthropic_request(ASK, assistant(foreign, {"type": "text", "text": "Hi."}), ASK)

        assert _send(provider, body).status == 200


def test_interleaved_thinking_is_sealed_block_by_block() -> None:
    """Thinking among verbatim blocks is sealed too; one that brings a signature keeps it."""
    foreign = {"type": "thinking", "thinking": "Hm.", "signature": "EqEECkYICxgC"}
    inner = {"type": "thinking", "thinking": "Now the second."}
    first = Answer(
        thinking="One.", text="A.", blocks=[inner, foreign], tool_calls=[CallSpec("add")]
    )
    with StrictProvider([first, Answer(text="Three.")]) as provider:
        body = _continued(provider)

        assert _blocks(body)[2]["signature"] != _blocks(body)[0]["signature"]
        assert _blocks(body)[3] == foreign
        assert _send(provider, body).status == 200


def test_blank_text_may_be_dropped_around_thinking() -> None:
    """Blank text that the provider wrote is refused when it comes back, and not missed."""
    blank = {"type": "text", "text": "\n\n"}
    first = Answer(text=" ", blocks=[{"type": "thinking", "thinking": "Hm."}, blank])
    with StrictProvider([first, Answer(text="Three.")]) as provider:
        content = post_anthropic(provider, anthropic_request(ASK)).json["content"]
        assert isinstance(content, list)
        kept = [block for block in content if block["type"] != "text"]
        whole = _send(provider, anthropic_request(ASK, assistant(*content), ASK))
        mended = _send(provider, anthropic_request(ASK, assistant(*kept), ASK))

        assert (whole.status, mended.status) == (400, 200)
        assert _refused_rules(provider) == ["empty_text"]
