"""A lease that is taken from a dead worker and given back before anything was done with it."""

import pytest

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import StoreUnreachable
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.testing.faulty import Fault, FaultyStore
from agentkit.tools import tool
from tests.agents.kit import (
    RUN,
    TASK,
    agent_of,
    bodies_of,
    call,
    calls,
    context,
    dead_worker,
    entries_of,
    then,
)


@tool(side_effecting=False)
async def look() -> str:
    """Look."""
    return "seen"


async def test_a_takeover_that_comes_to_nothing_is_counted_all_the_same() -> None:
    """With the lease of the dead worker goes the only trace of an answer that it may have bought:
    whoever takes it and gives it back unused writes that down.
    """
    agent, llm = agent_of(look), then(calls(call("look")))
    recorded = InMemoryCheckpointStore()
    await agent.run(TASK, context(llm, recorded))
    store = await dead_worker((await entries_of(recorded))[:2])
    unreadable = FaultyStore(store, Fault("before", "read", call=1, error=StoreUnreachable("out")))

    with pytest.raises(StoreUnreachable):
        await agent.run(TASK, context(llm, unreadable))
    head = await store.head(RUN)
    result = await agent.run(TASK, context(llm, store))

    assert head is not None
    assert "" == head.owner
    assert 1 == unreadable.fired["before"]
    assert ["start", "takeover", "resume"] == [
        taken.why for taken in await bodies_of(store, e.LeaseTaken)
    ]
    assert 1 == result.usage.unknown
