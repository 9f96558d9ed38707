"""A pause lets what is under way end, and nothing begin, until somebody lets the run go on."""

import asyncio
import dataclasses
import threading

import pytest

from agentkit.agents import cancel, pause, record_decisions, submit, unpark, unpause
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import InvalidDecision, RunParked
from agentkit.core.contracts.types import Decision
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.journal.journal import load
from agentkit.state.journal.lease import ThreadHeartbeat
from agentkit.testing.invariants import Evidence, check, read_rows
from agentkit.tools import ToolContext, tool
from agentkit.tools.threads import DaemonThreads
from tests.agents.kit import RUN, TASK, agent_of, bodies_of, call, calls, context, kinds_of, then


async def assert_sound(store: InMemoryCheckpointStore) -> None:
    """No invariant is broken."""
    head = await store.head(RUN)
    assert [] == check(Evidence(run=RUN, rows=await read_rows(store, RUN), head=head))


async def test_a_call_that_waits_for_a_thread_does_not_begin_in_a_paused_run() -> None:
    """Its intent is on record since before the pause; it is made when the run goes on, as the same
    attempt.
    """
    entered, let_go = threading.Event(), threading.Event()
    sent: list[int] = []

    @tool(side_effecting=False)
    def hold() -> str:
        entered.set()
        let_go.wait(20)
        return "held"

    @tool(side_effecting=True)
    def send(ctx: ToolContext) -> str:
        sent.append(ctx.attempt)
        return "sent"

    store, heart = InMemoryCheckpointStore(), ThreadHeartbeat(start=lambda _: None)
    agent, llm = agent_of(hold, send), then(calls(call("hold"), call("send", call_id="c2")))
    narrow = context(llm, store, heartbeat=heart)
    services = dataclasses.replace(narrow.services, threads=DaemonThreads(limit=1))
    running = asyncio.create_task(agent.run(TASK, dataclasses.replace(narrow, services=services)))
    await asyncio.to_thread(entered.wait, 20)
    await pause(store, RUN, actor="ann")
    heart.tick()
    let_go.set()
    with pytest.raises(RunParked, match="paused by ann"):
        await running
    before = list(sent)
    await unpark(store, RUN)

    result = await agent.run(TASK, context(llm, store))

    assert ([], "done", [1]) == (before, result.output, sent)
    outcomes = [one.outcome for one in await bodies_of(store, e.ToolFinished) if one.index == 1]
    assert ["not_started", "ok"] == outcomes
    await assert_sound(store)


@pytest.mark.parametrize("stop", [pause, cancel])
async def test_a_call_does_not_begin_while_there_is_news_that_nobody_has_read(
    stop: object,
) -> None:
    """The heartbeat has heard that something was appended, and the loop had no turn since: whatever
    that is, it is read before a tool is entered.
    """
    sent: list[int] = []

    @tool(side_effecting=True)
    async def send(ctx: ToolContext) -> str:
        sent.append(ctx.attempt)
        return "sent"

    store, heart = InMemoryCheckpointStore(), ThreadHeartbeat(start=lambda _: None)
    agent, llm = agent_of(send), then(calls(call("send")))
    async for event in agent.stream(TASK, context(llm, store, heartbeat=heart)):
        if event.type == "tool_call":
            await stop(store, RUN)  # type: ignore[operator]  # one of the two
            heart.tick()

    assert [] == sent
    assert (await load(store, RUN)).status in {"cancelled", "parked"}
    await assert_sound(store)


async def test_other_news_delays_a_call_and_nothing_else() -> None:
    """Somebody has added a message: the call is made after that was read, as the same attempt."""
    from agentkit.agents import add_message

    sent: list[int] = []

    @tool(side_effecting=True)
    async def send(ctx: ToolContext) -> str:
        sent.append(ctx.attempt)
        return "sent"

    store, heart = InMemoryCheckpointStore(), ThreadHeartbeat(start=lambda _: None)
    agent, llm = agent_of(send), then(calls(call("send")))
    async for event in agent.stream(TASK, context(llm, store, heartbeat=heart)):
        if event.type == "tool_call" and not sent:
            await add_message(store, RUN, "hurry")
            heart.tick()

    assert [1] == sent
    assert "done" == (await load(store, RUN)).status
    await assert_sound(store)


async def test_a_tool_that_is_under_way_may_ask_while_the_run_is_paused() -> None:
    """That it waits is its end; the answer is taken, and applied once the run goes on."""
    asked: list[str] = []
    store = InMemoryCheckpointStore()

    @tool(side_effecting=False)
    async def choose(ctx: ToolContext) -> str:
        if not asked:
            asked.append("once")
            await pause(store, RUN)
        return str(await ctx.ask("Well?"))

    agent, llm = agent_of(choose), then(calls(call("choose")))
    with pytest.raises(RunParked):
        await agent.run(TASK, context(llm, store))
    [question] = (await load(store, RUN)).questions
    await record_decisions(store, RUN, {question.id: Decision("answer", "yes")})
    with pytest.raises(RunParked):
        await agent.run(TASK, context(llm, store))
    started = len(await bodies_of(store, e.ToolStarted))
    await unpark(store, RUN)

    result = await agent.run(TASK, context(llm, store))

    assert (1, "done") == (started, result.output)
    await assert_sound(store)


async def test_a_tool_that_asks_in_a_cancelled_run_asks_nobody() -> None:
    """No question is left behind that nobody may answer; the call ends with its run."""
    store = InMemoryCheckpointStore()

    @tool(side_effecting=False)
    async def choose(ctx: ToolContext) -> str:
        await cancel(store, RUN, reason="no more")
        return str(await ctx.ask("Well?"))

    llm = then(calls(call("choose")))
    result = await agent_of(choose).run(TASK, context(llm, store))

    assert "cancelled" == result.stop_reason
    kinds = await kinds_of(store)
    assert ["CancelAsked", "ToolFinished", "Cancelled"] == kinds[-3:]
    assert "QuestionAsked" not in kinds
    await assert_sound(store)


async def test_a_resume_does_not_lift_a_pause_and_says_who_did_it() -> None:
    """Programs drive due runs by a resume; what an operator has stopped is not theirs to wake."""
    sent: list[str] = []

    @tool(side_effecting=True)
    async def send() -> str:
        sent.append("sent")
        return "sent"

    store = InMemoryCheckpointStore()
    agent, llm = agent_of(send), then(calls(call("send")))
    await submit(store, RUN, TASK, agent="worker")
    before = (await pause(store, RUN, actor="ann", reason="prices")).seq
    for _ in range(2):
        with pytest.raises(RunParked, match=r"paused by ann.*agentkit unpause.*prices"):
            await agent.resume(RUN, {}, context(llm, store))
    held = await load(store, RUN)
    await unpause(store, RUN)

    result = await agent.resume(RUN, {}, context(llm, store))

    assert ("parked", before) == (held.status, held.seq)
    assert ("done", ["sent"]) == (result.output, sent)
    await assert_sound(store)


async def test_a_run_that_was_parked_before_its_pause_is_parked_after_it() -> None:
    """A pause hides no limit: lifting it lets nothing go on that was stuck; `unpark` does."""

    @tool(side_effecting=False)
    async def look() -> str:
        return "seen"

    store = InMemoryCheckpointStore()
    agent = agent_of(look, max_iterations=1)
    llm = then(calls(call("look")))
    limited = await agent.run(TASK, context(llm, store))
    await pause(store, RUN, actor="deploy")
    paused = await load(store, RUN)
    lifted = await unpause(store, RUN, actor="deploy")
    with pytest.raises(InvalidDecision, match="is not paused: it is parked"):
        await unpause(store, RUN)
    gone_on = await unpark(store, RUN)

    assert paused.parked is not None
    assert lifted.parked is not None
    reasons = [limited.parked, paused.parked.reason, lifted.parked.reason, gone_on.parked]
    assert [limited.parked, "paused", limited.parked, None] == reasons
    assert (limited.stop_reason, "running") == ("max_iterations", gone_on.status)
    await assert_sound(store)
