"""Tools that a person has to approve, and tools that wait: for an answer, a time, an event."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Final

from agentkit.core.contracts.types import JSON
from agentkit.core.runtime import RunContext
from agentkit.testing.simulation._outside import HERE, Here
from agentkit.testing.simulation._tools import TOOL_SECONDS, begin, enter, may_fail, put
from agentkit.tools import Tool, ToolContext, tool

__all__ = ["CHOICES", "EVENT", "told_of", "waiting_tools"]

CHOICES: Final[tuple[JSON, ...]] = (False, 0, "", None, "yes", [], {})
"""What the tools' questions may be answered with: most of it is falsy, and all of it counts."""

EVENT: Final = "parcel"
"""The event that tools wait for."""

_APPROVAL_SECONDS: Final = 25.0
_EVENT_SECONDS: Final = 40.0


def waiting_tools() -> list[Tool]:
    """Those that are approved, and those that wait."""
    plain = tool(side_effecting=True, timeout=TOOL_SECONDS)
    keyed = tool(side_effecting=True, idempotent=True, timeout=TOOL_SECONDS)
    approved = tool(side_effecting=True, timeout=TOOL_SECONDS, requires_approval=_is_gated)
    until = tool(
        side_effecting=True,
        idempotent=True,
        timeout=TOOL_SECONDS,
        requires_approval=True,
        approval_seconds=_APPROVAL_SECONDS,
        on_repeat_refused="ask",
    )
    return [approved(pay), until(wire), plain(survey), keyed(nap), keyed(collect), keyed(fulfil)]


def _is_gated(given: Mapping[str, object], context: RunContext) -> bool:
    """Mostly; that it is not, another time, must not let a refused call pass."""
    del given, context
    return HERE.get().weather.world.likely(0.7)


def told_of(value: JSON) -> str:
    """How a tool's result shows what it was given; no two values look alike."""
    return json.dumps(value)


async def pay(item: str, context: ToolContext) -> str:
    """Have an effect that a person has approved."""
    here = await enter("pay", item, context)
    return await _send(here, "pay", item, context, f"paid {item}")


def wire(item: str, context: ToolContext) -> str:
    """The same under the call's key, in a thread, and with a deadline for the person."""
    here = begin("wire", item, context)
    result = put(here, "wire", item, context, result=f"wired {item}")
    may_fail(here, "after")
    return result


async def survey(item: str, context: ToolContext) -> str:
    """Ask, then have an effect."""
    here = await enter("survey", item, context)
    answer = await context.ask("Which?", choices=list(CHOICES))
    return await _send(here, "survey", item, context, f"heard of {item}: {told_of(answer)}")


async def nap(item: str, context: ToolContext) -> str:
    """Sleep, then have an effect."""
    here = await enter("nap", item, context)
    await context.sleep(2.0 + 8.0 * int(item[-1]))
    await here.lag()
    return _put(here, "nap", item, context, f"rested for {item}")


async def collect(item: str, context: ToolContext) -> str:
    """Wait for an event, but not for ever, then have an effect."""
    here = await enter("collect", item, context)
    event = await context.wait_for(EVENT, timeout=_EVENT_SECONDS, on_deadline="skip")
    await here.lag()
    return _put(here, "collect", item, context, f"collected for {item}: {told_of(event)}")


async def fulfil(item: str, context: ToolContext) -> str:
    """Wait for everything, some of it at once, with a recorded step before and one between."""
    here = await enter("fulfil", item, context)
    first = await context.record("first", lambda: context.attempt)
    answer, event = await asyncio.gather(
        context.ask("How?", choices=list(CHOICES)), context.wait_for(EVENT)
    )
    again = await context.record("again", lambda: context.attempt)
    await context.sleep(3.0)
    told = f"fulfilled {item}: {told_of(answer)}, {told_of(event)}, {first} {again}"
    return _put(here, "fulfil", item, context, told)


async def _send(here: Here, name: str, item: str, context: ToolContext, result: str) -> str:
    await here.lag()
    here.record(name, item, context, result=result)
    await here.lag()
    may_fail(here, "after")
    return result


def _put(here: Here, name: str, item: str, context: ToolContext, result: str) -> str:
    kept = put(here, name, item, context, result=result)
    may_fail(here, "after")
    return kept
