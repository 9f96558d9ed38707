"""What operators say of a run that they do not drive, and runs that kill their workers."""

import asyncio

import pytest

from agentkit.agents import settle_call, unpark
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import (
    InvalidDecision,
    NoteRefused,
    RunInUse,
    RunNotFound,
    RunParked,
)
from agentkit.core.contracts.heads import Head, Row
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import JSON, Decision
from agentkit.core.runtime import RunContext
from agentkit.core.runtime.context import MAX_RECOVERIES
from agentkit.core.testing import FakeLLM
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, StoreWrapper
from agentkit.state.journal.journal import load
from agentkit.state.journal.owner import owner_id
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
    died_after,
    entries_of,
    events_of,
    messages_of,
    then,
)

sent: list[int] = []


@tool(side_effecting=True)
async def send(ctx: ToolContext) -> str:
    """Send."""
    sent.append(ctx.attempt)
    return "sent"


@tool(side_effecting=False)
async def look() -> str:
    """Look."""
    return "seen"


AGENT = agent_of(send, look)


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    sent.clear()


def model(count: int = 1) -> FakeLLM:
    """A model that asks for `count` calls of `send` in one turn, then says done."""
    return then(calls(*(call("send", call_id=f"c{n}") for n in range(count))))


async def _killed(count: int = 1) -> InMemoryCheckpointStore:
    """A worker died with the calls in flight, and nobody has looked at the run since."""
    store = await died_after(e.ToolStarted, AGENT, model(count))
    sent.clear()
    return store


# --- tool settle ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "runs", "content", "is_error"),
    [
        (Decision("done", {"id": 1}, "ann", "seen"), [], '{"id":1}', False),
        (Decision("done", False, "ann"), [], "false", False),
        (Decision("failed", "no such order", "ann"), [], "no such order", True),
        (Decision("run_again", None, "ann"), [2], "sent", False),
        (Decision("SKIP", None, "ann", "too late"), [], "too late", True),
    ],
)
@pytest.mark.parametrize("asked", [True, False], ids=["asked", "unasked"])
async def test_a_call_in_doubt_is_settled_without_driving_the_run(
    decision: Decision, runs: list[int], content: str, is_error: bool, asked: bool
) -> None:
    """Whether the run has asked about it yet or its worker has just died: the word counts once, the
    journal keeps who and why, and the next worker goes on from it.
    """
    store, llm = await _killed(), model()
    if asked:
        waiting = await AGENT.run(TASK, context(llm, store))
        assert waiting.suspended is not None

    await settle_call(store, RUN, "1.0", decision)
    assert [] == sent
    result = (
        await AGENT.resume(RUN, {}, context(llm, store))
        if asked
        else await AGENT.run(TASK, context(llm, store))
    )

    shown = next(one for one in await messages_of(store) if one.role == "tool")
    assert ("done", runs) == (result.output, sent)
    assert (True, is_error) == (shown.content.endswith(content), shown.is_error)
    notes = [one for one in await entries_of(store) if one.id]
    assert 1 == len(notes)
    assert "ann" in str(notes[0].body)
    if decision.answer == "run_again":
        assert "ann" == (await bodies_of(store, e.ToolStarted))[-1].by


async def test_a_question_is_settled_once() -> None:
    """The same word again says nothing new; another one is refused."""
    store, llm = await _killed(), model()
    waiting = await AGENT.run(TASK, context(llm, store))
    assert waiting.suspended is not None

    await settle_call(store, RUN, "1.0", Decision("skip", actor="ann"))
    decided = await store.read(RUN)
    await settle_call(store, RUN, "1.0", Decision("skip", actor="ann"))
    with pytest.raises(InvalidDecision, match="was already decided"):
        await settle_call(store, RUN, "1.0", Decision("run_again"))

    assert decided == await store.read(RUN)


@pytest.mark.parametrize("name", ["1.1", "c1", "q8"])
async def test_a_call_is_named_by_place_label_or_question(name: str) -> None:
    """One of two calls is settled; the other one is still asked about."""
    store, llm = await _killed(2), model(2)
    waiting = await AGENT.run(TASK, context(llm, store))
    assert waiting.suspended is not None
    assert ["q7", "q8"] == [one.id for one in waiting.suspended.questions]

    await settle_call(store, RUN, name, Decision("skip"))
    again = await AGENT.resume(RUN, {}, context(llm, store))

    assert again.suspended is not None
    assert ["c0"] == [one.call_id for one in again.suspended.questions]


@pytest.mark.parametrize(
    ("name", "decision", "what"),
    [
        ("1.7", Decision("skip"), "no open call is named '1.7'; open calls: 1.0 .send., 1.1"),
        ("2.0", Decision("skip"), "no open call"),
        ("1.0", Decision("approve"), "'approve' is not done, failed, run_again, skip"),
        ("1.0", Decision("skip", reason="\ud800"), "its reason is no text"),
        ("1.0", Decision("skip", value="sent"), "'skip' takes no value"),
    ],
)
async def test_what_does_not_fit_is_refused_and_nothing_is_written(
    name: str, decision: Decision, what: str
) -> None:
    """With what there is."""
    store = await _killed(2)
    before = await store.read(RUN)

    with pytest.raises(InvalidDecision, match=what):
        await settle_call(store, RUN, name, decision)

    assert before == await store.read(RUN)


async def test_a_call_of_a_live_worker_is_not_settled_over_its_head() -> None:
    """Its outcome comes by itself; saying another one beside it would leave two."""
    entered, let_go = asyncio.Event(), asyncio.Event()

    @tool(side_effecting=True)
    async def send() -> str:
        entered.set()
        await let_go.wait()
        return "sent"

    store, agent = InMemoryCheckpointStore(), agent_of(send)
    task = asyncio.create_task(agent.run(TASK, context(model(), store)))
    await entered.wait()

    with pytest.raises(RunInUse, match=r"a worker .* may be at call 1\.0 just now"):
        await settle_call(store, RUN, "1.0", Decision("skip"))
    let_go.set()

    assert "done" == (await task).output
    assert [] == await bodies_of(store, e.OutcomeReported)


async def _killed_after(count: int, *bodies: e.Body) -> InMemoryCheckpointStore:
    """A worker died with `count` calls in flight, and these facts were recorded after that."""
    entries = await entries_of(await _killed(count))
    later = [e.Entry(0, "", 0, "agent:worker", 0, body) for body in bodies]
    return await dead_worker([*entries, *later])


async def test_a_word_about_an_earlier_attempt_settles_nothing() -> None:
    """What became of the first attempt says nothing of the second: that one is asked about."""
    again = e.ToolStarted(1, 0, "send", "digest", "key", attempt=2)
    store = await _killed_after(1, again, e.OutcomeReported(1, 0, 1, "ok", "the first one"))

    result = await AGENT.run(TASK, context(model(), store))

    assert result.suspended is not None
    assert "attempt 2" in result.suspended.questions[0].prompt
    assert [] == sent


async def test_a_word_about_a_call_that_has_its_outcome_changes_nothing() -> None:
    """The first fact stands: it is what is told, and what the model gets."""
    facts: list[e.Body] = [
        e.ToolFinished(1, 0, "ok", "sent", 1),
        e.OutcomeReported(1, 0, 1, "skipped", "not sent", by="ann"),
        e.ToolFinished(1, 1, "ok", "sent too", 1),
    ]
    store = await _killed_after(2, *facts)

    events = await events_of(AGENT.stream(TASK, context(model(2), store)))

    results = [event.text for event in events if event.type == "tool_result"]
    shown = [one.content for one in await messages_of(store) if one.role == "tool"]
    assert ["sent", "sent too"] == results == shown


async def test_an_ended_or_unknown_run_takes_no_word() -> None:
    """What is final stays so."""
    store = InMemoryCheckpointStore()
    await AGENT.run(TASK, context(then([]), store))

    with pytest.raises(RunNotFound):
        await settle_call(store, "other", "1.0", Decision("skip"))
    with pytest.raises(InvalidDecision, match="it has no call in doubt"):
        await settle_call(store, RUN, "1.0", Decision("skip"))
    with pytest.raises((NoteRefused, InvalidDecision)):
        await unpark(store, RUN)


# --- a fenced-off worker --------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [True, False], ids=["asked", "unasked"])
async def test_what_a_replaced_worker_saw_settles_the_call_by_fact(asked: bool) -> None:
    """It lost its lease while its tool ran. Its note answers the question, also one that the next
    worker has asked already; nothing runs twice and nobody needs to look.
    """
    entered, let_go = asyncio.Event(), asyncio.Event()
    runs: list[int] = []

    @tool(side_effecting=True)
    async def send(ctx: ToolContext) -> JSON:
        runs.append(ctx.attempt)
        entered.set()
        await let_go.wait()
        return {"id": 7}

    store, llm, agent = InMemoryCheckpointStore(), model(), agent_of(send)
    old = asyncio.create_task(agent.run(TASK, context(llm, store)))
    await entered.wait()
    head = await store.head(RUN)
    assert head is not None
    lease = await store.acquire(RUN, owner_id("d-dead"), 15.0, supersede=head.epoch)
    if asked:
        waiting = await agent.run(TASK, context(llm, Elsewhere(store)))
        assert waiting.suspended is not None
    let_go.set()
    with pytest.raises(Exception, match=r"another worker|lease"):
        await old
    result = await agent.run(TASK, context(llm, Elsewhere(store)))

    assert lease.epoch
    assert ("done", [1]) == (result.output, runs)
    assert ['{"id":7}'] == [one.content for one in await messages_of(store) if one.role == "tool"]


class Elsewhere(StoreWrapper):
    """The same store as another process sees it, to which no drive of this process is known."""

    @property
    def location(self) -> str:
        """Another name, so that the table of drives does not connect the two."""
        return f"elsewhere {self.inner.location}"


# --- runs that kill their workers -----------------------------------------------------------------


async def _dies(store: JournalPort) -> None:
    """A worker takes the run and is gone before it gets any further."""
    head = await store.head(RUN)
    assert head is not None
    await store.acquire(RUN, owner_id("d-dead"), 15.0, supersede=head.epoch)


class Unreadable(StoreWrapper):
    """A store whose journal must not be read."""

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        raise AssertionError("it was read")


@pytest.mark.parametrize("limit", [None, 2])
async def test_f068_a_run_that_kills_its_workers_is_parked(limit: int | None) -> None:
    """F068: each takeover is counted when the run is claimed, before it is read; after the limit it
    is parked with the reason, and reading it may be what kills.
    """
    store, llm = await _killed(), model()
    for _ in range((limit or MAX_RECOVERIES) - 1):
        await _dies(store)
    head = await store.head(RUN)
    assert head is not None
    assert (limit or MAX_RECOVERIES) - 1 == head.recoveries
    await _dies(store)

    ctx = context(llm, Unreadable(store))
    with pytest.raises(RunParked, match="workers in a row died at this run") as parked:
        await AGENT.run(TASK, _limited(ctx, limit or MAX_RECOVERIES))

    [listed], _ = await store.list_runs()
    assert ("recoveries", "parked", "worker", "") == (
        parked.value.reason,
        listed.summary.status,
        listed.summary.agent,
        listed.owner,
    )
    assert listed.summary.usage == parked.value.usage
    assert [] == sent


def _limited(ctx: RunContext, limit: int) -> RunContext:
    from dataclasses import replace

    return replace(ctx, services=replace(ctx.services, max_recoveries=limit))


async def test_f068_unparked_it_starts_counting_anew() -> None:
    """Whoever mended the cause says so, and the run goes on and may die again."""
    store, llm = await _killed(), model()
    for _ in range(MAX_RECOVERIES):
        await _dies(store)
    with pytest.raises(RunParked):
        await AGENT.run(TASK, context(llm, store))
    with pytest.raises(RunParked):
        await AGENT.run(TASK, context(llm, store))

    state = await unpark(store, RUN, actor="ann", reason="more memory")
    await _dies(store)
    head = await store.head(RUN)
    result = await AGENT.resume(RUN, {}, context(llm, store))

    assert ("running", []) == (state.status, sent)
    assert head is not None
    assert 0 == head.recoveries
    assert result.suspended is not None
    assert [e.Unparked("ann", "more memory")] == await bodies_of(store, e.Unparked)
    with pytest.raises(InvalidDecision, match="is not parked: it is suspended"):
        await unpark(store, RUN)


async def test_f068_progress_ends_the_count() -> None:
    """A recorded answer or outcome says that the run does get on."""
    llm = then([calls(call("look", call_id=f"c{n}")) for n in range(3)])
    store = await died_after(e.StepCompleted, AGENT, llm, count=1)
    for _ in range(MAX_RECOVERIES - 1):
        await _dies(store)

    result = await AGENT.run(TASK, context(llm, store))

    head = await store.head(RUN)
    assert head is not None
    assert ("done", 0) == (result.output, head.recoveries)


async def test_f077_orderly_ends_count_for_nothing() -> None:
    """F077: ten deploys during one slow model call leave the run as it was, with no retry spent."""
    store = InMemoryCheckpointStore()
    asking = asyncio.Event()

    class Silent:
        """A model that never answers."""

        origin = "silent"

        def attempt(self, request: object) -> "Silent":
            asking.set()
            return self

        def __aiter__(self) -> "Silent":
            return self

        async def __anext__(self) -> object:
            await asyncio.Event().wait()
            raise StopAsyncIteration

    for _ in range(10):
        asking.clear()
        task = asyncio.create_task(AGENT.run(TASK, context(Silent(), store)))  # type: ignore[arg-type]  # a model of few words
        await asking.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    head: Head | None = await store.head(RUN)
    result = await AGENT.run(TASK, context(then([]), store))

    assert head is not None
    assert ("", 0) == (head.owner, head.recoveries)
    assert ("done", 10) == (result.output, result.usage.unknown)


async def test_a_note_does_not_end_the_count() -> None:
    """Somebody's word about a run is no progress of its workers."""
    store = await _killed()
    await _dies(store)
    before = await store.head(RUN)
    await settle_call(store, RUN, "1.0", Decision("run_again"))

    after = await store.head(RUN)

    assert before is not None
    assert after is not None
    assert (1, 1) == (before.recoveries, after.recoveries)


async def test_f068_a_run_parked_unread_shows_what_its_entries_say() -> None:
    """Its head is written without them: task, usage and what may have been lost are right all the
    same, as whoever reads the run later finds.
    """
    llm = then(calls(call("look")))
    recorded = InMemoryCheckpointStore()
    await AGENT.run(TASK, context(llm, recorded))
    store = await dead_worker((await entries_of(recorded))[:2])
    for _ in range(MAX_RECOVERIES):
        await _dies(store)

    with pytest.raises(RunParked):
        await AGENT.run(TASK, context(llm, Unreadable(store)))

    head = await store.head(RUN)
    assert head is not None
    assert (await load(store, RUN)).summary() == head.summary
    assert head.summary is not None
    assert 1 == head.summary.usage.unknown
