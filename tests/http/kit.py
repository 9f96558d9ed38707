"""What the tests over HTTP share: the two adapters, and a model whose answers follow the steps."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from agentkit.core.contracts.model import LLMPort
from agentkit.core.contracts.types import JSON
from agentkit.models.providers import frontiers
from agentkit.testing.crash.scenario import STEPS
from agentkit.testing.provider import Answer, CallSpec, ProviderRequest, StrictProvider

Api: TypeAlias = Literal["anthropic", "openai"]
APIS: tuple[Api, ...] = ("anthropic", "openai")
KEY = "test-key"
NO_CERTIFICATES = {"SSL_CERT_FILE": "", "SSL_CERT_DIR": str(Path(__file__).parent)}
"""For the environment: on loopback nobody shows a certificate, and reading all that a machine
trusts takes longer than a worker's life."""

THINKING: dict[str, JSON] = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


def url_of(api: Api, provider: StrictProvider) -> str:
    """The base URL as the SDK of that API wants it."""
    return provider.anthropic_url if api == "anthropic" else provider.openai_url


def adapter(
    api: Api, url: str, *, key: str = KEY, stall_seconds: float = 120.0, thinking: bool = False
) -> LLMPort:
    """The real adapter over the official SDK."""
    if api == "openai":
        return frontiers.openai(api_key=key, base_url=url, model="gpt", stall_seconds=stall_seconds)
    return frontiers.claude(
        api_key=key,
        base_url=url,
        model="claude",
        stall_seconds=stall_seconds,
        extra_body=THINKING if thinking else None,
    )


def steps(request: ProviderRequest) -> Answer:
    """The crash scenario's model as a provider plays it: from the transcript alone.

    Ids of calls repeat from turn to turn over Chat Completions; over Messages each answer has
    sealed thinking, also where it is the last.
    """
    signed = request.api == "anthropic"
    thought = f"I am at step {request.turn + 1}." if signed else None
    hidden = "And hide this." if signed and request.turn else None
    if request.turn < len(STEPS):
        calls = [
            CallSpec(name, {"item": item}, None if signed else f"call_{index}")
            for index, (name, item) in enumerate(STEPS[request.turn])
        ]
        text = f"step {request.turn + 1}"
        return Answer(text=text, thinking=thought, redacted_thinking=hidden, tool_calls=calls)
    text = "all done: " + ", ".join(result for _, result in results_in(request.messages))
    return Answer(text=text, thinking=thought, redacted_thinking=hidden)


def results_in(messages: Sequence[dict[str, object]]) -> Iterator[tuple[str, str]]:
    """Label and text of every tool result in a request, in order."""
    for message in messages:
        if message["role"] == "tool":
            yield str(message["tool_call_id"]), str(message["content"])
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            if block["type"] == "tool_result":
                yield str(block["tool_use_id"]), str(block["content"])
