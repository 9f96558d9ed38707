"""The front door: build a provider by name.

    from agentkit.models.providers import frontiers as providers

    llm = providers.claude(model="claude-sonnet-4-6")
    llm = providers.openai(model="gpt-5.1")
    llm = providers.from_string("anthropic:claude-sonnet-4-6")

Building one opens no connection and loads no SDK; it checks that the SDK is installed and that
there is a key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.contracts.model import LLMPort
from agentkit.core.contracts.types import JSON
from agentkit.models.providers.anthropic import DEFAULT_MAX_TOKENS, AnthropicMessages
from agentkit.models.providers.anthropic import DEFAULT_MODEL as _CLAUDE
from agentkit.models.providers.openai import DEFAULT_MODEL as _GPT
from agentkit.models.providers.openai import OpenAIChat

__all__ = ["claude", "from_string", "openai"]


def claude(
    *,
    api_key: str | None = None,
    model: str = _CLAUDE,
    base_url: str | None = None,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    stall_seconds: float = 120.0,
    connect_seconds: float = 10.0,
    extra_body: Mapping[str, JSON] | None = None,
    extra_headers: Mapping[str, str] | None = None,
) -> LLMPort:
    """Claude through Anthropic's Messages API.

    Args:
        api_key: the key; `ANTHROPIC_API_KEY` where it is not given.
        model: the model for requests that name none.
        base_url: where the API is; `ANTHROPIC_BASE_URL`, then Anthropic's own.
        max_tokens: the longest answer.
        stall_seconds: a stream without a byte for so long fails as `timeout`.
        connect_seconds: the longest wait for a connection.
        extra_body: further fields of each request, such as `thinking` or `cache_control`.
        extra_headers: further headers of each request, such as `anthropic-beta`.

    Returns:
        A port that makes one attempt at a time and never retries by itself.

    Raises:
        MissingKey: no key is given or set.
        MissingExtra: the SDK is not installed.
        InvalidSpec: an argument is not usable.
    """
    return AnthropicMessages(
        api_key=api_key,
        model=model,
        base_url=base_url,
        max_tokens=max_tokens,
        stall_seconds=stall_seconds,
        connect_seconds=connect_seconds,
        extra_body=extra_body,
        extra_headers=extra_headers,
    )


def openai(
    *,
    api_key: str | None = None,
    model: str = _GPT,
    base_url: str | None = None,
    stall_seconds: float = 120.0,
    connect_seconds: float = 10.0,
    extra_body: Mapping[str, JSON] | None = None,
    extra_headers: Mapping[str, str] | None = None,
    accept_missing_finish_reason: bool = False,
    origin: str = "openai",
) -> LLMPort:
    """OpenAI, or any server that speaks its Chat Completions API.

    Args:
        api_key: the key; `OPENAI_API_KEY` where it is not given.
        model: the model for requests that name none.
        base_url: where the API is, its version included; `OPENAI_BASE_URL`, then OpenAI's own.
        stall_seconds: a stream without a byte for so long fails as `timeout`.
        connect_seconds: the longest wait for a connection.
        extra_body: further fields of each request, such as `reasoning_effort`.
        extra_headers: further headers of each request.
        accept_missing_finish_reason: take an answer for whole although the server gives no finish
            reason (a cut answer is then not noticed).
        origin: whose recorded content is sent back verbatim; give servers with extensions of their
            own a name each where one run may use several of them.

    Returns:
        A port that makes one attempt at a time and never retries by itself.

    Raises:
        MissingKey: no key is given or set.
        MissingExtra: the SDK is not installed.
        InvalidSpec: an argument is not usable.
    """
    return OpenAIChat(
        api_key=api_key,
        model=model,
        base_url=base_url,
        stall_seconds=stall_seconds,
        connect_seconds=connect_seconds,
        extra_body=extra_body,
        extra_headers=extra_headers,
        accept_missing_finish_reason=accept_missing_finish_reason,
        origin=origin,
    )


_BUILDERS: Mapping[str, Callable[[str], LLMPort]] = {
    "anthropic": lambda model: claude(model=model),
    "openai": lambda model: openai(model=model),
}


def from_string(spec: str) -> LLMPort:
    """The provider that a model string names: `anthropic:claude-…` or `openai:gpt-…`.

    Keys and base URLs come from the environment.

    Raises:
        InvalidSpec: the string names no provider that we know, or no model.
        MissingKey: the provider's key is not set.
        MissingExtra: the provider's SDK is not installed.
    """
    prefix, _, model = spec.partition(":")
    build = _BUILDERS.get(prefix)
    if build is None or not model.strip():
        known = ", ".join(f"{name}:<model>" for name in _BUILDERS)
        what = f"{spec!r} names no model" if spec else "the agent has no model"
        raise InvalidSpec(f"{what}; write one of: {known}")
    return build(model.strip())
