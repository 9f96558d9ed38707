"""How the state of a run becomes its result, its last events, or an error."""

from __future__ import annotations

from typing import assert_never

import msgspec

from agentkit.agents.result import AgentEvent, AgentResult, Suspended
from agentkit.agents.stream import RunStream
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import RunFailed, RunParked
from agentkit.state.journal.fold import RunState

__all__ = ["final_events", "result_of", "result_or_raise"]


def result_of(state: RunState) -> AgentResult:
    """The result of a run that nobody drives any more."""
    end = state.end
    if isinstance(end, e.Finished):
        return AgentResult(
            state.run_id, end.output, state.usage, end.stop_reason, partial=end.partial
        )
    turn = state.main.turn
    text = turn.answer.text if turn is not None else ""
    if isinstance(end, e.Failed):
        message = end.message
        return AgentResult(state.run_id, text, state.usage, "failed", partial=True, message=message)
    if isinstance(end, e.Cancelled):
        message = end.reason
        return AgentResult(
            state.run_id, text, state.usage, "cancelled", partial=True, message=message
        )
    if end is not None:
        assert_never(end)
    if state.parked is not None:
        parked = state.parked
        return AgentResult(
            state.run_id,
            text,
            state.usage,
            parked.stop_reason,
            partial=True,
            message=parked.message,
            parked=parked.reason,
        )
    waiting = Suspended(state.run_id, state.questions, state.waits)
    return AgentResult(
        state.run_id,
        text,
        state.usage,
        "suspended",
        partial=True,
        suspended=waiting,
        message=_waits_for(state),
    )


def _waits_for(state: RunState) -> str:
    asked = ", ".join(f"{question.id} about {question.tool}" for question in state.questions)
    others = ", ".join(f"{wait.event or 'its time'} ({wait.tool})" for wait in state.waits)
    if not asked:
        return f"run {state.run_id!r} waits for {others}; `agent.resume` goes on once that is there"
    beside = f", and for {others}" if others else ""
    return (
        f"run {state.run_id!r} waits for decisions: {asked}{beside}. Read `suspended.questions`, "
        "then answer with `agent.resume`."
    )


def final_events(state: RunState, *, repeated: tuple[str, ...] = ()) -> list[AgentEvent]:
    """An `interrupt` per open question, then `final`. `repeated`: see `AgentResult`."""
    interrupts = [
        AgentEvent("interrupt", question.prompt, id=int(question.id[1:]), question=question)
        for question in (state.questions if state.status == "suspended" else ())
    ]
    result = msgspec.structs.replace(result_of(state), already_decided=repeated)
    return [*interrupts, AgentEvent("final", id=state.seq, result=result)]


async def result_or_raise(stream: RunStream) -> AgentResult:
    """A run's result, unless it is one that a caller must not take for an answer.

    Raises:
        RunParked: the run was parked by something other than a limit.
        RunFailed: the run failed.
        Others as they come from the stream.
    """
    result = await stream.result()
    if result.stop_reason == "parked":
        message = f"run {result.run_id!r} is parked ({result.parked}): {result.message}"
        raise RunParked(message, run_id=result.run_id, reason=result.parked, usage=result.usage)
    if result.stop_reason == "failed":
        message = f"run {result.run_id!r} failed: {result.message}"
        raise RunFailed(message, run_id=result.run_id, usage=result.usage)
    return result
