"""A worker whose tools write to the store's own database, each with two statements."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from agentkit.agents import Agent
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts.types import JSONObject, Message, ToolCall
from agentkit.core.runtime import Invoker, RunContext, Services
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from agentkit.testing.crash import CrashingLLM, CrashingStore, CrashPlan
from agentkit.testing.crash.scenario import Folder
from agentkit.tools import Tool, ToolContext, Transaction, tool

TASK = "Book them."
RUN = "r1"
TURNS = (("a", "b"), ("c",))
ITEMS = [item for turn in TURNS for item in turn]
OUTPUT = ", ".join(f"booked {item}" for item in ITEMS)
TABLE = """
CREATE TABLE IF NOT EXISTS booking (
    item TEXT, half INTEGER, key TEXT, attempt INTEGER, epoch INTEGER
)
"""


class Job(msgspec.Struct, frozen=True):
    """Where the run's facts are, and at which border to die."""

    folder: str
    at: int | str | None = None


def warm_up() -> None:
    """Make the schema before any worker is forked."""
    assert _booking(CrashPlan()).definition.name


def work(argument: JSONObject) -> None:
    """One worker's life."""
    asyncio.run(_drive(msgspec.convert(argument, Job)))


async def _drive(job: Job) -> None:
    folder = Folder(Path(job.folder))
    plan = CrashPlan(job.at, log=folder.borders)
    inner = SqliteCheckpointStore(folder.path / "runs.db")
    services = Services(
        invoker=Invoker(CrashingLLM(FakeLLM(_answer), plan, folder.answers, run=RUN)),
        checkpointer=Checkpointer(port=CrashingStore(inner, plan)),
    )
    agent = Agent("worker", prompt="Work.", cognition=ReActCognition([_booking(plan)]))
    await agent.run(TASK, RunContext(correlation_id=RUN, services=services))
    await inner.aclose()


def _answer(messages: Sequence[Message]) -> Turn:
    given = sum(message.role == "assistant" for message in messages)
    if given == len(TURNS):
        return Turn(", ".join(one.content for one in messages if one.role == "tool"))
    asked = [ToolCall(f"call_{item}", "book", {"item": item}) for item in TURNS[given]]
    return Turn("", tool_calls=tuple(asked))


def _booking(plan: CrashPlan) -> Tool:
    @tool(side_effecting=True, transactional=True)
    def book(item: str, transaction: Transaction, context: ToolContext) -> str:
        plan.border("tool:before")
        transaction.execute(TABLE)
        who = (context.idempotency_key, context.attempt, context.fencing_token)
        plan.border("effect:before")
        transaction.execute("INSERT INTO booking VALUES (?, 1, ?, ?, ?)", (item, *who))
        plan.border("effect:after")
        transaction.execute("INSERT INTO booking VALUES (?, 2, ?, ?, ?)", (item, *who))
        plan.border("tool:after")
        return f"booked {item}"

    return book
