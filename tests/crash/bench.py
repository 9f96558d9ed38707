"""One run in this process: its workers are cancelled, dropped and rivalled, its logs stay."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from agentkit.agents import Agent, AgentResult
from agentkit.agents.cognition import ReActCognition
from agentkit.agents.stream import RunStream
from agentkit.core.contracts.heads import Head, Lease, Row, Summary
from agentkit.core.contracts.model import LLMPort, ModelReply, ModelRequest, TextDelta
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Decision, Message, ToolCall, Usage
from agentkit.core.runtime import Invoker, RunContext, Services
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import StoreWrapper
from agentkit.state.journal.journal import load
from agentkit.testing.crash import CrashingLLM, CrashPlan
from agentkit.testing.effects import EffectLog, KeyedSink
from agentkit.testing.invariants import Evidence, ToolKind, check, read_rows, report
from agentkit.testing.lines import JsonLines
from agentkit.tools import Tool, ToolContext, tool

TASK = "Do what the steps say."
RUN = "r1"
TOOLS: dict[str, ToolKind] = {
    "lookup": "read",
    "stamp": "read",
    "upsert": "idempotent",
    "notify": "plain",
}
STEPS: tuple[tuple[tuple[str, str], ...], ...] = (
    (("lookup", "a"), ("upsert", "a"), ("notify", "a")),
    (("stamp", "b"), ("notify", "b")),
)
EXPECTED = "all done: value of a, stored a, sent a, stamp b, sent b"
MOST_WORKERS = 10


class Slow(StoreWrapper):
    """A store that takes a turn of the loop before and after each thing it does, so that one can
    be cut off before it is done and after it is done, also where it is in memory.
    """

    async def acquire(
        self,
        run: str,
        owner: str,
        ttl_seconds: float,
        *,
        supersede: int | None = None,
        above: int = 0,
    ) -> Lease:
        await asyncio.sleep(0)
        lease = await super().acquire(run, owner, ttl_seconds, supersede=supersede, above=above)
        await asyncio.sleep(0)
        return lease

    async def append(
        self,
        run: str,
        rows: Sequence[Row],
        *,
        after: int,
        lease: Lease | None,
        summary: Summary,
        release: bool = False,
    ) -> Head:
        await asyncio.sleep(0)
        head = await super().append(
            run, rows, after=after, lease=lease, summary=summary, release=release
        )
        await asyncio.sleep(0)
        return head

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        await asyncio.sleep(0)
        return await super().read(run, after=after, limit=limit)

    async def head(self, run: str) -> Head | None:
        await asyncio.sleep(0)
        return await super().head(run)


class SlowLLM:
    """A model that takes a turn of the loop before each piece of its answer."""

    def __init__(self, inner: LLMPort) -> None:
        self._inner = inner

    @property
    def origin(self) -> str:
        return self._inner.origin

    async def attempt(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        await asyncio.sleep(0)
        async for item in self._inner.attempt(request):
            await asyncio.sleep(0)
            yield item


class Bench:
    """One run of two steps.

    Args:
        store: where the run is kept.
        path: an empty folder for the logs.
    """

    def __init__(self, store: JournalPort, path: Path) -> None:
        self.store = store
        self.path = path
        self.effects = EffectLog(path / "effects.jsonl")
        self.answers = JsonLines(path / "answers.jsonl")
        self.reads: list[tuple[Row, ...]] = []

    def worker(self, store: JournalPort | None = None) -> tuple[Agent, RunContext]:
        """A worker as a new process would make one."""
        llm = CrashingLLM(SlowLLM(FakeLLM(_answer)), CrashPlan(), self.answers, run=RUN)
        port = Slow(self.store if store is None else store)
        services = Services(invoker=Invoker(llm), checkpointer=Checkpointer(port=port))
        agent = Agent("worker", prompt="Work.", cognition=ReActCognition(_tools(self.effects)))
        return agent, RunContext(correlation_id=RUN, services=services)

    async def go_on(self) -> AgentResult:
        """A worker that starts the run or carries it on; where a human is asked, with the answers
        of one who looked outside.
        """
        state = await load(self.store, RUN)
        agent, context = self.worker()
        if state.status != "suspended":
            return await agent.run(TASK, context)
        done = {effect.digest: effect.result for effect in self.effects.effects()}
        decisions = {
            question.id: Decision("done", done[question.digest])
            if question.digest in done
            else Decision("run_again")
            for question in state.questions
        }
        return await agent.resume(RUN, decisions, context)

    def stream(self) -> RunStream:
        """A worker whose events are read."""
        agent, context = self.worker()
        return agent.stream(TASK, context)

    async def finish(self) -> None:
        """Workers that nobody disturbs, until the run has ended; nobody has to wait for a lease."""
        for _ in range(MOST_WORKERS):
            self.reads.append(await read_rows(self.store, RUN))
            if (await load(self.store, RUN)).end is not None:
                return
            await self.go_on()
        raise AssertionError("the run did not end")

    async def assert_sound(self) -> None:
        """The run ended as an undisturbed one, and no invariant is broken."""
        evidence = Evidence(
            run=RUN,
            rows=await read_rows(self.store, RUN),
            head=await self.store.head(RUN),
            effects=tuple(self.effects.read()),
            answers=tuple(self.answers.read()),
            tools=TOOLS,
            earlier=tuple(self.reads),
            output=EXPECTED,
            scope="",
        )
        found = check(evidence)
        assert not found, report(found)
        assert 3 == len(self.effects.effects())

    async def holder(self) -> str:
        """Who has the lease; empty for nobody."""
        head = await self.store.head(RUN)
        return "" if head is None else head.owner


def _answer(messages: Sequence[Message]) -> Turn:
    turn = sum(message.role == "assistant" for message in messages)
    usage = Usage(input_tokens=10 * (turn + 1), output_tokens=turn + 1, requests=1)
    if turn < len(STEPS):
        calls = tuple(
            ToolCall(f"call_{index}", name, {"item": item})
            for index, (name, item) in enumerate(STEPS[turn])
        )
        return Turn(f"step {turn + 1}", tool_calls=calls, usage=usage)
    results = [message.content for message in messages if message.role == "tool"]
    return Turn("all done: " + ", ".join(results), usage=usage)


def _tools(effects: EffectLog) -> list[Tool]:
    """A read in a thread, one that records a value, an idempotent effect and a plain one; the last
    three can be cut off before and after what they do.
    """
    sink = KeyedSink(effects)

    def lookup(item: str, context: ToolContext) -> str:
        effects.record("lookup", {"item": item}, context, kind="run")
        return f"value of {item}"

    async def stamp(item: str, context: ToolContext) -> str:
        effects.record("stamp", {"item": item}, context, kind="run")
        await asyncio.sleep(0)
        return str(await context.record("stamp", lambda: f"stamp {item}"))

    async def upsert(item: str, context: ToolContext) -> str:
        effects.record("upsert", {"item": item}, context, kind="run")
        await asyncio.sleep(0)
        result = sink.put("upsert", {"item": item}, context, result=f"stored {item}")
        await asyncio.sleep(0)
        return result

    async def notify(item: str, context: ToolContext) -> str:
        effects.record("notify", {"item": item}, context, kind="run")
        await asyncio.sleep(0)
        done = effects.record("notify", {"item": item}, context, result=f"sent {item}")
        await asyncio.sleep(0)
        return done.result

    return [
        tool(side_effecting=False)(lookup),
        tool(side_effecting=False)(stamp),
        tool(side_effecting=True, idempotent=True)(upsert),
        tool(side_effecting=True)(notify),
    ]
