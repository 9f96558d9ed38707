"""What a tool sees of its run, through a whole run and over workers."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import LeaseLost, StoreUnreachable
from agentkit.core.contracts.heads import Head, Lease, Row, Summary
from agentkit.core.contracts.types import JSON, Scope
from agentkit.core.testing import FakeClock, FakeLLM
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, StoreWrapper
from agentkit.state.journal.journal import APPEND_RETRY_SECONDS
from agentkit.state.journal.lease import Tenure
from agentkit.tools import ToolContext, tool
from agentkit.tools.threads import DaemonThreads
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
    messages_of,
    then,
    told,
)


async def test_a_tool_sees_whose_run_it_is_and_which_attempt() -> None:
    """Run, scope, identity, tool, label, attempt and the epoch as fencing token."""
    seen: list[ToolContext] = []

    @tool(side_effecting=True, idempotent=True)
    async def put(ctx: ToolContext) -> None:
        seen.append(ctx)

    store, scope = InMemoryCheckpointStore(), Scope(tenant="acme", user="ann")
    llm = then(calls(call("put", call_id="label")))
    ctx = context(llm, store, scope=scope, identity="ann@acme")

    await agent_of(put).run(TASK, ctx)

    [started] = await bodies_of(store.scoped(scope), e.ToolStarted)
    [entry, *_] = await entries_of(store.scoped(scope))
    assert [(RUN, scope, "ann@acme", "put", "label", 1, entry.epoch, started.key)] == [
        (
            one.run_id,
            one.scope,
            one.identity,
            one.tool,
            one.call_id,
            one.attempt,
            one.fencing_token,
            one.idempotency_key,
        )
        for one in seen
    ]


async def test_f046_every_call_has_a_key_of_its_own_that_the_model_never_sees() -> None:
    """Equal arguments, equal labels, another turn, another run of the same id: other keys."""
    keys: list[str] = []

    @tool(side_effecting=True, idempotent=True)
    async def put(what: str, ctx: ToolContext) -> str:
        keys.append(ctx.idempotency_key)
        return "ok"

    @tool(side_effecting=False)
    async def read(ctx: ToolContext) -> str:
        assert "" == ctx.idempotency_key
        return "ok"

    turn = calls(call("put", call_id="", what="x"), call("put", call_id="", what="x"), call("read"))
    llm = then([turn, turn])
    for _ in range(2):
        await agent_of(put, read).run(TASK, context(llm, InMemoryCheckpointStore()))

    assert (8, 8) == (len(keys), len(set(keys)))
    schema = llm.requests[0].tools[0].parameters
    assert ["what"] == list(schema["properties"])  # type: ignore[arg-type]  # a schema
    assert not any(key in repr(request.messages) for key in keys for request in llm.requests)


async def test_key_and_values_stay_over_attempts_and_the_token_grows_with_the_worker() -> None:
    """The first worker died after its first recorded step; the second goes on behind it."""
    steps: list[str] = []

    def step(name: str, value: JSON) -> JSON:
        steps.append(name)
        return value

    seen: list[tuple[str, int, int, JSON]] = []
    die = True

    @tool(side_effecting=True, idempotent=True)
    async def charge(ctx: ToolContext) -> str:
        first = await ctx.record("first", lambda: step("first", {"n": 1}))
        seen.append((ctx.idempotency_key, ctx.attempt, ctx.fencing_token, first))
        if die:
            reached.set()
            await asyncio.Event().wait()
        second = await ctx.record("second", lambda: step("second", "two"))
        return f"{first} {second}"

    reached = asyncio.Event()
    agent, llm, first = agent_of(charge), then(calls(call("charge"))), InMemoryCheckpointStore()
    task = asyncio.create_task(agent.run(TASK, context(llm, first)))
    await reached.wait()
    store = await dead_worker(await entries_of(first))
    task.cancel()
    await asyncio.wait({task})
    die = False

    result = await agent.run(TASK, context(llm, store))

    (key, *_), (again, *_) = seen
    assert "done" == result.output
    assert (["first", "second"], key) == (steps, again)
    assert [(1, {"n": 1}), (2, {"n": 1})] == [(attempt, value) for _, attempt, _, value in seen]
    assert seen[1][2] > seen[0][2]
    assert ["first", "second"] == [one.name for one in await bodies_of(store, e.ValueRecorded)]


async def test_a_recorded_value_is_what_reading_it_back_gives() -> None:
    """Live equals resumed: a tuple is a list the first time already."""
    seen: list[JSON] = []

    @tool(side_effecting=False)
    async def read(ctx: ToolContext) -> str:
        seen.append(await ctx.record("pair", lambda: (1, "two")))
        seen.append(await ctx.record("pair", lambda: "never called"))
        return "ok"

    await agent_of(read).run(TASK, context(then(calls(call("read"))), InMemoryCheckpointStore()))

    assert [[1, "two"], [1, "two"]] == seen


async def test_sync_tools_record_and_tell_from_their_thread() -> None:
    """`record_sync` and `progress` work from a thread; the value is in the journal."""

    @tool(side_effecting=False)
    def count(ctx: ToolContext) -> str:
        ctx.progress("counting")
        return str(ctx.record_sync("n", lambda: 7))

    store = InMemoryCheckpointStore()

    events = await events_of(
        agent_of(count).stream(TASK, context(then(calls(call("count"))), store))
    )

    assert ["tool_call count", "progress counting", "tool_result count=7"] == told(events)[:3]
    assert ["7"] == [one.value for one in await bodies_of(store, e.ValueRecorded)]


@pytest.mark.parametrize(
    ("options", "attempts", "outcome"),
    [
        ({"side_effecting": False}, 1, "ValueError: number 1"),
        ({"side_effecting": False, "max_attempts": 3}, 3, "ok"),
        ({"side_effecting": False, "max_attempts": 2}, 2, "ValueError: number 2"),
        ({"side_effecting": True, "idempotent": True, "max_attempts": 3}, 3, "ok"),
        ({"side_effecting": True}, 1, "ValueError: number 1"),
    ],
)
async def test_max_attempts_is_the_number_of_attempts(
    options: dict[str, bool], attempts: int, outcome: str
) -> None:
    """Only what may run again is tried again; keys stay, attempts are told one by one."""
    seen: list[tuple[int, str]] = []

    @tool(**options)  # type: ignore[arg-type]  # bool or int by name
    async def shaky(ctx: ToolContext) -> str:
        seen.append((ctx.attempt, ctx.idempotency_key))
        if len(seen) < 3:
            raise ValueError(f"number {len(seen)}")
        return "ok"

    store = InMemoryCheckpointStore()

    events = await events_of(
        agent_of(shaky).stream(TASK, context(then(calls(call("shaky"))), store))
    )

    called = [event.attempt for event in events if event.type == "tool_call"]
    assert list(range(1, attempts + 1)) == [attempt for attempt, _ in seen] == called
    assert 1 == len({key for _, key in seen})
    assert f"tool_result shaky={outcome}" in told(events)


async def test_f072_a_store_that_fails_is_no_outcome_of_a_tool() -> None:
    """The append of an outcome fails for good: the run stops, resumable, and nothing runs twice."""
    ran: list[str] = []

    @tool(side_effecting=True)
    async def send() -> str:
        ran.append("sent")
        return "sent"

    class Full(StoreWrapper):
        full = False
        refused = 0

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
            if Full.full and b"tool_finished" in b"".join(row.body for row in rows):
                Full.refused += 1
                raise StoreUnreachable("disk full")
            return await super().append(
                run, rows, after=after, lease=lease, summary=summary, release=release
            )

    inner, clock = InMemoryCheckpointStore(), FakeClock()
    llm = then(calls(call("send")))
    Full.full = True
    task = asyncio.create_task(agent_of(send).run(TASK, context(llm, Full(inner), clock=clock)))
    while not task.done():
        await asyncio.sleep(0)
        clock.advance(3.0)
    with pytest.raises(StoreUnreachable, match="disk full"):
        await task
    Full.full = False

    result = await agent_of(send).run(TASK, context(llm, inner))

    assert Full.refused >= 1 + len(APPEND_RETRY_SECONDS)
    assert (["sent"], "suspended") == (ran, result.stop_reason)
    assert [] == await bodies_of(inner, e.ToolFinished)


async def test_f072_a_short_outage_is_ridden_out() -> None:
    """As many failures as there are waits: the outcome is recorded, and the run goes on."""
    ran: list[str] = []

    @tool(side_effecting=True)
    async def send() -> str:
        ran.append("sent")
        return "sent"

    class Outage(StoreWrapper):
        refused = 0

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
            outage = Outage.refused < len(APPEND_RETRY_SECONDS)
            if outage and b"tool_finished" in b"".join(row.body for row in rows):
                Outage.refused += 1
                raise StoreUnreachable("away")
            return await super().append(
                run, rows, after=after, lease=lease, summary=summary, release=release
            )

    clock, llm = FakeClock(), then(calls(call("send")))
    ctx = context(llm, Outage(InMemoryCheckpointStore()), clock=clock)
    task = asyncio.create_task(agent_of(send).run(TASK, ctx))
    while not task.done():
        await asyncio.sleep(0)
        clock.advance(3.0)

    assert (["sent"], "done") == (ran, (await task).output)
    assert len(APPEND_RETRY_SECONDS) == Outage.refused


async def test_f014_an_outcome_is_kept_when_a_sibling_meets_a_failing_store() -> None:
    """Both end in one moment: the drive stops for the store's error, and records the outcome."""
    ran: list[str] = []

    @tool(side_effecting=True)
    async def send() -> str:
        ran.append("sent")
        return "sent"

    @tool(side_effecting=False)
    async def read() -> str:
        if not ran:
            raise StoreUnreachable("the tool's own store, which is ours")
        return "text"

    store = InMemoryCheckpointStore()
    llm = then(calls(call("read"), call("send", call_id="c2")))
    with pytest.raises(StoreUnreachable):
        await agent_of(read, send).run(TASK, context(llm, store))

    result = await agent_of(read, send).run(TASK, context(llm, store))

    assert (["sent"], "done") == (ran, result.output)


async def test_twenty_tools_that_end_at_once_have_twenty_outcomes() -> None:
    """F014: a barrier lets all go in one moment; none is lost, order is that of the calls."""
    barrier = asyncio.Barrier(20)

    @tool(side_effecting=False)
    async def meet(n: int) -> str:
        await barrier.wait()
        return str(n)

    store = InMemoryCheckpointStore()
    llm = then(calls(*(call("meet", call_id=f"c{n}", n=n) for n in range(20))))

    await agent_of(meet).run(TASK, context(llm, store))

    results = [message.content for message in await messages_of(store) if message.role == "tool"]
    assert [str(n) for n in range(20)] == results
    assert 20 == len(await bodies_of(store, e.ToolFinished))
    assert 1 == len(await bodies_of(store, e.StepCompleted))


async def test_f019_each_outcome_is_durable_as_its_call_ends() -> None:
    """Four of five have ended and the fifth hangs: the four are in the journal."""
    hanging = asyncio.Event()

    @tool(side_effecting=False)
    async def work(n: int) -> str:
        if n == 2 and not hanging.is_set():
            hanging.set()
            await asyncio.Event().wait()
        ran.append(n)
        return str(n)

    ran: list[int] = []
    llm = then(calls(*(call("work", call_id=f"c{n}", n=n) for n in range(5))))
    first = InMemoryCheckpointStore()
    task = asyncio.create_task(agent_of(work).run(TASK, context(llm, first)))
    while len(await bodies_of(first, e.ToolFinished)) < 4:  # noqa: ASYNC110 - a store has no event
        await asyncio.sleep(0)
    store = await dead_worker(await entries_of(first))
    task.cancel()
    await asyncio.wait({task})

    result = await agent_of(work).run(TASK, context(llm, store))

    assert ("done", [0, 1, 3, 4, 2]) == (result.output, ran)


async def test_a_model_is_never_a_port_of_its_own_retries() -> None:
    """The request carries the invoker's time limit, and the recorded tools."""
    llm = FakeLLM("x")

    await agent_of().run(TASK, context(llm, InMemoryCheckpointStore()))

    assert [(600.0, ())] == [(request.timeout_seconds, request.tools) for request in llm.requests]


async def test_an_attempt_that_was_left_behind_is_heard_no_more() -> None:
    """A thread that outlived its call does no step and tells nothing in another call's name."""
    next_turn, over = threading.Event(), threading.Event()
    refused: list[BaseException] = []
    steps: list[str] = []

    @tool(side_effecting=False)
    def quick() -> str:
        return "quick"

    @tool(side_effecting=False, timeout=0.05)
    def slow(ctx: ToolContext) -> None:
        next_turn.wait(30)
        ctx.progress("half")
        try:
            ctx.record_sync("step", lambda: steps.append("of the old call"))
        except LeaseLost as exc:
            refused.append(exc)
        over.set()

    @tool(side_effecting=True)
    def pay(ctx: ToolContext) -> str:
        next_turn.set()
        over.wait(30)
        ctx.record_sync("step", lambda: steps.append("of the new call"))
        return "paid"

    llm = then([calls(call("quick"), call("slow", call_id="c2")), calls(call("pay"))])
    agent = agent_of(quick, slow, pay)
    events = await events_of(agent.stream(TASK, context(llm, InMemoryCheckpointStore())))

    assert "final completed" == told(events)[-1]
    assert ["of the new call"] == steps
    assert "this attempt at slow is over, so 'step' was not done" in str(refused[0])
    assert not [event for event in events if event.type == "progress"]


async def test_a_step_is_not_begun_without_the_lease_and_one_that_was_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lease that may have lapsed stops the next step; what one did is for the store to take."""
    steps: list[str] = []

    def step(name: str, *, lapses: bool) -> str:
        if lapses:
            monkeypatch.setattr(Tenure, "may_act", lambda _: False)
        steps.append(name)
        return name

    @tool(side_effecting=True, idempotent=True)
    async def pay(ctx: ToolContext) -> str:
        await ctx.record("first", lambda: step("first", lapses=ctx.attempt == 1))
        return str(await ctx.record("second", lambda: step("second", lapses=False)))

    store, llm = InMemoryCheckpointStore(), then(calls(call("pay")))
    with pytest.raises(LeaseLost, match="may have lapsed"):
        await agent_of(pay).run(TASK, context(llm, store))
    assert ["first"] == steps
    monkeypatch.undo()

    await agent_of(pay).run(TASK, context(llm, store))

    assert ["first", "second"] == steps


async def test_a_call_that_waited_for_a_thread_does_not_begin_without_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lease is asked for when the thread is there, not when the call was put in the queue."""
    paid: list[int] = []

    @tool(side_effecting=False)
    def hold() -> None:
        monkeypatch.setattr(Tenure, "may_act", lambda _: False)

    @tool(side_effecting=True, idempotent=True)
    def pay(ctx: ToolContext) -> None:
        paid.append(ctx.attempt)

    store, llm = InMemoryCheckpointStore(), then(calls(call("hold"), call("pay", call_id="c2")))
    ctx = context(llm, store)
    ctx = replace(ctx, services=replace(ctx.services, threads=DaemonThreads(1)))
    with pytest.raises(LeaseLost, match="may have lapsed"):
        await agent_of(hold, pay).run(TASK, ctx)
    assert [] == paid
    monkeypatch.undo()

    await agent_of(hold, pay).run(TASK, context(llm, store))

    assert [2] == paid
