"""Others act between two steps of a worker or an operator, and no fact is lost or turned around."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from agentkit.agents import AgentResult, settle_call
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import HeadMoved, InvalidDecision, LeaseLost
from agentkit.core.contracts.heads import Head, Lease, Row
from agentkit.core.contracts.ports import JournalPort, ToolThreads
from agentkit.core.contracts.slots import agent_lane
from agentkit.core.contracts.transactions import Proposal
from agentkit.core.contracts.types import Decision, Message
from agentkit.core.runtime import SystemClock
from agentkit.core.testing import FakeClock, FakeLLM, Turn
from agentkit.state.checkpoints.adapters import (
    InMemoryCheckpointStore,
    SqliteCheckpointStore,
    StoreWrapper,
)
from agentkit.state.journal.journal import Journal, append_note, load
from agentkit.state.journal.owner import owner_id
from agentkit.tools import Reconciled, ToolContext, Transaction, Unknown, tool
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
    told,
)

T = TypeVar("T")
LANE = agent_lane("worker")


def asking() -> FakeLLM:
    """A model that has something sent once, then says done."""
    return then(calls(call("send")))


async def note(store: JournalPort, body: e.Body) -> None:
    """Somebody's note."""
    await append_note(store, RUN, lambda _: [body], note_id="note", lane=LANE, clock=SystemClock())


async def steal(store: JournalPort) -> Lease:
    """Another worker, of which this process knows nothing, takes the run."""
    head = await store.head(RUN)
    assert head is not None
    return await store.acquire(RUN, owner_id("d-dead"), 15.0, supersede=head.epoch)


async def results_of(store: JournalPort) -> list[str]:
    """What the model was told of its calls."""
    return [one.content for one in await messages_of(store) if one.role == "tool"]


class Elsewhere(StoreWrapper):
    """The same store as another process sees it."""

    @property
    def location(self) -> str:
        return f"elsewhere {self.inner.location}"


class Overtaken(StoreWrapper):
    """Something happens right after the `count`-th look at the head."""

    def __init__(self, inner: JournalPort, *, count: int, then: Callable[[], Awaitable[None]]):
        super().__init__(inner)
        self.looks = [count]
        self.then = then

    async def head(self, run: str) -> Head | None:
        head = await super().head(run)
        self.looks[0] -= 1
        if not self.looks[0]:
            await self.then()
        return head


# --- operators ------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [True, False], ids=["asked", "unasked"])
async def test_a_word_about_one_attempt_is_not_taken_for_the_next(asked: bool) -> None:
    """While an operator looks at a call in doubt, it is made again: by a worker that may, or
    because somebody else decided so. His word about the first attempt is refused, and what the
    second one returns is its outcome.
    """
    entered, let_go = asyncio.Event(), asyncio.Event()

    @tool(side_effecting=True, idempotent=not asked)
    async def send(ctx: ToolContext) -> str:
        if ctx.attempt == 2:
            entered.set()
            await let_go.wait()
        return f"sent {ctx.attempt}"

    agent, llm = agent_of(send), asking()
    store = await died_after(e.ToolStarted, agent, llm)
    decisions = {}
    if asked:
        waiting = await agent.run(TASK, context(llm, store))
        assert waiting.suspended is not None
        decisions = {waiting.suspended.questions[0].id: "run_again"}
    tasks: list[asyncio.Task[AgentResult]] = []

    async def again() -> None:
        work = agent.resume(RUN, decisions, context(llm, store))
        tasks.append(asyncio.create_task(work))
        await entered.wait()

    overtaken = Overtaken(store, count=2, then=again)
    with pytest.raises(InvalidDecision, match="made again meanwhile"):
        await settle_call(overtaken, RUN, "1.0", Decision("failed", "it never arrived", "ann"))
    let_go.set()

    assert "done" == (await tasks[0]).output
    assert ["sent 2"] == await results_of(store)


async def test_what_a_worker_saw_counts_also_after_somebody_had_the_call_made_again() -> None:
    """While the next attempt has not begun, the fact is the outcome, and nothing runs twice."""
    entered, let_go = asyncio.Event(), asyncio.Event()
    runs: list[int] = []

    @tool(side_effecting=True)
    async def send(ctx: ToolContext) -> str:
        runs.append(ctx.attempt)
        entered.set()
        await let_go.wait()
        return "sent"

    store, llm, agent = InMemoryCheckpointStore(), asking(), agent_of(send)
    old = asyncio.create_task(agent.run(TASK, context(llm, store)))
    await entered.wait()
    await steal(store)
    await settle_call(store, RUN, "1.0", Decision("run_again", actor="ann"))
    let_go.set()
    with pytest.raises(LeaseLost):
        await old
    result = await agent.run(TASK, context(llm, Elsewhere(store)))

    assert ("done", [1]) == (result.output, runs)
    assert ["sent"] == await results_of(store)


# --- reconcile ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2])
async def test_an_outcome_reported_while_its_tool_looks_is_told(count: int) -> None:
    """The result comes before the end of its step, though another one has recorded it: also where
    the step ends with a question about a second call.
    """
    looking, let_go = asyncio.Event(), asyncio.Event()

    async def look() -> Reconciled:
        looking.set()
        await let_go.wait()
        return Unknown("no statement yet")

    @tool(side_effecting=True, reconcile=look)
    async def send() -> str:
        return "sent"

    agent = agent_of(send)
    llm = then(calls(*(call("send", call_id=f"c{n}") for n in range(count))))
    store = await died_after(e.ToolStarted, agent, llm)
    task = asyncio.create_task(events_of(agent.stream(TASK, context(llm, store))))
    await looking.wait()
    await note(store, e.OutcomeReported(1, 0, 1, "ok", "sent by the first"))
    let_go.set()

    ends = {
        1: ["step iteration:1", "message_delta done", "final completed"],
        2: ["interrupt send", "final suspended"],
    }
    assert ["tool_result send=sent by the first", *ends[count]] == told(await task)


@pytest.mark.parametrize("what", ["record", "once"])
async def test_a_look_that_wants_to_record_cannot_tell(what: str) -> None:
    """That is its author's mistake: a person is asked, with the reason; the run is not stuck."""

    async def look(ctx: ToolContext) -> Reconciled:
        if what == "record":
            await ctx.record("seen", lambda: 1)
        else:
            await ctx.once("seen", 60, lambda: 1)
        return Unknown()

    @tool(side_effecting=True, reconcile=look)
    async def send() -> str:
        return "sent"

    agent, llm = agent_of(send), asking()
    store = await died_after(e.ToolStarted, agent, llm)
    result = await agent.run(TASK, context(llm, store))

    assert result.suspended is not None
    assert "a reconcile function only looks" in result.suspended.questions[0].prompt


# --- replaced workers, runs that kill -------------------------------------------------------------


class ReplacedInBetween(StoreWrapper):
    """A note moves the head under a transaction; before it is read, another worker takes the run
    and completes the step.
    """

    def __init__(self, inner: JournalPort) -> None:
        super().__init__(inner)
        self.replaced: list[int] = []

    async def transact(
        self,
        run: str,
        act: Callable[[Transaction], T],
        conclude: Callable[[T], Proposal | None],
        *,
        after: int,
        lease: Lease,
        threads: ToolThreads,
        timeout_seconds: float,
    ) -> bool:
        first = not self.replaced
        if first:
            await note(self.inner, e.CheckpointSaved(1, "running", "{}"))
        try:
            return await super().transact(
                run,
                act,
                conclude,
                after=after,
                lease=lease,
                threads=threads,
                timeout_seconds=timeout_seconds,
            )
        except HeadMoved:
            if first:
                await self._replace()
            raise

    async def _replace(self) -> None:
        lease = await steal(self.inner)
        self.replaced.append(lease.epoch)
        state = await load(self.inner, RUN)
        journal = Journal(self.inner, state, clock=SystemClock(), lease=lease)
        for body in (
            e.LeaseTaken(lease.owner, "takeover", 1),
            e.ToolStarted(1, 0, "send", "digest", "key", 2, transactional=True),
            e.ToolFinished(1, 0, "ok", "sent", 2),
            e.StepCompleted(2, 1),
        ):
            await journal.commit(_always(body), lane=LANE)


def _always(body: e.Body) -> Callable[[object], Sequence[e.Body]]:
    return lambda _: [body]


async def test_a_worker_that_reads_of_its_replacement_buys_nothing(tmp_path: Path) -> None:
    """Also where it reads between two attempts at a transaction, and finds its call settled."""

    @tool(side_effecting=True, transactional=True)
    def send(transaction: Transaction) -> str:
        transaction.execute("CREATE TABLE sent (times)")
        return "sent"

    inner = SqliteCheckpointStore(tmp_path / "runs.db")
    store, asked = ReplacedInBetween(inner), []

    def answer(messages: Sequence[Message]) -> Turn:
        asked.append(bool(store.replaced))
        told = any(one.role == "tool" for one in messages)
        return Turn("done") if told else calls(call("send"))

    try:
        with pytest.raises(LeaseLost):
            await agent_of(send).run(TASK, context(FakeLLM(answer), store))

        assert store.replaced
        assert [False] == asked
        assert "StepCompleted" == (await kinds_of(inner))[-1]
    finally:
        await inner.aclose()


class Fatal(StoreWrapper):
    """Reading the run is what kills."""

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        raise MemoryError(run, after, limit)


async def test_f068_a_resumed_run_is_claimed_before_it_is_read() -> None:
    """So the worker that dies of reading it is counted, by whichever door it came."""

    @tool(side_effecting=True)
    async def send() -> str:
        return "sent"

    agent, llm = agent_of(send), asking()
    store = await died_after(e.ToolStarted, agent, llm)

    with pytest.raises(MemoryError):
        await agent.resume(RUN, {}, context(llm, Fatal(store)))

    head = await store.head(RUN)
    assert head is not None
    assert 1 == head.recoveries


async def test_what_a_worker_saw_is_on_record_though_somebody_said_otherwise() -> None:
    """It stalled past its lease, nobody took over, and an operator said that the call had failed.
    The operator's word counts; what the tool returned is kept beside it.
    """
    entered, let_go = asyncio.Event(), asyncio.Event()

    @tool(side_effecting=True)
    async def send() -> str:
        entered.set()
        await let_go.wait()
        return "sent"

    clock = FakeClock()
    store, llm = InMemoryCheckpointStore(clock=clock), then(calls(call("send")))
    task = asyncio.create_task(agent_of(send).run(TASK, context(llm, store)))
    await entered.wait()
    clock.advance(100)
    await settle_call(store, RUN, "1.0", Decision("failed", "no", "ann"))
    let_go.set()

    assert "done" == (await task).output
    assert ["no"] == [one.content for one in await messages_of(store) if one.role == "tool"]
    told_of = [(one.by, one.content) for one in await bodies_of(store, e.OutcomeReported)]
    assert [("ann", "no"), ("", "sent")] == told_of
