"""What the tests over HTTP share: the two adapters, and a model whose answers follow the steps."""

import asyncio
import importlib
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from agentkit.core.contracts.model import LLMPort
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.core.contracts.types import JSON
from agentkit.core.runtime import Invoker, RetryPolicy, RunContext, Services, SystemClock
from agentkit.core.testing import FakeClock
from agentkit.models.providers import frontiers
from agentkit.state.checkpoints import Checkpointer
from agentkit.testing.crash.scenario import STEPS
from agentkit.testing.provider import Answer, Call, CallSpec, ProviderRequest, StrictProvider

T = TypeVar("T")
Api: TypeAlias = Literal["anthropic", "openai"]
APIS: tuple[Api, ...] = ("anthropic", "openai")
KEY = "test-key"
RUN = "r1"
TASK = "Look twice, then tell."
NO_CERTIFICATES = {"SSL_CERT_FILE": "", "SSL_CERT_DIR": str(Path(__file__).parent)}
"""For the environment: on loopback nobody shows a certificate, and reading all that a machine
trusts takes longer than a worker's life."""

THINKING: dict[str, JSON] = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


def load_sdks() -> None:
    """Load both SDKs, and what they load at their first request: not in the time of an attempt."""
    for name in ("anthropic", "openai", "httpcore2", "anyio._backends._asyncio"):
        importlib.import_module(name)


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


def context(
    llm: LLMPort,
    store: JournalPort,
    *,
    clock: ClockPort | None = None,
    retry: RetryPolicy | None = None,
    timeout_seconds: float = 30.0,
) -> RunContext:
    """The run `RUN` on `store`; without a clock failed attempts are repeated at once."""
    retry = retry or (RetryPolicy() if clock is not None else RetryPolicy(base_seconds=0.0))
    services = Services(
        invoker=Invoker(llm, retry=retry, timeout_seconds=timeout_seconds),
        checkpointer=Checkpointer(port=store),
        clock=clock or SystemClock(),
    )
    return RunContext(correlation_id=RUN, services=services)


async def asleep(clock: FakeClock, work: asyncio.Task[T]) -> None:
    """Return when the run waits for its next attempt."""
    while clock.sleepers == 0:
        assert not work.done(), work.result()
        await asyncio.wait({work}, timeout=0.01)


async def hurried(clock: FakeClock, work: Coroutine[object, object, T]) -> T:
    """The result of `work`, whose every sleep is over at once."""
    task = asyncio.create_task(work)
    while not task.done():
        await asyncio.wait({task}, timeout=0.01)
        if clock.sleepers:
            clock.advance(600)
    return task.result()


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


def messages_of(call: Call) -> list[dict[str, object]]:
    """The messages of a request."""
    messages = (call.request or {}).get("messages")
    assert isinstance(messages, list)
    return messages


def results_in(messages: Sequence[dict[str, object]]) -> Iterator[tuple[str, str]]:
    """Label and text of every tool result in a request, in order."""
    for message in messages:
        if message["role"] == "tool":
            yield str(message["tool_call_id"]), str(message["content"])
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            if block["type"] == "tool_result":
                yield str(block["tool_use_id"]), str(block["content"])
