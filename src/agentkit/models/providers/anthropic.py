"""Claude through Anthropic's Messages API and its official SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.contracts.model import ModelReply, ModelRequest, TextDelta
from agentkit.core.contracts.types import JSON
from agentkit.models.providers import _settings
from agentkit.models.providers._anthropic_reply import MessageStream, reply_from
from agentkit.models.providers._anthropic_wire import ORIGIN, render
from agentkit.models.providers._clients import Clients, SDKClient
from agentkit.models.providers._exchange import Exchange, Limits

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

__all__ = ["DEFAULT_MAX_TOKENS", "DEFAULT_MODEL", "AnthropicMessages"]

DEFAULT_MODEL = "claude-sonnet-4-6"
DEFAULT_MAX_TOKENS = 16_384
"""The longest answer, thinking included. Long enough for a file in a tool call, short enough to
come whole within a request's 600 s; older models take less and say so."""

_BASE_URL = "https://api.anthropic.com"
_OURS = ("model", "max_tokens", "system", "tools", "messages", "stream")


class AnthropicMessages:
    """An `LLMPort` for the Messages API.

    One object serves many attempts at once and several event loops; the SDK is imported and a
    client made at a loop's first attempt. The SDK's own retries are off.

    Args:
        api_key: the key; `ANTHROPIC_API_KEY` where it is not given.
        model: the model for requests that name none.
        base_url: where the API is; `ANTHROPIC_BASE_URL`, then Anthropic's own.
        max_tokens: the longest answer.
        stall_seconds: a stream without a byte for so long fails as `timeout`.
        connect_seconds: the longest wait for a connection.
        extra_body: further fields of each request, such as `thinking` or `cache_control`.
        extra_headers: further headers of each request, such as `anthropic-beta`.

    Raises:
        MissingKey: no key is given or set.
        MissingExtra: the SDK is not installed.
        InvalidSpec: an argument is not usable.
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        model: str = DEFAULT_MODEL,
        base_url: str | None = None,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        stall_seconds: float = 120.0,
        connect_seconds: float = 10.0,
        extra_body: Mapping[str, JSON] | None = None,
        extra_headers: Mapping[str, str] | None = None,
    ) -> None:
        _settings.require_sdk("anthropic")
        key = _settings.api_key(api_key, variable="ANTHROPIC_API_KEY", builder="claude")
        if max_tokens < 1:
            raise InvalidSpec(f"max_tokens is {max_tokens!r}; give 1 or more")
        self.model = model
        self.max_tokens = max_tokens
        self._base_url = _settings.base_url(
            base_url, variable="ANTHROPIC_BASE_URL", default=_BASE_URL
        )
        self._extra_body = _settings.extra_body(extra_body, ours=_OURS)
        headers = dict(extra_headers or {})
        url = self._base_url
        own = url.rstrip("/") == _BASE_URL
        self._exchange = Exchange(
            provider="Anthropic" if own else f"Anthropic's API at {_settings.shown_url(url)}",
            path="/v1/messages",
            clients=Clients(lambda: cast("SDKClient", _client(key, url, headers))),
            errors=_errors,
            limits=Limits(
                connect_seconds=_settings.seconds(connect_seconds, name="connect_seconds"),
                stall_seconds=_settings.seconds(stall_seconds, name="stall_seconds"),
            ),
            secret=key,
        )

    @property
    def origin(self) -> str:
        """`anthropic`."""
        return ORIGIN

    async def attempt(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        """One attempt at `request`; see `LLMPort.attempt`."""
        provider = self._exchange.provider
        body = render(
            request, model=self.model, max_tokens=self.max_tokens, extra_body=self._extra_body
        )
        stream = MessageStream(provider=provider, origin=ORIGIN) if request.stream else None
        items = self._exchange.attempt(
            body,
            timeout_seconds=request.timeout_seconds,
            assembly=stream,
            whole=lambda value: reply_from(value, provider=provider, origin=ORIGIN),
        )
        async with aclosing(items):
            async for item in items:
                yield item

    def __repr__(self) -> str:
        url = _settings.shown_url(self._base_url)
        return f"AnthropicMessages(model={self.model!r}, base_url={url!r})"


def _client(key: _settings.Secret, url: str, headers: Mapping[str, str]) -> AsyncAnthropic:
    try:
        import anthropic
    except ImportError as exc:
        raise _settings.missing_extra("anthropic") from exc
    return anthropic.AsyncAnthropic(
        api_key=key(),
        base_url=url,
        max_retries=0,
        default_headers=headers,
        # Spans are ours (telemetry); the SDK's own would hold the content of requests.
        open_telemetry=False,
        # The SDK's default client closes itself from whichever loop collects it; ours is held.
        http_client=anthropic.DefaultAsyncHttpxClient(),
    )


def _errors() -> tuple[type[Exception], type[Exception]]:
    import anthropic

    return anthropic.APIStatusError, anthropic.APIConnectionError
