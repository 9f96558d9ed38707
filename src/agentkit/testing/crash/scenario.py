"""The worker that is killed: a run of up to three steps with one tool of each kind.

All its facts stand in files of one folder, so that any process can carry the run on and any other
can judge it. The model answers from the transcript: a script would start again at its first turn
in every process, and so hide turns that were lost or asked for twice.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from agentkit.agents import Agent, AgentEvent, AgentResult
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Decision, JSONObject, Message, ToolCall, Usage
from agentkit.core.runtime import Invoker, RunContext, Services
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints import Checkpointer
from agentkit.testing.crash.borders import CrashingLLM, CrashingStore, ShortLease, crashing
from agentkit.testing.crash.plan import BorderLog, CrashPlan
from agentkit.testing.effects import EffectLog, KeyedSink
from agentkit.testing.lines import JsonLines
from agentkit.tools import Tool, ToolContext, tool

__all__ = [
    "STEPS",
    "TASK",
    "Folder",
    "Order",
    "answer",
    "drive",
    "make_agent",
    "make_tools",
    "promise",
    "warm_up",
    "work",
]

TASK = "Do what the steps say."
"""Of every run of the scenario."""

STEPS: tuple[tuple[tuple[str, str], ...], ...] = (
    (("lookup", "a"), ("upsert", "a"), ("notify", "a")),
    (("notify", "b"), ("lookup", "b")),
    (("upsert", "c"), ("upsert", "d")),
)
"""The calls of each turn. The provider's ids repeat from turn to turn, as some providers' do."""


class Folder:
    """Where a run's facts are.

    Args:
        path: the folder.
        url: of the store; a SQLite file in the folder if empty.
    """

    def __init__(self, path: Path, url: str = "") -> None:
        self.path = path
        self.url = url
        self.effects = EffectLog(path / "effects.jsonl")
        self.promises = JsonLines(path / "promises.jsonl")
        self.answers = JsonLines(path / "answers.jsonl")
        self.borders = BorderLog(path / "borders.jsonl")

    def store(self) -> JournalPort:
        """The store, opened anew."""
        from agentkit.state.checkpoints.adapters import SqliteCheckpointStore, open_store

        return open_store(self.url) if self.url else SqliteCheckpointStore(self.path / "runs.db")


class Order(msgspec.Struct, frozen=True):
    """What one worker is told.

    Args:
        folder: where the run's facts are.
        run: the run.
        at: the border at which to die, see `CrashPlan`.
        how: by which signal.
        lease_seconds: a shorter lease than usual.
        wait_seconds: how long to wait for another worker.
        action: `start` begins or continues with the task, `resume` answers questions.
        decisions: for `resume`.
        steps: how many turns of tools there are.
        store: URL of the store; a SQLite file in `folder` if empty.
        orderly: SIGTERM and SIGINT cancel the work, as in a program that wants to end in order.
    """

    folder: str
    run: str = "r1"
    at: int | str | None = None
    how: int = signal.SIGKILL
    lease_seconds: float | None = None
    wait_seconds: float = 0.0
    action: Literal["start", "resume"] = "start"
    decisions: dict[str, Decision] = {}
    steps: int = 3
    store: str = ""
    orderly: bool = False


_DRIVERS = {"postgres": "psycopg", "redis": "redis"}


def warm_up(setup: JSONObject | None = None) -> None:
    """Load and make, before any worker is forked, whatever takes time.

    Args:
        setup: `store`, its URL, where it is not a file in the run's folder.
    """
    store = str((setup or {}).get("store", ""))
    for scheme, driver in _DRIVERS.items():
        if store.startswith(scheme):
            importlib.import_module(f"agentkit.state.checkpoints.adapters.{scheme}")
            importlib.import_module(driver)
    from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
    from agentkit.state.checkpoints.adapters._queries import queries

    loaded = (SqliteCheckpointStore, KeyedSink, queries("sqlite"), importlib.import_module("apsw"))
    for made in make_tools(CrashPlan(), EffectLog(Path("unused"))):
        if not (made.definition.name and loaded):
            raise AssertionError(made.name)
    gc.freeze()  # what is here stays shared: no child copies its pages to collect garbage


def work(argument: JSONObject) -> None:
    """One worker's life, as the fork server starts it."""
    order = msgspec.convert(argument, Order)
    asyncio.run(drive(order))


async def drive(order: Order) -> AgentResult | None:
    """Drive the run as far as it goes, writing each promise down as it is made."""
    task = asyncio.current_task()
    if order.orderly and task is not None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    folder = Folder(Path(order.folder), order.store)
    plan = CrashPlan(order.at, how=order.how, log=folder.borders)
    inner = folder.store()
    if order.lease_seconds is not None:
        inner = ShortLease(inner, order.lease_seconds)
    store = CrashingStore(inner, plan)
    agent, context = make_agent(store, plan, folder, run=order.run, steps=order.steps)
    result: AgentResult | None = None
    if order.action == "resume":
        result = await agent.resume(order.run, order.decisions, context)
        folder.promises.write(promise(order.run, AgentEvent("final", result=result)))
    else:
        async for event in agent.stream(TASK, context, wait_seconds=order.wait_seconds):
            folder.promises.write(promise(order.run, event))
            result = event.result or result
    await store.aclose()
    return result


def make_agent(
    store: JournalPort, plan: CrashPlan, folder: Folder, *, run: str, steps: int = 3
) -> tuple[Agent, RunContext]:
    """The agent and the context of run `run`, with a border wherever something may go wrong."""
    llm = CrashingLLM(
        FakeLLM(lambda messages: answer(messages, steps)), plan, folder.answers, run=run
    )
    services = Services(invoker=Invoker(llm), checkpointer=Checkpointer(port=store))
    agent = Agent(
        "worker", prompt="Work.", cognition=ReActCognition(make_tools(plan, folder.effects))
    )
    return agent, RunContext(correlation_id=run, services=services)


def make_tools(plan: CrashPlan, effects: EffectLog) -> list[Tool]:
    """A read in a thread, an idempotent effect and a plain one in the loop."""
    sink = KeyedSink(effects)

    def lookup(item: str, context: ToolContext) -> str:
        effects.record("lookup", {"item": item}, context, kind="run")
        return f"value of {item}"

    async def upsert(item: str, context: ToolContext) -> str:
        effects.record("upsert", {"item": item}, context, kind="run")
        plan.border("effect:before")
        result = sink.put("upsert", {"item": item}, context, result=f"stored {item}")
        plan.border("effect:after")
        return result

    async def notify(item: str, context: ToolContext) -> str:
        effects.record("notify", {"item": item}, context, kind="run")
        plan.border("effect:before")
        done = effects.record("notify", {"item": item}, context, result=f"sent {item}")
        plan.border("effect:after")
        return done.result

    return [
        tool(side_effecting=False)(crashing(plan, lookup)),
        tool(side_effecting=True, idempotent=True)(crashing(plan, upsert)),
        tool(side_effecting=True)(crashing(plan, notify)),
    ]


def answer(messages: Sequence[Message], steps: int = 3) -> Turn:
    """The model: the next step's calls, and at last a text made of all results."""
    turn = sum(message.role == "assistant" for message in messages)
    usage = Usage(input_tokens=10 * (turn + 1), output_tokens=turn + 1, requests=1)
    if turn < steps:
        calls = tuple(
            ToolCall(f"call_{index}", name, {"item": item})
            for index, (name, item) in enumerate(STEPS[turn])
        )
        return Turn(f"step {turn + 1}", tool_calls=calls, usage=usage)
    results = [message.content for message in messages if message.role == "tool"]
    return Turn("all done: " + ", ".join(results), usage=usage)


def promise(run: str, event: AgentEvent) -> JSONObject:
    """The line for something that was told to the outside."""
    line: JSONObject = {"run": run, "event": event.type, "id": event.id, "text": event.text}
    if event.result is not None:
        line["stop_reason"] = event.result.stop_reason
        line["output"] = event.result.output
        line["usage"] = msgspec.to_builtins(event.result.usage)
    return line
