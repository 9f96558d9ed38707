"""A worker whose tool does its effect inside `ToolContext.once`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from agentkit.agents import Agent
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts.once import Claim
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import JSON, JSONObject, Message, ToolCall
from agentkit.core.runtime import Invoker, RunContext, Services
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore, StoreWrapper
from agentkit.testing.crash import CrashPlan
from agentkit.testing.crash.scenario import Folder
from agentkit.testing.lines import JsonLines
from agentkit.tools import Tool, ToolContext, tool


class Job(msgspec.Struct, frozen=True):
    """Where the facts are, which run it is, and at which border to die."""

    folder: str
    run: str
    at: int | None = None


class ClaimBorders(StoreWrapper):
    """Borders around the two requests."""

    def __init__(self, inner: JournalPort, plan: CrashPlan) -> None:
        super().__init__(inner)
        self.plan = plan

    async def claim_value(self, key: str, *, token: str, ttl_seconds: float) -> Claim:
        """Forward."""
        self.plan.border("acquire:before")
        claim = await super().claim_value(key, token=token, ttl_seconds=ttl_seconds)
        self.plan.border("acquire:after")
        return claim

    async def settle_value(self, key: str, *, token: str, value: str) -> bool:
        """Forward."""
        self.plan.border("append:before")
        kept = await super().settle_value(key, token=token, value=value)
        self.plan.border("append:after")
        return kept


def warm_up() -> None:
    """Make the schema before any worker is forked."""
    assert _sending(CrashPlan(), JsonLines(Path("unused"))).definition.name


def work(argument: JSONObject) -> None:
    """One worker's life."""
    asyncio.run(_drive(msgspec.convert(argument, Job)))


async def _drive(job: Job) -> None:
    folder = Folder(Path(job.folder))
    plan = CrashPlan(job.at, log=folder.borders)
    inner = SqliteCheckpointStore(folder.path / "runs.db")
    services = Services(
        invoker=Invoker(FakeLLM(_answer)),
        checkpointer=Checkpointer(port=ClaimBorders(inner, plan)),
    )
    sent = JsonLines(folder.path / "sent.jsonl")
    agent = Agent("worker", prompt="Work.", cognition=ReActCognition([_sending(plan, sent)]))
    await agent.run("Send it.", RunContext(correlation_id=job.run, services=services))
    await inner.aclose()


def _answer(messages: Sequence[Message]) -> Turn:
    if messages[-1].role == "tool":
        return Turn(messages[-1].content)
    return Turn("", tool_calls=(ToolCall("c1", "send", {"to": "ann"}),))


def _sending(plan: CrashPlan, sent: JsonLines) -> Tool:
    @tool(side_effecting=True)
    def send(to: str, context: ToolContext) -> JSON:
        def effect() -> str:
            plan.border("effect:before")
            sent.write({"to": to})
            plan.border("effect:after")
            return f"sent to {to}"

        plan.border("tool:before")
        value = context.once_sync(f"mail:{to}", 3_600.0, effect)
        plan.border("tool:after")
        return value

    return send
