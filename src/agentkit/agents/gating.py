"""Which calls need a person's approval: the tool, the run's autonomy, the user's own function."""

from __future__ import annotations

from dataclasses import replace

from agentkit.agents.registry import Checked
from agentkit.core.contracts.values import to_text
from agentkit.core.runtime.context import AUTONOMIES, Autonomy, RunContext
from agentkit.state.journal.approval import NEEDS_APPROVAL
from agentkit.tools import Tool

__all__ = ["MAX_REASON_CHARACTERS", "why_gated"]

MAX_REASON_CHARACTERS = 300
"""Longest text of a `requires_approval` function that failed, as the person who decides sees it."""


def why_gated(checked: Checked, context: RunContext, *, started_with: str) -> str:
    """Why a person has to approve this call before it is made; empty where nobody has to.

    Args:
        checked: the call.
        context: whose run it is by now.
        started_with: the autonomy that the run was started with, empty for `gated`.
    """
    tool = checked.tool
    if tool is None:
        return ""
    asked, required = NEEDS_APPROVAL.format(tool=tool.name), tool.approval.required
    autonomy = max(context.autonomy, started_with or "gated", key=_strictness)
    if required == "always" or (autonomy == "manual" and tool.side_effecting):
        return asked
    if autonomy == "auto" or required is False:
        return ""
    if required is True:
        return asked
    known: Autonomy = next((one for one in AUTONOMIES if one == autonomy), "manual")
    return _asked_function(asked, tool, checked, replace(context, autonomy=known))


def _strictness(autonomy: str) -> int:
    """A word of a newer release counts as the strictest."""
    return [*map(str, AUTONOMIES), autonomy].index(autonomy)


def _asked_function(asked: str, tool: Tool, checked: Checked, context: RunContext) -> str:
    """The answer of the tool's own function; it gets arguments of its own, which it may spoil, and
    the autonomy that is in force.
    """
    arguments, required = checked.call.arguments, tool.approval.required
    if isinstance(arguments, str) or not callable(required):
        return asked
    try:
        answer = required(tool.bind(arguments), context)
    except Exception as exc:  # noqa: BLE001 - a person decides instead
        text = to_text(f"{type(exc).__name__}: {exc}")[:MAX_REASON_CHARACTERS]
        return f"{asked} Whether this one needs it could not be told ({text})."
    return "" if answer is False else asked
