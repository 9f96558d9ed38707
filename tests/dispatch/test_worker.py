"""The worker: what it takes, what it lets be, and how it leaves."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence

import pytest

from agentkit.agents import (
    Agent,
    add_message,
    cancel,
    pause,
    record_decisions,
    send_event,
    submit,
    unpark,
)
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import InvalidSpec, StoreDamaged, StoreUnreachable
from agentkit.core.contracts.heads import Claimable
from agentkit.core.contracts.model import ModelReply, ModelRequest, TextDelta
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Message, Scope
from agentkit.core.testing import FakeClock, FakeLLM, Turn
from agentkit.dispatch import Worker
from agentkit.dispatch.worker import SURVEY_SECONDS
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, StoreWrapper
from agentkit.state.journal.journal import load
from agentkit.state.journal.lease import LEASE_SECONDS
from agentkit.tools import ToolContext, tool
from tests.agents.kit import RUN, TASK, agent_of, call, calls, context, died_after, kinds_of, then
from tests.dispatch.kit import SOON_SECONDS, Told, pass_time, worker_of, working


@tool(side_effecting=True)
async def send() -> str:
    """Send something."""
    return "sent"


@tool(side_effecting=False)
async def rest(ctx: ToolContext) -> str:
    """Sleep for an hour."""
    await ctx.sleep(3600)
    return "rested"


@tool(side_effecting=False)
async def payment(ctx: ToolContext) -> str:
    """Wait for the payment."""
    return f"paid {await ctx.wait_for('payment')}"


async def _submitted(store: JournalPort, *runs: str, agent: str = "worker") -> None:
    for run in runs:
        await submit(store, run, TASK, agent=agent)


async def _idle(worker: Worker) -> None:
    async with asyncio.timeout(SOON_SECONDS):
        await worker.run(until_idle=True)


async def _statuses(store: JournalPort) -> dict[str, str]:
    listed, _ = await store.list_runs()
    return {one.run: one.summary.status for one in listed}


async def test_submitted_runs_are_begun_and_driven_to_their_end() -> None:
    """Of every scope; each is told with why it was due, and how it ended."""
    store, told = InMemoryCheckpointStore(), Told()
    await _submitted(store, "a", "b")
    await _submitted(store.scoped(Scope("acme", "ann")), "c")

    await _idle(worker_of([agent_of()], store, told, llm=FakeLLM("done")))

    assert {"a": "done", "b": "done"} == await _statuses(store)
    assert {"c": "done"} == await _statuses(store.scoped(Scope("acme", "ann")))
    assert {("claimed", run) for run in "abc"} | {("ended", run) for run in "abc"} == set(
        told.of("claimed", "ended", "failed", "left")
    )
    assert {"it was submitted"} == set(told.texts("claimed"))
    assert {"completed"} == set(told.texts("ended"))
    assert "acme/ann" in {one.scope for one in told.events}
    assert "stopped" == told.events[-1].kind


async def test_a_run_whose_worker_is_proved_dead_is_taken_over_at_once() -> None:
    """Its lease has not lapsed; nothing that was recorded is bought or done again."""
    llm = then(calls(call("send")))
    store, told = await died_after(e.ToolFinished, agent_of(send), llm), Told()
    bought = len(llm.requests)

    await _idle(worker_of([agent_of(send)], store, told, llm=llm))

    assert ["its worker was gone"] == told.texts("claimed")
    assert {RUN: "done"} == await _statuses(store)
    assert 1 == len(llm.requests) - bought


async def test_a_run_that_somebody_alive_holds_is_let_be() -> None:
    """That is no error and nothing to tell; other runs go on beside it."""
    store, told = InMemoryCheckpointStore(), Told()
    await _submitted(store, "held", "free")
    await store.acquire("held", "somebody elsewhere", 15.0)

    await _idle(worker_of([agent_of()], store, told, llm=FakeLLM("done")))

    assert {"held": "submitted", "free": "done"} == await _statuses(store)
    assert [("claimed", "free"), ("ended", "free")] == told.of("claimed", "ended", "left", "failed")


async def test_a_run_whose_holder_cannot_be_proved_dead_is_taken_when_its_lease_lapses() -> None:
    """Not before: its worker may live on another machine."""
    clock = FakeClock()
    store, told = InMemoryCheckpointStore(clock=clock), Told()
    await submit(store, RUN, TASK, agent="worker", clock=clock)
    await store.acquire(RUN, "somebody elsewhere", LEASE_SECONDS)
    began = clock.elapsed()
    worker = worker_of([agent_of()], store, told, llm=FakeLLM("done"), clock=clock)

    async with working(worker):
        await pass_time(clock, told, "claimed")
        waited = clock.elapsed() - began
        await pass_time(clock, told, "ended")

    assert LEASE_SECONDS <= waited <= LEASE_SECONDS + 1
    assert ["its worker was gone"] == told.texts("claimed")


async def test_f077_workers_that_are_replaced_again_and_again_use_up_nothing() -> None:
    """Ten deploys during one slow answer: nobody died, so no recovery is counted, and the run is
    not parked; each cut answer is listed as one that may have been paid.
    """
    store, asked = InMemoryCheckpointStore(), asyncio.Semaphore(0)

    class Slow:
        origin = "fake"

        async def attempt(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
            asked.release()
            await asyncio.Event().wait()
            yield TextDelta("never")

    await _submitted(store, RUN)
    for _ in range(10):
        worker = worker_of([agent_of()], store, Told(), llm=Slow(), grace_seconds=0.0)
        async with working(worker):
            await asked.acquire()
            worker.stop()
    left = await load(store, RUN)
    await _idle(worker_of([agent_of()], store, Told(), llm=FakeLLM("done")))

    assert (0, 0, 10) == (left.recoveries, left.takeovers, left.usage.unknown)
    assert {RUN: "done"} == await _statuses(store)


class Overtaken(StoreWrapper):
    """Whoever wants to take a run finds that somebody else has just taken it."""

    async def claimable(
        self, *, agents: Collection[str] | None = None, limit: int = 100
    ) -> list[Claimable]:
        found = await super().claimable(agents=agents, limit=limit)
        for one in found:
            if not one.held:
                await self.inner.acquire(one.run, "somebody elsewhere", 15.0)
        return found


async def test_a_run_that_another_worker_took_first_is_no_error() -> None:
    """Nothing is told of it."""
    store, told = InMemoryCheckpointStore(), Told()
    await _submitted(store, "a")

    await _idle(worker_of([agent_of()], Overtaken(store), told, llm=FakeLLM("done")))

    assert [] == told.of("claimed", "ended", "left", "failed")
    assert {"a": "submitted"} == await _statuses(store)


@pytest.mark.parametrize("waker", ["time", "event", "decision", "cancel"])
async def test_a_run_that_waits_is_given_up_and_taken_when_its_waker_comes(waker: str) -> None:
    """A timer by the store's clock, an event, a person's answer, a cancel."""
    clock = FakeClock()
    store, told = InMemoryCheckpointStore(clock=clock), Told()
    waits = {"time": rest, "event": payment}.get(waker, send)
    agent, llm = agent_of(waits), then(calls(call(waits.definition.name)))
    await submit(store, RUN, TASK, agent="worker", autonomy="manual", clock=clock)
    worker = worker_of([agent], store, told, llm=llm, clock=clock, poll_seconds=1.0)

    async with working(worker):
        await told.until("suspended")
        head = await store.head(RUN)
        state = await load(store, RUN)
        if waker == "event":
            await send_event(store, RUN, "payment", 7, clock=clock)
        elif waker == "decision":
            [question] = state.questions
            await record_decisions(store, RUN, {question.id: "approve"}, clock=clock)
        elif waker == "cancel":
            await cancel(store, RUN, clock=clock)
        if waker == "time":
            clock.advance(3600)
        if waker != "cancel":
            await pass_time(clock, told, "ended")

    assert head is not None
    assert "" == head.owner
    woken = {"time": ["its time has come"], "cancel": []}.get(waker, ["it can go on"])
    assert ["it was submitted", *woken] == told.texts("claimed")
    waited = {"time": "1 moment", "event": "1 event"}.get(waker, "1 decision")
    assert [f"waits for {waited}"] == told.texts("suspended")
    expected = {RUN: "cancelled" if waker == "cancel" else "done"}
    assert expected == await _statuses(store)


async def test_f121_a_message_alone_wakes_no_run_that_waits_for_a_person() -> None:
    """It is read with the answer."""
    store, told, llm = InMemoryCheckpointStore(), Told(), then(calls(call("send")))
    await submit(store, RUN, TASK, agent="worker", autonomy="manual")
    await _idle(worker_of([agent_of(send)], store, told, llm=llm))
    await add_message(store, RUN, "quickly")

    await _idle(worker_of([agent_of(send)], store, told, llm=llm))
    [question] = (await load(store, RUN)).questions
    await record_decisions(store, RUN, {question.id: "approve"})
    await _idle(worker_of([agent_of(send)], store, told, llm=llm))

    assert 2 == len(told.texts("claimed"))
    assert ["sent", "quickly"] == [one.content for one in llm.requests[-1].messages[-2:]]


async def test_a_parked_or_paused_run_is_told_once_and_let_be() -> None:
    """Until somebody unparks it."""
    store, told, llm = InMemoryCheckpointStore(), Told(), then(calls(call("send")))
    impatient = agent_of(send, max_iterations=1)
    await _submitted(store, "impatient", "paused")
    await pause(store, "paused")

    await _idle(worker_of([impatient], store, told, llm=llm))
    await _idle(worker_of([impatient], store, told, llm=llm))
    parked = await _statuses(store)
    await unpark(store, "paused")
    await _idle(worker_of([agent_of(send)], store, told, llm=llm))

    assert {"impatient": "parked", "paused": "parked"} == parked
    assert [("parked", "impatient")] == told.of("parked")
    assert "max_iterations" in told.texts("parked")[0]
    assert {"impatient": "parked", "paused": "done"} == await _statuses(store)


class Counted:
    """A tool that knows how many of its calls were under way at once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.go_on = asyncio.Event()
        self.begun = asyncio.Semaphore(0)

    def agent(self) -> Agent:
        """An agent with it."""

        @tool(side_effecting=True)
        async def hold() -> str:
            """Wait."""
            self.now += 1
            self.most = max(self.most, self.now)
            self.begun.release()
            await self.go_on.wait()
            self.now -= 1
            return "held"

        return Agent("worker", cognition=ReActCognition([hold]))


async def test_no_more_runs_are_driven_at_a_time_than_was_said() -> None:
    """And as many as that; when one ends the next one is taken."""
    store, told, counted = InMemoryCheckpointStore(), Told(), Counted()
    await _submitted(store, *(f"r{number}" for number in range(9)))
    llm = then(calls(call("hold")))
    worker = worker_of([counted.agent()], store, told, llm=llm, concurrency=3)

    async with working(worker):
        for _ in range(3):
            await counted.begun.acquire()
        counted.go_on.set()
        await told.until("ended", 9)

    assert 3 == counted.most
    assert {"done"} == set((await _statuses(store)).values())


async def test_two_workers_share_a_store() -> None:
    """Every run is driven once, by one of them."""
    store, tolds, llm = InMemoryCheckpointStore(), (Told(), Told()), then(calls(call("send")))
    runs = [f"r{number}" for number in range(20)]
    await _submitted(store, *runs)

    await asyncio.gather(
        *(_idle(worker_of([agent_of(send)], store, told, llm=llm)) for told in tolds)
    )

    ended = [run for told in tolds for _, run in told.of("ended")]
    assert sorted(runs) == sorted(ended)
    assert 2 * len(runs) == len(llm.requests)
    assert [] == [*tolds[0].of("failed"), *tolds[1].of("failed")]


async def test_runs_of_other_agents_are_let_be_and_named_once() -> None:
    """Again after a while only where another agent turns up."""
    clock = FakeClock()
    store, told = InMemoryCheckpointStore(clock=clock), Told()
    await _submitted(store, "a", "b", agent="somebody")
    await _submitted(store, "mine")
    worker = worker_of([agent_of()], store, told, llm=FakeLLM("done"), clock=clock)

    async with working(worker):
        await told.until("ended")
        await _submitted(store, "c", agent="shop:other")
        clock.advance(SURVEY_SECONDS)
        await told.until("unknown_agent", 2)

    named = [one.agent for one in told.events if one.kind == "unknown_agent"]
    assert ["somebody", "shop:other"] == named
    assert {"a": "submitted", "b": "submitted", "c": "submitted", "mine": "done"} == (
        await _statuses(store)
    )


async def test_a_run_that_always_fails_is_tried_less_and_less_and_stops_no_other() -> None:
    """The model of its agent cannot be made; after 1, 2, 4, … seconds it is tried again."""
    clock = FakeClock()
    store, told = InMemoryCheckpointStore(clock=clock), Told()
    broken = Agent("broken", "nobody:knows")
    await _submitted(store, "bad", agent="broken")
    worker = worker_of(
        [broken, Agent("worker", FakeLLM("done"))], store, told, clock=clock, poll_seconds=0.25
    )

    async with working(worker):
        await told.until("failed")
        await _submitted(store, "good")
        await pass_time(clock, told, "failed", 4)
        failing = worker.failing

    waits = [text.rpartition("tried again in ")[2] for text in told.texts("failed")]
    assert ["1 s)", "2 s)", "4 s)", "8 s)"] == waits
    assert 1 == failing
    assert {"bad": "submitted", "good": "done"} == await _statuses(store)


async def test_a_worker_that_leaves_when_idle_does_not_wait_for_what_fails() -> None:
    """It says how many there are."""
    store, told = InMemoryCheckpointStore(), Told()
    await _submitted(store, "bad")
    worker = worker_of([Agent("worker", "nobody:knows")], store, told)

    await _idle(worker)

    assert 1 == worker.failing == len(told.of("failed"))


class Away(StoreWrapper):
    """A store that can be taken away from whoever looks for runs."""

    error: Exception | None = None
    looks = 0

    async def claimable(
        self, *, agents: Collection[str] | None = None, limit: int = 100
    ) -> list[Claimable]:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return await super().claimable(agents=agents, limit=limit)


async def test_a_store_that_goes_away_is_waited_for() -> None:
    """That is told once, and that it is back; the waits grow."""
    clock = FakeClock()
    inner, told = InMemoryCheckpointStore(clock=clock), Told()
    store = Away(inner)
    worker = worker_of([agent_of()], store, told, llm=FakeLLM("done"), clock=clock)

    async with working(worker):
        await _submitted(inner, "a")
        await pass_time(clock, told, "ended")
        store.error = StoreUnreachable("no route to it")
        await pass_time(clock, told, "outage")
        store.looks = 0
        before = clock.elapsed()
        while clock.elapsed() < before + 100:
            clock.advance(0.25)
            for _ in range(20):
                await asyncio.sleep(0)
        looks = store.looks
        await _submitted(inner, "b")
        store.error = None
        await pass_time(clock, told, "ended", 2)

    assert 7 == looks  # after 1, 2, 4, 8, 16, 30 and 30 seconds
    assert ["the store does not answer: no route to it"] == told.texts("outage")
    assert ["the store answers again"] == told.texts("back")


async def test_a_store_that_does_not_answer_at_the_beginning_is_an_error() -> None:
    """A wrong address is noticed by whoever starts the worker."""
    store = Away(InMemoryCheckpointStore())
    store.error = StoreUnreachable("no route to it")

    with pytest.raises(StoreUnreachable, match="no route"):
        await worker_of([agent_of()], store, Told()).run()


async def test_a_store_that_is_damaged_ends_the_worker() -> None:
    """What is under way is given back first."""
    inner, told, counted = InMemoryCheckpointStore(), Told(), Counted()
    store, llm = Away(inner), then(calls(call("hold")))
    await _submitted(inner, "a")
    worker = worker_of([counted.agent()], store, told, llm=llm, grace_seconds=0.0)
    task = asyncio.get_running_loop().create_task(worker.run())
    await counted.begun.acquire()
    store.error = StoreDamaged("broken")

    with pytest.raises(StoreDamaged):
        async with asyncio.timeout(SOON_SECONDS):
            await task

    assert "" == await _owner(inner, "a")


async def _owner(store: JournalPort, run: str) -> str:
    head = await store.head(run)
    return "nobody knows it" if head is None else head.owner


async def test_f066_stopping_lets_what_is_under_way_end() -> None:
    """Its outcome is recorded, nothing new begins, no run is held, and waiting ones stay."""
    store, told, counted = InMemoryCheckpointStore(), Told(), Counted()
    await _submitted(store, "a", "b")
    llm = then(calls(call("hold")))
    worker = worker_of([counted.agent()], store, told, llm=llm, concurrency=1, grace_seconds=60.0)

    async with working(worker) as task:
        await counted.begun.acquire()
        worker.stop()
        for _ in range(100):
            await asyncio.sleep(0)
        still = not task.done()
        counted.go_on.set()
        async with asyncio.timeout(SOON_SECONDS):
            await task

    [taken] = [run for _, run in told.of("claimed")]
    assert still
    assert ["", ""] == [await _owner(store, run) for run in ("a", "b")]
    assert ["RunSubmitted", "RunStarted", "LeaseTaken", "ModelAnswered", "ToolStarted"] == (
        await kinds_of(store, taken)
    )[:5]
    assert "ToolFinished" in await kinds_of(store, taken)
    assert 1 == len(llm.requests)
    assert [("left", taken)] == told.of("left", "ended", "failed")
    assert ["running", "submitted"] == sorted((await _statuses(store)).values())


@pytest.mark.parametrize("how", ["no grace", "again", "cancelled"])
async def test_f066_stopping_at_once_leaves_every_run_resumable(how: str) -> None:
    """A tool that is cut off may have happened: the next worker asks."""
    store, told, counted = InMemoryCheckpointStore(), Told(), Counted()
    await _submitted(store, "a")
    llm = then(calls(call("hold")))
    worker = worker_of([counted.agent()], store, told, llm=llm, grace_seconds=3600.0)

    async with working(worker) as task:
        await counted.begun.acquire()
        if how == "cancelled":
            task.cancel()
        else:
            worker.stop(grace_seconds=0.0 if how == "no grace" else None)
        if how == "again":
            worker.stop(grace_seconds=0.0)
        async with asyncio.timeout(SOON_SECONDS):
            await asyncio.wait([task])
    left = await _owner(store, "a")
    await _idle(worker_of([counted.agent()], store, told, llm=llm))

    assert "" == left
    assert [("left", "a")] == told.of("left")
    assert {"a": "suspended"} == await _statuses(store)
    assert "in_doubt" == (await load(store, "a")).questions[0].kind


async def test_a_worker_that_was_stopped_before_it_began_does_nothing() -> None:
    """So a signal that comes early is not lost."""
    store, told = InMemoryCheckpointStore(), Told()
    await _submitted(store, "a")
    worker = worker_of([agent_of()], store, told, llm=FakeLLM("done"))
    worker.stop()

    await worker.run()

    assert {"a": "submitted"} == await _statuses(store)


async def test_stopping_leaves_alone_what_the_program_drives_itself() -> None:
    """Only the worker's own runs are drained."""
    store, told, counted = InMemoryCheckpointStore(), Told(), Counted()
    llm = then(calls(call("hold")))
    own = asyncio.get_running_loop().create_task(
        counted.agent().run(TASK, context(llm, store, run_id="own"))
    )
    await counted.begun.acquire()
    worker = worker_of([counted.agent()], store, told, llm=llm)
    async with working(worker):
        worker.stop(grace_seconds=0.0)
    counted.go_on.set()

    [ended] = await asyncio.gather(own, return_exceptions=True)

    assert "done" == getattr(ended, "output", repr(ended))


async def test_a_run_that_is_lost_to_another_worker_is_told_and_stops_no_other() -> None:
    """The one that has it goes on with it."""
    store, told = InMemoryCheckpointStore(), Told()
    await _submitted(store, "a", "b")
    stolen: list[str] = []

    def answer(_: Sequence[Message]) -> Turn:
        held = [run.head for run in store._data.runs.values() if run.head.owner]
        for head in [] if stolen else held:
            stolen.append(head.run)
            store._data.acquire(("", head.run), "thief", 15.0, supersede=head.epoch, above=0)
        return Turn("done")

    worker = worker_of([agent_of()], store, told, llm=FakeLLM(answer), concurrency=1)

    async with working(worker):
        await told.until("left")
        await told.until("ended")

    assert "This worker must stop acting" in told.texts("left")[0]
    assert [("left", *stolen)] == told.of("left", "failed")
    assert ["done", "running"] == sorted((await _statuses(store)).values())


@pytest.mark.parametrize(
    "wrong", [{"concurrency": 0}, {"poll_seconds": 0.0}, {"poll_seconds": float("nan")}]
)
def test_numbers_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    """Before anything is opened."""
    with pytest.raises(InvalidSpec, match="must be positive"):
        Worker([agent_of()], store=InMemoryCheckpointStore(), **wrong)  # type: ignore[arg-type]


async def test_a_worker_opens_and_closes_a_store_that_is_named_by_its_url(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """The file is made where it is not there yet."""
    told = Told()
    worker = Worker([agent_of()], store=f"sqlite:///{tmp_path}/runs.db", on_event=told)

    await _idle(worker)

    assert ["begun", "stopped"] == [one.kind for one in told.events]
