"""Which model a request asks for: the one that was given, by the name its provider knows."""

import pytest

from agentkit import Agent, Invoker, RunContext, Services
from agentkit.core.contracts.model import LLMPort
from agentkit.models.providers.frontiers import claude, openai
from agentkit.testing.provider import Answer, StrictProvider


def built(provider: StrictProvider, name: str) -> LLMPort:
    """The model that `name` names, at our server."""
    origin, _, model = name.partition(":")
    if origin == "anthropic":
        return claude(model=model, api_key=provider.api_key, base_url=provider.anthropic_url)
    url = provider.openai_url
    return openai(model=model, api_key=provider.api_key, base_url=url, origin=origin)


@pytest.mark.parametrize("name", ["anthropic:claude-x", "openai:gpt-x", "nearby:llama-x"])
def test_a_model_given_as_an_object_is_asked_by_its_own_name(name: str) -> None:
    """The origin under which it is recorded is not sent as a model's name."""
    with StrictProvider([Answer(text="Hi.")]) as provider:
        result = Agent("greeter", built(provider, name)).run_sync("Hi!")
        asked = [call.model for call in provider.calls]

    assert "Hi." == result.output
    assert [name.partition(":")[2]] == asked


@pytest.mark.parametrize(
    ("of_agent", "of_invoker", "expected"),
    [
        ("anthropic:claude-y", "anthropic:claude-x", "claude-y"),
        ("claude-y", "anthropic:claude-x", "claude-y"),
        ("openai:llama-y", "nearby:llama-x", "llama-y"),
        ("", "anthropic:claude-x", "claude-x"),
        ("anthropic:claude-y", "openai:gpt-x", "gpt-x"),
        ("openai:gpt-y", "anthropic:claude-x", "claude-x"),
    ],
)
async def test_an_agents_model_is_asked_of_its_own_provider_alone(
    of_agent: str, of_invoker: str, expected: str
) -> None:
    """Another provider's invoker asks for its own model: the agent's name means nothing there."""
    with StrictProvider([Answer(text="Hi.")]) as provider:
        services = Services(invoker=Invoker(built(provider, of_invoker)))
        context = RunContext(correlation_id="r1", services=services)
        await Agent("greeter", of_agent).run("Hi!", context)
        asked = [call.model for call in provider.calls]

    assert [expected] == asked
