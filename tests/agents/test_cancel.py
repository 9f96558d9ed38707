"""A cancel is durable at once, reaches whoever works on the run, and is final."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from agentkit.agents import Agent, cancel, settle_call, unpark
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import (
    InvalidDecision,
    ModelError,
    NoteRefused,
    RunNotFound,
)
from agentkit.core.contracts.heads import Head
from agentkit.core.contracts.model import ModelReply, ModelRequest, TextDelta
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Decision, Message
from agentkit.core.runtime import RunContext
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.journal.journal import Journal, load
from agentkit.state.journal.lease import ThreadHeartbeat
from agentkit.state.journal.owner import owner_id
from agentkit.testing.invariants import Evidence, check, read_rows
from agentkit.tools import tool
from tests.agents.kit import (
    RUN,
    TASK,
    agent_of,
    bodies_of,
    call,
    calls,
    context,
    died_after,
    events_of,
    kinds_of,
    messages_of,
    then,
)


class World:
    """Tools that wait until they are let go, and a heartbeat that beats when it is told to."""

    def __init__(self) -> None:
        self.store = InMemoryCheckpointStore()
        self.heart = ThreadHeartbeat(start=lambda _: None)
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.cut: list[str] = []

        @tool(side_effecting=True)
        async def send(item: str) -> str:
            """Send."""
            return await self._hold(f"sent {item}")

        @tool(side_effecting=False)
        async def look(item: str) -> str:
            """Look."""
            return await self._hold(f"saw {item}")

        @tool(side_effecting=False)
        async def quick() -> str:
            """Look quickly."""
            return "seen"

        self.agent = agent_of(send, look, quick)

    async def _hold(self, result: str) -> str:
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cut.append(result)
            raise
        return result

    def context(self, llm: FakeLLM | None = None) -> RunContext:
        return context(llm or FakeLLM("unused"), self.store, heartbeat=self.heart)

    async def sound(self) -> None:
        """No invariant is broken."""
        await assert_sound(self.store)


async def assert_sound(store: JournalPort) -> None:
    """No invariant is broken in this journal."""
    head = await store.head(RUN)
    found = check(Evidence(run=RUN, rows=await read_rows(store, RUN), head=head))
    assert [] == found


async def recorded(store: JournalPort, kind: type[object]) -> None:
    """Wait until a worker of this loop has recorded an entry of this kind."""
    while not await bodies_of(store, kind):  # noqa: ASYNC110 - the other task does not tell
        await asyncio.sleep(0)


async def end_of(store: JournalPort) -> e.Cancelled | None:
    """The run's end, if it was cancelled."""
    ends = await bodies_of(store, e.Cancelled)
    return ends[0] if ends else None


async def outcomes_of(store: JournalPort) -> dict[int, str]:
    """How the calls of the newest turn ended, by index."""
    return {one.index: one.outcome for one in await bodies_of(store, e.ToolFinished)}


async def owner_of(store: JournalPort) -> str:
    """Who has the lease; empty for nobody."""
    head = await store.head(RUN)
    return "" if head is None else head.owner


async def test_f006_a_living_worker_cuts_its_tools_off_and_each_call_gets_a_result() -> None:
    """F006: three tools run; the note is durable at once, the next heartbeat brings it to the
    worker, and every call has one recorded outcome: made, cut off, or in doubt.
    """
    world = World()
    turn = calls(call("quick"), call("look", call_id="c2", item="a"),
                 call("send", call_id="c3", item="a"))  # fmt: skip
    running = asyncio.create_task(world.agent.run(TASK, world.context(then(turn))))
    await world.begun.wait()
    await recorded(world.store, e.ToolFinished)

    asked = await cancel(world.store, RUN, actor="ann", reason="wrong order")
    before = running.done()
    world.heart.tick()
    result = await running

    assert (None, False) == (asked.end, before)
    assert ("cancelled", "wrong order") == (result.stop_reason, result.message)
    assert {0: "ok", 1: "cancelled", 2: "in_doubt"} == await outcomes_of(world.store)
    assert ["saw a", "sent a"] == sorted(world.cut)
    assert e.Cancelled("ann", "wrong order") == await end_of(world.store)
    assert 3 == sum(message.role == "tool" for message in await messages_of(world.store))
    assert "" == await owner_of(world.store)
    await world.sound()


async def test_a_cancel_cuts_a_model_call_off() -> None:
    """The answer that may have been paid for is listed as unknown, and no other is asked for."""
    world = World()
    asked = asyncio.Event()
    requests = 0

    class Silent:
        origin = "fake"

        async def attempt(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
            nonlocal requests
            requests += 1
            yield TextDelta("I thi")
            asked.set()
            await asyncio.Event().wait()

    running = asyncio.create_task(
        world.agent.run(TASK, context(Silent(), world.store, heartbeat=world.heart))
    )
    await asked.wait()
    await cancel(world.store, RUN)
    world.heart.tick()
    result = await running

    assert ("cancelled", 1, 1) == (result.stop_reason, requests, result.usage.unknown)
    assert ["RunStarted", "LeaseTaken", "CancelAsked", "ModelFailed", "Cancelled"] == (
        await kinds_of(world.store)
    )
    await world.sound()


async def test_a_cancel_ends_the_wait_for_a_retry() -> None:
    """A worker that waits for the time of its next attempt does not wait on."""
    world = World()
    failed = asyncio.Event()

    def busy(_: Sequence[Message]) -> Turn:
        failed.set()
        raise ModelError("busy", kind="overloaded", retry_after_seconds=50.0)

    running = asyncio.create_task(
        world.agent.run(TASK, context(FakeLLM(busy), world.store, heartbeat=world.heart))
    )
    await failed.wait()
    await recorded(world.store, e.ModelFailed)
    await cancel(world.store, RUN)
    world.heart.tick()
    result = await running

    assert "cancelled" == result.stop_reason
    assert 1 == len(await bodies_of(world.store, e.ModelFailed))
    await world.sound()


async def test_a_cancel_that_comes_between_two_acts_is_met_by_the_next_append() -> None:
    """Without any heartbeat: the worker stands at a yield, and what it would record next is
    decided anew, so no tool begins.
    """
    world = World()
    world.go.set()
    told = []
    turn = calls(call("send", item="a"), content="I send.")
    stream = world.agent.stream(TASK, world.context(then(turn)))
    async for event in stream:
        told.append(event.type)
        if event.type == "message_delta":
            await cancel(world.store, RUN)
    done = await load(world.store, RUN)

    assert "cancelled" == done.status
    assert [] == await bodies_of(world.store, e.ToolStarted)
    assert {0: "cancelled"} == await outcomes_of(world.store)
    assert "final" == told[-1]
    await world.sound()


async def test_a_recorded_intent_is_not_carried_out_after_a_cancel() -> None:
    """The consumer cancels when it is told of the call; its tool is never entered."""
    world = World()
    world.go.set()
    async for event in world.agent.stream(TASK, world.context(then(calls(call("send", item="a"))))):
        if event.type == "tool_call":
            await cancel(world.store, RUN)
            world.heart.tick()
            for _ in range(5):
                await asyncio.sleep(0)

    assert not world.begun.is_set()
    assert {0: "cancelled"} == await outcomes_of(world.store)
    await world.sound()


@pytest.mark.parametrize(
    ("name", "outcome"), [("send", "in_doubt"), ("look", "cancelled"), ("quick", "cancelled")]
)
async def test_f069_a_dead_workers_run_is_ended_by_whoever_cancels_it(
    name: str, outcome: str
) -> None:
    """F069, F067: nobody alive holds the run, so that it ended is durable when `cancel` returns;
    the next worker starts nothing.
    """
    world = World()
    world.go.set()
    asked = call(name) if name == "quick" else call(name, item="a")
    llm = then(calls(asked))
    store = await died_after(e.ToolStarted, world.agent, llm)

    state = await cancel(store, RUN, reason="no")
    again = await world.agent.run(TASK, context(FakeLLM("unused"), store))
    resumed = await world.agent.resume(RUN, {}, context(FakeLLM("unused"), store))

    assert e.Cancelled(reason="no") == state.end
    assert {0: outcome} == await outcomes_of(store)
    assert ("cancelled", "cancelled") == (again.stop_reason, resumed.stop_reason)
    assert "Cancelled" == (await kinds_of(store))[-1]
    assert "" == await owner_of(store)
    await assert_sound(store)


async def test_f069_a_cancel_whose_process_died_is_carried_out_by_the_next_worker() -> None:
    """F069: only the note is durable. The run wants a worker at once, and that one ends it before
    anything else.
    """
    world = World()
    world.go.set()
    store = await died_after(e.ToolStarted, world.agent, then(calls(call("send", item="a"))))
    world.begun.clear()
    await only_ask(store)
    due = [one.run for one in await store.claimable()]

    result = await world.agent.run(TASK, context(FakeLLM("unused"), store))

    assert ([RUN], "cancelled") == (due, result.stop_reason)
    assert {0: "in_doubt"} == await outcomes_of(store)
    assert not world.begun.is_set()
    await assert_sound(store)


async def test_f069_a_cancel_beats_the_parking_of_a_run_that_kills_workers() -> None:
    """F069: more workers have died than a run is tried after; its cancel is carried out."""
    world = World()
    world.go.set()
    store = await died_after(e.ToolStarted, world.agent, then(calls(call("send", item="a"))))
    world.begun.clear()
    await only_ask(store)
    for number in range(8):
        head = await store.head(RUN)
        assert isinstance(head, Head)
        await store.acquire(RUN, owner_id(f"d-dead{number}"), 15.0, supersede=head.epoch)

    result = await world.agent.run(TASK, context(FakeLLM("unused"), store))

    assert "cancelled" == result.stop_reason
    await assert_sound(store)


async def test_f069_a_late_decision_is_refused_with_the_reason() -> None:
    """F069: cancelled while suspended; the decision that comes then is not recorded, and says who
    cancelled the run and why.
    """
    world, store, question = await suspended()
    await cancel(store, RUN, actor="ann", reason="ordered twice")
    before = await kinds_of(store)

    with pytest.raises(NoteRefused, match=r"cancelled by ann \(ordered twice\)"):
        await world.agent.resume(RUN, {question: "run_again"}, context(FakeLLM("x"), store))
    with pytest.raises(NoteRefused, match="ordered twice"):
        await unpark(store, RUN)
    with pytest.raises((NoteRefused, InvalidDecision)):
        await settle_call(store, RUN, question, Decision("run_again"))

    assert before == await kinds_of(store)
    assert ["QuestionAsked", "StepCompleted", "CancelAsked"] == before[-6:-3]
    await assert_sound(store)


async def test_decisions_are_refused_from_the_note_on() -> None:
    """Also while nobody has carried the cancel out yet."""
    world, store, question = await suspended()
    await only_ask(store)

    with pytest.raises(NoteRefused, match="takes nothing any more"):
        await world.agent.resume(RUN, {question: "skip"}, context(FakeLLM("x"), store))
    result = await world.agent.run(TASK, context(FakeLLM("x"), store))

    assert "cancelled" == result.stop_reason
    await assert_sound(store)


@pytest.mark.parametrize(
    ("answer", "outcome"), [("done", "ok"), ("failed", "error"), ("run_again", "in_doubt")]
)
async def test_what_a_person_has_said_of_a_call_before_stays_its_outcome(
    answer: str, outcome: str
) -> None:
    """A fact about a call in doubt, decided and not applied yet, is what its result says."""
    _, store, question = await suspended()
    value = None if answer == "run_again" else "it was 7"
    await settle_call(store, RUN, question, Decision(answer, value, actor="bob"))

    await cancel(store, RUN)

    assert {0: outcome} == await outcomes_of(store)
    await assert_sound(store)


async def test_of_many_cancels_one_is_recorded() -> None:
    """A second one changes nothing, and it is no error."""
    _, store, _ = await suspended()

    await asyncio.gather(*(cancel(store, RUN, actor=f"a{number}") for number in range(8)))
    last = await cancel(store, RUN, actor="late")

    kinds = await kinds_of(store)
    assert (1, 1) == (kinds.count("CancelAsked"), kinds.count("Cancelled"))
    assert "cancelled" == last.status
    await assert_sound(store)


async def test_a_cancel_and_a_decision_at_once_leave_a_sound_run() -> None:
    """Whichever is recorded first: the run ends cancelled, and the call is made at most by the
    worker of a decision that came first.
    """
    for lead in range(12):
        world, store, question = await suspended()
        world.go.set()
        deciding = asyncio.create_task(
            world.agent.resume(RUN, {question: "run_again"}, context(then([]), store))
        )
        for _ in range(lead):
            await asyncio.sleep(0)
        await asyncio.gather(cancel(store, RUN), deciding, return_exceptions=True)

        assert (await load(store, RUN)).status in {"cancelled", "done"}
        await assert_sound(store)


async def test_a_run_that_has_ended_cannot_be_cancelled() -> None:
    """It says how the run ended; an unknown run is not made by it."""
    world = World()
    await world.agent.run(TASK, world.context(FakeLLM("done")))

    with pytest.raises(NoteRefused, match=r"has ended \(done\)"):
        await cancel(world.store, RUN)
    with pytest.raises(RunNotFound):
        await cancel(world.store, "other")
    assert await world.store.head("other") is None


async def test_a_parked_run_is_cancelled_at_once() -> None:
    """And unparking does not bring it back."""
    parked = InMemoryCheckpointStore()

    def locked(_: Sequence[Message]) -> Turn:
        raise ModelError("no key", kind="auth")

    agent = Agent("worker", prompt="Work.")
    await events_of(agent.stream(TASK, context(FakeLLM(locked), parked)))
    state = await cancel(parked, RUN)

    assert "cancelled" == state.status
    with pytest.raises(NoteRefused):
        await unpark(parked, RUN)
    await assert_sound(parked)


async def suspended() -> tuple[World, InMemoryCheckpointStore, str]:
    """A run that waits for a decision about `send`, whose worker died."""
    world = World()
    world.go.set()
    store = await died_after(e.ToolStarted, world.agent, then(calls(call("send", item="a"))))
    world.begun.clear()
    result = await world.agent.run(TASK, context(FakeLLM("unused"), store))
    assert result.suspended is not None
    return world, store, result.suspended.questions[0].id


async def only_ask(store: JournalPort) -> None:
    """What is left of a cancel whose process dies when its note is durable."""
    from agentkit.core.runtime import SystemClock

    journal = Journal(store, await load(store, RUN), clock=SystemClock(), lease=None)
    await journal.commit(lambda _: [e.CancelAsked("ann")], lane="", note_id="cancelled-1")
