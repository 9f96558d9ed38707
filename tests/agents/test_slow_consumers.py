"""Whoever reads a stream may take its time; what tools did is recorded meanwhile."""

import asyncio

import pytest

from agentkit.agents import AgentEvent, RunStream
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import StoreUnreachable
from agentkit.core.contracts.ports import JournalPort
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.tools import ToolContext, tool
from tests.agents.kit import TASK, agent_of, bodies_of, call, calls, context, events_of, then, told

TURNS = 1_000
"""Turns of the event loop within which an outcome that came is recorded."""


async def _recorded(store: JournalPort, outcomes: int) -> bool:
    """Whether so many outcomes become durable while nobody reads the stream."""
    for _ in range(TURNS):
        if len(await bodies_of(store, e.ToolFinished)) == outcomes:
            return True
        await asyncio.sleep(0)
    return False


async def _read_to(stream: RunStream, kind: str) -> AgentEvent:
    async for event in stream:
        if event.type == kind:
            return event
    raise AssertionError(kind)


@pytest.mark.parametrize("first", ["tool_result", "progress"])
async def test_f019_outcomes_are_recorded_while_the_consumer_dwells(first: str) -> None:
    """A call that ends while the consumer looks at an earlier event is durable at once."""
    go = asyncio.Event()

    @tool(side_effecting=True)
    async def quick(ctx: ToolContext) -> str:
        """Report and end."""
        ctx.progress("on it")
        return "quick"

    @tool(side_effecting=True)
    async def slow() -> str:
        """End when told."""
        await go.wait()
        return "slow"

    store = InMemoryCheckpointStore()
    llm = then(calls(call("quick"), call("slow", call_id="c2")))
    stream = agent_of(quick, slow).stream(TASK, context(llm, store))

    await _read_to(stream, first)
    go.set()
    durable = await _recorded(store, 2)
    rest = told(await events_of(stream))

    assert durable
    assert ["tool_result slow=slow", "step iteration:1"] == [
        line for line in rest if line.startswith(("tool_result slow", "step"))
    ]
    assert "final completed" == rest[-1]


async def test_a_stream_closed_while_a_call_runs_keeps_what_ended_meanwhile() -> None:
    """The consumer leaves while it dwells: the outcome that came is kept, the other is in doubt."""
    go = asyncio.Event()

    @tool(side_effecting=False)
    async def quick() -> str:
        """End at once."""
        return "quick"

    @tool(side_effecting=True)
    async def paid() -> str:
        """End when told."""
        await go.wait()
        return "paid"

    @tool(side_effecting=True)
    async def stuck() -> str:
        """Never end."""
        await asyncio.Event().wait()
        return "never"

    store = InMemoryCheckpointStore()
    asked = (call("quick"), call("paid", call_id="c2"), call("stuck", call_id="c3"))
    agent = agent_of(quick, paid, stuck)
    stream = agent.stream(TASK, context(then(calls(*asked)), store))
    await _read_to(stream, "tool_result")
    go.set()
    durable = await _recorded(store, 2)

    await stream.aclose()
    result = await agent.resume("r", {}, context(then(calls(*asked)), store))

    assert durable
    assert result.suspended is not None
    assert ["stuck"] == [question.tool for question in result.suspended.questions]


async def test_what_stops_a_drive_is_raised_after_the_events_before_it() -> None:
    """A store that fails a tool while the consumer dwells is heard of at the next read."""
    go = asyncio.Event()

    @tool(side_effecting=False)
    async def quick() -> str:
        """End at once."""
        return "quick"

    @tool(side_effecting=False)
    async def save() -> str:
        """Meet the store's error when told."""
        await go.wait()
        raise StoreUnreachable("the disk is gone")

    llm = then(calls(call("quick"), call("save", call_id="c2")))
    store = InMemoryCheckpointStore()
    stream = agent_of(quick, save).stream(TASK, context(llm, store))
    await _read_to(stream, "tool_result")
    go.set()

    with pytest.raises(StoreUnreachable, match="the disk is gone"):
        await events_of(stream)
    head = await store.head("r")

    assert head is not None
    assert "" == head.owner
