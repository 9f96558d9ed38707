"""Events from durable entries, in the promised order."""

from __future__ import annotations

from collections.abc import Sequence

from agentkit.agents.gating import why_gated
from agentkit.agents.registry import Checked, ToolRegistry
from agentkit.agents.result import AgentEvent
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.types import CallRecord, ToolCall
from agentkit.core.runtime import RunContext
from agentkit.state.journal.lanes import LaneState, TurnState
from agentkit.state.journal.recovery import CallPolicy

__all__ = ["CurrentTurn", "Teller"]


class CurrentTurn:
    """The newest turn's calls, looked up once: tools, bound arguments, and what forbids a call.

    Args:
        registry: the agent's tools.
        context: whose run it is, for the functions that decide whether a call needs approval.
    """

    def __init__(self, registry: ToolRegistry, context: RunContext) -> None:
        self._registry = registry
        self._context = context
        self._number = 0
        self._checked: list[Checked] = []
        self._policies: list[CallPolicy] = []
        self._given: list[str] = []
        self._gated: dict[int, str] = {}

    def look_up(self, turn: TurnState) -> list[Checked]:
        """The calls of `turn`; user code (argument types) is asked once per answer, and for a call
        whose arguments a person has changed.
        """
        answer = turn.answer
        if self._number != answer.turn:
            self._checked = [self._registry.check(record) for record in answer.calls]
            self._policies = [checked.policy for checked in self._checked]
            self._given = [record.arguments for record in answer.calls]
            self._gated.clear()
            self._number = answer.turn
        for call in turn.calls:
            if call.arguments != self._given[call.index]:
                given = self._given[call.index] = call.arguments
                record = CallRecord(call.record.id, call.record.name, given)
                checked = self._checked[call.index] = self._registry.check(record)
                self._policies[call.index] = checked.policy
        return self._checked

    def policies(self, turn: TurnState, *, autonomy: str) -> list[CallPolicy]:
        """What decisions about the calls of `turn` are made from. Whether a call that nothing was
        recorded of needs approval is asked once.

        Args:
            turn: whose calls.
            autonomy: what the run was started with.
        """
        checked = self.look_up(turn)
        for call in turn.calls:
            index = call.index
            if call.started is not None or call.question is not None or call.outcome is not None:
                continue
            if index not in self._gated:
                self._gated[index] = why_gated(checked[index], self._context, started_with=autonomy)
            why, policy = self._gated[index], self._policies[index]
            if why != policy.approval.why:
                approval = policy.approval._replace(why=why)
                self._policies[index] = policy._replace(approval=approval)
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
        self._turn.look_up(turn)
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
            elif isinstance(body, e.ToolStarted) and (body.attempt > 1 or body.arguments):
                self._turn.look_up(turn)
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
