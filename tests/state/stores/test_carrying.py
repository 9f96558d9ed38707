"""Conversations are carried on in every store, and what waits for a person is found in it."""

import pytest

from agentkit.agents import open_questions
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import RunUnfinished, VersionNotFound
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.testing import FakeClock
from agentkit.state.journal.journal import load
from agentkit.testing.invariants import Evidence, check, read_rows
from agentkit.tools import tool
from tests.agents.kit import RUN, TASK, agent_of, bodies_of, call, calls, context, then

MORE = "and more"


async def test_a_conversation_is_carried_on_twice_over(
    store: JournalPort, clock: FakeClock
) -> None:
    """The bytes are the old run's, the epochs rise also where the clock stands, usage is each run's
    own, and the same start again changes nothing.
    """
    log: list[str] = []

    @tool(side_effecting=True)
    async def buy(item: str) -> str:
        log.append(item)
        return f"bought {item}"

    llm = then([calls(call("buy", item="a")), *[calls(call("buy", item=item)) for item in "bc"]])
    agent = agent_of(buy, max_iterations=4)
    left = agent.stream(TASK, context(llm, store, clock=clock))
    await anext(left)
    await left.aclose()  # so that the next worker's epoch is ahead of the clock
    used = [(await agent.run(TASK, context(llm, store, clock=clock))).usage.requests]
    for name, past in (("r2", RUN), ("r3", "r2"), ("r3", "r2")):
        here = context(llm, store, run_id=name, clock=clock)
        used.append((await agent.run(f"{MORE} {name}", here, after=past)).usage.requests)

    rows = {name: await read_rows(store, name) for name in (RUN, "r2", "r3")}
    assert ["a", "b", "c"] == log
    assert [4, 1, 1, 1] == used
    assert rows[RUN][:-1] == rows["r2"][: len(rows[RUN]) - 1]
    assert rows["r2"][:-1] == rows["r3"][: len(rows["r2"]) - 1]
    assert 2 == len(await bodies_of(store, e.Forked, "r3"))
    for name, found in rows.items():
        head = await store.head(name)
        assert [] == check(Evidence(run=name, rows=found, head=head))


async def test_only_what_is_whole_and_ended_is_carried_on(
    store: JournalPort, clock: FakeClock
) -> None:
    """One that waits is refused with what it waits for, which the inbox shows; so is a tombstone;
    neither leaves anything of the new run.
    """

    @tool(side_effecting=True, requires_approval=True)
    async def buy(item: str) -> str:
        return f"bought {item}"

    llm = then([calls(call("buy", item="a"))])
    agent, here = agent_of(buy), context(llm, store, clock=clock)
    waits = await agent.run(TASK, here)
    assert waits.suspended is not None
    new = context(llm, store, run_id="r2", clock=clock)

    with pytest.raises(RunUnfinished) as unfinished:
        await agent.run(MORE, new, after=RUN)
    inbox = await open_questions(store)
    every = await open_questions(store, every_scope=True)
    await agent.resume(RUN, {waits.suspended.questions[0].id: "approve"}, here)
    assert await store.entomb(RUN, updated_at=(await load(store, RUN)).updated_at)
    with pytest.raises(VersionNotFound):
        await agent.run(MORE, new, after=RUN)

    asked = waits.suspended.questions
    assert asked == unfinished.value.questions
    assert [asked[0]] == [one.question for one in inbox.questions]
    assert [(RUN, asked[0])] == [(one.run, one.question) for one in every.questions]
    assert await store.head("r2") is None
