"""A worker that is told to stop ends what it does, or leaves it, and its run goes on elsewhere."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from agentkit.agents import drain, draining
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import RunInterrupted
from agentkit.core.contracts.model import ModelReply, ModelRequest, TextDelta
from agentkit.core.testing import FakeLLM
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.journal.journal import load
from agentkit.testing.invariants import Evidence, check, read_rows
from agentkit.tools import ToolContext, tool
from tests.agents.kit import RUN, TASK, agent_of, bodies_of, call, calls, context, kinds_of, then


class World:
    """Tools that wait until they are let go."""

    def __init__(self) -> None:
        self.store = InMemoryCheckpointStore()
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.attempts: list[int] = []

        @tool(side_effecting=True)
        async def send(ctx: ToolContext) -> str:
            """Send."""
            return await self._hold(ctx)

        @tool(side_effecting=True, idempotent=True, max_attempts=2)
        async def put(ctx: ToolContext) -> str:
            """Put."""
            return await self._hold(ctx)

        @tool(side_effecting=False)
        async def look(ctx: ToolContext) -> str:
            """Look."""
            return await self._hold(ctx)

        self.agent = agent_of(send, put, look)

    async def _hold(self, ctx: ToolContext) -> str:
        self.attempts.append(ctx.attempt)
        self.begun.set()
        await self.go.wait()
        return "done"

    async def sound(self) -> None:
        """The lease is released, and no invariant is broken."""
        head = await self.store.head(RUN)
        assert head is not None
        assert "" == head.owner
        assert [] == check(Evidence(run=RUN, rows=await read_rows(self.store, RUN), head=head))


async def test_f066_what_is_under_way_ends_within_the_grace() -> None:
    """F066: the tool's outcome is recorded, the model is not asked again, the lease is released,
    and the next worker carries on from there.
    """
    world = World()
    llm = then(calls(call("send")))
    running = asyncio.create_task(world.agent.run(TASK, context(llm, world.store)))
    await world.begun.wait()

    told = drain(grace_seconds=60.0)
    world.go.set()
    with pytest.raises(RunInterrupted, match="is resumable"):
        await running
    after, asked = await kinds_of(world.store), len(llm.requests)
    result = await world.agent.run(TASK, context(then(calls(call("send"))), world.store))

    assert (1, 1) == (told, asked)
    assert ["ToolFinished", "StepCompleted"] == [one for one in after if one[0] in "TS"][-2:]
    assert ("done", [1]) == (result.output, world.attempts)
    assert "takeover" not in [one.why for one in await bodies_of(world.store, e.LeaseTaken)]
    await world.sound()


async def test_an_answer_that_comes_within_the_grace_is_kept_and_none_of_its_calls_begins() -> None:
    """It is paid for once; its tools are left to the next worker."""
    world = World()
    world.go.set()
    asked, go = asyncio.Event(), asyncio.Event()
    inner = then(calls(call("send")))

    class Slow:
        origin = "fake"

        async def attempt(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
            asked.set()
            await go.wait()
            async for item in inner.attempt(request):
                yield item

    running = asyncio.create_task(world.agent.run(TASK, context(Slow(), world.store)))
    await asked.wait()
    drain(grace_seconds=60.0)
    go.set()
    with pytest.raises(RunInterrupted):
        await running
    left = await kinds_of(world.store)
    result = await world.agent.run(TASK, context(inner, world.store))

    assert ["RunStarted", "LeaseTaken", "ModelAnswered"] == left
    assert ("done", [1], 0) == (result.output, world.attempts, result.usage.unknown)
    assert 2 == len(inner.requests)
    await world.sound()


async def test_what_outlasts_the_grace_is_left_in_doubt() -> None:
    """An effect that did not end is neither repeated nor dropped: a person is asked."""
    world = World()
    llm = then(calls(call("send")))
    running = asyncio.create_task(world.agent.run(TASK, context(llm, world.store)))
    await world.begun.wait()
    drain(grace_seconds=0.01)
    with pytest.raises(RunInterrupted):
        await running
    result = await world.agent.run(TASK, context(llm, world.store))

    assert result.suspended is not None
    assert ["send"] == [question.tool for question in result.suspended.questions]
    assert [1] == world.attempts
    await world.sound()


async def test_a_second_drain_stops_at_once() -> None:
    """Whatever grace was given before."""
    world = World()
    llm = then(calls(call("look")))
    running = asyncio.create_task(world.agent.run(TASK, context(llm, world.store)))
    await world.begun.wait()
    drain(grace_seconds=3600.0)
    for _ in range(5):
        await asyncio.sleep(0)
    before = running.done()
    drain(grace_seconds=0.0)
    with pytest.raises(RunInterrupted):
        await running

    assert not before
    assert "interrupted" == (await bodies_of(world.store, e.ToolFinished))[0].outcome
    await world.sound()


@pytest.mark.parametrize("name", ["put", "look"])
async def test_deploys_eat_neither_attempts_nor_recoveries(name: str) -> None:
    """Thirty deploys in the middle of one call: it is made again each time, although its tool
    allows two attempts and ten are made without asking; nobody has died, so the run is not parked.
    """
    world = World()
    llm = then(calls(call(name)))
    for _ in range(30):
        world.begun.clear()
        running = asyncio.create_task(world.agent.run(TASK, context(llm, world.store)))
        entered = asyncio.create_task(world.begun.wait())
        await asyncio.wait({running, entered}, return_when=asyncio.FIRST_COMPLETED)
        assert not running.done()
        drain(grace_seconds=0.0)
        with pytest.raises(RunInterrupted):
            await running
    world.go.set()
    result = await world.agent.run(TASK, context(llm, world.store))

    assert "done" == result.output
    assert list(range(1, 32)) == world.attempts
    assert 0 == (await load(world.store, RUN)).takeovers
    await world.sound()


async def test_a_run_that_waits_for_its_lease_is_left_too() -> None:
    """Another worker holds it; the one that waits is told to stop and does."""
    world = World()
    llm = then(calls(call("look")))
    held = await world.store.acquire(RUN, "another machine", 15.0)
    waiting = asyncio.create_task(
        world.agent.run(TASK, context(llm, world.store), wait_seconds=3600.0)
    )
    for _ in range(5):
        await asyncio.sleep(0)
    drain(grace_seconds=60.0)
    with pytest.raises(RunInterrupted):
        await waiting
    head = await world.store.head(RUN)

    assert head is not None
    assert held.epoch == head.epoch


async def test_a_stream_whose_consumer_dawdles_ends_at_its_next_event() -> None:
    """Nothing begins behind the back of who looks at an event."""
    world = World()
    stream = world.agent.stream(TASK, context(then(calls(call("send"))), world.store))
    seen = []

    async def read() -> None:
        async for event in stream:
            seen.append(event.type)
            drain(grace_seconds=60.0)

    with pytest.raises(RunInterrupted):
        await read()

    assert ["tool_call"] == [one for one in seen if one != "message_delta"]
    assert [] == world.attempts
    await world.sound()


async def test_a_program_of_ones_own_drains_at_its_first_signal() -> None:
    """`draining` takes SIGTERM: the first lets the tool end, a second stops at once."""
    world = World()
    llm = then(calls(call("look")))
    with draining(grace_seconds=3600.0):
        running = asyncio.create_task(world.agent.run(TASK, context(llm, world.store)))
        await world.begun.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        before = running.done()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(RunInterrupted):
            await running

    assert not before
    assert signal.SIG_DFL == signal.getsignal(signal.SIGTERM)
    await world.sound()


async def test_drain_with_nothing_to_drain() -> None:
    """It says so, and a run that has ended is not left again."""
    world = World()
    await world.agent.run(TASK, context(FakeLLM("hello"), world.store))

    assert 0 == drain()
