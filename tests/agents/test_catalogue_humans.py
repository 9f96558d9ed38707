"""F006 to F008, F017, F029, F040, F074, F121: what people say, and what a waiting run shows."""

import asyncio
from pathlib import Path

import pytest

from agentkit.agents import Agent, AgentResult, add_message
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import InvalidDecision, OutcomeUnknown, RunNotFound
from agentkit.core.testing import FakeClock
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, SqliteCheckpointStore
from agentkit.testing.invariants import Evidence, check, read_rows
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
    dead_worker,
    entries_of,
    events_of,
    then,
)
from tests.agents.test_waiting_rules import violated
from tests.state.stores.moving import exported, imported

DAY_SECONDS = 24 * 3600.0


def payer(log: list[str], *, max_iterations: int = 50) -> Agent:
    """As another process would make it: calls that need approval, that ask, and that just run."""

    @tool(side_effecting=True, requires_approval=True)
    async def pay(cents: int) -> str:
        log.append(f"pay {cents}")
        return f"paid {cents}"

    @tool(side_effecting=False)
    async def look(cents: int) -> str:
        log.append(f"look {cents}")
        return f"saw {cents}"

    @tool(side_effecting=False)
    async def choose(ctx: ToolContext) -> str:
        return f"chose {await ctx.ask('Which?')}"

    @tool(side_effecting=True)
    async def send(ctx: ToolContext) -> str:
        if ctx.attempt == 1:
            raise OutcomeUnknown("the line is dead")
        return "sent"

    return agent_of(pay, look, choose, send, max_iterations=max_iterations)


def questions_of(result: AgentResult) -> dict[str, str]:
    """The ids of the open questions, by the calls' own ids."""
    assert result.suspended is not None
    return {one.call_id: one.id for one in result.suspended.questions}


# --- F006 to F008: the request after a decision ---------------------------------------------------


async def test_f006_each_call_that_was_cut_off_has_a_result_before_the_next_message() -> None:
    """The user stops the worker in the middle of three tools and says something: each call gets its
    result, once, and the message stands behind them.
    """
    begun, go = asyncio.Event(), asyncio.Event()

    @tool(side_effecting=False)
    async def work(number: int) -> str:
        begun.set()
        await go.wait()
        return f"worked {number}"

    store, agent = InMemoryCheckpointStore(), agent_of(work)
    llm = then(calls(*(call("work", call_id=f"c{at}", number=at) for at in range(3))))
    task = asyncio.create_task(agent.run(TASK, context(llm, store)))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    cut_off = [one.outcome for one in await bodies_of(store, e.ToolFinished)]
    await add_message(store, RUN, "Never mind, go on.")
    go.set()
    result = await agent.resume(RUN, {}, context(llm, store))

    assert (["interrupted"] * 3, "done") == (cut_off, result.output)
    sent = llm.requests[-1].messages
    assert_valid(sent)
    assert [f"worked {at}" for at in range(3)] == [
        one.content for one in sent if one.role == "tool"
    ]
    assert ("user", "Never mind, go on.") == (sent[-1].role, sent[-1].content)


@pytest.mark.parametrize("streaming", [False, True])
async def test_f007_the_request_after_a_decision_holds_each_call_once(streaming: bool) -> None:
    """For an approval, an answer and a doubt of one turn, decided one by one: no request is sent
    while one is open, and the one that is has each call id once, each with its result.
    """
    log: list[str] = []
    store = InMemoryCheckpointStore()
    llm = then(calls(call("pay", call_id="a", cents=1), call("choose", call_id="b"),
                     call("send", call_id="c"), content="I do all three."))  # fmt: skip
    asked = questions_of(await payer(log).run(TASK, context(llm, store)))
    for name, decision in (("b", "red"), ("a", "approve"), ("c", "run_again")):
        sent = len(llm.requests)
        given = {asked[name]: decision}
        if streaming:
            await events_of(payer(log).resume_stream(RUN, given, context(llm, store)))
        else:
            await payer(log).resume(RUN, given, context(llm, store))
        assert sent == len(llm.requests) or name == "c"

    first, second = (list(request.messages) for request in llm.requests)
    assert_valid(second)
    assert first == second[: len(first)]
    assert [["a", "b", "c"]] == [
        [one.id for one in message.tool_calls] for message in second if message.tool_calls
    ]
    assert [("a", "paid 1"), ("b", "chose red"), ("c", "sent")] == [
        (one.tool_call_id, one.content) for one in second if one.role == "tool"
    ]


@pytest.mark.parametrize("together", [True, False])
async def test_f008_one_rejected_call_of_three_leaves_the_others_as_they_are(
    together: bool,
) -> None:
    """A is approved, B rejected, C needs nobody: A and C run once, B's result says that it was
    refused, in call order, and then the model is asked once.
    """
    log: list[str] = []
    store = InMemoryCheckpointStore()
    llm = then(calls(call("pay", call_id="a", cents=1), call("pay", call_id="b", cents=2),
                     call("look", call_id="c", cents=3)))  # fmt: skip
    asked = questions_of(await payer(log).run(TASK, context(llm, store)))
    decisions = {asked["b"]: "reject", asked["a"]: "approve"}
    steps = [decisions] if together else [{key: one} for key, one in decisions.items()]
    result = None
    for given in steps:
        result = await payer(log).resume(RUN, given, context(llm, store))

    assert result is not None
    assert ("done", ["look 3", "pay 1"]) == (result.output, log)
    assert 2 == len(llm.requests)
    results = [one for one in llm.requests[1].messages if one.role == "tool"]
    assert ["a", "b", "c"] == [one.tool_call_id for one in results]
    assert "A person rejected this call, so it was not made." == results[1].content
    assert [False, True, False] == [one.is_error for one in results]


@pytest.mark.parametrize("order", ["ab", "ba"])
async def test_f017_two_calls_of_one_tool_are_told_apart(order: str) -> None:
    """Same tool, other arguments, even the same id from the provider: each question is of its own
    call, whichever is approved first.
    """
    log: list[str] = []
    store = InMemoryCheckpointStore()
    llm = then(calls(call("pay", call_id="x", cents=1), call("pay", call_id="x", cents=2)))
    first = await payer(log).run(TASK, context(llm, store))
    assert first.suspended is not None
    shown = {one.arguments: one.id for one in first.suspended.questions}
    result = first
    for which in order:
        cents = " ab".index(which)
        name = shown[f'{{"cents":{cents}}}']
        result = await payer(log).resume(RUN, {name: "approve"}, context(llm, store))

    assert "done" == result.output
    assert [f"pay {' ab'.index(which)}" for which in order] == log
    contents = [one.content for one in llm.requests[1].messages if one.role == "tool"]
    assert ["paid 1", "paid 2"] == contents


# --- F029, F040: what the store alone holds -------------------------------------------------------


async def test_f029_a_run_that_was_restored_elsewhere_takes_its_answer(tmp_path: Path) -> None:
    """All there is on the new machine is an export: the answer finds its question, and the run goes
    on behind it. Where the run is not there, or not its agent's tools, that is said.
    """
    log: list[str] = []
    old, new = InMemoryCheckpointStore(), SqliteCheckpointStore(tmp_path / "new.db")
    llm = then(calls(call("pay", call_id="a", cents=1), call("choose", call_id="b")))
    asked = questions_of(await payer(log).run(TASK, context(llm, old)))

    with pytest.raises(RunNotFound, match="does not exist in this store"):
        await payer(log).resume(RUN, {asked["a"]: "approve"}, context(llm, new))
    await imported(await exported(old, RUN), new)
    with pytest.raises(InvalidDecision, match="no tool 'pay'"):
        await agent_of().resume(RUN, {asked["a"]: "approve"}, context(llm, new))
    still = questions_of(await payer(log).resume(RUN, {asked["a"]: "approve"}, context(llm, new)))
    result = await payer(log).resume(RUN, {asked["b"]: False}, context(llm, new))
    starts = await bodies_of(new, e.RunStarted)
    await new.aclose()

    assert ({"b": asked["b"]}, "done", ["pay 1"]) == (still, result.output, log)
    assert (1, 2) == (len(starts), len(llm.requests))


async def test_f040_a_turn_with_an_open_question_is_never_asked_for_again() -> None:
    """The model would say something else by now; what runs is what was shown."""
    log: list[str] = []
    store = InMemoryCheckpointStore()
    first = await payer(log).run(TASK, context(then(calls(call("pay", cents=1))), store))
    other = then([calls(call("pay", cents=999))])
    assert first.suspended is not None
    [question] = first.suspended.questions
    for _ in range(3):
        await payer(log).resume(RUN, {}, context(other, store))
    before = len(other.requests)
    result = await payer(log).resume(RUN, {question.id: "approve"}, context(other, store))

    assert ('{"cents":1}', "done", ["pay 1"]) == (question.arguments, result.output, log)
    assert (0, 1) == (before, len(other.requests))


# --- F074: who wakes it ---------------------------------------------------------------------------


@tool(side_effecting=False)
async def nap(ctx: ToolContext) -> None:
    """Wait for a time."""
    await ctx.sleep(60)


@tool(side_effecting=False)
async def hear(ctx: ToolContext) -> None:
    """Wait for an event."""
    await ctx.wait_for("bell")


@pytest.mark.parametrize(
    ("wakers", "due"),
    [
        (("pay",), False),
        (("choose",), False),
        (("send",), False),
        (("hear",), False),
        (("nap",), True),
        (("nap", "pay", "hear"), True),
    ],
    ids=["approval", "answer", "doubt", "event", "time", "all"],
)
async def test_f074_each_suspended_state_names_its_waker(
    wakers: tuple[str, ...], due: bool
) -> None:
    """A person, a time, an event: result and store say which, and the store when, if ever, it moves
    by itself. A journal that is suspended without one is found.
    """
    log: list[str] = []
    base = payer(log)
    agent = agent_of(*base.cognition.tools, nap, hear)
    store, clock = InMemoryCheckpointStore(), FakeClock()
    asked = [call(name, call_id=name, **({"cents": 1} if name == "pay" else {})) for name in wakers]
    result = await agent.run(TASK, context(then(calls(*asked)), store, clock=clock))
    head = await store.head(RUN)
    entries = await entries_of(store)

    assert result.suspended is not None
    named = [one.tool for one in result.suspended.questions]
    named += [one.tool for one in result.suspended.waits]
    assert sorted(wakers) == sorted(named)
    assert head is not None
    assert head.summary is not None
    assert due == (head.summary.due_at is not None)
    asleep = (e.QuestionAsked, e.WaitStarted)
    assert set() == violated(entries)
    assert "L1" in violated([one for one in entries if not isinstance(one.body, asleep)])


# --- F121: a limit counts over the life of the run ------------------------------------------------


async def test_f121_workers_that_die_in_each_turn_do_not_reset_the_limit() -> None:
    """Five answers of the model, whoever asked for them; to raise the limit somebody changes the
    agent and lets the run go on, which is on record.
    """
    log: list[str] = []
    store = InMemoryCheckpointStore()
    llm = then([calls(call("pay", cents=number)) for number in range(9)])
    result = await payer(log, max_iterations=5).run(TASK, context(llm, store))
    while result.suspended is not None:
        store = await dead_worker(await entries_of(store))
        answers = {one.id: "approve" for one in result.suspended.questions}
        result = await payer(log, max_iterations=5).resume(RUN, answers, context(llm, store))
    limited = (result.stop_reason, len(log), len(llm.requests))
    more = await payer(log, max_iterations=6).resume(RUN, {}, context(llm, store))

    assert ("max_iterations", 5, 5) == limited
    assert more.suspended is not None
    assert 1 == len(await bodies_of(store, e.Unparked))
    rows = await read_rows(store, RUN)
    assert [] == check(Evidence(run=RUN, rows=rows, head=await store.head(RUN)))
