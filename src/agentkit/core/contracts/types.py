"""The values that users and every layer exchange: scope, calls, messages, usage, decisions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from agentkit.core.contracts.errors import InvalidId

if TYPE_CHECKING:
    JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
else:
    # msgspec reads annotations at run time and has no recursive alias; it checks JSON as `Any`.
    JSON = Any

JSONObject: TypeAlias = "dict[str, JSON]"

__all__ = [
    "APPROVAL_ANSWERS",
    "INPUT_ANSWERS",
    "IN_DOUBT_ANSWERS",
    "JSON",
    "CallRecord",
    "Decision",
    "JSONObject",
    "Message",
    "Native",
    "Question",
    "Scope",
    "StopReason",
    "ToolCall",
    "ToolDefinition",
    "Usage",
    "Wait",
]

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

StopReason: TypeAlias = Literal[
    "completed",
    "length",
    "refused",
    "max_iterations",
    "suspended",
    "parked",
    "failed",
    "cancelled",
]
"""Why a run gave its result. The set is closed: a new reason is a breaking change."""

INPUT_ANSWERS = ("answer",)
"""What a human may answer to a tool that asks while it runs: anything that its schema allows."""

APPROVAL_ANSWERS = ("approve", "reject", "edit")
"""What a human may answer about a call that needs approval."""

IN_DOUBT_ANSWERS = ("done", "failed", "run_again", "skip")
"""What a human may answer about a call that was in flight when its worker died."""


class Scope(msgspec.Struct, frozen=True):
    """Whose runs these are. Two scopes never see, count or touch each other's runs.

    Args:
        tenant: the customer or team; empty for a single-tenant installation.
        user: the person within the tenant; empty where runs are shared by the tenant.
    """

    tenant: str = ""
    user: str = ""

    @property
    def key(self) -> str:
        """One string that is equal exactly when the scopes are equal; empty for `Scope()`."""
        parts = []
        for part in (self.tenant, self.user):
            if _UNPRINTABLE.search(part):
                message = f"scope part {part!r} holds control characters or lone surrogates"
                raise InvalidId(message)
            parts.append(part.replace("%", "%25").replace("/", "%2F"))
        return "/".join(parts).rstrip("/")

    @classmethod
    def of_key(cls, key: str) -> Scope:
        """The scope whose `key` this is."""
        tenant, _, user = key.partition("/")
        plain = [part.replace("%2F", "/").replace("%25", "%") for part in (tenant, user)]
        return cls(*plain)


class ToolCall(msgspec.Struct, frozen=True):
    """One call that a model asked for.

    Args:
        id: the provider's label for the call. It may be empty or repeat; it is no identity.
        name: the tool's name as the model wrote it.
        arguments: the decoded arguments; a `str` where the model's text was not a JSON object
            (such a call is never run).
    """

    id: str
    name: str
    arguments: dict[str, JSON] | str = {}


class CallRecord(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A call as the journal keeps it: `arguments` is the model's own JSON text, byte for byte."""

    id: str
    name: str
    arguments: str = "{}"


class Native(msgspec.Struct, frozen=True):
    """A provider's own assistant content, kept verbatim.

    Args:
        origin: the provider that wrote it (`anthropic`, `openai`); no other one ever gets it back.
        content: JSON bytes of the content, keys in the provider's order.
    """

    origin: str
    content: msgspec.Raw


class Message(msgspec.Struct, frozen=True):
    """One message of a transcript in neutral form; adapters turn it into a provider's own.

    Args:
        role: `user`, `assistant` or `tool` (one message per result); `system` only in front of
            what a `FakeLLM` function is shown.
        content: the text; may be empty beside tool calls.
        tool_calls: of an assistant message; ids are unique within the transcript.
        tool_call_id: of a tool message: the call it answers.
        is_error: of a tool message: the call failed or was not run.
        native: of an assistant message: the provider's content, verbatim.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    is_error: bool = False
    native: Native | None = None


class ToolDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool as the model is told of it. `parameters` is a JSON Schema of type object."""

    name: str
    description: str = ""
    parameters: dict[str, JSON] = {}


class Usage(msgspec.Struct, frozen=True, array_like=True):
    """Tokens and requests paid for. Adding two gives their sum.

    Args:
        input_tokens: tokens of the prompts, cached ones included.
        output_tokens: tokens of the answers, reasoning included.
        requests: model answers received.
        unknown: answers that may have been paid for and were lost with a worker.
        cached_tokens: the part of `input_tokens` that was read from the provider's cache.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0
    unknown: int = 0
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.requests + other.requests,
            self.unknown + other.unknown,
            self.cached_tokens + other.cached_tokens,
        )


class Question(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that a run waits for a human to decide.

    Args:
        id: `q{seq}`, unique within the run and stable over restarts.
        kind: what sort of question. `approval`: a call that is not made without one; `in_doubt`: a
            call that may have happened; `input`: a tool asks while it runs.
        tool: the tool concerned.
        call_id: the provider's label of the call.
        arguments: the final arguments as JSON text, exactly what the tool was or would be given.
        digest: of tool and arguments; a decision is bound to it.
        answers: what may be answered.
        prompt: one paragraph for the person who decides.
        deadline: until when it can be decided, in ms since the Unix epoch; 0 for ever.
        on_deadline: what becomes of the call then.
        path: where it stands: run, lane of the agent, and `turn.index` of the call.
        name: of an `input`: how the tool calls it.
        schema: of an `input`: JSON Schema, as text, of what may be answered; empty for anything.
    """

    id: str
    kind: str
    tool: str
    call_id: str
    arguments: str
    digest: str
    answers: tuple[str, ...]
    prompt: str
    deadline: int = 0
    on_deadline: str = ""
    path: tuple[str, ...] = ()
    name: str = ""
    schema: str = ""


class Wait(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something other than a person that a run waits for.

    Args:
        kind: `time`, or `event`.
        name: how the tool calls it.
        tool: the tool that waits.
        until: when it is over, or its deadline (0 for none), in ms since the Unix epoch.
        event: the event's name.
        path: as in `Question`.
    """

    kind: str
    name: str
    tool: str
    until: int = 0
    event: str = ""
    path: tuple[str, ...] = ()


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """A human's answer to one `Question`.

    Args:
        answer: one of the question's `answers`.
        value: for `done`: what the tool returned; for `failed`: why; for `edit`: the arguments to
            run the call with, all of them; for `answer`: the answer. Any JSON value, falsy ones
            included.
        actor: who decided, for the record.
        reason: why, for the record; told to the model with `reject` and `skip`.
    """

    answer: str
    value: JSON = None
    actor: str = ""
    reason: str = ""
