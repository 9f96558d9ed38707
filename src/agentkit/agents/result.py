"""What users get: the result of a run and the events on the way."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from agentkit.core.contracts.types import Question, StopReason, ToolCall, Usage, Wait

__all__ = ["AgentEvent", "AgentResult", "EventType", "Suspended"]

EventType: TypeAlias = Literal[
    "message_delta",
    "message_reset",
    "progress",
    "repair",
    "tool_call",
    "tool_result",
    "step",
    "interrupt",
    "final",
]
"""Types of events. `message_delta`, `message_reset` and `progress` are provisional: they have no
id and are never replayed."""


class Suspended(msgspec.Struct, frozen=True):
    """What a run waits for; `agent.resume(run_id, {question.id: …}, ctx)` answers.

    Args:
        run_id: the run.
        questions: the open ones, in the order in which they were asked.
        waits: what it waits for beside persons.
    """

    run_id: str
    questions: tuple[Question, ...]
    waits: tuple[Wait, ...] = ()


class AgentResult(msgspec.Struct, frozen=True):
    """How a run ended or stopped.

    Args:
        run_id: the run.
        output: the final text; of a stopped run the text so far.
        usage: what the run used over its whole life, all workers together.
        stop_reason: why it gave this result.
        partial: the output is not a finished answer.
        suspended: the open questions, where the run waits for decisions.
        message: one paragraph about a run that waits, or was parked, failed or cancelled.
        parked: short word for what stopped a parked run.
        already_decided: of the decisions that were given, the questions that had been decided in
            the same way before, so that nothing was changed.
    """

    run_id: str
    output: str
    usage: Usage
    stop_reason: StopReason
    partial: bool = False
    suspended: Suspended | None = None
    message: str = ""
    parked: str = ""
    already_decided: tuple[str, ...] = ()


class AgentEvent(msgspec.Struct, frozen=True):
    """Something that happened in a run.

    In each turn: `message_delta`*, `tool_call` for each call, `tool_result` for each in request
    order, then `step` once the step is durable; one `interrupt` per open question when the run
    suspends; one `final` at the end.

    Args:
        type: what happened.
        text: the delta, progress text, tool result, or `iteration:{n}` of a step.
        id: seq of the durable entry that this event was built from; `None` for provisional ones.
        call: of `tool_call` and `tool_result`.
        attempt: of `tool_call`: 1 for the first; of `tool_result`: of the attempt that gave it.
        is_error: of `tool_result`.
        replayed: the fact was recorded by an earlier worker.
        question: of `interrupt`.
        result: of `final`.
    """

    type: EventType
    text: str = ""
    id: int | None = None
    call: ToolCall | None = None
    attempt: int = 0
    is_error: bool = False
    replayed: bool = False
    question: Question | None = None
    result: AgentResult | None = None
