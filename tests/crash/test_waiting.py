"""A worker that waits for another one's lease to lapse."""

import asyncio

from agentkit.agents.admitting import Wanted
from agentkit.agents.claim import Claimed, claim
from agentkit.agents.spec import make_spec
from agentkit.core.runtime import RunContext, Services
from agentkit.core.testing import FakeClock
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.journal.lease import LEASE_SECONDS, MARGIN_SECONDS, ThreadHeartbeat


async def test_a_lease_that_was_waited_for_is_worth_its_whole_length() -> None:
    """What counts is when the request that was granted was sent, not when the waiting began: else a
    worker that waited a whole lease would lose its own at once.
    """
    clock = FakeClock()
    store = InMemoryCheckpointStore(clock=clock)
    await store.acquire("r", "a worker of another machine", LEASE_SECONDS)
    waiting = asyncio.ensure_future(
        claim(
            store,
            RunContext(correlation_id="r", services=Services(clock=clock)),
            make_spec(name="a", model="", system="", tools=(), max_iterations=1),
            Wanted("do it"),
            owner="me",
            wait_seconds=2 * LEASE_SECONDS,
            heartbeat=ThreadHeartbeat(clock=clock, start=lambda _: None),
            on_news=lambda: None,
            prepare=lambda _: None,
        )
    )
    while not waiting.done():
        await asyncio.sleep(0)
        if clock.sleepers:
            clock.advance(0.25)
    claimed = waiting.result()

    assert isinstance(claimed, Claimed)
    assert claimed.tenure.may_act()
    clock.advance(LEASE_SECONDS - MARGIN_SECONDS - 0.5)
    assert claimed.tenure.may_act()
