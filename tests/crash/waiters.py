"""A worker whose run waits for an approval, an answer, an event, a time and a person that the model
asks; that is paused in between, and may be cancelled.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from agentkit.agents import Agent, cancel, pause, send_event, unpark
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import JSON, Decision, JSONObject, Message, Question, ToolCall
from agentkit.core.runtime import Invoker, RunContext, Services, SystemClock
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import load
from agentkit.testing.crash import CrashingLLM, CrashingStore, CrashPlan, crashing
from agentkit.testing.crash.scenario import Folder
from agentkit.testing.effects import EffectLog, KeyedSink
from agentkit.testing.invariants import ToolKind
from agentkit.tools import Tool, ToolContext, ask_human, tool

TASK = "Pay, ask, wait."
RUN = "r1"
TOOLS: dict[str, ToolKind] = {"pay": "plain", "order": "idempotent"}
EXPECTED = "all done: paid 7 | ordered L for 5 | no"
TIMER_SECONDS = 0.02


class Job(msgspec.Struct, frozen=True):
    """What one process does.

    Args:
        folder: where the run's facts are.
        at: the border at which to die.
        cancel: end the run where it waits for the order's answer.
    """

    folder: str
    at: int | None = None
    cancel: bool = False


def warm_up() -> None:
    """Make the schemas before any worker is forked."""
    from agentkit.state.checkpoints.adapters import SqliteCheckpointStore

    assert SqliteCheckpointStore.__name__
    for made in _tools(CrashPlan(), EffectLog(Path("unused"))):
        assert made.definition.name


def work(argument: JSONObject) -> None:
    """One process's life."""
    job = msgspec.convert(argument, Job)
    asyncio.run(_drive(job))


async def _drive(job: Job) -> None:
    """Until the run has ended: drive it, and answer what it asks, as one who may die anywhere."""
    folder = Folder(Path(job.folder))
    plan = CrashPlan(job.at, log=folder.borders)
    store = CrashingStore(folder.store(), plan)
    state = await load(store, RUN)
    for _ in range(200):
        if state.end is not None:
            break
        await _carry_on(store, state, plan, folder, cancels=job.cancel)
        state = await load(store, RUN)
    assert state.end is not None
    await store.aclose()


async def _carry_on(
    store: JournalPort, state: RunState, plan: CrashPlan, folder: Folder, *, cancels: bool
) -> None:
    """What somebody who finds the run like this does next."""
    waits = {wait.kind for wait in state.waits}
    asked = {question.kind for question in state.questions}
    agent, context = _worker(store, plan, folder)
    if state.paused:
        await unpark(store, RUN)
    elif "approval" in asked and not await _was_paused(store):
        await pause(store, RUN)
    elif cancels and "input" in asked:
        await cancel(store, RUN)
    elif state.status == "suspended" and asked:
        decisions = {one.id: _answer_to(one, folder, state) for one in state.questions}
        await agent.resume(RUN, decisions, context)
    elif "event" in waits:
        await send_event(store, RUN, "payment", 5, event_id="p1")
        await agent.run(TASK, context)
    elif "time" in waits:
        await SystemClock().sleep(TIMER_SECONDS / 4)  # until it is due
        await agent.resume(RUN, {}, context)
    else:
        await agent.run(TASK, context)


async def _was_paused(store: JournalPort) -> bool:
    return any(b'"pause_asked"' in row.body for row in await store.read(RUN))


def _answer_to(question: Question, folder: Folder, state: RunState) -> Decision:
    if question.kind == "approval":
        return Decision("edit", value={"cents": 7}, actor="ann")
    if question.kind == "input":
        return Decision("answer", value="no" if question.tool == "ask_human" else "L")
    done = [one.result for one in folder.effects.effects() if one.digest == question.digest]
    return Decision("done", value=done[0]) if done else Decision("run_again")


def _worker(store: JournalPort, plan: CrashPlan, folder: Folder) -> tuple[Agent, RunContext]:
    llm = CrashingLLM(FakeLLM(_model), plan, folder.answers, run=RUN)
    services = Services(invoker=Invoker(llm), checkpointer=Checkpointer(port=store))
    cognition = ReActCognition(_tools(plan, folder.effects))
    agent = Agent("worker", prompt="Work.", cognition=cognition)
    return agent, RunContext(correlation_id=RUN, services=services)


def _model(messages: Sequence[Message]) -> Turn:
    turn = sum(message.role == "assistant" for message in messages)
    if turn == 0:
        return Turn(tool_calls=(ToolCall("c1", "pay", {"cents": 900}),))
    if turn == 1:
        return Turn(tool_calls=(ToolCall("c2", "order", {}),))
    if turn == 2:
        asked: dict[str, JSON] = {"question": "More?", "choices": ["yes", "no"]}
        return Turn(tool_calls=(ToolCall("c3", "ask_human", asked),))
    results = [one.content.splitlines()[-1] for one in messages if one.role == "tool"]
    return Turn("all done: " + " | ".join(results))


def _tools(plan: CrashPlan, effects: EffectLog) -> list[Tool]:
    sink = KeyedSink(effects)

    async def pay(cents: int, context: ToolContext) -> str:
        effects.record("pay", {"cents": cents}, context, kind="run")
        plan.border("effect:before")
        effects.record("pay", {"cents": cents}, context, result=f"paid {cents}")
        plan.border("effect:after")
        return f"paid {cents}"

    async def order(context: ToolContext) -> str:
        effects.record("order", {}, context, kind="run")
        size = await context.ask("Which size?", choices=["S", "L"])
        paid = await context.wait_for("payment")
        await context.sleep(TIMER_SECONDS)
        plan.border("effect:before")
        result = sink.put("order", {}, context, result=f"ordered {size} for {paid}")
        plan.border("effect:after")
        return result

    return [
        tool(side_effecting=True, requires_approval=True)(crashing(plan, pay)),
        tool(side_effecting=True, idempotent=True)(crashing(plan, order)),
        ask_human,
    ]
