"""Outcomes that come when their drive is ending, or has ended: none is lost."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from agentkit.agents import AgentResult, cancel
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.ports import JournalPort, ToolThreads
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.journal.lease import ThreadHeartbeat
from agentkit.tools import ToolContext, tool
from tests.agents.kit import RUN, TASK, agent_of, bodies_of, context, entries_of
from tests.agents.test_interleavings import Elsewhere, asking, results_of, steal

T = TypeVar("T")
WAIT = 10.0
"""Longest wait for a described condition, in seconds."""


async def reported(store: JournalPort) -> None:
    """Wait until somebody has reported an outcome."""
    async with asyncio.timeout(WAIT):
        while not await bodies_of(store, e.OutcomeReported):  # noqa: ASYNC110 - the store has no news
            await asyncio.sleep(0)


async def test_an_outcome_is_reported_where_the_release_finds_the_lease_gone() -> None:
    """The drive is cancelled as its tool returns, and does not know yet that it was replaced."""
    entered, let_go = asyncio.Event(), asyncio.Event()
    tasks: list[asyncio.Task[AgentResult]] = []

    @tool(side_effecting=True)
    async def send() -> str:
        entered.set()
        await let_go.wait()
        tasks[0].cancel()
        return "sent"

    store, llm, agent = InMemoryCheckpointStore(), asking(), agent_of(send)
    tasks.append(asyncio.create_task(agent.run(TASK, context(llm, store))))
    await entered.wait()
    await steal(store)
    let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    entered.clear()
    result = await agent.run(TASK, context(llm, Elsewhere(store)))

    assert "done" == result.output
    assert not entered.is_set()
    assert ["sent"] == await results_of(store)


@pytest.mark.parametrize("ends", ["returns", "raises"])
async def test_a_tool_that_outlives_its_drive_tells_late(ends: str) -> None:
    """It ignored its cancellation and was left behind. What it returns is its outcome; what it
    raises after it was cancelled says nothing of the effect, so that stays in doubt.
    """
    entered, let_go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool(side_effecting=True)
    async def send() -> str:
        entered.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        if ends == "raises":
            raise ValueError("cleaning up")
        return "sent"

    store, llm, agent = InMemoryCheckpointStore(), asking(), agent_of(send)
    task = asyncio.create_task(agent.run(TASK, context(llm, store)))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    let_go.set()
    await ended.wait()
    if ends == "returns":
        await reported(store)
    entered.clear()
    result = await agent.run(TASK, context(llm, store))

    assert not entered.is_set()
    assert (ends == "raises") == (result.suspended is not None)
    assert ([] if ends == "raises" else ["sent"]) == await results_of(store)


async def test_an_attempt_that_only_waited_for_an_earlier_one_ends_with_it() -> None:
    """A person had a call made again whose thread still worked on it. The second attempt ran out of
    time without having begun; the end of the first one answers the second question.
    """
    release, runs = threading.Event(), []

    @tool(side_effecting=True, timeout=0.02)
    def send(ctx: ToolContext) -> str:
        runs.append(ctx.attempt)
        release.wait(WAIT)
        return "sent"

    store, llm, agent = InMemoryCheckpointStore(), asking(), agent_of(send)
    first = await agent.run(TASK, context(llm, store))
    assert first.suspended is not None
    decisions = {first.suspended.questions[0].id: "run_again"}
    second = await agent.resume(RUN, decisions, context(llm, store))
    assert second.suspended is not None
    release.set()
    await reported(store)
    result = await agent.resume(RUN, {}, context(llm, store))

    assert ("done", [1]) == (result.output, runs)
    assert ["sent"] == await results_of(store)


class Together:
    """Threads whose answer comes in the same moment as `act`."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act

    def submit(self, call: Callable[[], T]) -> Awaitable[T]:
        """Run it in the loop, a little later."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def answer() -> None:
            future.set_result(call())
            self.act()

        loop.call_later(0.001, answer)
        return future


async def test_an_outcome_that_comes_with_the_cancellation_is_kept() -> None:
    """The tool's thread has answered, and the drive is cancelled before it has heard that."""
    runs: list[int] = []

    @tool(side_effecting=True)
    def send(ctx: ToolContext) -> str:
        runs.append(ctx.attempt)
        return "sent"

    store, llm, agent = InMemoryCheckpointStore(), asking(), agent_of(send)
    tasks: list[asyncio.Task[AgentResult]] = []
    threads: ToolThreads = Together(lambda: tasks[0].cancel())  # noqa: PLW0108 - there is none yet
    there = context(llm, store)
    there = replace(there, services=replace(there.services, threads=threads))
    tasks.append(asyncio.create_task(agent.run(TASK, there)))
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    result = await agent.run(TASK, context(llm, store))

    assert ("done", [1]) == (result.output, runs)


@pytest.mark.parametrize("in_thread", [False, True])
async def test_an_outcome_that_comes_after_a_cancel_is_logged_and_changes_nothing(
    in_thread: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The run has ended with the call in doubt, which is what its result and its entries go on to
    say; the log tells what became of it.
    """
    entered, let_go = threading.Event(), threading.Event()

    def work() -> str:
        entered.set()
        let_go.wait(WAIT)
        return "sent"

    @tool(name="send", side_effecting=True)
    def send_in_thread() -> str:
        return work()

    @tool(name="send", side_effecting=True)
    async def send_in_loop() -> str:
        entered.set()
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        return "sent"

    store, llm, heart = InMemoryCheckpointStore(), asking(), ThreadHeartbeat(start=lambda _: None)
    agent = agent_of(send_in_thread if in_thread else send_in_loop)
    running = asyncio.create_task(agent.run(TASK, context(llm, store, heartbeat=heart)))
    await asyncio.to_thread(entered.wait, WAIT)
    await cancel(store, RUN, reason="wrong order")
    heart.tick()
    result = await running
    before = await entries_of(store)
    let_go.set()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WAIT):
            while "late outcome" not in caplog.text:  # noqa: ASYNC110 - a log has no news
                await asyncio.sleep(0)
    again = await agent.run(TASK, context(llm, store))

    assert "cancelled" == result.stop_reason
    assert f"run '{RUN}': a late outcome is not recorded (call 1.0 ended: ok)" in caplog.text
    assert "it has ended (cancelled) meanwhile" in caplog.text
    assert before == await entries_of(store)
    assert (result.stop_reason, result.message) == (again.stop_reason, again.message)
    assert ["in_doubt"] == [one.outcome for one in await bodies_of(store, e.ToolFinished)]
    [told] = await results_of(store)
    assert "may or may not have taken effect" in told
