"""Questions whose prompt changes from one entry of the tool to the next."""

import itertools
import warnings

import pytest

from agentkit.agents.waiting import AnswerUnused
from agentkit.core.contracts.types import JSON
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.tools import ToolContext, tool
from tests.agents.kit import RUN, TASK, agent_of, call, calls, context, then


async def test_an_answer_that_is_lost_to_a_changed_prompt_is_told_of() -> None:
    """The question is a new one, since it is known by its prompt; a warning names both prompts and
    the way out, and with a name the answer is taken.
    """
    prices = itertools.count(5)

    @tool(side_effecting=False)
    async def unnamed(ctx: ToolContext) -> JSON:
        return await ctx.ask(f"Buy for {next(prices)}?")

    @tool(side_effecting=False)
    async def named(ctx: ToolContext) -> JSON:
        return await ctx.ask(f"Buy for {next(prices)}?", name="buy")

    store, agent = InMemoryCheckpointStore(), agent_of(unnamed, named)
    ctx = context(then(calls(call("unnamed"), call("named"))), store)
    first = await agent.run(TASK, ctx)
    assert first.suspended is not None
    answers = {question.id: "yes" for question in first.suspended.questions}

    with pytest.warns(AnswerUnused, match=r"'ask:Buy for 7\?#1' .*'ask:Buy for 5\?#1' .*name=…"):
        second = await agent.resume(RUN, answers, ctx)

    assert second.suspended is not None
    assert ["unnamed"] == [question.tool for question in second.suspended.questions]


async def test_a_second_question_is_no_changed_one() -> None:
    """A tool that asks one after the other comes to the answered one first: nothing is told."""

    @tool(side_effecting=False)
    async def form(ctx: ToolContext) -> list[JSON]:
        return [await ctx.ask("Name?"), await ctx.ask("Age?")]

    store, agent = InMemoryCheckpointStore(), agent_of(form)
    ctx = context(then(calls(call("form"))), store)
    result = await agent.run(TASK, ctx)

    with warnings.catch_warnings():
        warnings.simplefilter("error", AnswerUnused)
        while result.suspended is not None:
            [question] = result.suspended.questions
            result = await agent.resume(RUN, {question.id: "a"}, ctx)

    assert "done" == result.output
