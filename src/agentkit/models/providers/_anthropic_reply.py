"""A Messages answer, whole or from its stream of events, as a `ModelReply`. Pure.

The stream is put together from the raw events, so that nothing is hidden: a stream without a stop
reason is `truncated`, an input that was cut off stays the text that came, fields and block types
that we do not know are kept. A delta of a type that we do not know is merged by its fields: text is
appended to text, a list to a list, anything else replaces.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from agentkit.core.contracts.errors import ModelError
from agentkit.core.contracts.model import AnswerStop, ModelReply
from agentkit.core.contracts.types import JSON, CallRecord, JSONObject, Native, Usage
from agentkit.models.providers._failures import refused
from agentkit.models.providers._json import dump, load, mend
from agentkit.models.providers._shape import misshapen, number, table, text_of, truncated

__all__ = ["MessageStream", "reply_from"]

_STOPS: Mapping[str, AnswerStop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tool_use",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "pause_turn": "pause",
}
_FIELD_OF_DELTA: Mapping[str, str] = {"text_delta": "text", "thinking_delta": "thinking"}


def reply_from(body: JSON, *, provider: str, origin: str) -> ModelReply:
    """The reply in a complete message.

    Raises:
        ModelError: the body is an error, is no message, or has no stop reason that we know.
    """
    message = table(body, provider, "an answer")
    if message.get("type") == "error" or ("error" in message and "content" not in message):
        raise refused(provider, None, body, {})
    content = message.get("content")
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise misshapen(provider, "an answer without a list of content blocks")
    blocks = [block for block in content if isinstance(block, dict)]
    calls = tuple(_call(block) for block in blocks if block.get("type") == "tool_use")
    return ModelReply(
        text=mend("".join(text_of(b, "text") for b in blocks if b.get("type") == "text")),
        calls=calls,
        stop=_stop(message.get("stop_reason"), has_calls=bool(calls), provider=provider),
        usage=_usage(message.get("usage")),
        model=text_of(message, "model"),
        response_id=text_of(message, "id"),
        native=Native(origin=origin, content=msgspec.Raw(dump(content))),
    )


class MessageStream:
    """The events of one streamed message, put together.

    `done` is true when all that matters has come: the stop reason and the end of each block. What
    the connection does afterwards no longer matters.
    """

    def __init__(self, *, provider: str, origin: str) -> None:
        self._provider = provider
        self._origin = origin
        self._message: JSONObject = {}
        self._blocks: dict[int, JSONObject] = {}
        self._inputs: dict[int, list[str]] = {}
        self._open: set[int] = set()
        self.ended = False

    @property
    def done(self) -> bool:
        """Whether the answer is complete."""
        return bool(self._message.get("stop_reason")) and not self._open

    def feed(self, data: str) -> str:
        """Take the data of one event; returns the visible text that it brings.

        Raises:
            ModelError: the event is an error, or no event of a message.
        """
        event = table(_decoded(data, self._provider), self._provider, "an event")
        match event.get("type"):
            case "message_start":
                self._message = dict(table(event.get("message"), self._provider, "a message start"))
            case "content_block_start":
                block = table(event.get("content_block"), self._provider, "a block start")
                index = self._index(event)
                self._blocks[index] = dict(block)
                self._open.add(index)
                return text_of(block, "text") if block.get("type") == "text" else ""
            case "content_block_delta":
                return self._delta(self._index(event), event.get("delta"))
            case "content_block_stop":
                self._close(self._index(event))
            case "message_delta":
                self._end(event)
            case "message_stop":
                self.ended = True
            case "error":
                raise refused(self._provider, None, event, {})
            case _:  # ping, and kinds that a later API adds
                pass
        return ""

    def reply(self) -> ModelReply:
        """The reply that the same message would give if it came whole.

        Raises:
            ModelError: the stream ended before the message did.
        """
        if not self.done:
            raise truncated(self._provider)
        content: list[JSON] = [self._blocks[index] for index in sorted(self._blocks)]
        return reply_from(
            {**self._message, "content": content}, provider=self._provider, origin=self._origin
        )

    def _index(self, event: JSONObject) -> int:
        index = event.get("index")
        if not isinstance(index, int):
            raise misshapen(self._provider, "a block event without an index")
        return index

    def _delta(self, index: int, value: JSON) -> str:
        delta = table(value, self._provider, "a delta")
        block = self._blocks.get(index)
        if block is None:
            raise misshapen(self._provider, "a delta of a block that did not start")
        match delta.get("type"):
            case "text_delta" | "thinking_delta" as kind:
                field = _FIELD_OF_DELTA[kind]
                piece = text_of(delta, field)
                block[field] = text_of(block, field) + piece
                return piece if kind == "text_delta" else ""
            case "input_json_delta":
                self._inputs.setdefault(index, []).append(text_of(delta, "partial_json"))
            case "signature_delta":
                block["signature"] = delta.get("signature")
            case "citations_delta":
                earlier = block.get("citations")
                block["citations"] = [
                    *(earlier if isinstance(earlier, list) else []),
                    delta.get("citation"),
                ]
            case _:
                _merge(block, delta)
        return ""

    def _close(self, index: int) -> None:
        self._open.discard(index)
        written = "".join(self._inputs.pop(index, []))
        if written and index in self._blocks:
            try:
                self._blocks[index]["input"] = load(written)
            except ValueError:  # the output limit cut it off: the text stays as it is
                self._blocks[index]["input"] = written

    def _end(self, event: JSONObject) -> None:
        delta = table(event.get("delta"), self._provider, "a message delta")
        self._message.update(delta)
        usage = event.get("usage")
        if isinstance(usage, dict):
            earlier = self._message.get("usage")
            latest = {name: value for name, value in usage.items() if value is not None}
            self._message["usage"] = {**(earlier if isinstance(earlier, dict) else {}), **latest}


def _decoded(data: str, provider: str) -> JSON:
    try:
        return load(data)
    except ValueError as exc:
        raise misshapen(provider, "an event that is not JSON") from exc


def _merge(block: JSONObject, delta: JSONObject) -> None:
    for name, value in delta.items():
        earlier = block.get(name)
        if name == "type":
            continue
        match earlier, value:
            case str(), str():
                block[name] = earlier + value
            case list(), list():
                block[name] = [*earlier, *value]
            case _:
                block[name] = value


def _call(block: JSONObject) -> CallRecord:
    given = block.get("input")
    arguments = mend(given) if isinstance(given, str) else dump(given).decode()
    return CallRecord(
        id=mend(text_of(block, "id")), name=mend(text_of(block, "name")), arguments=arguments
    )


def _stop(reason: JSON, *, has_calls: bool, provider: str) -> AnswerStop:
    if reason is None:
        raise truncated(provider)
    stop = _STOPS.get(reason) if isinstance(reason, str) else None
    if stop is None:
        raise ModelError(
            f"{provider} ended its answer with the stop reason {str(reason)[:60]!r}, which this "
            "release does not know; it is not taken for an answer. Update agentkit, or change what "
            "is sent.",
            kind="invalid_request",
            may_be_paid=True,
        )
    if stop in {"end", "tool_use"}:
        return "tool_use" if has_calls else "end"
    return stop


def _usage(usage: JSON) -> Usage:
    if not isinstance(usage, dict):
        return Usage(requests=1, unknown=1)
    cached = number(usage, "cache_read_input_tokens")
    fresh = number(usage, "input_tokens") + number(usage, "cache_creation_input_tokens")
    return Usage(
        input_tokens=fresh + cached,
        output_tokens=number(usage, "output_tokens"),
        requests=1,
        cached_tokens=cached,
    )
