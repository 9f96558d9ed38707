"""Tools that return next to nothing, and two that end in the reverse of their order."""

import asyncio

from agentkit.testing.crash import CrashPlan, crashing
from agentkit.testing.effects import EffectLog
from agentkit.tools import Tool, ToolContext, tool


def odd_tools(plan: CrashPlan, effects: EffectLog) -> list[Tool]:
    """`quiet`, `nothing`, `blank`, `first`, which begins first and ends last, and `last`."""
    ended = asyncio.Event()
    begun = asyncio.Event()

    async def quiet(item: str, context: ToolContext) -> str:
        effects.record("quiet", {"item": item}, context, kind="run")
        return ""

    async def nothing(item: str, context: ToolContext) -> None:
        effects.record("nothing", {"item": item}, context, kind="run")

    async def blank(item: str, context: ToolContext) -> str:
        effects.record("blank", {"item": item}, context, kind="run")
        return " \n\t"

    async def first(item: str, context: ToolContext) -> str:
        effects.record("first", {"item": item}, context, kind="run")
        await asyncio.sleep(0)  # calls of a turn begin together: the other has begun by now
        if begun.is_set():
            await ended.wait()
        return f"first {item}"

    async def last(item: str, context: ToolContext) -> str:
        begun.set()
        effects.record("last", {"item": item}, context, kind="run")
        context.progress("almost")
        ended.set()
        return f"last {item}"

    made = [crashing(plan, function) for function in (quiet, blank, first, last)]
    tools = [tool(side_effecting=False)(function) for function in made]
    return [*tools, tool(side_effecting=False)(crashing(plan, nothing))]
