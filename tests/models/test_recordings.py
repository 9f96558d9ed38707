"""Recorded traffic of the real providers, read through the official SDKs behind our adapters."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkit.core.contracts.model import ModelReply
from agentkit.core.contracts.types import JSON, JSONObject
from tests.models.kit import answer_of, answered, ask, failure, native, port, request, results, user
from tests.models.raw_server import chunk, head, serving, whole

pytestmark = pytest.mark.recordings

APIS = {"/v1/messages": "anthropic", "/v1/chat/completions": "openai"}
END = chunk(b"")


def _exchanges(folder: Path) -> Iterator[tuple[str, str, JSONObject]]:
    """Name, provider and content of each exchange of the two APIs."""
    for path in sorted(folder.glob("*.json")):
        for number, exchange in enumerate(json.loads(path.read_text("utf-8"))["exchanges"]):
            name = APIS.get(exchange["path"].partition("?")[0])
            if name and exchange["method"] == "POST":
                yield f"{path.stem}[{number}]", name, exchange


def _answer(exchange: JSONObject) -> list[bytes]:
    """The recorded response as bytes; a stream in chunks that fit no event."""
    response, status = exchange["response"], exchange["status"]
    assert isinstance(status, int)
    if not isinstance(response, str):
        return whole(json.dumps(response).encode(), status=status)
    data = response.encode()
    return [head(), *(chunk(data[at : at + 777]) for at in range(0, len(data), 777)), END]


def _without_blank_text(content: JSON) -> JSON:
    """What may be sent back: the API refuses blank text, which its own answers hold at times."""
    if isinstance(content, dict):
        return content
    assert isinstance(content, list)
    return [block for block in content if not _is_blank(block)]


def _is_blank(block: JSON) -> bool:
    return isinstance(block, dict) and not str(block.get("text", "x")).strip()


def _assembled(name: str, sse: str) -> JSON:
    """What the SDK's own accumulator makes of a stream, as a second opinion."""
    events = [json.loads(line[6:]) for line in sse.splitlines() if line.startswith("data: {")]
    if name == "anthropic":
        from anthropic.lib.streaming._messages import accumulate_event

        snapshot = None
        buffers: dict[int, bytes] = {}
        for event in events:
            if event["type"] != "ping":
                snapshot = accumulate_event(
                    event=event, current_snapshot=snapshot, json_bufs=buffers
                )
        assert snapshot is not None
        blocks: list[JSON] = [_json(block.to_dict()) for block in snapshot.content]
        return blocks
    from openai.lib.streaming.chat import ChatCompletionStreamState
    from openai.types.chat import ChatCompletionChunk

    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for event in events:
        state.handle_chunk(ChatCompletionChunk.model_validate(event))
    message = _json(state.get_final_completion().choices[0].message.to_dict())
    assert isinstance(message, dict)
    return _plain(message)


def _json(value: object) -> JSON:
    return json.loads(json.dumps(value))  # type: ignore[no-any-return] # JSON


def _plain(message: JSONObject) -> JSONObject:
    """Without what the SDK adds, and without fields that say nothing."""
    kept: JSONObject = {name: value for name, value in message.items() if value is not None}
    calls = kept.get("tool_calls")
    if isinstance(calls, list):
        kept["tool_calls"] = [_plain_call(call) for call in calls if isinstance(call, dict)]
    kept.pop("parsed", None)
    return kept


def _plain_call(call: JSONObject) -> JSONObject:
    function = call["function"]
    assert isinstance(function, dict)
    named: JSONObject = {key: function[key] for key in ("name", "arguments")}
    return {"id": call["id"], "type": call["type"], "function": named}


def _recorded_content(name: str, response: JSONObject) -> JSON:
    if name == "anthropic":
        return response["content"]
    choices = response["choices"]
    assert isinstance(choices, list)
    assert isinstance(choices[0], dict)
    return choices[0]["message"]


def _sent_back(name: str, body: dict[str, object]) -> JSON:
    """The assistant content of the second request."""
    messages = body["messages"]
    assert isinstance(messages, list)
    [message] = [message for message in messages if message["role"] == "assistant"]
    return message["content"] if name == "anthropic" else message  # type: ignore[no-any-return] # JSON


async def test_every_recorded_answer_is_read_and_goes_back_as_it_came(recordings_dir: Path) -> None:
    """Whole answers and streams become replies; the next turn holds the recorded content."""
    seen: dict[tuple[str, bool], int] = {}
    for label, name, exchange in _exchanges(recordings_dir):
        if exchange["status"] != 200:
            continue
        streamed = isinstance(exchange["response"], str)
        seen[name, streamed] = seen.get((name, streamed), 0) + 1
        async with serving(_answer(exchange), whole(answer_of(name))) as server:
            llm = port(name, server.url)
            reply, deltas = await ask(llm, request(user("Go"), stream=streamed))
            turn = [user("Go"), answered(reply), *results(reply), user("And then?")]
            await ask(llm, request(*turn))
            sent = _sent_back(name, server.received[1].json)

        _compare(label, name, exchange["response"], reply, sent)
        assert deltas == (reply.text if streamed else ""), label
        assert reply.usage.input_tokens > 0 or name == "openai", label
        assert reply.model, label
        assert reply.response_id, label

    assert 4 == len(seen), f"each provider, whole and streamed: {seen}"


def _compare(label: str, name: str, response: JSON, reply: ModelReply, sent: JSON) -> None:
    if isinstance(response, str):
        opinion = _assembled(name, response)
        ours = native(reply)
        assert opinion == (_plain(ours) if isinstance(ours, dict) else ours), label
        assert json.dumps(_without_blank_text(ours)) == json.dumps(sent), label
        return
    assert isinstance(response, dict)
    recorded = _recorded_content(name, response)
    assert json.dumps(recorded) == json.dumps(native(reply)), label
    assert json.dumps(_without_blank_text(recorded)) == json.dumps(sent), label
    assert reply.usage.total_tokens > 0, label


async def test_every_recorded_refusal_is_mapped(recordings_dir: Path) -> None:
    """The real services' refusals have their kind, and their own words are in the message."""
    seen = 0
    for label, name, exchange in _exchanges(recordings_dir):
        if exchange["status"] == 200:
            continue
        seen += 1
        async with serving(_answer(exchange)) as server:
            error = await failure(port(name, server.url), request())

        response = exchange["response"]
        assert isinstance(response, dict)
        said = response["error"]
        assert isinstance(said, dict)
        assert "invalid_request" == error.kind, label
        assert str(said["message"]).rstrip(".") in str(error), label

    assert seen > 0
