"""Ends that no retry can mend: their results, events and summaries."""

import json

import pytest

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import RunFailed
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.testing import FakeLLM
from agentkit.state.journal.journal import load
from tests.agents.kit import RUN, TASK, agent_of, context, dead_worker, entries_of, events_of, then


async def _ended_by(end: e.Body) -> JournalPort:
    """A run with one model answer whose last entry is `end`."""
    recorded = await dead_worker([])
    await agent_of().run(TASK, context(then([], "so far"), recorded))
    entries = await entries_of(recorded)
    last = entries[-1]
    return await dead_worker(
        [*entries[:-1], e.Entry(last.seq, "", last.epoch, last.lane, last.at, end)]
    )


async def test_a_failed_run_raises_the_same_error_again_and_counts_its_usage() -> None:
    """`RunFailed` tells why and what was used; nothing is called."""
    store = await _ended_by(e.Failed("the account is closed"))
    llm = FakeLLM("never asked")

    for _ in range(2):
        with pytest.raises(RunFailed, match="the account is closed") as caught:
            await agent_of().run(TASK, context(llm, store))
        assert (RUN, 1) == (caught.value.run_id, caught.value.usage.requests)
    assert [] == llm.requests


async def test_a_cancelled_run_stays_cancelled() -> None:
    """The result says so and carries the text so far; a resume does not bring it back."""
    store = await _ended_by(e.Cancelled("ada", "not needed any more"))
    llm = FakeLLM("never asked")

    result = await agent_of().run(TASK, context(llm, store))
    resumed = await agent_of().resume(RUN, {}, context(llm, store))
    events = await events_of(agent_of().stream(TASK, context(llm, store)))

    assert ("cancelled", True, "so far") == (result.stop_reason, result.partial, result.output)
    assert "not needed any more" == result.message
    assert result == resumed == events[-1].result
    assert [] == llm.requests


@pytest.mark.parametrize(
    ("end", "status", "message"),
    [
        (e.Failed("no way"), "failed", "no way"),
        (e.Cancelled("", "enough"), "cancelled", "enough"),
    ],
)
async def test_the_summary_tells_how_a_run_ended(end: e.Body, status: str, message: str) -> None:
    """Lists and probes see status and reason without reading the journal."""
    store = await _ended_by(end)

    summary = (await load(store, RUN)).summary()

    assert status == summary.status
    assert message == json.loads(summary.detail)["message"]
