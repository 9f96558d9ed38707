"""What can be done with a run by somebody who has a store URL and nothing else."""

import asyncio
from pathlib import Path

import pytest

from agentkit import Agent, AgentResult, ReActCognition, RunContext, ToolContext, tool
from agentkit.agents import (
    add_message,
    cancel,
    open_questions,
    pause,
    record_decisions,
    send_event,
    unpark,
)
from agentkit.core.contracts.errors import InvalidSpec, StoreUnreachable
from tests.agents.kit import TASK, call, calls, then


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Of a store that is not there yet."""
    return f"sqlite:///{tmp_path / 'runs.db'}"


def _agent(paid: list[str]) -> Agent:
    @tool(side_effecting=True)
    async def pay(context: ToolContext) -> str:
        """Pay."""
        paid.append(context.identity)
        return "paid"

    return Agent("payer", then(calls(call("pay")), "done"), cognition=ReActCognition([pay]))


def _asked(result: AgentResult) -> str:
    assert result.suspended is not None
    return result.suspended.questions[0].id


async def test_a_run_of_a_store_url_has_an_autonomy_and_an_identity(url: str) -> None:
    """`manual` makes a call wait that its tool would not; the tool is told who asked for the run,
    also when another process goes on with it.
    """
    paid: list[str] = []
    agent = _agent(paid)

    first = await agent.run(TASK, run_id="r1", store=url, autonomy="manual", identity="ada")
    before = [*paid]
    last = await _agent(paid).resume("r1", {_asked(first): "approve"}, store=url)

    assert ([], ["ada"], "done") == (before, paid, last.output)


def test_both_are_there_without_an_event_loop(url: str) -> None:
    """`run_sync` and `resume_sync` do what `run` and `resume` do."""
    paid: list[str] = []
    agent = _agent(paid)

    first = agent.run_sync(TASK, run_id="r1", store=url, autonomy="manual", identity="ada")
    last = agent.resume_sync("r1", {_asked(first): "approve"}, store=url)

    assert (["ada"], "done") == (paid, last.output)


@pytest.mark.parametrize("beside", [{"autonomy": "manual"}, {"identity": "ada"}], ids=str)
async def test_a_context_says_everything_itself(beside: dict[str, str]) -> None:
    """An autonomy or identity beside a context is refused, not dropped."""
    (what,) = beside
    ctx = RunContext(correlation_id="r1")

    with pytest.raises(InvalidSpec, match=f"either a context or {what}=") as told:
        await _agent([]).run(TASK, ctx, **beside)  # type: ignore[arg-type]  # that is the mistake

    assert "has its own" in str(told.value)


async def test_an_autonomy_that_is_none_is_refused() -> None:
    """Before anything is written."""
    with pytest.raises(InvalidSpec, match="autonomy is one of auto, gated, manual"):
        await _agent([]).run(TASK, autonomy="strict")  # type: ignore[arg-type]  # a mistake


async def test_a_url_stands_for_a_store_wherever_a_run_is_told_something(url: str) -> None:
    """Questions are listed, decided and added to; the run is paused, let go and cancelled."""
    first = await _agent([]).run(TASK, run_id="r1", store=url, autonomy="manual")

    asked = (await open_questions(url)).questions
    said = await add_message(url, "r1", "And hurry.")
    sent = await send_event(url, "r1", "news", 7)
    paused = await pause(url, "r1")
    decided = await record_decisions(url, "r1", {_asked(first): "approve"})
    freed = await unpark(url, "r1")
    ended = await cancel(url, "r1")

    assert [_asked(first)] == [one.question.id for one in asked]
    assert (False, False) == (said.repeated, sent.repeated)
    assert ("parked", "parked") == (paused.status, decided.state.status)
    assert ("running", "cancelled") == (freed.status, ended.status)


def test_what_is_no_store_is_refused_in_words(url: str, tmp_path: Path) -> None:
    """A path that was meant as a URL, and a URL where nothing is yet: no file is made."""
    with pytest.raises(InvalidSpec, match=r"cancel takes a store or its URL.*open_store\(url\)"):
        asyncio.run(cancel(tmp_path, "r1"))  # type: ignore[arg-type]  # that is the mistake
    with pytest.raises(StoreUnreachable, match="there is no store at"):
        asyncio.run(cancel(url, "r1"))

    assert [] == [*tmp_path.iterdir()]
