"""A tool by which a model asks a person."""

from __future__ import annotations

from agentkit.core.contracts.types import JSON
from agentkit.tools.context import ToolContext
from agentkit.tools.decorator import tool

__all__ = ["ask_human"]


@tool(side_effecting=False)
async def ask_human(  # noqa: D417 - the model reads it, and is given no context
    question: str, context: ToolContext, choices: list[str] | None = None
) -> JSON:
    """Ask a person, and wait for the answer, which may take days.

    Args:
        question: What they need to know and to decide, in full sentences.
        choices: The possible answers, where they are to choose.
    """
    return await context.ask(question, choices=choices)
