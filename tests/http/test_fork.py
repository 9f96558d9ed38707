"""Forks before providers that refuse what the real ones refuse, thinking bound to its past too."""

import asyncio

import pytest

from agentkit.core.runtime import RunContext
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.testing.provider import Answer, CallSpec, ProviderRequest, StrictProvider
from agentkit.tools import tool
from tests.agents.kit import agent_of
from tests.http.kit import APIS, KEY, RUN, TASK, Api, adapter, context, messages_of, url_of


@tool(side_effecting=False)
async def look(number: int) -> str:
    """Look."""
    return f"seen {number}"


def _thinking(request: ProviderRequest) -> Answer:
    """Three turns of two calls, each with sealed thinking where the API has it; then the end."""
    thought = f"Step {request.turn}." if request.api == "anthropic" else None
    if request.turn < 3:
        asked = [CallSpec("look", {"number": 2 * request.turn + n}) for n in range(2)]
        return Answer(text="I look.", thinking=thought, tool_calls=asked)
    return Answer(text="done", thinking=thought)


@pytest.mark.parametrize("api", APIS)
def test_a_provider_takes_an_edited_fork(api: Api) -> None:
    """Another result of the last turn and a message after it stand behind all that is sealed."""
    store = InMemoryCheckpointStore()
    agent = agent_of(look)

    with StrictProvider(_thinking, api_key=KEY) as provider:

        async def live() -> str:
            llm = adapter(api, url_of(api, provider), thinking=True)
            here = context(llm, store)
            await agent.run(TASK, here)
            await Checkpointer(port=store).fork(
                RUN, version=2, new_run_id="f", edits={(2, 1): "nothing"}, message="Look on."
            )
            there = RunContext(correlation_id="f", services=here.services)
            return (await agent.resume("f", {}, there)).output

        output = asyncio.run(live())

        assert "done" == output
        assert [] == provider.refusals
        assert 6 == len(provider.calls)
        sent = str(messages_of(provider.calls[4]))
        assert sent.index("nothing") < sent.index("Look on.")
        assert "seen 3" not in sent
