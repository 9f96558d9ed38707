"""A provider's label of a call, by which a decision may name it: providers use them again."""

from collections.abc import Awaitable, Callable

import pytest

from agentkit.agents import record_decisions, settle_call
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import (
    AlreadyDecided,
    InvalidDecision,
    OutcomeUnknown,
    QuestionNotFound,
)
from agentkit.core.contracts.heads import Row
from agentkit.core.contracts.types import Decision
from agentkit.core.testing import FakeClock, FakeLLM
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, StoreWrapper
from agentkit.state.journal.journal import load
from agentkit.tools import tool
from tests.agents.kit import RUN, TASK, agent_of, bodies_of, call, calls, context, then

paid: list[int] = []


@tool(side_effecting=True, requires_approval=True, approval_seconds=60)
async def pay(cents: int) -> str:
    """Pay."""
    paid.append(cents)
    return f"paid {cents}"


def _twice() -> FakeLLM:
    """A model whose provider numbers the calls of each answer anew."""
    return then([calls(call("pay", cents=1)), calls(call("pay", cents=999))])


async def test_f022_a_providers_label_said_again_approves_no_other_call() -> None:
    """A label names the first question of the run about a call that carries it, also once that was
    decided, closed without a decision, or the run has ended.
    """
    paid.clear()
    store, agent = InMemoryCheckpointStore(), agent_of(pay)
    await agent.run(TASK, context(_twice(), store))
    await agent.resume(RUN, {"c1": "approve"}, context(_twice(), store))
    again = await agent.resume(RUN, {"c1": "approve"}, context(_twice(), store))
    assert again.suspended is not None
    assert [1] == paid

    with pytest.raises(AlreadyDecided, match="'approve' by somebody"):
        await record_decisions(store, RUN, {"c1": "reject"})
    [second] = again.suspended.questions
    await agent.resume(RUN, {second.id: "approve"}, context(_twice(), store))
    ended = await record_decisions(store, RUN, {"c1": "approve"})

    assert (again.already_decided, [1, 999]) == (ended.repeated, paid)
    assert 2 == len(await bodies_of(store, e.Decided))


async def test_a_label_whose_question_was_closed_by_its_deadline_names_no_newer_one() -> None:
    """A word that comes too late is about nothing."""
    paid.clear()
    clock = FakeClock()
    store, agent = InMemoryCheckpointStore(clock=clock), agent_of(pay)
    await agent.run(TASK, context(_twice(), store, clock=clock))
    clock.advance(61)
    await agent.resume(RUN, {}, context(_twice(), store, clock=clock))

    with pytest.raises(QuestionNotFound, match="no open question 'q4'"):
        await record_decisions(store, RUN, {"c1": "approve"}, clock=clock)

    assert [] == paid


class _Meanwhile(StoreWrapper):
    """Somebody else is faster, between the first reading and the next one."""

    def __init__(
        self, inner: InMemoryCheckpointStore, act: Callable[[], Awaitable[object]]
    ) -> None:
        super().__init__(inner)
        self._act = act
        self._reads = 0
        self.acted = False

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        """Act before the second reading."""
        self._reads += 1
        if self._reads == 2:
            await self._act()
            self.acted = True
        return await super().read(run, after=after, limit=limit)


async def test_f042_a_label_means_what_it_meant_when_it_was_said() -> None:
    """Where the run goes on to a call of the same label before the decision is written, it is about
    the first one.
    """
    paid.clear()
    store, agent = InMemoryCheckpointStore(), agent_of(pay)
    await agent.run(TASK, context(_twice(), store))
    slow = _Meanwhile(store, lambda: agent.resume(RUN, {"q4": "approve"}, context(_twice(), store)))

    done = await record_decisions(slow, RUN, {"c1": "approve"})

    assert slow.acted
    assert (("q4",), [1]) == (done.repeated, paid)
    assert 1 == len(done.state.questions)


async def test_a_label_that_looks_like_a_questions_id_is_none() -> None:
    """A provider cannot have a later question answered by what was said of its call."""
    paid.clear()
    store = InMemoryCheckpointStore()
    llm = then([calls(call("pay", call_id="q99", cents=1))])
    await agent_of(pay).run(TASK, context(llm, store))

    with pytest.raises(QuestionNotFound, match="'q99'"):
        await record_decisions(store, RUN, {"q99": "approve"})


@tool(side_effecting=True)
async def send(number: int) -> str:
    """Send."""
    raise OutcomeUnknown("the line is dead")


def _sends() -> FakeLLM:
    return then([calls(call("send", number=number)) for number in (1, 2)])


async def test_a_label_that_an_earlier_call_carried_settles_no_later_one() -> None:
    """The later one is named by its place or its question."""
    store, agent = InMemoryCheckpointStore(), agent_of(send)
    await agent.run(TASK, context(_sends(), store))
    await settle_call(store, RUN, "c1", Decision("skip"))
    await agent.resume(RUN, {}, context(_sends(), store))

    with pytest.raises(InvalidDecision, match=r"no open call is named 'c1'; open calls: 2\.0"):
        await settle_call(store, RUN, "c1", Decision("skip"))
    await settle_call(store, RUN, "2.0", Decision("skip"))

    assert "done" == (await agent.resume(RUN, {}, context(_sends(), store))).output


async def test_a_call_is_settled_only_as_the_one_that_was_looked_at() -> None:
    """Where the run goes on to a call of the same label meanwhile, the word is refused."""
    store, agent = InMemoryCheckpointStore(), agent_of(send)
    await agent.run(TASK, context(_sends(), store))
    [question] = (await load(store, RUN)).questions
    slow = _Meanwhile(
        store, lambda: agent.resume(RUN, {question.id: "skip"}, context(_sends(), store))
    )

    with pytest.raises(InvalidDecision, match="no open call is named 'c1'"):
        await settle_call(slow, RUN, "c1", Decision("run_again"))

    assert slow.acted
    assert 1 == len(await bodies_of(store, e.Decided))
