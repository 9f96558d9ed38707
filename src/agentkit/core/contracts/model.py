"""What goes to a language model and what comes back: one request, one attempt, one reply."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from agentkit.core.contracts.types import CallRecord, Message, Native, ToolDefinition, Usage

__all__ = [
    "AnswerStop",
    "FailureKind",
    "LLMPort",
    "ModelReply",
    "ModelRequest",
    "TextDelta",
]

AnswerStop: TypeAlias = Literal["end", "tool_use", "length", "refusal", "pause"]
"""Why a model ended its answer. `pause`: the provider wants the same transcript sent again to go
on (Anthropic `pause_turn`). `length`: the output limit cut the answer."""

FailureKind: TypeAlias = Literal[
    "rate_limited",
    "overloaded",
    "server",
    "network",
    "timeout",
    "truncated",
    "auth",
    "quota",
    "invalid_request",
    "not_found",
    "context_length",
    "interrupted",
]
"""How an attempt failed; `agentkit.core.runtime.retry` says which kinds are tried again.

`truncated`: the stream ended without a terminal stop reason. `interrupted`: our own worker stopped
in order while it waited. `quota`: a spend limit, which waiting does not mend."""


class ModelRequest(msgspec.Struct, frozen=True):
    """One request, as the run's journal says it must be sent.

    Args:
        model: the model's name without provider prefix; empty for the adapter's default.
        system: the recorded system prompt; empty for none.
        tools: the recorded tool definitions.
        messages: the transcript, without the system prompt; every call has exactly one result,
            in call order, directly after its assistant message.
        stream: whether text deltas are wanted.
        timeout_seconds: the longest the attempt may take.
    """

    model: str
    system: str
    tools: tuple[ToolDefinition, ...]
    messages: Sequence[Message]
    stream: bool = False
    timeout_seconds: float = 600.0


class TextDelta(msgspec.Struct, frozen=True):
    """A provisional piece of text; the durable text is in the reply."""

    text: str


class ModelReply(msgspec.Struct, frozen=True):
    """A complete answer.

    Args:
        text: the visible text, all text blocks joined.
        calls: the tool calls in order; arguments are the provider's JSON text as it came (for
            providers that send objects: that object's compact JSON, keys in order).
        stop: why the model ended.
        usage: tokens of this answer; `requests` is 1.
        model: the model that answered, as the provider names it.
        response_id: the provider's id of the answer.
        native: the assistant content verbatim, or `None` where the neutral form says all.
    """

    text: str = ""
    calls: tuple[CallRecord, ...] = ()
    stop: AnswerStop = "end"
    usage: Usage = Usage(requests=1)
    model: str = ""
    response_id: str = ""
    native: Native | None = None


@runtime_checkable
class LLMPort(Protocol):
    """A model behind some provider.

    `attempt` makes exactly one attempt. It yields any number of `TextDelta` and then exactly one
    `ModelReply`, the last item. It raises `ModelError` with a `FailureKind` for everything that
    goes wrong at the provider or on the way, a stream that ends without a terminal stop reason
    included, and never retries by itself. Cancelling it closes the connection. It is safe to run
    many attempts at once on one object, from several event loops.
    """

    @property
    def origin(self) -> str:
        """`anthropic`, `openai`, `fake`, …: whose native content this port reads and writes."""
        ...

    def attempt(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        """One attempt at `request`."""
        ...
