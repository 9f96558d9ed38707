"""Redis: what a person sees of an agent at work, and an agent that goes on elsewhere."""

import asyncio
from typing import cast

import pytest
import redis

from agentkit import (
    Agent,
    Checkpointer,
    Invoker,
    ReActCognition,
    RunContext,
    Services,
    ToolCall,
    tool,
)
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints.adapters import RedisCheckpointStore

pytestmark = pytest.mark.redis


async def test_the_head_shows_what_an_agent_is_doing(redis_url: str) -> None:
    """Tools in flight and calls that have their results, as the run goes."""
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    seen: list[tuple[str, ...]] = []
    names = ("task", "status", "step", "pending", "completed")

    def look() -> None:
        shown = cast("dict[str, str]", client.hgetall("agent:checkpoint:{t1}"))
        seen.append(tuple(shown[name] for name in names))

    @tool(side_effecting=False)
    async def find_flights() -> str:
        """Find."""
        await asyncio.to_thread(look)
        return "DY 7001"

    @tool(side_effecting=False)
    async def find_hotels() -> str:
        """Find."""
        return "Ritz"

    both = Turn(tool_calls=(ToolCall("a", "find_flights"), ToolCall("b", "find_hotels")))
    again = Turn(tool_calls=(ToolCall("c", "find_flights"),))
    store = RedisCheckpointStore(redis_url)
    services = Services(
        invoker=Invoker(FakeLLM.script([both, again, Turn("Done.")])),
        checkpointer=Checkpointer(port=store),
    )
    agent = Agent("clerk", cognition=ReActCognition([find_flights, find_hotels]))

    await agent.run("Book.", RunContext(correlation_id="t1", services=services))
    look()

    first, second, last = seen
    assert ("Book.", "running", "0") == first[:3]
    assert "find_flights" in first[3]
    assert ("Book.", "running", "1", "find_flights", "2") == second
    assert ("Book.", "done", "2", "", "3") == last
    await store.aclose()
