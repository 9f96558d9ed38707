"""Conversations that are carried on, before providers that refuse what the real ones refuse.

Thinking is sealed to its exact past, and nobody gets another provider's.
"""

import asyncio

import pytest

from agentkit.agents import AgentResult
from agentkit.core.runtime import RunContext
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
    """For each task a turn of two calls and an end, with sealed thinking where the API has it."""
    thought = f"Step {request.turn}." if request.api == "anthropic" else None
    if request.turn % 2 == 0:
        asked = [CallSpec("look", {"number": 2 * request.turn + n}) for n in range(2)]
        return Answer(text="I look.", thinking=thought, tool_calls=asked)
    return Answer(text="done", thinking=thought)


async def _conversation(provider: StrictProvider, *apis: Api) -> list[AgentResult]:
    """A run on each API, each after the one before."""
    store = InMemoryCheckpointStore()
    agent = agent_of(look)
    results = []
    for number, api in enumerate(apis):
        llm = adapter(api, url_of(api, provider), thinking=True)
        services = context(llm, store).services
        here = RunContext(correlation_id=f"{RUN}{number}", services=services)
        after = f"{RUN}{number - 1}" if number else None
        results.append(await agent.run(f"{TASK} {number}", here, after=after))
    return results


@pytest.mark.parametrize("api", APIS)
def test_a_provider_takes_a_conversation_that_is_carried_on(api: Api) -> None:
    """Twice: the sealed answers stand in front of the new task as they were given."""
    with StrictProvider(_thinking, api_key=KEY) as provider:
        results = asyncio.run(_conversation(provider, api, api, api))

        assert ["done"] * 3 == [one.output for one in results]
        assert [2] * 3 == [one.usage.requests for one in results]
        assert [] == provider.refusals
        sent = str(messages_of(provider.calls[4]))
        assert 2 * [True] == [f"{TASK} {number}" in sent for number in range(2)]
        assert ("Step 1." in sent) == (api == "anthropic")


def test_what_one_provider_sealed_never_goes_to_another() -> None:
    """From Anthropic to OpenAI and back: the words are there, the thinking where it came from."""
    with StrictProvider(_thinking, api_key=KEY) as provider:
        results = asyncio.run(_conversation(provider, "anthropic", "openai", "anthropic"))

        assert ["done"] * 3 == [one.output for one in results]
        assert [] == provider.refusals
        other, back = str(messages_of(provider.calls[3])), str(messages_of(provider.calls[5]))
        assert ("seen 1" in other, "Step" in other) == (True, False)
        assert ("seen 5" in back, "Step 1." in back) == (True, True)
