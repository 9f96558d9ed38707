"""One worker of a crash test: a real process that drives the run on, or dies at its border."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from agentkit.agents import Agent
from agentkit.core.contracts.model import LLMPort
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Decision, JSONObject, Question
from agentkit.core.contracts.values import decode_value
from agentkit.core.runtime import Invoker, RunContext, Services
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.journal.journal import load
from agentkit.testing.crash import CrashingLLM, CrashingStore
from agentkit.testing.crashtest.script import ScriptTurn
from agentkit.testing.crashtest.story import Story, tell_story
from agentkit.testing.crashtest.target import Target, model_for
from agentkit.testing.crashtest.watch import Line, TracedPlan, Watch, watched
from agentkit.testing.invariants import read_rows
from agentkit.testing.lines import JsonLines

__all__ = ["FOLDER_VARIABLE", "WORK", "Files", "Order", "Setup", "warm_up", "work"]

WORK = "agentkit.testing.crashtest.worker:work"
"""The worker's function, for `ForkServer`."""

FOLDER_VARIABLE = "AGENTKIT_CRASHTEST_DIR"
"""Names, in a worker's environment, an empty folder of its run: for tools' own files."""

_MAX_ROUNDS = 100
"""How often one worker answers questions before it gives the run up."""

_UNSURE = ("OutcomeUnknown", "CancelledError")
"""Errors of a tool that cannot tell whether it acted."""

_WAIT_SECONDS = 20.0
"""How long a worker waits for its dead predecessor's lease."""


class Setup(msgspec.Struct, frozen=True):
    """What all workers of a crash test have in common.

    Args:
        target: the agent.
        task: what it is to do.
        turns: the model's answers; `None` for the agent's own model.
        reset: called before each run begins.
        answer: of the question about a call that was entered and whose end is not known.
    """

    target: Target
    task: str
    turns: tuple[ScriptTurn, ...] | None = None
    reset: Target | None = None
    answer: str = "run_again"


class Order(msgspec.Struct, frozen=True):
    """What one worker is told: which run, and the border at which to die (see `CrashPlan`)."""

    folder: str
    run: str
    at: str | None = None


class Files:
    """Where one run's facts are.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = path / "runs.db"
        self.effects = path / "effects.jsonl"
        self.trace = JsonLines(path / "borders.jsonl")
        self.answers = JsonLines(path / "answers.jsonl")
        self.stories = JsonLines(path / "stories.jsonl")
        self.outside = path / "outside"


class _Ready(msgspec.Struct):
    """What the fork server has made before it forks."""

    setup: Setup
    agent: Agent
    llm: LLMPort
    threads: int
    made: object


_READY: list[_Ready] = []


def warm_up(argument: JSONObject) -> None:
    """Import the agent and make what takes time, once, in the fork server."""
    from agentkit.state.checkpoints.adapters import SqliteCheckpointStore

    setup = msgspec.json.decode(Path(str(argument["setup"])).read_bytes(), type=Setup)
    agent = setup.target.agent()
    made = (SqliteCheckpointStore, [tool.definition for tool in agent.cognition.tools])
    llm = model_for(agent, setup.turns)
    gc.collect()
    gc.freeze()  # a collection in a fork would touch, and so copy, every page
    _READY.append(_Ready(setup, agent, llm, threading.active_count(), made))


def work(argument: JSONObject) -> None:
    """One worker's life, in its own process."""
    asyncio.run(_live(msgspec.convert(argument, Order), _READY[0]))


async def _live(order: Order, ready: _Ready) -> None:
    files = Files(Path(order.folder))
    first = not files.outside.exists()
    files.outside.mkdir(exist_ok=True)
    os.environ[FOLDER_VARIABLE] = str(files.outside)
    if first:
        await _reset(ready.setup.reset)
    plan = TracedPlan(order.at, trace=files.trace)
    async with _opened(files, plan) as store:
        worker = _Worker(order.run, ready, files, store, plan)
        await worker.drive()
        rows = await read_rows(store, order.run)
        _tell(files, tell_story(rows, run=order.run, threads=ready.threads))


async def _reset(target: Target | None) -> None:
    if target is not None:
        value = target.value()
        done: object = value() if callable(value) else None
        if inspect.isawaitable(done):
            await done


@asynccontextmanager
async def _opened(files: Files, plan: TracedPlan) -> AsyncIterator[JournalPort]:
    from agentkit.state.checkpoints.adapters import SqliteCheckpointStore

    store = CrashingStore(SqliteCheckpointStore(files.database), plan)
    try:
        yield store
    finally:
        await store.aclose()


def _tell(files: Files, story: Story) -> None:
    files.stories.write(msgspec.to_builtins(story))


class _Worker:
    """Drives one run to its end, and answers what it asks on the way."""

    def __init__(
        self, run: str, ready: _Ready, files: Files, store: JournalPort, plan: TracedPlan
    ) -> None:
        self._run = run
        self._setup = ready.setup
        self._store = store
        self._watch = Watch(files.effects, plan)
        self._agent = watched(ready.agent, self._watch)
        llm = CrashingLLM(ready.llm, plan, files.answers, run=run)
        services = Services(invoker=Invoker(llm), checkpointer=Checkpointer(port=store))
        self._context = RunContext(correlation_id=run, services=services)

    async def drive(self) -> None:
        """Go on until the run has ended, or waits for something that nobody here can give."""
        for _ in range(_MAX_ROUNDS):
            state = await load(self._store, self._run)
            if state.end is not None or state.parked is not None:
                return
            if state.status == "suspended":
                stream = self._agent.resume_stream(
                    self._run,
                    await self._decisions(state.questions),
                    self._context,
                    wait_seconds=_WAIT_SECONDS,
                )
            else:
                stream = self._agent.stream(
                    self._setup.task, self._context, wait_seconds=_WAIT_SECONDS
                )
            async for _event in stream:
                pass

    async def _decisions(self, questions: Sequence[Question]) -> dict[str, Decision | str]:
        story = tell_story(await read_rows(self._store, self._run), run=self._run)
        keys = {asked: set(call.keys) for call in story.calls for asked in call.questions}
        lines = self._watch.read()
        return {
            one.id: self._decision(one, [line for line in lines if line.key in keys[one.id]])
            for one in questions
        }

    def _decision(self, question: Question, lines: Sequence[Line]) -> Decision:
        """What a person who looks at the outside world says of a call in doubt.

        A tool that was seen to return is done, with what it returned, and one that was never
        entered is to be run again. Where it was entered and nobody saw its end, nobody can know:
        that is what the crash test was told to answer.
        """
        left = [line for line in lines if line.kind in {"left", "raised"}]
        decision = Decision(self._setup.answer)
        if left and left[-1].kind == "left":
            decision = Decision("done", decode_value(left[-1].value))
        elif left and not left[-1].error.startswith(_UNSURE):
            decision = Decision("failed", left[-1].error)
        elif not lines:
            decision = Decision("run_again")
        elif self._setup.answer == "failed":
            decision = Decision("failed", "the crash test was told to answer so")
        if decision.answer not in question.answers:
            decision = Decision(question.answers[0])
        return msgspec.structs.replace(decision, actor="crash test")
