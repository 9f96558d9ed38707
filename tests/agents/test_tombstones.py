"""What stays of a finished run whose entries are gone: its result, for whoever asks again."""

import pytest

from agentkit.agents import AgentResult
from agentkit.core.contracts.errors import RunIdReused
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.testing import FakeLLM
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.tools import tool
from tests.agents.kit import RUN, TASK, agent_of, call, calls, context, then


@tool(side_effecting=True)
async def send() -> str:
    """Send."""
    return "sent"


AGENT = agent_of(send)


async def _tombstone(store: JournalPort) -> AgentResult:
    result = await AGENT.run(TASK, context(then(calls(call("send"))), store))
    head = await store.head(RUN)
    assert head is not None
    assert head.summary is not None
    assert await store.entomb(RUN, updated_at=head.summary.updated_at)
    return result


async def test_the_same_run_again_gets_the_stored_result() -> None:
    """No model and no tool is called, whether it is run or resumed: text and usage are kept."""
    store = InMemoryCheckpointStore()
    first = await _tombstone(store)
    llm = FakeLLM("another answer")

    assert first == await AGENT.run(TASK, context(llm, store))
    assert first == await AGENT.resume(RUN, {}, context(llm, store))
    assert [] == llm.requests
    assert [] == await store.read(RUN)


async def test_another_task_or_agent_is_refused() -> None:
    """A run id that was used stays used for the life of its tombstone."""
    store = InMemoryCheckpointStore()
    await _tombstone(store)

    with pytest.raises(RunIdReused):
        await AGENT.run("something else", context(FakeLLM("x"), store))
    with pytest.raises(RunIdReused):
        await agent_of(name="other").run(TASK, context(FakeLLM("x"), store))


async def test_a_checkpointer_finds_the_end_and_no_version() -> None:
    """As of any finished run, and nothing to go on from."""
    store = InMemoryCheckpointStore()
    await _tombstone(store)
    checkpointer = Checkpointer(port=store)

    assert await checkpointer.resume(RUN) is None
    assert [] == await checkpointer.list_versions(RUN)
    done = await checkpointer.resume(RUN, include_terminal=True)
    assert done is not None
    assert "done" == done.status
