"""The agent of `agentkit demo`, as its workers import it: three turns of tools, then an answer.

The tools act on an outside world that is a file: it remembers what was done to it, whoever did it
and whatever became of them. Which tool takes long enough to be killed in its middle, the parent
says by an environment variable; nothing here kills anything.
"""

from __future__ import annotations

import os
from pathlib import Path

from agentkit.agents import Agent
from agentkit.agents.cognition import ReActCognition
from agentkit.core.runtime import SystemClock
from agentkit.testing.effects import EffectLog, KeyedSink
from agentkit.testing.invariants import ToolKind
from agentkit.tools import ToolContext, tool

__all__ = [
    "AGENT_NAME",
    "FOLDER_VARIABLE",
    "SLOW_VARIABLE",
    "TASK",
    "TOOLS",
    "buyer",
    "check_stock",
    "effects_in",
    "place_order",
    "search_catalogue",
    "send_email",
]

AGENT_NAME = "buyer"

FOLDER_VARIABLE = "AGENTKIT_DEMO_FOLDER"
"""Where the outside world is."""

SLOW_VARIABLE = "AGENTKIT_DEMO_SLOW"
"""Names of tools, with commas between them, that take `_SLOW_SECONDS`."""

_SLOW_SECONDS = 60.0
_QUICK_SECONDS = 0.05

TASK = "Order 20 tulip bulbs for Ada (ada@example.org) and mail her what was ordered."

TOOLS: dict[str, ToolKind] = {
    "search_catalogue": "read",
    "check_stock": "read",
    "place_order": "idempotent",
    "send_email": "plain",
}


def effects_in(folder: Path) -> EffectLog:
    """The outside world's memory."""
    return EffectLog(folder / "outside.jsonl")


@tool(side_effecting=False)
async def search_catalogue(query: str, context: ToolContext) -> str:
    """Look an item up in the catalogue."""
    _outside().record("search_catalogue", {"query": query}, context, kind="run")
    await _take_time("search_catalogue")
    return f"{query}: item 7, 0.40 EUR a piece"


@tool(side_effecting=False)
async def check_stock(item: str, context: ToolContext) -> str:
    """Tell how many pieces of an item are in stock."""
    _outside().record("check_stock", {"item": item}, context, kind="run")
    await _take_time("check_stock")
    return f"{item}: 500 in stock"


@tool(side_effecting=True, idempotent=True)
async def place_order(item: str, quantity: int, context: ToolContext) -> str:
    """Order an item; the shop takes an order with the same key once."""
    outside, arguments = _outside(), {"item": item, "quantity": quantity}
    outside.record("place_order", arguments, context, kind="run")
    shop = KeyedSink(outside)
    done = shop.put("place_order", arguments, context, result=f"order A-1: {quantity} {item}")
    await _take_time("place_order")
    return done


@tool(side_effecting=True)
async def send_email(to: str, text: str, context: ToolContext) -> str:
    """Send a mail; the mail server knows no keys."""
    outside, arguments = _outside(), {"to": to, "text": text}
    outside.record("send_email", arguments, context, kind="run")
    sent = outside.record("send_email", arguments, context, result=f"sent to {to}")
    await _take_time("send_email")
    return sent.result


buyer = Agent(
    AGENT_NAME,
    prompt=(
        "You buy things. First call search_catalogue and check_stock together, in one answer. "
        "Then call place_order, then send_email, each alone. At last say what was done."
    ),
    cognition=ReActCognition([search_catalogue, check_stock, place_order, send_email]),
)


def _outside() -> EffectLog:
    return effects_in(Path(os.environ.get(FOLDER_VARIABLE, ".")))


async def _take_time(name: str) -> None:
    slow = name in os.environ.get(SLOW_VARIABLE, "").split(",")
    await SystemClock().sleep(_SLOW_SECONDS if slow else _QUICK_SECONDS)
