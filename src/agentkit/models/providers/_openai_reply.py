"""A Chat Completions answer, whole or from its stream of chunks, as a `ModelReply`. Pure.

The stream is put together from the raw chunks: text is appended to text, calls are told apart by
their index (and by a new id under an old index, as some compatible servers send them), fields that
we do not know are merged and kept. A stream without a finish reason is `truncated`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from agentkit.core.contracts.errors import ModelError
from agentkit.core.contracts.model import AnswerStop, FailureKind, ModelReply
from agentkit.core.contracts.types import JSON, CallRecord, JSONObject, Native, Usage
from agentkit.models.providers._failures import refused
from agentkit.models.providers._json import dump, load, mend
from agentkit.models.providers._shape import misshapen, number, table, text_of, truncated

__all__ = ["ChunkStream", "reply_from"]

_STOPS: Mapping[str, AnswerStop] = {
    "stop": "end",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "length",
    "content_filter": "refusal",
}
# Compatible servers end an answer that they could not finish with these.
_BROKEN_OFF: Mapping[str, FailureKind] = {
    "error": "server",
    "insufficient_system_resource": "overloaded",
}
_DONE = "[DONE]"


def reply_from(
    body: JSON, *, provider: str, origin: str, accept_missing_finish_reason: bool = False
) -> ModelReply:
    """The reply in a complete chat completion.

    Raises:
        ModelError: the body is an error, is no completion, or has no finish reason that we know.
    """
    completion = table(body, provider, "an answer")
    choice = _first_choice(completion)
    if choice is None:
        if completion.get("error"):
            raise refused(provider, None, body, {})
        raise misshapen(provider, "an answer without choices")
    message = table(choice.get("message"), provider, "a message")
    calls = _calls(message, provider)
    reason = choice.get("finish_reason")
    if reason is None and not accept_missing_finish_reason:
        raise _unfinished(provider)
    refusal = text_of(message, "refusal")
    text = _visible_text(message.get("content"))
    stop = _stop(reason, has_calls=bool(calls), provider=provider)
    if refusal and stop == "end":
        stop = "refusal"
    return ModelReply(
        text=mend(text or refusal),
        calls=calls,
        stop=stop,
        usage=_usage(completion.get("usage")),
        model=text_of(completion, "model"),
        response_id=text_of(completion, "id"),
        native=Native(origin=origin, content=msgspec.Raw(dump(message))),
    )


class ChunkStream:
    """The chunks of one streamed completion, put together.

    `done` is true once the finish reason has come: what the connection does afterwards can only
    cost the usage, which then counts as unknown.
    """

    def __init__(
        self, *, provider: str, origin: str, accept_missing_finish_reason: bool = False
    ) -> None:
        self._provider = provider
        self._origin = origin
        self._accept_missing = accept_missing_finish_reason
        self._head: JSONObject = {}
        self._message: JSONObject = {}
        self._calls = _CallPieces()
        self._finish: JSON = None
        self._began = False
        self.ended = False

    @property
    def done(self) -> bool:
        """Whether the answer is complete."""
        return self._finish is not None

    def feed(self, data: str) -> str:
        """Take the data of one event; returns the visible text that it brings.

        Raises:
            ModelError: the event is an error, or no chunk.
        """
        if data.startswith(_DONE):
            self.ended = True
            return ""
        try:
            chunk = table(load(data), self._provider, "a chunk")
        except ValueError as exc:
            raise misshapen(self._provider, "a chunk that is not JSON") from exc
        if chunk.get("error"):
            raise refused(self._provider, None, chunk, {})
        for name in ("id", "model", "usage"):
            if chunk.get(name):
                self._head[name] = chunk[name]
        choice = _first_choice(chunk)
        return "" if choice is None else self._take(choice)

    def reply(self) -> ModelReply:
        """The reply that the same completion would give if it came whole.

        Raises:
            ModelError: the stream ended before the answer did.
        """
        if not self.done and not (self._accept_missing and self._began):
            raise _unfinished(self._provider) if self.ended else truncated(self._provider)
        message = {"role": "assistant", "content": None, **self._message}
        if calls := self._calls.complete():
            message["tool_calls"] = calls
        choice: JSONObject = {"message": message, "finish_reason": self._finish}
        return reply_from(
            {**self._head, "choices": [choice]},
            provider=self._provider,
            origin=self._origin,
            accept_missing_finish_reason=self._accept_missing,
        )

    def _take(self, choice: JSONObject) -> str:
        self._began = True
        if choice.get("finish_reason") is not None:
            self._finish = choice["finish_reason"]
        delta = choice.get("delta") or choice.get("message") or {}
        delta = table(delta, self._provider, "a delta")
        for name, value in delta.items():
            if name == "tool_calls":
                for piece in value if isinstance(value, list) else []:
                    self._calls.take(table(piece, self._provider, "a call"))
            elif name == "role":
                self._message[name] = value
            else:
                self._message[name] = _joined(self._message.get(name), value)
        return _visible_text(delta.get("content"))


class _CallPieces:
    """Tool calls that come in pieces."""

    def __init__(self) -> None:
        self._calls: list[JSONObject] = []
        self._at: dict[int, int] = {}

    def take(self, piece: JSONObject) -> None:
        index = piece.get("index")
        identity = text_of(piece, "id")
        position = self._at.get(index) if isinstance(index, int) else self._of_no_index(identity)
        if position is not None and identity:
            known = text_of(self._calls[position], "id")
            if known and known != identity:
                position = None  # another call under an index that is taken
        if position is None:
            self._calls.append({})
            position = len(self._calls) - 1
        if isinstance(index, int):
            self._at[index] = position
        call = self._calls[position]
        for name, value in piece.items():
            if name == "function" and isinstance(value, dict):
                call[name] = _function(call.get(name), value)
            elif name in {"id", "type"}:
                call[name] = call.get(name) or value
            elif name != "index":
                call[name] = _joined(call.get(name), value)

    def complete(self) -> list[JSON]:
        return list(self._calls)

    def _of_no_index(self, identity: str) -> int | None:
        """A piece without index belongs to the latest call, unless it brings an id of its own."""
        return len(self._calls) - 1 if self._calls and not identity else None


def _function(earlier: JSON, piece: JSONObject) -> JSONObject:
    function = dict(earlier) if isinstance(earlier, dict) else {}
    for name, value in piece.items():
        repeated = name == "name" and value == function.get(name)  # some servers name it each time
        if not repeated:
            function[name] = _joined(function.get(name), value)
    return function


def _joined(earlier: JSON, value: JSON) -> JSON:
    """Two values of one field: texts and lists in a row, objects field by field, else the later.

    Items of a list that carry an `index` are pieces of the item with that index.
    """
    if value is None:
        return earlier
    if isinstance(earlier, str) and isinstance(value, str):
        return earlier + value
    if isinstance(earlier, dict) and isinstance(value, dict):
        return {**earlier, **{name: _joined(earlier.get(name), v) for name, v in value.items()}}
    if isinstance(earlier, list) and isinstance(value, list):
        return _joined_lists(earlier, value)
    return value


def _joined_lists(earlier: list[JSON], later: list[JSON]) -> list[JSON]:
    items = list(earlier)
    for piece in later:
        index = piece.get("index") if isinstance(piece, dict) else None
        same = next(
            (
                at
                for at, item in enumerate(items)
                if isinstance(item, dict) and index is not None and item.get("index") == index
            ),
            None,
        )
        if same is None or not isinstance(piece, dict):
            items.append(piece)
        else:
            labels = ("index", "type", "id", "format")
            items[same] = _joined(items[same], {k: v for k, v in piece.items() if k not in labels})
    return items


def _first_choice(body: JSONObject) -> JSONObject | None:
    choices = body.get("choices")
    for choice in choices if isinstance(choices, list) else []:
        if isinstance(choice, dict) and choice.get("index", 0) == 0:
            return choice
    return None


def _visible_text(content: JSON) -> str:
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict)]
        return "".join(text_of(part, "text") for part in parts if part.get("type") == "text")
    return content if isinstance(content, str) else ""


def _calls(message: JSONObject, provider: str) -> tuple[CallRecord, ...]:
    entries = message.get("tool_calls") or []
    if not isinstance(entries, list):
        raise misshapen(provider, "tool calls that are not a list")
    calls = [_call(table(entry, provider, "a call"), provider) for entry in entries]
    old_form = message.get("function_call")
    if not calls and isinstance(old_form, dict):
        calls = [_call({"function": old_form}, provider)]
    return tuple(calls)


def _call(entry: JSONObject, provider: str) -> CallRecord:
    custom = entry.get("custom")
    if isinstance(custom, dict):
        return CallRecord(text_of(entry, "id"), text_of(custom, "name"), text_of(custom, "input"))
    function = table(entry.get("function"), provider, "a call's function")
    given = function.get("arguments")
    arguments = given if isinstance(given, str) else dump({} if given is None else given).decode()
    return CallRecord(
        id=mend(text_of(entry, "id")),
        name=mend(text_of(function, "name")),
        arguments=mend(arguments),
    )


def _unfinished(provider: str) -> ModelError:
    return ModelError(
        f"{provider} ended its answer in order but without a finish reason, so that a cut answer "
        "could not be told from a whole one. If this server never sends one, build the provider "
        "with accept_missing_finish_reason=True, then resume the run.",
        kind="truncated",
        may_be_paid=True,
        should_retry=False,
    )


def _stop(reason: JSON, *, has_calls: bool, provider: str) -> AnswerStop:
    stop = "end" if reason is None else _STOPS.get(reason) if isinstance(reason, str) else None
    if stop is None:
        kind = _BROKEN_OFF.get(reason, "invalid_request") if isinstance(reason, str) else "server"
        raise ModelError(
            f"{provider} ended its answer with the finish reason {str(reason)[:60]!r}, which is "
            "not taken for the end of an answer.",
            kind=kind,
            may_be_paid=True,
        )
    if stop in {"end", "tool_use"}:
        return "tool_use" if has_calls else "end"
    return stop


def _usage(usage: JSON) -> Usage:
    if not isinstance(usage, dict):
        return Usage(requests=1, unknown=1)
    details = usage.get("prompt_tokens_details")
    return Usage(
        input_tokens=number(usage, "prompt_tokens"),
        output_tokens=number(usage, "completion_tokens"),
        requests=1,
        cached_tokens=number(details, "cached_tokens") if isinstance(details, dict) else 0,
    )
