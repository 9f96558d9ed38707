"""What real services answered is answered here too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkit.testing.provider import StrictProvider, anthropic_rules, openai_rules
from tests.testing.provider.raw import events, post_anthropic, post_openai

pytestmark = pytest.mark.recordings

PATHS = ("/v1/messages", "/v1/chat/completions")


def _exchanges(folder: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield each recorded exchange of the two APIs that was answered with 200."""
    for path in sorted(folder.glob("*.json")):
        for index, exchange in enumerate(json.loads(path.read_text())["exchanges"]):
            if exchange["status"] == 200 and exchange["path"].split("?")[0] in PATHS:
                yield f"{path.name}[{index}]", exchange


def test_every_recorded_request_is_accepted(provider: StrictProvider, recordings_dir: Path) -> None:
    """No request that a real service answered with 200 is refused."""
    refused = {}
    asked = 0
    for name, exchange in _exchanges(recordings_dir):
        path = str(exchange["path"])
        post = post_anthropic if path.startswith("/v1/messages") else post_openai
        response = post(provider, exchange["request"], path=path)
        asked += 1
        if response.status != 200:
            refused[name] = response.body

    assert {} == refused
    assert asked >= 40


def test_every_recorded_answer_may_be_sent_back(recordings_dir: Path) -> None:
    """A recorded assistant message is a valid part of a history, whatever blocks it holds.

    Blank text is the exception: services write it and do not take it back.
    """
    refused = {}
    answers = 0
    for name, exchange in _exchanges(recordings_dir):
        request, message = exchange["request"], exchange["response"]
        assert isinstance(request, dict)
        if isinstance(message, str):
            continue
        assert isinstance(message, dict)
        answers += 1
        if str(exchange["path"]).startswith("/v1/messages"):
            refusal = anthropic_rules.check(_with_anthropic_answer(request, message["content"]))
        else:
            refusal = openai_rules.check(
                _with_openai_answer(request, message["choices"][0]["message"])
            )
        if refusal is not None:
            refused[name] = refusal.message

    assert {} == refused
    assert answers >= 30


def test_recorded_streams_have_the_events_we_send(
    provider: StrictProvider, recordings_dir: Path
) -> None:
    """Ours open and close as the recorded ones do."""
    for name, exchange in _exchanges(recordings_dir):
        recorded, request = exchange["response"], exchange["request"]
        if not isinstance(recorded, str):
            continue
        anthropic = str(exchange["path"]).startswith("/v1/messages")
        ours = (post_anthropic if anthropic else post_openai)(provider, request).body
        theirs, seen = list(events(recorded.encode())), list(events(ours))

        assert {kind for kind, _ in seen} <= {kind for kind, _ in theirs} | {"ping"}, name
        assert seen[0][0] == theirs[0][0], name
        assert seen[-1][0] == theirs[-1][0], name


def _with_anthropic_answer(request: dict[str, object], content: list[object]) -> dict[str, object]:
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "ok"}
        for block in content
        if isinstance(block, dict) and block["type"] == "tool_use"
    ]
    after = [*results, {"type": "text", "text": "Go on."}]
    kept = [block for block in content if not _is_blank(block)]
    turns = [{"role": "assistant", "content": kept}, {"role": "user", "content": after}]
    messages = request["messages"]
    assert isinstance(messages, list)
    return request | {"messages": [*messages, *turns]}


def _is_blank(block: object) -> bool:
    return isinstance(block, dict) and block["type"] == "text" and not block["text"].strip()


def _with_openai_answer(
    request: dict[str, object], message: dict[str, object]
) -> dict[str, object]:
    calls = message.get("tool_calls") or []
    assert isinstance(calls, list)
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls]
    messages = request["messages"]
    assert isinstance(messages, list)
    after = [message, *results, {"role": "user", "content": "Go on."}]
    return request | {"messages": [*messages, *after]}
