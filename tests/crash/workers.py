"""A worker with one or more turns of any calls, some of which never return in this process."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from agentkit.agents import Agent
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.core.contracts.types import JSON, Decision, JSONObject, Message, ToolCall
from agentkit.core.runtime import Invoker, RunContext, Services, SystemClock
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints import Checkpointer
from agentkit.testing.crash import CrashingLLM, CrashingStore, CrashPlan, crashing
from agentkit.testing.crash.scenario import Folder, promise
from agentkit.testing.effects import EffectLog, KeyedSink
from agentkit.testing.faulty import Fault, FaultyStore
from agentkit.testing.invariants import ToolKind
from agentkit.tools import Tool, ToolContext, tool

TASK = "Make the calls."
RUN = "r1"
BARRIER = 20
TOOLS: dict[str, ToolKind] = {
    "read": "read",
    "once": "read",
    "keyed": "idempotent",
    "plain": "plain",
    "thread": "read",
}


class Job(msgspec.Struct, frozen=True):
    """What one worker does.

    Args:
        folder: where the run's facts are.
        turns: of the model: tool and item of each call; items differ.
        hang: items whose calls never return here; an effect has happened by then.
        order: items in the order in which their calls end; others as they like.
        together: calls end when all of their turn are there.
        at: the border at which to die.
        slow: the append that takes long.
        decisions: answers to open questions.
        resume: by id alone, as after a takeover by an operator.
    """

    folder: str
    turns: tuple[tuple[tuple[str, str], ...], ...]
    hang: frozenset[str] = frozenset()
    order: tuple[str, ...] = ()
    together: bool = False
    at: int | str | None = None
    slow: int = 0
    decisions: dict[str, Decision] = {}
    resume: Literal["stream", "resume"] = "stream"


def warm_up() -> None:
    """Make the schemas before any worker is forked."""
    from agentkit.state.checkpoints.adapters import SqliteCheckpointStore

    job = Job("unused", ())
    assert SqliteCheckpointStore.__name__
    for made in _tools(job, CrashPlan(), EffectLog(Path("unused"))):
        assert made.definition.name


def work(argument: JSONObject) -> None:
    """One worker's life."""
    asyncio.run(drive(msgspec.convert(argument, Job)))


async def drive(job: Job, *, clock: ClockPort | None = None) -> None:
    """Drive the run as far as it goes."""
    folder = Folder(Path(job.folder))
    plan = CrashPlan(job.at, log=folder.borders)
    inner: JournalPort = folder.store()
    if job.slow:
        inner = FaultyStore(inner, Fault("delay", "append", call=job.slow, seconds=0.02))
    store = CrashingStore(inner, plan)
    llm = CrashingLLM(FakeLLM(lambda seen: _answer(job, seen)), plan, folder.answers, run=RUN)
    services = Services(
        invoker=Invoker(llm), checkpointer=Checkpointer(port=store), clock=clock or SystemClock()
    )
    context = RunContext(correlation_id=RUN, services=services)
    cognition = ReActCognition(_tools(job, plan, folder.effects))
    agent = Agent("worker", prompt="Work.", cognition=cognition)
    if job.decisions or job.resume == "resume":
        await agent.resume(RUN, job.decisions, context)
    else:
        async for event in agent.stream(TASK, context):
            folder.promises.write(promise(RUN, event))
    await store.aclose()


def final_text(job: Job) -> str:
    """What the run must answer, whatever happened to its workers."""
    return "all done: " + ", ".join(f"{name} {item}" for turn in job.turns for name, item in turn)


def _answer(job: Job, messages: Sequence[Message]) -> Turn:
    turn = sum(message.role == "assistant" for message in messages)
    if turn < len(job.turns):
        calls: list[ToolCall] = []
        for index, (name, item) in enumerate(job.turns[turn]):
            arguments: dict[str, JSON] = {"item": item}
            calls.append(ToolCall(f"call_{index}", name, arguments))
        return Turn("", tool_calls=tuple(calls))
    results = [message.content for message in messages if message.role == "tool"]
    return Turn("all done: " + ", ".join(results))


def _tools(job: Job, plan: CrashPlan, effects: EffectLog) -> list[Tool]:
    sink = KeyedSink(effects)
    line = _Line(job)
    barrier = threading.Barrier(BARRIER)

    async def read(item: str, context: ToolContext) -> str:
        effects.record("read", {"item": item}, context, kind="run")
        await line.until_my_turn(item)
        return f"read {item}"

    async def once(item: str, context: ToolContext) -> str:
        effects.record("once", {"item": item}, context, kind="run")
        await line.until_my_turn(item)
        return f"once {item}"

    async def keyed(item: str, context: ToolContext) -> str:
        effects.record("keyed", {"item": item}, context, kind="run")
        plan.border("effect:before")
        result = sink.put("keyed", {"item": item}, context, result=f"keyed {item}")
        plan.border("effect:after")
        await line.until_my_turn(item)
        return result

    async def plain(item: str, context: ToolContext) -> str:
        effects.record("plain", {"item": item}, context, kind="run")
        plan.border("effect:before")
        effects.record("plain", {"item": item}, context, result=f"plain {item}")
        plan.border("effect:after")
        await line.until_my_turn(item)
        return f"plain {item}"

    def thread(item: str, context: ToolContext) -> str:
        effects.record("thread", {"item": item}, context, kind="run")
        if job.together:
            barrier.wait(timeout=20.0)
        return f"thread {item}"

    return [
        tool(side_effecting=False)(crashing(plan, read)),
        tool(side_effecting=False, max_attempts=1)(crashing(plan, once)),
        tool(side_effecting=True, idempotent=True)(crashing(plan, keyed)),
        tool(side_effecting=True)(crashing(plan, plain)),
        tool(side_effecting=False)(crashing(plan, thread)),
    ]


class _Line:
    """Lets calls end in the order that the job wants."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._here = 0
        self._changed = asyncio.Condition()
        self._ended: set[str] = set()

    async def until_my_turn(self, item: str) -> None:
        """Return when `item` may end; never, where it hangs."""
        if item in self._job.hang:
            await asyncio.Event().wait()
        async with self._changed:
            self._here += 1
            self._changed.notify_all()
            if self._job.together:
                await self._changed.wait_for(lambda: self._here == len(self._job.turns[0]))
            order = self._job.order
            before = set(order[: order.index(item)]) if item in order else set()
            await self._changed.wait_for(lambda: before <= self._ended)
            self._ended.add(item)
            self._changed.notify_all()
