"""Leaving a run in any way but its end keeps it resumable, and nothing is done twice."""

import asyncio
import dataclasses
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing

import pytest

from agentkit.agents import Agent, AgentEvent
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.heads import Head, Lease, Row, Summary
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Message, Usage
from agentkit.core.testing import FakeLLM
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, StoreWrapper
from agentkit.tools import ToolContext, tool
from agentkit.tools.threads import DaemonThreads
from tests.agents.kit import (
    RUN,
    TASK,
    Borders,
    agent_of,
    assert_valid,
    bodies_of,
    call,
    calls,
    context,
    dead_worker,
    entries_of,
    messages_of,
    then,
)

TURNS = [
    calls(call("read", what="a"), call("pay", call_id="c2", amount=1), content="First."),
    calls(call("pay", amount=2), call("read", call_id="c2", what="b"), content="Second."),
]


class World:
    """What happened outside, by idempotency key."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        self.reads = 0

    def agent(self) -> Agent:
        """An agent whose effects are counted here; paying takes a loop turn before and after."""

        @tool(side_effecting=True, idempotent=True)
        async def pay(amount: int, ctx: ToolContext) -> str:
            await asyncio.sleep(0)
            self.effects[ctx.idempotency_key] = 1
            await asyncio.sleep(0)
            return f"paid {amount}"

        @tool(side_effecting=False)
        async def read(what: str) -> str:
            self.reads += 1
            await asyncio.sleep(0)
            return f"read {what}"

        return agent_of(pay, read)


class Yielding(StoreWrapper):
    """A store that gives the loop a turn before and after each append, as a real one does."""

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
        await asyncio.sleep(0)
        head = await super().append(
            run, rows, after=after, lease=lease, summary=summary, release=release
        )
        await asyncio.sleep(0)
        return head


async def _uninterrupted() -> tuple[list[Message], list[AgentEvent]]:
    store = InMemoryCheckpointStore()
    stream = World().agent().stream(TASK, context(then(TURNS), store))
    events = [event async for event in stream]
    return await messages_of(store), events


async def _assert_as_if_nothing_had_happened(port: JournalPort, world: World) -> None:
    expected, _ = await _uninterrupted()
    messages = await messages_of(port)
    assert_valid(messages)
    assert expected == messages
    assert [1, 1] == list(world.effects.values())
    answered = await bodies_of(port, e.ModelAnswered)
    assert [1, 2, 3] == [answer.turn for answer in answered]


async def test_a_stream_closed_at_any_event_is_carried_on_to_the_same_end() -> None:
    """F066: close at the n-th event, for every n; the next start ends with the same transcript."""
    _, events = await _uninterrupted()
    for number in range(1, len(events) + 1):
        store, world = Yielding(InMemoryCheckpointStore()), World()
        stream = world.agent().stream(TASK, context(then(TURNS), store))
        for _ in range(number):
            await anext(stream)
        await stream.aclose()
        head = await store.head(RUN)

        result = await world.agent().run(TASK, context(then(TURNS), store))

        assert head is not None
        assert "" == head.owner
        assert ("done", "completed") == (result.output, result.stop_reason)
        await _assert_as_if_nothing_had_happened(store, world)


async def test_a_run_cancelled_at_any_await_is_carried_on_to_the_same_end() -> None:
    """F066: cancel the task at its n-th loop turn, for every n until a run gets through."""
    finished = False
    turn = 0
    while not finished:
        store, world = Yielding(InMemoryCheckpointStore()), World()
        task = asyncio.create_task(_run(world.agent(), then(TURNS), store))
        for _ in range(turn):
            await asyncio.sleep(0)
        finished = task.done()
        task.cancel()
        await asyncio.wait({task})
        turn += 1

        result = await world.agent().run(TASK, context(then(TURNS), store))

        assert "done" == result.output
        await _assert_as_if_nothing_had_happened(store, world)
        takeovers = [one for one in await bodies_of(store, e.LeaseTaken) if one.why == "takeover"]
        assert [] == takeovers
    assert turn > 20


async def test_a_worker_that_died_at_any_border_is_followed_to_the_same_end() -> None:
    """After each durable append, with the lease held by the dead: also when its successor dies."""
    recorded = Borders(InMemoryCheckpointStore())
    await World().agent().run(TASK, context(then(TURNS), recorded))
    entries = await entries_of(recorded)
    assert len(recorded.confirmed) > 5
    for border in recorded.confirmed:
        world = World()
        second = Borders(await dead_worker(entries[:border]))
        result = await world.agent().run(TASK, context(then(TURNS), second))
        again = await entries_of(second)
        for further in second.confirmed:
            third = await dead_worker(again[:further])
            last = await World().agent().run(TASK, context(then(TURNS), third))
            assert (result.output, result.stop_reason) == (last.output, last.stop_reason)
            assert await messages_of(second) == await messages_of(third)
        assert "done" == result.output
        assert_valid(await messages_of(second))
        keys = {one.key for one in await bodies_of(second, e.ToolStarted) if one.key}
        assert (2, True) == (len(keys), keys >= set(world.effects))


async def test_an_answer_that_was_recorded_is_not_also_counted_as_lost() -> None:
    """Cancelled while its answer is being written, a run knows what it paid for, once."""
    appending, go_on = asyncio.Event(), asyncio.Event()

    class Slow(StoreWrapper):
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
            head = await super().append(
                run, rows, after=after, lease=lease, summary=summary, release=release
            )
            if b"model_answered" in b"".join(row.body for row in rows):
                appending.set()
                await go_on.wait()
            return head

    store, world = Slow(InMemoryCheckpointStore()), World()
    task = asyncio.create_task(_run(world.agent(), then(TURNS), store))
    await appending.wait()
    task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    result = await world.agent().run(TASK, context(then(TURNS), store))

    assert Usage(30, 15, 3) == result.usage
    await _assert_as_if_nothing_had_happened(store, world)


async def test_an_answer_that_was_cut_off_is_counted_as_unknown() -> None:
    """It may have been paid for: the usage says so instead of saying nothing."""
    store = InMemoryCheckpointStore()
    llm = FakeLLM("Long text.")
    async with aclosing(agent_of().stream(TASK, context(llm, store))) as stream:
        async for event in stream:
            if event.type == "message_delta":
                break

    result = await agent_of().run(TASK, context(llm, store))

    assert Usage(10, 5, 1, unknown=1) == result.usage


async def test_a_cancellation_survives_a_note_that_comes_in_between() -> None:
    """The head moves under an append whose task is cancelled: outcome kept, task still ends."""
    store = InMemoryCheckpointStore()
    appending, go_on = asyncio.Event(), asyncio.Event()

    class Late(StoreWrapper):
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
            if b"tool_finished" in b"".join(row.body for row in rows) and not go_on.is_set():
                appending.set()
                await go_on.wait()
            return await super().append(
                run, rows, after=after, lease=lease, summary=summary, release=release
            )

    world = World()
    task = asyncio.create_task(_run(world.agent(), then(TURNS), Late(store)))
    await appending.wait()
    await Checkpointer(port=store).snapshot(RUN, {"a": "note"})
    task.cancel()
    go_on.set()
    ended, _ = await asyncio.wait({task}, timeout=5)

    assert [True] == [one.cancelled() for one in ended]
    await world.agent().run(TASK, context(then(TURNS), store))
    await _assert_as_if_nothing_had_happened(store, world)
    assert 2 == world.reads


async def test_an_outcome_is_kept_when_the_closing_is_cancelled_too() -> None:
    """A call that ended in the moment of the first cancellation is recorded after the second."""
    runs: list[asyncio.Task[object]] = []

    @tool(side_effecting=True)
    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            runs[0].cancel()
            await asyncio.sleep(0)

    @tool(side_effecting=True)
    async def pay() -> str:
        runs[0].cancel()
        return "paid"

    store, llm = InMemoryCheckpointStore(), then(calls(call("stubborn"), call("pay", call_id="c2")))
    runs.append(asyncio.create_task(agent_of(stubborn, pay).run(TASK, context(llm, store))))
    await asyncio.wait(runs)

    assert runs[0].cancelled()
    ended = await bodies_of(store, e.ToolFinished)
    assert ["paid"] == [one.content for one in ended if one.outcome != "interrupted"]
    assert (await store.head(RUN)).owner == ""  # type: ignore[union-attr]  # the run is there


async def test_calls_that_never_began_are_not_in_doubt() -> None:
    """Closed at its first `tool_call`, a plain side-effecting call simply starts later."""
    effects = []

    @tool(side_effecting=True)
    async def send() -> str:
        effects.append("sent")
        return "ok"

    store = InMemoryCheckpointStore()
    llm = then(calls(call("send"), call("send", call_id="c2")))
    stream = agent_of(send).stream(TASK, context(llm, store))
    first = await anext(stream)
    await stream.aclose()
    before = list(effects)

    result = await agent_of(send).run(TASK, context(llm, store))

    assert ("tool_call", [], ["sent", "sent"]) == (first.type, before, effects)
    assert "completed" == result.stop_reason
    outcomes = [one.outcome for one in await bodies_of(store, e.ToolFinished)]
    assert ["not_started", "not_started", "ok", "ok"] == outcomes


async def test_f131_a_call_is_told_once_per_attempt_and_old_results_as_replayed() -> None:
    """A resumed stream marks results of earlier workers, also those behind a repeated call."""
    entered = asyncio.Event()

    @tool(side_effecting=False)
    async def slow() -> str:
        if not entered.is_set():
            entered.set()
            await asyncio.Event().wait()
        return "slow"

    @tool(side_effecting=False)
    async def quick() -> str:
        return "quick"

    store = InMemoryCheckpointStore()
    llm = then(calls(call("slow"), call("quick", call_id="c2")))
    first: list[AgentEvent] = []

    async def watch() -> None:
        async for event in agent_of(slow, quick).stream(TASK, context(llm, store)):
            first.append(event)  # noqa: PERF401 - kept although the loop is cancelled

    task = asyncio.create_task(watch())
    await entered.wait()
    while not await bodies_of(store, e.ToolFinished):  # noqa: ASYNC110 - a store has no event
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})

    second = [event async for event in agent_of(slow, quick).stream(TASK, context(llm, store))]

    shown = [
        (event.type, event.call.name if event.call else "", event.attempt, event.replayed)
        for event in [*first, *second]
        if event.type in ("tool_call", "tool_result")
    ]
    assert [
        ("tool_call", "slow", 1, False),
        ("tool_call", "quick", 1, False),
        ("tool_call", "slow", 2, False),
        ("tool_result", "slow", 2, False),
        ("tool_result", "quick", 1, True),
    ] == shown


async def test_a_stream_that_never_began_leaves_nothing_behind() -> None:
    """Making a stream starts no run; closing it is no error."""
    store = InMemoryCheckpointStore()
    stream = agent_of().stream(TASK, context(FakeLLM("x"), store))

    await stream.aclose()

    assert await store.head(RUN) is None


async def _run(agent: Agent, llm: FakeLLM, port: JournalPort) -> None:
    await agent.run(TASK, context(llm, port))


async def test_a_sync_call_that_waits_for_a_thread_is_not_in_doubt() -> None:
    """Stopped while another call has the only thread: it had not begun, so it simply starts later,
    and nobody is asked about it.
    """
    entered, let_go = threading.Event(), threading.Event()
    runs: list[str] = []

    @tool(side_effecting=False)
    def hold() -> str:
        entered.set()
        let_go.wait(20)
        return "held"

    @tool(side_effecting=True)
    def send() -> str:
        runs.append("sent")
        return "sent"

    store, agent = InMemoryCheckpointStore(), agent_of(hold, send)
    llm = then(calls(call("hold"), call("send", call_id="c2")))
    narrow = context(llm, store)
    services = dataclasses.replace(narrow.services, threads=DaemonThreads(limit=1))
    task = asyncio.create_task(agent.run(TASK, dataclasses.replace(narrow, services=services)))
    await asyncio.to_thread(entered.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    let_go.set()
    result = await agent.run(TASK, context(llm, store))

    assert ("done", ["sent"]) == (result.output, runs)
    outcomes = [one.outcome for one in await bodies_of(store, e.ToolFinished) if one.index == 1]
    assert ["not_started", "ok"] == outcomes
