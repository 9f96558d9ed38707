"""Failures of other systems with what is kept for long, by their numbers in the catalogue."""

import pytest

from agentkit import Agent, ReActCognition
from agentkit.agents import record_decisions
from agentkit.agents.checking import DefinitionChangedWarning
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Decision
from agentkit.core.testing import FakeClock
from agentkit.state.journal.journal import load
from agentkit.state.upkeep import Policy, collect
from agentkit.tools import tool
from tests.agents.kit import RUN, TASK, agent_of, bodies_of, call, calls, context, then
from tests.state.stores.moving import finished

DAY_SECONDS = 86_400.0
MASK = "**********"


class Secret:
    """A value that shows a mask in its place, as those of settings libraries do."""

    def __str__(self) -> str:
        return MASK

    __repr__ = __str__


@pytest.mark.parametrize("place", ["alone", "inside"])
async def test_f090_a_mask_is_never_kept_in_place_of_a_value(
    store: JournalPort, place: str
) -> None:
    """F090: what shows itself as a mask cannot be kept, and that is what the model is told; nobody
    reads the mask back for the value.
    """

    @tool(side_effecting=False)
    async def fetch() -> object:
        """Fetch the key."""
        return Secret() if place == "alone" else {"key": [Secret()]}

    llm = then(calls(call("fetch")))
    await agent_of(fetch).run(TASK, context(llm, store))

    [ended] = await bodies_of(store, e.ToolFinished)
    assert "error" == ended.outcome
    assert "cannot be kept" in ended.content
    assert not [row for row in await store.read(RUN) if MASK.encode() in row.body]


async def test_f119_an_approval_that_comes_after_everything_else_has_gone_is_carried_out(
    store: JournalPort, clock: FakeClock
) -> None:
    """F119: a person takes two months. Collections have removed every run that had ended, another
    deployment with another prompt is there, and the call is made once, as it was shown.
    """
    paid: list[int] = []

    @tool(side_effecting=True, requires_approval=True)
    async def pay(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        return f"paid {cents}"

    llm = then(calls(call("pay", cents=5)))
    await agent_of(pay).run(TASK, context(llm, store, clock=clock))
    await finished(store, "other")
    verdicts: dict[str, str] = {}
    for _ in range(2):
        clock.advance(30 * DAY_SECONDS)
        later = FakeClock(now=1e11)
        verdicts = {one.run: one.verdict async for one in collect(store, Policy(0, 0), clock=later)}

    [question] = (await load(store, RUN)).questions
    decision = Decision("approve", actor="ann")
    await record_decisions(store, RUN, {question.id: decision}, clock=clock)
    newer = Agent(name="worker", prompt="Work well.", cognition=ReActCognition(tools=[pay]))
    with pytest.warns(DefinitionChangedWarning):
        result = await newer.resume(RUN, {}, context(llm, store, clock=clock))

    assert {RUN: "open", "other": "deleted"} == verdicts
    assert ("completed", [5]) == (result.stop_reason, paid)
