"""What the tests of the agents layer share: runs, their journals, and workers that died.

A worker that dies leaves behind what was durable at that moment, with its lease not released. So a
death is made by writing the first entries of a recorded run into a new store under the lease of a
drive that this process does not know.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from agentkit.agents import Agent, AgentEvent
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts.entries import Body, Entry
from agentkit.core.contracts.heads import Head, Lease, Row, Summary
from agentkit.core.contracts.heartbeat import HeartbeatPort
from agentkit.core.contracts.model import LLMPort
from agentkit.core.contracts.ports import CheckpointPort, ClockPort, JournalPort
from agentkit.core.contracts.types import JSON, Message, Scope, ToolCall
from agentkit.core.runtime import Invoker, RetryPolicy, RunContext, Services, SystemClock
from agentkit.core.testing import FakeClock, FakeLLM, Turn
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, StoreWrapper
from agentkit.state.journal.codec import decode_rows
from agentkit.state.journal.journal import Journal, load
from agentkit.state.journal.owner import owner_id
from agentkit.tools import Tool

B = TypeVar("B")
RUN = "r"
TASK = "do it"


def agent_of(*tools: Tool, name: str = "worker", max_iterations: int = 50) -> Agent:
    """A tool loop over `tools`."""
    cognition = ReActCognition(tools=tools, max_iterations=max_iterations)
    return Agent(name=name, prompt="Work.", cognition=cognition)


def context(
    llm: LLMPort,
    store: CheckpointPort,
    *,
    run_id: str = RUN,
    scope: Scope | None = None,
    identity: str = "",
    clock: ClockPort | None = None,
    retry: RetryPolicy | None = None,
    heartbeat: HeartbeatPort | None = None,
) -> RunContext:
    """A run on `store`, worked on with `llm`."""
    services = Services(
        invoker=Invoker(llm=llm, retry=retry),
        checkpointer=Checkpointer(port=store),
        clock=clock or SystemClock(),
        heartbeat=heartbeat,
    )
    return RunContext(
        correlation_id=run_id, scope=scope or Scope(), services=services, identity=identity
    )


def call(name: str, /, *, call_id: str = "c1", **arguments: JSON) -> ToolCall:
    """A call as a model asks for it."""
    return ToolCall(id=call_id, name=name, arguments=arguments)


def calls(*asked: ToolCall, content: str = "") -> Turn:
    """An answer that asks for these calls."""
    return Turn(content=content, tool_calls=asked)


def then(first: Turn | Sequence[Turn], last: str = "done") -> FakeLLM:
    """Answers from the transcript: the n-th answer of the run is the n-th turn, then `last`.

    It says the same in any process and any worker, and shows every request it got.
    """
    turns = [first] if isinstance(first, Turn) else list(first)

    def answer(messages: Sequence[Message]) -> Turn:
        given = sum(message.role == "assistant" for message in messages)
        return turns[given] if given < len(turns) else Turn(content=last)

    return FakeLLM(answer)


async def events_of(stream: AsyncIterator[AgentEvent]) -> list[AgentEvent]:
    """Everything that the stream tells."""
    return [event async for event in stream]


def told(events: Sequence[AgentEvent]) -> list[str]:
    """The events in short: type and what it is about."""
    shown = []
    for event in events:
        about = event.text
        if event.call is not None and event.type != "progress":
            about = event.call.name if event.type == "tool_call" else f"{event.call.name}={about}"
        if event.question is not None:
            about = event.question.tool
        if event.result is not None:
            about = event.result.stop_reason
        shown.append(f"{event.type} {about}".strip())
    return shown


async def entries_of(port: JournalPort, run_id: str = RUN) -> list[Entry]:
    """The run's journal."""
    rows = await port.read(run_id)
    return [entry for entry, _ in decode_rows(rows, after=0, before=b"", run_id=run_id)]


async def bodies_of(port: JournalPort, kind: type[B], run_id: str = RUN) -> list[B]:
    """The facts of one kind."""
    return [entry.body for entry in await entries_of(port, run_id) if isinstance(entry.body, kind)]


async def kinds_of(port: JournalPort, run_id: str = RUN) -> list[str]:
    """The kinds of the run's entries."""
    return [type(entry.body).__name__ for entry in await entries_of(port, run_id)]


async def messages_of(port: JournalPort, run_id: str = RUN) -> list[Message]:
    """The transcript as it would be sent now."""
    return list((await load(port, run_id)).main.transcript.view())


class Hurried(FakeClock):
    """A clock that is moved by whoever sleeps."""

    async def sleep(self, seconds: float) -> None:
        """Let that time pass."""
        self.advance(seconds)


class Borders(StoreWrapper):
    """Remembers after which entries the store confirmed an append."""

    def __init__(self, inner: JournalPort) -> None:
        super().__init__(inner)
        self.confirmed: list[int] = []

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
        """Forward, and remember."""
        head = await super().append(
            run, rows, after=after, lease=lease, summary=summary, release=release
        )
        if rows:
            self.confirmed.append(head.seq)
        return head


async def dead_worker(
    left: Sequence[Entry], *, run_id: str = RUN, scope: Scope | None = None
) -> InMemoryCheckpointStore:
    """A store in which a worker got as far as these entries and died with its lease."""
    store = InMemoryCheckpointStore()
    port = store.scoped(scope or Scope())
    lease = await port.acquire(run_id, owner_id("d-dead"), 15.0)
    clock = SystemClock()
    journal = Journal(port, await load(port, run_id), clock=clock, lease=lease)
    for entry in left:
        body: Body = entry.body
        await journal.commit(_always(body), lane=entry.lane)
    return store


def _always(body: Body) -> Callable[[object], Sequence[Body]]:
    return lambda _: [body]


async def died_after(
    kind: type[object],
    agent: Agent,
    llm: FakeLLM,
    *,
    count: int = 1,
) -> InMemoryCheckpointStore:
    """A store as a worker leaves it that died when the append with the `count`-th entry of `kind`
    was durable, found by running the agent to its end elsewhere.
    """
    recorded = Borders(InMemoryCheckpointStore())
    await agent.run(TASK, context(llm, recorded))
    entries = await entries_of(recorded)
    places = [entry.seq for entry in entries if type(entry.body) is kind]
    border = next(seq for seq in recorded.confirmed if seq >= places[count - 1])
    return await dead_worker(entries[:border])


def assert_valid(messages: Sequence[Message]) -> None:
    """Every call has exactly one result, in call order, directly after its assistant message."""
    at = 0
    seen: set[str] = set()
    while at < len(messages):
        message = messages[at]
        at += 1
        assert message.role != "tool", f"message {at} is a result without its call"
        ids = [one.id for one in message.tool_calls]
        assert ids == [one.tool_call_id for one in messages[at : at + len(ids)]]
        assert not seen & set(ids)
        assert len(ids) == len(set(ids))
        seen |= set(ids)
        at += len(ids)
