"""Events from durable entries, in the promised order."""

from __future__ import annotations

from collections.abc import Sequence

from agentkit.agents.registry import Checked, ToolRegistry
from agentkit.agents.result import AgentEvent
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.types import ToolCall
from agentkit.state.journal.lanes import LaneState, TurnState
from agentkit.state.journal.recovery import CallPolicy

__all__ = ["CurrentTurn", "Teller"]


class CurrentTurn:
    """The newest turn's calls, looked up once: tools, bound arguments, and what forbids a call.

    Args:
        registry: the agent's tools.
    """

    def __init__(self, registry: ToolRegistry) -> None:
        self._registry = registry
        self._number = 0
        self._checked: list[Checked] = []
        self._policies: list[CallPolicy] = []

    def look_up(self, answer: e.ModelAnswered) -> list[Checked]:
        """The calls of `answer`; user code (argument types) is asked once per answer."""
        if self._number != answer.turn:
            self._checked = [self._registry.check(record) for record in answer.calls]
            self._policies = [checked.policy for checked in self._checked]
            self._number = answer.turn
        return self._checked

    def policies(self, answer: e.ModelAnswered) -> list[CallPolicy]:
        """What decisions about the calls of `answer` are made from."""
        self.look_up(answer)
        return self._policies

    def call(self, index: int) -> ToolCall:
        """A call as it is shown."""
        return self._checked[index].call


class Teller:
    """Turns entries into events: calls when announced, results in call order, each once.

    Args:
        turn: looks calls up.
    """

    def __init__(self, turn: CurrentTurn) -> None:
        self._turn = turn
        self._told = 0
        self._found = 0

    def opening(self, lane: LaneState, turn: TurnState | None, *, found: int) -> list[AgentEvent]:
        """What an earlier worker left: repairs of a damaged transcript, results already there.

        Entries up to seq `found` are not this worker's.
        """
        self._found = found
        repairs = [AgentEvent("repair", repair) for repair in lane.transcript.repairs]
        if turn is None:
            return repairs
        self._turn.look_up(turn.answer)
        return [*repairs, *self.results(turn)]

    def tell(self, entries: Sequence[e.Entry], turn: TurnState | None) -> list[AgentEvent]:
        """Events of entries that are durable now; `turn` is the lane's newest."""
        events: list[AgentEvent] = []
        if turn is None:
            return events
        for entry in entries:
            body = entry.body
            if isinstance(body, e.ModelAnswered):
                self._told = 0
                events += [self._announced(entry, call.index, 1) for call in turn.calls]
            elif isinstance(body, e.ToolStarted) and body.attempt > 1:
                events.append(self._announced(entry, body.index, body.attempt))
            elif isinstance(body, e.ToolFinished):
                events += self.results(turn)
            elif isinstance(body, e.StepCompleted):
                events += self.results(turn)  # those that somebody else has told meanwhile
                if body.status == "running":
                    events.append(AgentEvent("step", f"iteration:{body.iteration}", id=entry.seq))
        return events

    def results(self, turn: TurnState) -> list[AgentEvent]:
        """Results that are due: a call's comes when all calls before it have theirs."""
        events = []
        for call in turn.calls[self._told :]:
            outcome = call.outcome
            if outcome is None or not call.settled:
                break
            self._told += 1
            events.append(
                AgentEvent(
                    "tool_result",
                    outcome.content,
                    id=call.finished_seq,
                    call=self._turn.call(call.index),
                    attempt=outcome.attempt,
                    is_error=outcome.outcome != "ok",
                    replayed=call.finished_seq <= self._found,
                )
            )
        return events

    def _announced(self, entry: e.Entry, index: int, attempt: int) -> AgentEvent:
        return AgentEvent("tool_call", id=entry.seq, call=self._turn.call(index), attempt=attempt)
