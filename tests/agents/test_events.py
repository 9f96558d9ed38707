"""What a run tells while it happens, in which order, and what it gives in the end."""

import asyncio
import typing
from contextlib import aclosing

import pytest

from agentkit.agents import AgentEvent, AgentResult
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.contracts.types import StopReason, Usage
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.tools import ToolContext, tool
from tests.agents.kit import (
    RUN,
    TASK,
    agent_of,
    call,
    calls,
    context,
    entries_of,
    events_of,
    then,
    told,
)


@tool(side_effecting=False)
async def look(what: str) -> str:
    """Look at something."""
    return f"saw {what}"


@tool(side_effecting=False)
async def fail() -> str:
    """Always goes wrong."""
    raise ValueError("no such thing")


async def test_a_turn_tells_deltas_calls_results_and_then_its_step() -> None:
    """The order of one turn is fixed, and `final` is the last event."""
    store = InMemoryCheckpointStore()
    asked = calls(call("look", what="a"), call("fail", call_id="c2"), content="Let me look.")

    events = await events_of(
        agent_of(look, fail).stream(TASK, context(then(asked, "I saw it."), store))
    )

    assert [
        "message_delta Let me look.",
        "tool_call look",
        "tool_call fail",
        "tool_result look=saw a",
        "tool_result fail=ValueError: no such thing",
        "step iteration:1",
        "message_delta I saw it.",
        "final completed",
    ] == told(events)


async def test_results_are_told_in_the_order_of_their_calls() -> None:
    """The second call ends first; its result waits for the first one's."""
    first_may_end = asyncio.Event()

    @tool(side_effecting=False)
    async def slow() -> str:
        await first_may_end.wait()
        return "1"

    @tool(side_effecting=False)
    async def quick() -> str:
        first_may_end.set()
        return "2"

    asked = calls(call("slow"), call("quick", call_id="c2"))
    store = InMemoryCheckpointStore()

    events = await events_of(agent_of(slow, quick).stream(TASK, context(then(asked), store)))

    results = [event for event in told(events) if event.startswith("tool_result")]
    assert ["tool_result slow=1", "tool_result quick=2"] == results


async def test_a_step_is_durable_before_it_is_told() -> None:
    """Whoever sees `step` finds its checkpoint in the store already."""
    store = InMemoryCheckpointStore()
    stream = agent_of(look).stream(TASK, context(then(calls(call("look", what="a"))), store))

    found = [
        await store.list_versions(f"{RUN}:agent:worker")
        async for event in stream
        if event.type == "step"
    ]

    assert [[1]] == found


async def test_every_durable_event_carries_the_seq_of_its_entry() -> None:
    """Ids grow, point at the entry that the event was built from, and deltas have none."""
    store = InMemoryCheckpointStore()
    asked = calls(call("look", what="a"), content="Hm.")

    events = await events_of(agent_of(look).stream(TASK, context(then(asked), store)))

    kinds = {entry.seq: type(entry.body).__name__ for entry in await entries_of(store)}
    assert [
        ("message_delta", None),
        ("tool_call", "ModelAnswered"),
        ("tool_result", "ToolFinished"),
        ("step", "StepCompleted"),
        ("message_delta", None),
        ("final", "Finished"),
    ] == [(event.type, kinds.get(event.id or 0)) for event in events]


async def test_progress_is_told_and_not_kept() -> None:
    """What a tool says on the way reaches the watcher, has no id, and is in no entry."""

    @tool(side_effecting=False)
    def count(ctx: ToolContext) -> str:
        ctx.progress("half way")
        return "done"

    store = InMemoryCheckpointStore()

    events = await events_of(
        agent_of(count).stream(TASK, context(then(calls(call("count"))), store))
    )

    progress = [event for event in events if event.type == "progress"]
    assert [("half way", None)] == [(event.text, event.id) for event in progress]
    assert b"half way" not in b"".join(row.body for row in await store.read(RUN))


async def test_run_asks_for_no_deltas_and_stream_does() -> None:
    """Streaming is asked of the model only where somebody reads the pieces."""
    llm = FakeLLM("hello")
    agent = agent_of()

    await agent.run(TASK, context(llm, InMemoryCheckpointStore()))
    await events_of(agent.stream(TASK, context(llm, InMemoryCheckpointStore())))

    assert [False, True] == [request.stream for request in llm.requests]


async def test_the_result_says_what_was_used_and_why_it_ended() -> None:
    """Output, usage of all answers, run id and stop reason are in the result."""
    llm = then(calls(call("look", what="a")), "I saw it.")

    result = await agent_of(look).run(TASK, context(llm, InMemoryCheckpointStore()))

    assert AgentResult(RUN, "I saw it.", Usage(20, 10, 2), "completed") == result


@pytest.mark.parametrize(
    ("turn", "reason", "partial"),
    [
        (Turn(content="All."), "completed", False),
        (Turn(content="Cut of", stop="length"), "length", True),
        (Turn(content="I will not.", stop="refusal"), "refused", False),
    ],
)
async def test_an_answer_without_calls_ends_the_run(
    turn: Turn, reason: StopReason, partial: bool
) -> None:
    """How the model stopped decides what the result says of its text."""
    result = await agent_of().run(TASK, context(FakeLLM.script([turn]), InMemoryCheckpointStore()))

    assert (reason, partial, turn.content) == (result.stop_reason, result.partial, result.output)


async def test_a_paused_answer_is_asked_to_go_on() -> None:
    """`pause` is no end: the same transcript is sent again with what the model said so far."""
    llm = FakeLLM.script([Turn(content="Wait", stop="pause"), Turn(content="Now.")])

    result = await agent_of().run(TASK, context(llm, InMemoryCheckpointStore()))

    assert ("Now.", 2) == (result.output, len(llm.requests))
    assert ["user", "assistant"] == [message.role for message in llm.requests[1].messages]


def test_the_set_of_stop_reasons_is_closed() -> None:
    """A new reason is a breaking change, so the set stands here too."""
    assert {
        "completed",
        "length",
        "refused",
        "max_iterations",
        "suspended",
        "parked",
        "failed",
        "cancelled",
    } == set(typing.get_args(StopReason))


async def test_a_stream_is_read_by_one_task_at_a_time() -> None:
    """A second reader is told so, and the first one goes on."""
    entered, leave = asyncio.Event(), asyncio.Event()

    @tool(side_effecting=False)
    async def block() -> str:
        entered.set()
        await leave.wait()
        return "ok"

    llm = then(calls(call("block")))
    stream = agent_of(block).stream(TASK, context(llm, InMemoryCheckpointStore()))
    reading = asyncio.create_task(events_of(stream))
    await entered.wait()

    with pytest.raises(Exception, match="being read by another task"):
        await anext(stream)

    leave.set()
    assert "final completed" == told(await reading)[-1]


@pytest.mark.parametrize("task", ["", "  ", None, 7])
async def test_a_task_is_a_text_with_something_in_it(task: object) -> None:
    """Nothing is written for a run without a task."""
    store = InMemoryCheckpointStore()

    with pytest.raises(InvalidSpec, match="task must be a non-empty string"):
        await agent_of().run(task, context(FakeLLM("x"), store))  # type: ignore[arg-type]  # the point

    assert await store.head(RUN) is None


async def test_the_last_event_alone_holds_the_result() -> None:
    """A consumer may wait for `result` without looking at types."""
    llm = then(calls(call("look", what="a")))

    events = await events_of(agent_of(look).stream(TASK, context(llm, InMemoryCheckpointStore())))

    holders: list[AgentEvent] = [event for event in events if event.result is not None]
    assert [events[-1]] == holders


KINDS: dict[str, type] = {
    "tool_call": e.ModelAnswered,
    "tool_result": e.ToolFinished,
    "step": e.StepCompleted,
    "final": e.Finished,
}


@pytest.mark.parametrize("leave_after", range(1, 10))
async def test_f130_an_events_id_is_its_place_in_the_journal_over_all_workers(
    leave_after: int,
) -> None:
    """F130: one stream is left after n events and another worker goes on: each durable event names
    the entry that it was made of, none is told twice unless it says that it is replayed, and what
    can come again has no id.
    """
    store = InMemoryCheckpointStore()
    llm = then([calls(call("look", what="a"), call("look", call_id="c2", what="b"))] * 2)
    events: list[AgentEvent] = []
    stream = agent_of(look).stream(TASK, context(llm, store))
    async with aclosing(stream):
        async for event in stream:
            events.append(event)
            if len(events) == leave_after:
                break
    events += await events_of(agent_of(look).stream(TASK, context(llm, store)))

    journal = {entry.seq: entry.body for entry in await entries_of(store)}
    durable = [event for event in events if event.id is not None]
    told_once = [
        (event.type, event.id, event.call.id if event.call is not None else "")
        for event in durable
        if not event.replayed and event.attempt <= 1
    ]
    assert len(told_once) == len(set(told_once))
    for event in durable:
        body = journal[event.id or 0]
        assert isinstance(body, KINDS[event.type])
        if isinstance(body, e.ToolFinished):
            assert (body.content, body.attempt) == (event.text, event.attempt)
    provisional = {"message_delta", "message_reset", "progress", "repair"}
    assert {event.type for event in events if event.id is None} <= provisional
