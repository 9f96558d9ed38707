"""A run that waits for a year, on every store: nothing of it is lost, moved or collected."""

import pytest

from agentkit.agents import Agent, send_event
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.testing import FakeClock
from agentkit.state.upkeep import Policy, collect
from agentkit.testing.invariants import Evidence, check, read_rows
from agentkit.tools import ToolContext, tool
from tests.agents.kit import RUN, TASK, agent_of, bodies_of, call, calls, context, messages_of, then

YEAR_SECONDS = 365 * 24 * 3600.0


def _ordered(log: list[str]) -> int:
    log.append("ordered")
    return 7


def _agent(log: list[str]) -> Agent:
    """As another process would make it."""

    @tool(side_effecting=True, requires_approval=True)
    async def pay(cents: int) -> str:
        log.append(f"paid {cents}")
        return f"paid {cents}"

    @tool(side_effecting=False)
    async def choose(ctx: ToolContext) -> str:
        return f"chose {await ctx.ask('Which?')}"

    @tool(side_effecting=True)
    async def order(ctx: ToolContext) -> str:
        number = await ctx.record("order", lambda: _ordered(log))
        return f"{number}: {await ctx.wait_for('parcel')}"

    @tool(side_effecting=False)
    async def nap(ctx: ToolContext) -> str:
        await ctx.sleep(YEAR_SECONDS)
        return "awake"

    return agent_of(pay, choose, order, nap)


@pytest.mark.parametrize("everything", [True, False], ids=["at once", "one by one"])
async def test_f109_a_run_that_waits_for_a_year_goes_on_where_it_was(
    store: JournalPort, clock: FakeClock, everything: bool
) -> None:
    """For an approval, an answer, an event and a time: it holds nothing, asks for no worker before
    its time, no collection touches it, and each of the four is answered by whoever comes then.
    """
    log: list[str] = []
    llm = then(
        calls(
            call("pay", call_id="a", cents=5),
            call("choose", call_id="b"),
            call("order", call_id="c"),
            call("nap", call_id="d"),
        )
    )
    first = await _agent(log).run(TASK, context(llm, store, clock=clock))
    before = [row.check for row in await read_rows(store, RUN)]
    seen: list[str] = []
    for _ in range(2):
        clock.advance(YEAR_SECONDS / 2 - 1)
        seen += [one.verdict async for one in collect(store, Policy(0.0, 0.0), clock=clock)]
        seen += [one.run for one in await store.claimable()]
    after = [row.check for row in await read_rows(store, RUN)]
    head = await store.head(RUN)
    clock.advance(2.0)
    due = [one.run for one in await store.claimable()]

    assert first.suspended is not None
    questions = {one.tool: one.id for one in first.suspended.questions}
    assert {"pay", "choose"} == set(questions)
    assert ["open", "open"] == seen
    assert before == after
    assert head is not None
    assert "" == head.owner
    assert [RUN] == due

    await send_event(store, RUN, "parcel", "box", clock=clock)
    steps = [questions] if everything else [{key: value} for key, value in questions.items()]
    result = None
    for decided in steps:
        answers = {name: "approve" if of == "pay" else "red" for of, name in decided.items()}
        result = await _agent(log).resume(RUN, answers, context(llm, store, clock=clock))
    assert result is not None
    assert "done" == result.output
    assert ["ordered", "paid 5"] == log
    results = [one.content for one in await messages_of(store) if one.role == "tool"]
    assert ["paid 5", "chose red", "7: box", "awake"] == results
    assert 2 == len(await bodies_of(store, e.Decided))
    rows = await read_rows(store, RUN)
    assert [] == check(Evidence(run=RUN, rows=rows, head=await store.head(RUN)))
