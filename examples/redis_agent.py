"""An agent in Redis that dies in the middle of a tool, and goes on where it was.

    python examples/redis_agent.py --task t1 --goal "Book a flight to NYC"
    python examples/redis_agent.py --task t1 --goal "Book a flight to NYC" --resume

Needs a Redis on port 6379 (or `--redis URL`) and no key: a function stands in for the model. With
`--model openai:gpt-4o-mini` a real one answers, at `OPENAI_BASE_URL` if that is set.

The first worker books the flight and is killed before it can say so. The second one cannot know
whether it was booked; but the airline is asked under the same idempotency key, so it books once.
While the run is there, `redis-cli HGETALL 'agent:checkpoint:{t1}'` shows where it is.
"""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from agentkit import (
    Agent,
    Checkpointer,
    Invoker,
    ReActCognition,
    RunContext,
    Services,
    ToolCall,
    ToolContext,
    tool,
)
from agentkit.core.contracts.errors import AgentkitError, RunExpired, StoreError
from agentkit.core.contracts.model import LLMPort
from agentkit.core.contracts.types import Message
from agentkit.core.testing import FakeLLM, Turn
from agentkit.models.providers.frontiers import openai
from agentkit.state.checkpoints.adapters import RedisCheckpointStore

try:
    import redis
except ImportError:
    sys.exit('[store] redis-py is not installed: pip install "arc-agentkit[redis]"')

OK, FAILED, NOT_FOUND, IN_TROUBLE = 0, 1, 3, 6


def answer(messages: Sequence[Message]) -> Turn:
    """What a model might say: look for flights, book the first, report."""
    results = [message.content for message in messages if message.role == "tool"]
    if not results:
        return Turn(tool_calls=(ToolCall("c1", "find_flights", {"to": "NYC"}),))
    if len(results) == 1:
        return Turn(tool_calls=(ToolCall("c2", "book_flight", {"flight": "DY 7001"}),))
    return Turn(content=f"Your flight to NYC is booked: {results[1]}.")


@tool(side_effecting=False)
def find_flights(to: str) -> list[str]:
    """Flights to a city, by number."""
    print(f"[tool] find_flights to {to}", flush=True)
    return ["DY 7001", "SK 907"]


def booking_tool(airline: redis.Redis, *, dies: bool) -> Agent:
    """The agent; with `dies`, its worker is killed once the airline has booked."""

    @tool(side_effecting=True, idempotent=True)
    def book_flight(flight: str, context: ToolContext) -> str:
        """Book a seat on a flight."""
        # The airline's side: a key that it has seen gets the booking that it has, not another one.
        seat = airline.incr(f"airline:{flight}:asked")
        is_new = airline.hsetnx(f"airline:{flight}", context.idempotency_key, f"seat {seat}")
        booked = airline.hget(f"airline:{flight}", context.idempotency_key)
        print(f"[tool] book_flight {flight}: {'booked' if is_new else 'was booked'}", flush=True)
        if dies:
            print("[crash] killed in the middle of book_flight", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{flight}, {booked.decode() if isinstance(booked, bytes) else booked}"

    return Agent(
        name="traveller",
        prompt="Book what is asked for. Use the first flight that fits.",
        cognition=ReActCognition(tools=[find_flights, book_flight]),
    )


async def work(given: argparse.Namespace, store: RedisCheckpointStore) -> int:
    """Start the task, or go on with it; returns the exit code."""
    head = await store.head(given.task)
    known = head is not None and head.seq > 0
    if given.resume and not known:
        print(f"[resume] no checkpoint found for {given.task}: start it without --resume")
        return NOT_FOUND
    if known and head is not None and head.summary is not None:
        await store.read(given.task, limit=1)  # so that what has expired is not called restored
        print(f"[resume] restored at step {head.summary.iteration}", flush=True)
    llm: LLMPort = openai(model=given.model.partition(":")[2]) if given.model else FakeLLM(answer)
    services = Services(invoker=Invoker(llm=llm), checkpointer=Checkpointer(port=store))
    context = RunContext(correlation_id=given.task, services=services)
    agent = booking_tool(redis.Redis.from_url(given.redis), dies=not (known or given.steady))
    async for event in agent.stream(given.goal, context):
        if event.type == "step":
            step = event.text.partition(":")[2]
            print(f"[checkpoint] saved step {step} for {given.task}", flush=True)
        elif event.result is not None and event.result.stop_reason == "completed":
            print(f"[agent] task complete: {event.result.output}")
        elif event.result is not None:
            print(f"[agent] {event.result.stop_reason}: {event.result.message}")
            return FAILED
    return OK


async def main() -> int:
    """Read the command line and work; every error is one plain line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--task", required=True, help="id of the run; the same id is the same run")
    parser.add_argument("--goal", required=True, help="what the agent is to do")
    parser.add_argument("--resume", action="store_true", help="only go on, never start")
    parser.add_argument("--redis", default="redis://localhost:6379/0", help="URL of the server")
    parser.add_argument("--model", default="", help="openai:NAME; a stand-in if left out")
    parser.add_argument("--steady", action="store_true", help="do not die on the first try")
    given = parser.parse_args()
    try:
        store = RedisCheckpointStore(given.redis)
    except AgentkitError as error:
        print(f"[store] {error}")
        return IN_TROUBLE
    try:
        return await work(given, store)
    except RunExpired:
        print(
            f"[resume] expired: {given.task} had begun, but its entries are gone from Redis. What "
            f"it did is not known any more, so it is not started over; take another --task."
        )
        return NOT_FOUND
    except (StoreError, redis.RedisError) as error:
        print(f"[store] {error}")
        return IN_TROUBLE
    except AgentkitError as error:
        print(f"[agent] {error}")
        return FAILED
    finally:
        await store.aclose()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
