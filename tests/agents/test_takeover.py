"""Two drives of one run in one process: who makes way, who is refused, who is waited for."""

import asyncio
import gc
import os
import threading
from collections.abc import Coroutine
from datetime import UTC, datetime

import pytest

from agentkit.agents import Agent, AgentResult
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import LeaseLost, RunInUse, RunParked, StoreMisused
from agentkit.core.runtime.context import MAX_RECOVERIES
from agentkit.core.testing import FakeClock
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.journal.owner import owner_id
from agentkit.testing.suspensions import cancelled_at
from agentkit.tools import ToolContext, tool
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
    events_of,
    then,
    told,
)
from tests.crash.bench import Slow


@tool(side_effecting=False)
async def look() -> str:
    """Look."""
    return "seen"


LLM_TURNS = calls(call("look"))


class Held:
    """A run whose only tool is entered and held until it is let go."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.let_go = asyncio.Event()
        self.tokens: list[int] = []

    def agent(self) -> Agent:
        """An agent whose tool waits here."""

        @tool(side_effecting=False)
        async def hold(ctx: ToolContext) -> str:
            self.tokens.append(ctx.fencing_token)
            self.entered.set()
            await self.let_go.wait()
            return "let go"

        return agent_of(hold)


async def test_breaking_out_and_starting_again_needs_no_loop_turn() -> None:
    """F066: the way of the reference page, twice: the drive that was left makes way."""
    store = InMemoryCheckpointStore()
    for _ in range(2):
        async for event in agent_of(look).stream(TASK, context(then(LLM_TURNS), store)):
            if event.type == "tool_call":
                break

    result = await agent_of(look).run(TASK, context(then(LLM_TURNS), store))

    assert "done" == result.output
    assert ["start", "resume"] == [one.why for one in await bodies_of(store, e.LeaseTaken)][:2]


async def test_a_stream_that_is_kept_makes_way_too_and_then_ends() -> None:
    """Its consumer holds it and may come back: it finds the stream at its end, not an error."""
    store = InMemoryCheckpointStore()
    kept = agent_of(look).stream(TASK, context(then(LLM_TURNS), store))
    await anext(kept)

    result = await agent_of(look).run(TASK, context(then(LLM_TURNS), store))

    assert "done" == result.output
    assert [] == await events_of(kept)


async def test_a_drive_that_is_running_is_left_alone() -> None:
    """F055: the second one is refused before it does anything, and the first one finishes."""
    held, store, llm = Held(), InMemoryCheckpointStore(), then(calls(call("hold")))
    agent = held.agent()
    task = asyncio.create_task(agent.run(TASK, context(llm, store)))
    await held.entered.wait()
    before = await entries_of(store)

    with pytest.raises(RunInUse, match="'r' is held by") as refused:
        await agent.run(TASK, context(llm, store))

    assert before == await entries_of(store)
    assert refused.value.expires_in_seconds > 0
    head = await store.head(RUN)
    assert head is not None
    since = datetime.fromtimestamp(head.epoch / 1000, UTC)
    assert f"by pid {os.getpid()} on this machine since {since:%Y-%m-%d %H:%M:%S} UTC, for" in str(
        refused.value
    )
    assert head.owner not in str(refused.value)
    held.let_go.set()
    assert "done" == (await task).output


async def test_wait_seconds_waits_for_the_other_drive() -> None:
    """F055: the second caller gets the first one's stored result, and nothing is done twice."""
    held, store, llm = Held(), InMemoryCheckpointStore(), then(calls(call("hold")))
    agent, clock = held.agent(), FakeClock()
    first = asyncio.create_task(agent.run(TASK, context(llm, store)))
    await held.entered.wait()
    waiting = context(llm, store, clock=clock)
    second = asyncio.create_task(agent.run(TASK, waiting, wait_seconds=60.0))
    while not clock.sleepers:  # noqa: ASYNC110 - the clock has no event
        await asyncio.sleep(0)

    held.let_go.set()
    result = await first
    clock.advance(1.0)

    assert result == await second
    assert (1, 2) == (len(held.tokens), len(llm.requests))


async def test_wait_seconds_has_an_end() -> None:
    """Whoever waited that long is told who holds the run."""
    held, store, llm = Held(), InMemoryCheckpointStore(), then(calls(call("hold")))
    agent, clock = held.agent(), FakeClock()
    first = asyncio.create_task(agent.run(TASK, context(llm, store)))
    await held.entered.wait()
    second = asyncio.create_task(
        agent.run(TASK, context(llm, store, clock=clock), wait_seconds=2.0)
    )
    for _ in range(12):
        while not (clock.sleepers or second.done()):  # noqa: ASYNC110 - the clock has no event
            await asyncio.sleep(0)
        clock.advance(0.25)

    with pytest.raises(RunInUse):
        await second

    held.let_go.set()
    await first


async def test_the_drive_of_a_closed_loop_is_dead() -> None:
    """A loop that was closed in the middle of a run cannot hold it: the next one takes over."""
    store, llm = InMemoryCheckpointStore(), then(calls(call("hold")))
    keep: list[object] = []

    def broken_program() -> None:
        loop = asyncio.new_event_loop()
        held = Held()
        task = loop.create_task(held.agent().run(TASK, context(llm, store)))
        loop.run_until_complete(held.entered.wait())
        keep.extend([task, held])
        loop.close()

    await asyncio.to_thread(broken_program)
    held = Held()
    held.let_go.set()

    result = await held.agent().run(TASK, context(llm, store))

    assert "done" == result.output
    assert "takeover" == (await bodies_of(store, e.LeaseTaken))[-1].why


async def test_a_drive_in_another_live_loop_holds_its_run() -> None:
    """Another thread's loop is alive: its run is in use, until it is over."""
    store, llm = InMemoryCheckpointStore(), then(calls(call("hold")))
    entered, let_go = threading.Event(), threading.Event()

    @tool(side_effecting=False)
    def hold() -> str:
        entered.set()
        let_go.wait(20)
        return "let go"

    agent = agent_of(hold)
    other = asyncio.create_task(
        asyncio.to_thread(_in_own_loop, agent.run(TASK, context(llm, store)))
    )
    await asyncio.to_thread(entered.wait, 20)

    with pytest.raises(RunInUse):
        await agent.run(TASK, context(llm, store))

    let_go.set()
    assert "done" == (await other).output


def test_run_sync_carries_on_what_a_broken_program_left() -> None:
    """`asyncio.run` ends with an error in the middle of a stream; `run_sync` goes on at once."""
    store = InMemoryCheckpointStore()

    async def broken() -> None:
        async for event in agent_of(look).stream(TASK, context(then(LLM_TURNS), store)):
            if event.type == "step":
                raise KeyError("a bug of the user's")

    with pytest.raises(KeyError):
        asyncio.run(broken())

    result = agent_of(look).run_sync(TASK, context(then(LLM_TURNS), store))

    assert "done" == result.output
    released = asyncio.run(bodies_of(store, e.LeaseTaken))
    assert ["start", "resume"] == [one.why for one in released]


def test_run_sync_can_be_used_again_and_again() -> None:
    """All such calls share one background loop, also from several threads at once."""
    store, agent = InMemoryCheckpointStore(), agent_of(look)
    results: list[AgentResult] = []

    def work(number: int) -> None:
        ctx = context(then(LLM_TURNS), store, run_id=f"r{number}")
        results.append(agent.run_sync(TASK, ctx))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert {f"r{number}" for number in range(8)} == {result.run_id for result in results}


def test_a_tool_that_leaves_the_program_leaves_the_background_loop_alive() -> None:
    """An interrupt in an async tool comes out of that `run_sync`, and the next one still works."""

    @tool(side_effecting=False)
    async def leave() -> str:
        """Leave."""
        raise KeyboardInterrupt

    store = InMemoryCheckpointStore()
    with pytest.raises(KeyboardInterrupt):
        agent_of(leave).run_sync(TASK, context(then(calls(call("leave"))), store))

    result = agent_of().run_sync(TASK, context(then([], "hello"), store, run_id="r2"))
    assert "hello" == result.output


async def test_a_stream_that_is_being_read_is_not_closed_from_elsewhere() -> None:
    """Closing it while another task reads is refused, and the drive keeps its run."""
    held, store, llm = Held(), InMemoryCheckpointStore(), then(calls(call("hold")))
    stream = held.agent().stream(TASK, context(llm, store))
    reader = asyncio.create_task(events_of(stream))
    await held.entered.wait()

    with pytest.raises(StoreMisused, match="cancel that task"):
        await stream.aclose()
    with pytest.raises(RunInUse):
        await held.agent().run(TASK, context(llm, store))
    held.let_go.set()

    assert "final completed" == told(await reader)[-1]


async def test_run_sync_in_a_running_loop_says_what_to_do() -> None:
    """It would block the loop it is called from."""
    with pytest.raises(StoreMisused, match="use `await"):
        agent_of(look).run_sync(TASK, context(then(LLM_TURNS), InMemoryCheckpointStore()))


async def test_f057_a_replaced_worker_appends_nothing_any_more() -> None:
    """Another worker takes over while a tool runs: the old one ends with `LeaseLost`.

    It only leaves a note of what its tool returned; its token is lower than the new one's, and it
    asked no more.
    """
    held, store, llm = Held(), InMemoryCheckpointStore(), then(calls(call("hold")))
    old = asyncio.create_task(held.agent().run(TASK, context(llm, store)))
    await held.entered.wait()
    head = await store.head(RUN)
    assert head is not None
    new = await store.acquire(RUN, owner_id("elsewhere"), 15.0, supersede=head.epoch)
    before = await entries_of(store)

    held.let_go.set()
    with pytest.raises(LeaseLost):
        await old

    *rest, note = await entries_of(store)
    assert before == rest
    assert e.OutcomeReported(1, 0, 1, "ok", "let go") == note.body
    assert (1, True) == (len(llm.requests), new.epoch > held.tokens[0])


async def test_f056_clocks_that_stand_still_or_step_back_raise_no_conflict() -> None:
    """F111: order is by numbers from the store; the wall clock is for display."""
    clock = FakeClock()
    store = InMemoryCheckpointStore(clock=clock)
    turns = [LLM_TURNS] * 11
    for number in range(12):
        clock.set_now(1_700_000_000.0 - 3600 * number)
        ctx = context(then(turns), store, clock=clock)
        async for event in agent_of(look).stream(TASK, ctx):
            if event.type == "step":
                break

    result = await agent_of(look).run(TASK, context(then(turns), store, clock=clock))

    entries = await entries_of(store)
    epochs = [entry.epoch for entry in entries]
    steps = [entry.body for entry in entries if isinstance(entry.body, e.StepCompleted)]
    assert "done" == result.output
    assert sorted(epochs) == epochs
    assert list(range(1, 12)) == [step.version for step in steps]


async def test_a_dead_owner_is_taken_over_at_once_and_counted() -> None:
    """No waiting for the lease: this process knows that the drive is gone."""
    agent, llm = agent_of(look), then(LLM_TURNS)
    recorded = InMemoryCheckpointStore()
    await agent.run(TASK, context(llm, recorded))
    store = await dead_worker((await entries_of(recorded))[:2])

    result = await agent.run(TASK, context(llm, store))

    [_, taken] = await bodies_of(store, e.LeaseTaken)
    assert ("done", "takeover", 1) == (result.output, taken.why, taken.recoveries)
    assert 1 == result.usage.unknown


async def test_dropping_a_stream_keeps_nothing_of_it() -> None:
    """The table of drives keeps no run alive that nobody holds."""
    store = InMemoryCheckpointStore()
    stream = agent_of(look).stream(TASK, context(then(LLM_TURNS), store))
    await anext(stream)
    del stream
    gc.collect()

    events = await events_of(agent_of(look).stream(TASK, context(then(LLM_TURNS), store)))

    assert "final completed" == told(events)[-1]


def _in_own_loop(work: Coroutine[object, object, AgentResult]) -> AgentResult:
    return asyncio.run(work)


async def test_a_run_that_was_never_begun_is_begun_however_many_died() -> None:
    """Workers that die before they have recorded the start leave nothing that could be parked."""
    store = InMemoryCheckpointStore()
    head = None
    for _ in range(MAX_RECOVERIES + 2):
        epoch = None if head is None else head.epoch
        await store.acquire(RUN, owner_id("d-dead"), 15.0, supersede=epoch)
        head = await store.head(RUN)

    result = await agent_of(look).run(TASK, context(then(LLM_TURNS), store))

    first, *_ = await entries_of(store)
    assert head is not None
    assert MAX_RECOVERIES < head.recoveries
    assert ("done", e.RunStarted) == (result.output, type(first.body))


async def test_a_claim_that_parks_passes_its_cancellation_on() -> None:
    """Whoever is cancelled on the way to a run that kills its workers, at whichever await: he gets
    his cancellation, nobody is left with the lease, and the run is parked by him or the next.
    """
    recorded = InMemoryCheckpointStore()
    await agent_of(look).run(TASK, context(then(LLM_TURNS), recorded))
    begun = (await entries_of(recorded))[:3]
    number, cancelled = 0, 1
    while cancelled:
        number += 1
        store = await dead_worker(begun)
        for _ in range(MAX_RECOVERIES):
            head = await store.head(RUN)
            assert head is not None
            await store.acquire(RUN, owner_id("d-dead"), 15.0, supersede=head.epoch)
        ctx = context(then(LLM_TURNS), Slow(store))
        try:
            cancelled = await cancelled_at(agent_of(look).run(TASK, ctx), {number})
        except RunParked:
            cancelled = 0

        with pytest.raises(RunParked):
            await agent_of(look).run(TASK, context(then(LLM_TURNS), store))
        assert 1 == len(await bodies_of(store, e.Parked))
    assert number > 8
