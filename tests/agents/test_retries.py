"""F134: one layer retries. How often and how long is decided by the journal and the policy."""

import asyncio

import pytest

from agentkit.agents import AgentResult
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import ModelError, RunParked
from agentkit.core.contracts.types import Usage
from agentkit.core.runtime import RetryPolicy
from agentkit.core.testing import FakeClock, FakeLLM, Turn
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from tests.agents.kit import (
    RUN,
    TASK,
    agent_of,
    bodies_of,
    context,
    dead_worker,
    entries_of,
    events_of,
    told,
)

BUSY = ModelError("busy", kind="rate_limited", status=429, retry_after_seconds=2.0)
DOWN = ModelError("down", kind="server", status=503)


async def _until(clock: FakeClock, *, sleepers: int) -> None:
    while clock.sleepers != sleepers:  # noqa: ASYNC110 - the clock has no event
        await asyncio.sleep(0)


async def test_f134_retry_after_is_obeyed_to_the_moment() -> None:
    """The second attempt is not made before the provider's time is over, and is made after it."""
    clock, llm = FakeClock(), FakeLLM.script([Turn(error=BUSY), Turn(content="there")])
    ctx = context(llm, InMemoryCheckpointStore(), clock=clock)
    task = asyncio.create_task(agent_of().run(TASK, ctx))
    await _until(clock, sleepers=1)

    clock.advance(1.99)
    await _until(clock, sleepers=1)
    before = len(llm.requests)
    clock.advance(0.3)
    result = await task

    assert (1, 2, "there") == (before, len(llm.requests), result.output)


async def test_f134_the_number_of_attempts_is_exact_and_then_the_run_is_parked() -> None:
    """`attempts=3` means three requests, not one more."""
    clock, llm = FakeClock(), FakeLLM.script([Turn(error=DOWN)] * 9)
    store = InMemoryCheckpointStore()
    ctx = context(llm, store, clock=clock, retry=RetryPolicy(attempts=3))
    task = asyncio.create_task(agent_of().run(TASK, ctx))
    for _ in range(2):
        await _until(clock, sleepers=1)
        clock.advance(60)

    with pytest.raises(RunParked, match="All attempts at the model failed") as parked:
        await task

    assert (3, "retries_spent") == (len(llm.requests), parked.value.reason)
    assert [1, 2, 3] == [one.attempt for one in await bodies_of(store, e.ModelFailed)]


async def test_f134_the_next_worker_goes_on_counting_and_waiting() -> None:
    """A worker dies while it waits for its second attempt: the next one makes just that one."""
    clock, store = FakeClock(), InMemoryCheckpointStore()
    retry = RetryPolicy(attempts=2)
    first = FakeLLM.script([Turn(error=BUSY)])
    task = asyncio.create_task(
        agent_of().run(TASK, context(first, store, clock=clock, retry=retry))
    )
    await _until(clock, sleepers=1)
    left = await entries_of(store)
    task.cancel()
    await asyncio.wait({task})
    moved = await dead_worker(left)
    second = FakeLLM.script([Turn(error=DOWN)] * 9)
    task = asyncio.create_task(
        agent_of().run(TASK, context(second, moved, clock=clock, retry=retry))
    )
    await _until(clock, sleepers=1)
    before = len(second.requests)
    clock.advance(2.3)

    with pytest.raises(RunParked):
        await task

    assert (0, 1) == (before, len(second.requests))
    assert [1, 2] == [one.attempt for one in await bodies_of(moved, e.ModelFailed)]


async def test_f134_an_orderly_stop_is_no_attempt() -> None:
    """F077: a worker that is restarted while the model thinks uses up nothing."""
    store = InMemoryCheckpointStore()
    retry = RetryPolicy(attempts=1)
    for _ in range(5):
        stream = agent_of().stream(TASK, context(FakeLLM("text"), store, retry=retry))
        await anext(stream)
        await stream.aclose()

    result = await agent_of().run(TASK, context(FakeLLM("text"), store, retry=retry))

    assert ("text", Usage(10, 5, 1, unknown=5)) == (result.output, result.usage)


async def test_a_provider_that_says_no_is_not_asked_again() -> None:
    """`x-should-retry: false` outweighs the table."""
    error = ModelError("no", kind="server", status=500, should_retry=False)
    llm = FakeLLM.script([Turn(error=error)])

    with pytest.raises(RunParked):
        await agent_of().run(TASK, context(llm, InMemoryCheckpointStore()))

    assert 1 == len(llm.requests)


async def test_text_of_a_failed_attempt_is_taken_back() -> None:
    """`message_reset` tells the watcher to forget the deltas; the text is in no entry."""
    lost = ModelError("cut", kind="truncated", may_be_paid=True)
    llm = FakeLLM.script([Turn(content="Half an ans", error=lost), Turn(content="Whole")])
    retry = RetryPolicy(base_seconds=0.0)
    store = InMemoryCheckpointStore()

    events = await events_of(agent_of().stream(TASK, context(llm, store, retry=retry)))

    assert [
        "message_delta Half an ans",
        "message_reset",
        "message_delta Whole",
        "final completed",
    ] == told(events)
    assert b"Half an ans" not in b"".join(row.body for row in await store.read(RUN))
    assert AgentResult(RUN, "Whole", Usage(10, 5, 1, unknown=1), "completed") == events[-1].result


async def test_f122_a_run_that_fails_on_its_last_call_reports_what_it_used() -> None:
    """The usage of a parked run is that of all its answers, in the error and in the list."""
    turns = [Turn(content="a", stop="pause", usage=Usage(700, 30, 1)), Turn(error=_auth())]
    store = InMemoryCheckpointStore()

    with pytest.raises(RunParked) as parked:
        await agent_of().run(TASK, context(FakeLLM.script(turns), store))

    listed, _ = await store.list_runs(status="parked")
    assert Usage(700, 30, 1) == parked.value.usage
    assert [Usage(700, 30, 1)] == [run.summary.usage for run in listed]


def _auth() -> ModelError:
    return ModelError("bad key", kind="auth", status=401)
