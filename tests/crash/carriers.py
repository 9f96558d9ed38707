"""A worker that carries a finished conversation on, and may die anywhere in it."""

import asyncio
import fcntl
from collections.abc import Sequence
from pathlib import Path

import msgspec

from agentkit.agents import Agent
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import JSONObject, Message, ToolCall
from agentkit.core.runtime import Invoker, RunContext, Services
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints import Checkpointer
from agentkit.testing.crash import CrashingLLM, CrashingStore, CrashPlan, crashing
from agentkit.testing.crash.scenario import Folder
from agentkit.testing.effects import EffectLog, KeyedSink
from agentkit.testing.invariants import ToolKind
from agentkit.testing.lines import JsonLines
from agentkit.tools import Tool, ToolContext, tool

READY, GATE = "ready", "gate"
FIRST, SECOND = "r1", "r2"
TASK, MORE = "Order one.", "And one more."
TOOLS: dict[str, ToolKind] = {"order": "idempotent"}
EXPECTED = "2 ordered"


class Job(msgspec.Struct, frozen=True):
    """What one process does: carry `FIRST` on as `SECOND`.

    Args:
        folder: where the run's facts are.
        at: the border at which to die.
        gated: say in the pipe `READY` that it is there, and begin when `GATE` is no longer locked.
    """

    folder: str
    at: int | None = None
    gated: bool = False


def warm_up() -> None:
    """Make the schemas before any worker is forked."""
    from agentkit.state.checkpoints.adapters import SqliteCheckpointStore

    assert SqliteCheckpointStore.__name__
    assert _order(CrashPlan(), EffectLog(Path("unused"))).definition.name


def work(argument: JSONObject) -> None:
    """One process's life."""
    job = msgspec.convert(argument, Job)
    folder = Folder(Path(job.folder))
    if job.gated:
        with (folder.path / READY).open("wb", buffering=0) as pipe:
            pipe.write(b"x")
        with (folder.path / GATE).open("rb") as gate:
            fcntl.flock(gate, fcntl.LOCK_SH)
    asyncio.run(_carry_on(folder, job.at, wait_seconds=30.0 if job.gated else 0.0))


async def first_conversation(folder: Folder) -> None:
    """The one to carry on, with a log of its own."""
    store = folder.store()
    (folder.path / "before").mkdir()
    before = Folder(folder.path / "before")
    agent, context = _worker(store, CrashPlan(), before, FIRST)
    await agent.run(TASK, context)
    await store.aclose()


async def _carry_on(folder: Folder, at: int | None, *, wait_seconds: float) -> None:
    plan = CrashPlan(at, log=folder.borders)
    store = CrashingStore(folder.store(), plan)
    agent, context = _worker(store, plan, folder, SECOND)
    result = await agent.run(MORE, context, after=FIRST, wait_seconds=wait_seconds)
    JsonLines(folder.path / "told.jsonl").write({"output": result.output})
    await store.aclose()


def _worker(
    store: JournalPort, plan: CrashPlan, folder: Folder, run: str
) -> tuple[Agent, RunContext]:
    llm = CrashingLLM(FakeLLM(_model), plan, folder.answers, run=run)
    services = Services(invoker=Invoker(llm), checkpointer=Checkpointer(port=store))
    cognition = ReActCognition([_order(plan, folder.effects)])
    agent = Agent("worker", prompt="Work.", cognition=cognition)
    return agent, RunContext(correlation_id=run, services=services)


def _model(messages: Sequence[Message]) -> Turn:
    asked = sum(one.role == "user" for one in messages)
    ordered = sum(one.role == "tool" for one in messages)
    if ordered < asked:
        return Turn(tool_calls=(ToolCall(f"c{ordered}", "order", {}),))
    return Turn(f"{ordered} ordered")


def _order(plan: CrashPlan, effects: EffectLog) -> Tool:
    sink = KeyedSink(effects)

    async def order(context: ToolContext) -> str:
        effects.record("order", {}, context, kind="run")
        plan.border("effect:before")
        result = sink.put("order", {}, context, result="ordered")
        plan.border("effect:after")
        return result

    return tool(side_effecting=True, idempotent=True)(crashing(plan, order))
