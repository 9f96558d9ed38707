"""Agents of which one is sound and each other has one mistake that a user might make."""

import os
import threading
from pathlib import Path
from typing import Any

from agentkit import Agent, ReActCognition, ToolContext, tool
from agentkit.core.contracts.types import ToolCall
from agentkit.core.testing import FakeLLM, Turn
from agentkit.testing.crashtest import note_effect
from agentkit.testing.crashtest.worker import FOLDER_VARIABLE
from agentkit.tools import FunctionTool, Tool


def outside() -> Path:
    """The world of one run of a crash test."""
    return Path(os.environ[FOLDER_VARIABLE])


def agent(*tools: Tool, calls: str | None = None, **options: Any) -> Agent:
    """An agent that calls these tools one after the other, each with an item of its own."""
    names = calls.split() if calls else [tool.name for tool in tools]
    turns = [
        Turn("", tool_calls=(ToolCall("c1", name, {"item": "abcdefgh"[index]}),))
        for index, name in enumerate(names)
    ]
    model = FakeLLM.script([*turns, Turn("Done.")])
    return Agent("planted", model, "Work.", cognition=ReActCognition(tools, **options))


@tool(side_effecting=False)
def look(item: str) -> str:
    """Look."""
    return f"value of {item}"


@tool(side_effecting=True, idempotent=True)
async def pay(item: str, ctx: ToolContext) -> str:
    """Pay, once a key."""
    paid = outside() / ctx.idempotency_key
    if not paid.exists():
        note_effect("payment")
        paid.touch()
    return f"paid {item}, receipt {ctx.idempotency_key[:8]}"


@tool(side_effecting=True)
async def mail(item: str) -> str:
    """Mail."""
    note_effect("mail")
    return f"mailed {item}"


sound = agent(look, pay, mail)


def made() -> Agent:
    """An agent that exists only once it is asked for."""
    return agent(look)


# --- doubled --------------------------------------------------------------------------------------


class Twice(Tool):
    """A tool of somebody's who thinks that a retry around it does no harm."""

    @property
    def function(self) -> Any:
        """Calls the real function twice."""
        real: Any = super().function

        async def twice(**given: object) -> object:
            await real(**given)
            return await real(**given)

        return twice


@tool(side_effecting=True)
async def shouted(item: str) -> str:
    """Sound in itself."""
    return f"shouted {item}"


def _twice(one: FunctionTool[..., Any]) -> Tool:
    fields = ("name", "side_effecting", "signature")
    return Twice(**{field: getattr(one, field) for field in fields})


@tool(side_effecting=True, idempotent=True)
async def liar(item: str, ctx: ToolContext) -> str:
    """Says that it is idempotent, and is not."""
    note_effect("charge")
    return f"charged {item}"


@tool(side_effecting=False)
async def spy(item: str) -> str:
    """Says that it changes nothing, and does."""
    note_effect("report")
    return f"saw {item}"


# --- diverged -------------------------------------------------------------------------------------

_COUNTED: list[str] = []


@tool(side_effecting=False)
async def number(item: str) -> str:
    """Numbers what it sees, in a variable of the module."""
    _COUNTED.append(item)
    return f"{item} is number {len(_COUNTED)}"


@tool(side_effecting=False)
async def who(item: str) -> str:
    """Differs from process to process."""
    return f"{item} by {os.getpid()}"


def _talk(messages: Any) -> Turn:
    if len(messages) < 3:
        return Turn("", tool_calls=(ToolCall("c1", "look", {"item": "a"}),))
    return Turn(f"Done by {os.getpid()}.")


moody = Agent("moody", FakeLLM(_talk), "Talk.", cognition=ReActCognition([look]))

# --- lost -----------------------------------------------------------------------------------------


@tool(side_effecting=True, idempotent=True)
async def hasty(item: str, ctx: ToolContext) -> str:
    """Takes note that it began, and takes that for having done it."""
    begun = outside() / ctx.idempotency_key
    if not begun.exists():
        begun.touch()
        await ctx.record("begun", lambda: True)
        note_effect("order")
    return f"ordered {item}"


@tool(side_effecting=True, idempotent=True)
async def locked(item: str, ctx: ToolContext) -> str:
    """Leaves a lock behind when it is killed."""
    lock = outside() / "lock"
    if lock.exists():
        raise RuntimeError("somebody else is at it")
    lock.touch()
    await ctx.record("locked", lambda: True)
    lock.unlink()
    return f"wrote {item}"


mistaken = agent(
    _twice(shouted),
    liar,
    spy,
    hasty,
    locked,
    number,
    calls="shouted liar spy hasty locked number number",
)

# --- others ---------------------------------------------------------------------------------------


@tool(side_effecting=True, on_in_doubt="tell_model")
async def shout(item: str) -> str:
    """Lets the model know where nobody knows."""
    return f"shouted {item}"


telling = agent(shout)
restless = agent(who)


@tool(side_effecting=False)
async def shy(item: str, ctx: ToolContext) -> str:
    """Never comes back from a second attempt."""
    if ctx.attempt > 1:
        threading.Event().wait()
    return f"said {item}"


hanging = agent(shy)


@tool(side_effecting=False)
async def failing(item: str) -> str:
    """Fails whatever happens."""
    raise ValueError(f"no {item}")


broken = agent(failing)

endless = Agent(
    "endless",
    FakeLLM(lambda _: Turn("", tool_calls=(ToolCall("c1", "look", {"item": "a"}),))),
    "Go on.",
    cognition=ReActCognition([look], max_iterations=3),
)

costly = Agent("costly", "anthropic:claude-sonnet-4-6", "Work.", cognition=ReActCognition([look]))

nobody = 7


def wipe() -> None:
    """Set the world back: what `stale` finds is gone."""
    Path(os.environ["PLANTED_WORLD"]).unlink(missing_ok=True)


@tool(side_effecting=False)
def stale(item: str) -> str:
    """Sees what earlier runs left in the world."""
    world = Path(os.environ["PLANTED_WORLD"])
    before = world.read_text() if world.exists() else ""
    world.write_text(before + item)
    return f"the world is {len(before)} long"


remembering = agent(stale)


def _moods(_: Any) -> Turn:
    raise KeyError("moods")


raising = Agent("raising", FakeLLM(_moods), "Work.", cognition=ReActCognition([look]))
