"""The tools of one agent, and what can be said of a call before it is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from agentkit.core.contracts.errors import InvalidDecision, InvalidSpec
from agentkit.core.contracts.types import (
    CallRecord,
    Decision,
    JSONObject,
    Question,
    ToolCall,
    ToolDefinition,
)
from agentkit.core.contracts.values import canonical, encode_value, parse_arguments
from agentkit.state.journal.approval import ApprovalPolicy
from agentkit.state.journal.recovery import CallPolicy
from agentkit.tools import ArgumentsInvalid, Tool

__all__ = ["Checked", "ToolRegistry"]


class Checked(NamedTuple):
    """A call with its tool and bound arguments; neither where `policy.problem` says why not.

    `call` is the call as it is shown in events.
    """

    call: ToolCall
    policy: CallPolicy
    tool: Tool | None = None
    arguments: dict[str, object] | None = None


class ToolRegistry:
    """Looks calls up. Holds no run state.

    Args:
        tools: of the agent.

    Raises:
        InvalidSpec: two tools share a name.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise InvalidSpec(f"two tools are named {tool.name!r}; tool names must differ")
            self._tools[tool.name] = tool

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """The tools as a model is told of them."""
        return tuple(tool.definition for tool in self._tools.values())

    def side_effecting(self) -> list[str]:
        """Names of the tools that act on the world."""
        return [tool.name for tool in self._tools.values() if tool.side_effecting]

    def transactional(self) -> list[str]:
        """Names of the tools that need transactions of the store."""
        return [tool.name for tool in self._tools.values() if tool.transactional]

    def check(self, record: CallRecord) -> Checked:
        """Find the tool and bind the arguments; nothing is guessed."""
        arguments = parse_arguments(record.arguments)
        call = ToolCall(
            record.id, record.name, record.arguments if arguments is None else arguments
        )
        tool = self._tools.get(record.name)
        if tool is None:
            known = ", ".join(sorted(self._tools)) or "none"
            problem = f"There is no tool {record.name[:64]!r}. Available: {known}."
            return Checked(call, CallPolicy(problem=problem))
        if arguments is None:
            problem = f"The arguments of {tool.name} are not a JSON object; the call was not run."
            return Checked(call, _policy(tool, problem))
        try:
            bound = tool.bind(arguments)
        except ArgumentsInvalid as exc:
            return Checked(call, _policy(tool, str(exc)))
        final = canonical({**_defaults(tool), **arguments})
        return Checked(call, _policy(tool, final=final), tool, bound)

    def check_decision(self, run_id: str, question: Question, decision: Decision) -> None:
        """Refuse a decision that would make a call which cannot be made.

        Raises:
            InvalidDecision: its tool is gone, or does not take such arguments.
        """
        if question.kind != "approval" or decision.answer == "reject":
            return
        edited = decision.answer == "edit"
        arguments = encode_value(decision.value) if edited else self._given(question)
        checked = self.check(CallRecord(question.call_id, question.tool, arguments))
        if checked.policy.problem:
            raise InvalidDecision(
                f"run {run_id!r}, question {question.id}: {question.tool} cannot be called as this "
                f"decision says: {checked.policy.problem} Nothing was recorded; it stays open."
            )

    def _given(self, question: Question) -> str:
        """The arguments that were shown, without what the tool adds by itself: a default need not
        be what its own type allows.
        """
        shown, tool = parse_arguments(question.arguments), self._tools.get(question.tool)
        if shown is None or tool is None:
            return question.arguments
        added = _defaults(tool)
        return canonical(
            {name: one for name, one in shown.items() if name not in added or added[name] != one}
        )


def _defaults(tool: Tool) -> JSONObject:
    """What the tool takes for arguments that are left out, as far as JSON can show it."""
    properties = cast("dict[str, JSONObject]", tool.definition.parameters.get("properties", {}))
    required = {one.name for one in tool.signature.parameters if one.required}
    return {
        name: shape["default"]
        for name, shape in properties.items()
        if "default" in shape and name not in required
    }


def _policy(tool: Tool, problem: str = "", *, final: str = "") -> CallPolicy:
    approval = tool.approval
    return CallPolicy(
        tool.side_effecting,
        tool.idempotent,
        tool.max_attempts,
        reconciles=tool.reconcile is not None,
        transactional=tool.transactional,
        on_in_doubt=tool.on_in_doubt or "",
        problem=problem,
        approval=ApprovalPolicy(
            "", approval.seconds, approval.on_deadline, approval.on_repeat_refused, final
        ),
    )
