"""F060, F061: what a worker does whose lease may have lapsed, or went to somebody else."""

import asyncio
from collections.abc import Iterator

import pytest

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import LeaseLost
from agentkit.core.testing import FakeClock
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.journal.lease import LEASE_SECONDS, ThreadHeartbeat
from agentkit.state.journal.owner import owner_id
from agentkit.tools import ToolContext, tool
from tests.agents.kit import (
    RUN,
    TASK,
    agent_of,
    bodies_of,
    call,
    calls,
    context,
    entries_of,
    then,
)


@pytest.fixture
def beats() -> Iterator[tuple[ThreadHeartbeat, FakeClock]]:
    """A heartbeat that beats only when it is told to, on a clock that stands still."""
    clock = FakeClock()
    heartbeat = ThreadHeartbeat(clock=clock, start=lambda _: None)
    yield heartbeat, clock
    assert not heartbeat._watched, "a drive that ended is still watched"


class Held:
    """A tool that is entered and held."""

    def __init__(self) -> None:
        self.entered, self.let_go = asyncio.Event(), asyncio.Event()
        self.ran: list[str] = []

        @tool(side_effecting=True, idempotent=True)
        async def first(ctx: ToolContext) -> str:
            self.ran.append("first")
            self.entered.set()
            await self.let_go.wait()
            return "first done"

        @tool(side_effecting=True, idempotent=True)
        async def second(ctx: ToolContext) -> str:
            self.ran.append("second")
            return "second done"

        self.agent = agent_of(first, second)
        self.llm = then([calls(call("first")), calls(call("second"))])


async def test_f060_a_worker_that_could_not_renew_starts_nothing_more(
    beats: tuple[ThreadHeartbeat, FakeClock],
) -> None:
    """The store did not answer for a lease's length while a tool ran.

    Its outcome is kept, since nobody else took the run; no model and no tool is called after it.
    """
    heartbeat, clock = beats
    held, store = Held(), InMemoryCheckpointStore()
    task = asyncio.create_task(held.agent.run(TASK, context(held.llm, store, heartbeat=heartbeat)))
    await held.entered.wait()
    clock.advance(LEASE_SECONDS)

    held.let_go.set()
    with pytest.raises(LeaseLost, match="not renewed in time"):
        await task

    assert (["first"], 1) == (held.ran, len(held.llm.requests))
    assert ["first done"] == [one.content for one in await bodies_of(store, e.ToolFinished)]
    head = await store.head(RUN)
    assert head is not None
    assert "" == head.owner


async def test_f060_a_worker_that_renews_goes_on_however_long_it_takes(
    beats: tuple[ThreadHeartbeat, FakeClock],
) -> None:
    """Ten leases long in one tool, a beat now and then: the run ends as ever."""
    heartbeat, clock = beats
    held, store = Held(), InMemoryCheckpointStore()
    task = asyncio.create_task(held.agent.run(TASK, context(held.llm, store, heartbeat=heartbeat)))
    await held.entered.wait()
    for _ in range(30):
        clock.advance(5.0)
        heartbeat.tick()

    held.let_go.set()

    assert "done" == (await task).output


async def test_f060_wall_clocks_that_are_wrong_move_no_lease() -> None:
    """Ten minutes ahead or behind: the store's own elapsed time decides, and the run is in use."""
    for wrong in (600.0, -600.0):
        held, store = Held(), InMemoryCheckpointStore()
        task = asyncio.create_task(held.agent.run(TASK, context(held.llm, store)))
        await held.entered.wait()
        head = await store.head(RUN)
        assert head is not None
        clock = FakeClock(1_700_000_000.0 + wrong)

        with pytest.raises(Exception, match="is held by"):
            await held.agent.run(TASK, context(held.llm, store, clock=clock))

        held.let_go.set()
        assert "done" == (await task).output


async def test_f061_a_worker_that_was_replaced_stops_at_its_next_word(
    beats: tuple[ThreadHeartbeat, FakeClock],
) -> None:
    """Somebody else holds the run; the heartbeat tells, and the running tool is given up."""
    heartbeat, _ = beats
    held, store = Held(), InMemoryCheckpointStore()
    task = asyncio.create_task(held.agent.run(TASK, context(held.llm, store, heartbeat=heartbeat)))
    await held.entered.wait()
    head = await store.head(RUN)
    assert head is not None
    await store.acquire(RUN, owner_id("elsewhere"), 15.0, supersede=head.epoch)
    before = await entries_of(store)

    heartbeat.tick()
    with pytest.raises(LeaseLost, match="another worker has taken it over"):
        await asyncio.wait_for(task, 5)

    assert before == await entries_of(store)
    assert ["first"] == held.ran
