"""What the user adds to a run under way: never lost, never in front of what did not know of it."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from agentkit.agents import AgentResult, add_message, cancel, send_event
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import InvalidSpec, NoteRefused, RunNotFound
from agentkit.core.contracts.model import ModelReply, ModelRequest, TextDelta
from agentkit.core.contracts.types import Message
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.testing.invariants import Evidence, check, read_rows, report
from agentkit.tools import ToolContext, tool
from tests.agents.kit import (
    RUN,
    TASK,
    agent_of,
    assert_valid,
    bodies_of,
    call,
    calls,
    context,
    messages_of,
    then,
)


@tool(side_effecting=False)
async def choose(ctx: ToolContext) -> str:
    """Ask."""
    return f"took {await ctx.ask('Which?')}"


@tool(side_effecting=False)
async def look() -> str:
    """Look."""
    return "seen"


class Held:
    """A model whose answers wait until they may go."""

    def __init__(self, inner: FakeLLM, asked: asyncio.Event, go_on: asyncio.Event) -> None:
        self.origin = inner.origin
        self.requests: list[ModelRequest] = []
        self._inner = inner
        self._asked = asked
        self._go_on = go_on

    async def attempt(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        self.requests.append(request)
        self._asked.set()
        await self._go_on.wait()
        async for item in self._inner.attempt(request):
            yield item


async def _assert_sound(store: InMemoryCheckpointStore) -> None:
    rows = await read_rows(store, RUN)
    found = check(Evidence(run=RUN, rows=rows, head=await store.head(RUN)))
    assert not found, report(found)


def _texts(messages: Sequence[Message]) -> list[str]:
    return [f"{one.role} {one.content}".strip() for one in messages]


async def test_f032_a_message_while_a_question_is_open_is_read_with_its_answer() -> None:
    """It moves nothing by itself, and stands behind the results of that turn."""
    store, llm = InMemoryCheckpointStore(), then(calls(call("choose")))
    first = await agent_of(choose).run(TASK, context(llm, store))
    assert first.suspended is not None
    [question] = first.suspended.questions

    told = await add_message(store, RUN, "The blue one, if there is one.", actor="ann")
    still = await agent_of(choose).resume(RUN, {}, context(llm, store))
    result = await agent_of(choose).resume(RUN, {question.id: "red"}, context(llm, store))

    assert not told.repeated
    assert ("suspended", "done") == (still.stop_reason, result.output)
    assert [
        f"user {TASK}",
        "assistant",
        "tool took red",
        "user The blue one, if there is one.",
        "assistant done",
    ] == _texts(await messages_of(store))
    await _assert_sound(store)


@pytest.mark.parametrize("final", [False, True])
async def test_a_message_that_comes_while_the_model_answers_stands_behind_that_answer(
    final: bool,
) -> None:
    """The answer knew nothing of it: it is never put in front of it, and a run whose last answer
    was on its way answers once more.
    """
    store = InMemoryCheckpointStore()
    asked, go_on = asyncio.Event(), asyncio.Event()
    llm = Held(then(Turn("first") if final else calls(call("look"))), asked, go_on)

    run = asyncio.create_task(agent_of(look).run(TASK, context(llm, store)))
    await asked.wait()
    await add_message(store, RUN, "One more thing.")
    await add_message(store, RUN, "And another.")
    go_on.set()
    result = await run

    said = ["user One more thing.", "user And another."]
    middle = ["assistant first"] if final else ["assistant", "tool seen"]
    assert "done" == result.output
    assert [[f"user {TASK}"], [f"user {TASK}", *middle, *said]] == [
        _texts(request.messages) for request in llm.requests
    ]
    assert [2, 0] == [one.unseen for one in await bodies_of(store, e.ModelAnswered)]
    assert_valid(await messages_of(store))
    await _assert_sound(store)


@pytest.mark.parametrize(("name", "payload"), [("paid", 2), ("shipped", 1)])
async def test_the_id_of_an_event_stands_for_one_event(name: str, payload: int) -> None:
    """Another name or payload under it is refused, also after the first was delivered."""
    store, llm = InMemoryCheckpointStore(), then(calls(call("choose")))
    await agent_of(choose).run(TASK, context(llm, store))
    await send_event(store, RUN, "paid", 1, event_id="e1")

    with pytest.raises(NoteRefused, match="knows the id 'e1' for something else"):
        await send_event(store, RUN, name, payload, event_id="e1")

    assert (await send_event(store, RUN, "paid", 1, event_id="e1")).repeated
    assert 1 == len(await bodies_of(store, e.EventReceived))


async def test_a_message_counts_once() -> None:
    """By its id, whoever sends it again; another text under that id is refused, not lost."""
    store, llm = InMemoryCheckpointStore(), then(calls(call("choose")))
    result: AgentResult = await agent_of(choose).run(TASK, context(llm, store))

    first = await add_message(store, RUN, "a", message_id="m1")
    again = await add_message(store, RUN, "a", message_id="m1", actor="ann")
    with pytest.raises(NoteRefused, match="knows the id 'm1' for something else"):
        await add_message(store, RUN, "b", message_id="m1")

    assert "suspended" == result.stop_reason
    assert (False, True) == (first.repeated, again.repeated)
    assert ["a"] == [one.text for one in await bodies_of(store, e.MessageAdded)]


async def test_who_cannot_read_it_takes_no_message() -> None:
    """A run that is unknown, has ended, or is cancelled says so; and a message is a text."""
    store, llm = InMemoryCheckpointStore(), then(calls(call("choose")))
    with pytest.raises(RunNotFound):
        await add_message(store, RUN, "a")
    await agent_of(choose).run(TASK, context(llm, store))
    for wrong in ("", " \n", "\ud800", 5):
        with pytest.raises(InvalidSpec):
            await add_message(store, RUN, wrong)  # type: ignore[arg-type]  # wrong on purpose
    await cancel(store, RUN)

    with pytest.raises(NoteRefused):
        await add_message(store, RUN, "a")
