"""What the model says: answers, and scripts that choose one from the transcript alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, cast, runtime_checkable

from agentkit.testing.provider.shapes import BadJson, Body, parse, rows, table, text

__all__ = [
    "Answer",
    "Api",
    "CallSpec",
    "ProviderRequest",
    "ProviderScript",
    "ScriptError",
    "ScriptSource",
    "TurnScript",
    "UsageSpec",
    "as_script",
    "load_script",
]

Api: TypeAlias = Literal["anthropic", "openai"]


class ScriptError(ValueError):
    """The script is malformed or has no answer for this request; the message says which turn."""


@dataclass(frozen=True, slots=True)
class CallSpec:
    """One tool call of an answer.

    Args:
        name: the tool; any string, so that a damaged name can be played.
        arguments: an object, or a string that goes out as it is (half a JSON text, for example).
        id: the provider's label. None lets the provider derive one from the request; the empty
            string is sent as it is.
    """

    name: str
    arguments: Mapping[str, object] | str = field(default_factory=dict)
    id: str | None = None


@dataclass(frozen=True, slots=True)
class UsageSpec:
    """Tokens that the answer reports. Input tokens exclude what came from the cache."""

    input_tokens: int = 10
    output_tokens: int = 5
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says in one turn.

    Args:
        text: the visible text; None for none. An empty string is sent as an empty block.
        thinking: text of a sealed thinking block before everything else (Messages alone); the empty
            string gives a block with a signature and no text.
        redacted_thinking: hidden text of a sealed redacted block after it (Messages alone).
        blocks: content blocks that go out verbatim after the text (Messages alone), of any type;
            thinking blocks without a signature are sealed.
        tool_calls: the calls, in order.
        stop_reason: in the words of either API; None lets it follow from the calls.
        usage: the reported tokens.
    """

    text: str | None = None
    thinking: str | None = None
    redacted_thinking: str | None = None
    blocks: Sequence[Mapping[str, object]] = ()
    tool_calls: Sequence[CallSpec] = ()
    stop_reason: str | None = None
    usage: UsageSpec = UsageSpec()

    @classmethod
    def from_json(cls, value: object) -> Answer:
        """Read an answer from a JSON object with the fields of this class.

        Raises:
            ScriptError: not an object, an unknown field, or a field of the wrong type.
        """
        body = _known(value, cls, "answer")
        calls = [_known(call, CallSpec, "tool call") for call in _array(body, "tool_calls")]
        arguments = [call.get("arguments", {}) for call in calls]
        if not all(isinstance(item, (dict, str)) for item in arguments):
            raise ScriptError("`arguments` of a tool call must be an object or a string")
        usage = _known(body.get("usage", {}), UsageSpec, "usage")
        if not all(isinstance(number, int) for number in usage.values()):
            raise ScriptError("`usage` must hold integers")
        return cls(
            text=_optional(body, "text"),
            thinking=_optional(body, "thinking"),
            redacted_thinking=_optional(body, "redacted_thinking"),
            blocks=tuple(table(block) for block in _array(body, "blocks")),
            tool_calls=tuple(
                CallSpec(text(call.get("name")), cast("Body | str", given), _optional(call, "id"))
                for call, given in zip(calls, arguments, strict=True)
            ),
            stop_reason=_optional(body, "stop_reason"),
            usage=UsageSpec(**cast("dict[str, int]", usage)),
        )


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """A valid request, as a script sees it.

    Args:
        api: which of the two APIs was spoken.
        body: the parsed request.
        digest: SHA-256 of its canonical form, in hex.
    """

    api: Api
    body: Body
    digest: str

    @property
    def model(self) -> str:
        """The model that was asked for."""
        return text(self.body.get("model"))

    @property
    def messages(self) -> list[Body]:
        """The messages as they were sent."""
        return [table(message) for message in rows(self.body.get("messages"))]

    @property
    def turn(self) -> int:
        """How many assistant messages the history holds: the index of the answer to give."""
        return sum(message.get("role") == "assistant" for message in self.messages)

    @property
    def results(self) -> list[tuple[str, str]]:
        """Label and text of each tool result since the last assistant message."""
        found: list[tuple[str, str]] = []
        for message in reversed(self.messages):
            if message.get("role") == "assistant":
                break
            found[:0] = _results_in(message)
        return found

    @property
    def prompt(self) -> str:
        """The text of the first user message."""
        for message in self.messages:
            if message.get("role") == "user":
                return _text_of(message.get("content"))
        return ""


@runtime_checkable
class ProviderScript(Protocol):
    """Chooses the answer to a request.

    Law: the choice depends on the request alone, never on a counter, so that a client which dies
    and asks again gets the same turn again. `respond` may be called from several threads at once.
    """

    def respond(self, request: ProviderRequest, /) -> Answer:
        """Return the answer.

        Raises:
            ScriptError: there is none; the provider then refuses the request with status 400.
        """
        ...


ScriptSource: TypeAlias = (
    ProviderScript | Callable[[ProviderRequest], Answer] | Sequence[Answer | Body] | Path | Body
)


@dataclass(frozen=True, slots=True)
class TurnScript:
    """The k-th answer is given when the history holds k assistant messages.

    Args:
        turns: the answers.
    """

    turns: Sequence[Answer]

    def respond(self, request: ProviderRequest, /) -> Answer:
        """Return the answer of this turn.

        Raises:
            ScriptError: the history is longer than the script.
        """
        if request.turn >= len(self.turns):
            raise ScriptError(
                f"the script has {len(self.turns)} turns and the history holds {request.turn} "
                "assistant messages"
            )
        return self.turns[request.turn]

    @classmethod
    def from_json(cls, value: object) -> TurnScript:
        """Read a script from ``{"turns": [answer, …]}`` or from the bare list.

        Raises:
            ScriptError: the value is neither, or an answer is malformed.
        """
        turns = value.get("turns") if isinstance(value, dict) else value
        if not isinstance(turns, list):
            raise ScriptError('a script is {"turns": [answer, …]} or a list of answers')
        return cls(tuple(Answer.from_json(turn) for turn in turns))


@dataclass(frozen=True, slots=True)
class _FunctionScript:
    function: Callable[[ProviderRequest], Answer]

    def respond(self, request: ProviderRequest, /) -> Answer:
        return self.function(request)


def load_script(path: Path) -> TurnScript:
    """Read a JSON script from a file.

    Raises:
        ScriptError: the file is not JSON or not a script; the message names the file.
        OSError: the file cannot be read.
    """
    try:
        return TurnScript.from_json(parse(path.read_bytes()))
    except (BadJson, ScriptError) as error:
        raise ScriptError(f"{path}: {error}") from error


def as_script(source: ScriptSource) -> ProviderScript:
    """Make a script of what a caller has: a script, a function, answers, a file or parsed JSON."""
    if isinstance(source, ProviderScript):
        return source
    if isinstance(source, Path):
        return load_script(source)
    if isinstance(source, dict):
        return TurnScript.from_json(source)
    if callable(source):
        return _FunctionScript(source)
    return TurnScript(
        tuple(turn if isinstance(turn, Answer) else Answer.from_json(turn) for turn in source)
    )


def _results_in(message: Body) -> list[tuple[str, str]]:
    if message.get("role") == "tool":
        return [(text(message.get("tool_call_id")), _text_of(message.get("content")))]
    return [
        (text(table(block).get("tool_use_id")), _text_of(table(block).get("content")))
        for block in rows(message.get("content"))
        if table(block).get("type") == "tool_result"
    ]


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    return "".join(text(table(part).get("text")) for part in rows(content))


def _known(value: object, owner: type, what: str) -> Body:
    if not isinstance(value, dict):
        raise ScriptError(f"{what} must be an object, not {type(value).__name__}")
    unknown = value.keys() - {entry.name for entry in fields(owner)}
    if unknown:
        raise ScriptError(f"{what} has unknown fields: {', '.join(sorted(unknown))}")
    return value


def _array(body: Body, name: str) -> list[object]:
    value = body.get(name, [])
    if not isinstance(value, list):
        raise ScriptError(f"`{name}` must be an array")
    return value


def _optional(body: Body, name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise ScriptError(f"`{name}` must be a string")
    return value
