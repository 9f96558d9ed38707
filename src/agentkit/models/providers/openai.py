"""OpenAI, and every server that speaks its Chat Completions API, through the official SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.contracts.model import ModelReply, ModelRequest, TextDelta
from agentkit.core.contracts.types import JSON
from agentkit.models.providers import _settings
from agentkit.models.providers._clients import Clients, SDKClient
from agentkit.models.providers._exchange import Exchange, Limits
from agentkit.models.providers._openai_reply import ChunkStream, reply_from
from agentkit.models.providers._openai_wire import ORIGIN, render

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["DEFAULT_MODEL", "OpenAIChat"]

DEFAULT_MODEL = "gpt-5.1"

_BASE_URL = "https://api.openai.com/v1"
_OURS = ("model", "tools", "messages", "stream", "stream_options")


class OpenAIChat:
    """An `LLMPort` for the Chat Completions API.

    One object serves many attempts at once and several event loops; the SDK is imported and a
    client made at a loop's first attempt. The SDK's own retries are off.

    Args:
        api_key: the key; `OPENAI_API_KEY` where it is not given.
        model: the model for requests that name none.
        base_url: where the API is, its version included; `OPENAI_BASE_URL`, then OpenAI's own.
        stall_seconds: a stream without a byte for so long fails as `timeout`.
        connect_seconds: the longest wait for a connection.
        extra_body: further fields of each request, such as `reasoning_effort`.
        extra_headers: further headers of each request.
        accept_missing_finish_reason: take an answer for whole although the server gives no finish
            reason. With a server that never sends one a cut answer cannot be told from a whole one,
            so the default is to stop and ask.
        origin: whose recorded content is sent back verbatim. Give servers with extensions of their
            own a name each where one run may use several of them.

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
        stall_seconds: float = 120.0,
        connect_seconds: float = 10.0,
        extra_body: Mapping[str, JSON] | None = None,
        extra_headers: Mapping[str, str] | None = None,
        accept_missing_finish_reason: bool = False,
        origin: str = ORIGIN,
    ) -> None:
        _settings.require_sdk("openai")
        key = _settings.api_key(api_key, variable="OPENAI_API_KEY", builder="openai")
        if not origin:
            raise InvalidSpec("origin is empty; give the server a name")
        self.model = model
        self.accept_missing_finish_reason = accept_missing_finish_reason
        self._origin = origin
        self._base_url = _settings.base_url(base_url, variable="OPENAI_BASE_URL", default=_BASE_URL)
        self._extra_body = _settings.extra_body(extra_body, ours=_OURS)
        headers = dict(extra_headers or {})
        url = self._base_url
        own = url.rstrip("/") == _BASE_URL
        self._exchange = Exchange(
            provider="OpenAI" if own else f"The server at {_settings.shown_url(url)}",
            path="/chat/completions",
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
        """`openai`, or the name that was given."""
        return self._origin

    async def attempt(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        """One attempt at `request`; see `LLMPort.attempt`."""
        provider, origin = self._exchange.provider, self._origin
        accept = self.accept_missing_finish_reason
        body = render(request, model=self.model, extra_body=self._extra_body, origin=origin)
        stream = (
            ChunkStream(provider=provider, origin=origin, accept_missing_finish_reason=accept)
            if request.stream
            else None
        )
        items = self._exchange.attempt(
            body,
            timeout_seconds=request.timeout_seconds,
            assembly=stream,
            whole=lambda value: reply_from(
                value, provider=provider, origin=origin, accept_missing_finish_reason=accept
            ),
        )
        async with aclosing(items):
            async for item in items:
                yield item

    def __repr__(self) -> str:
        return f"OpenAIChat(model={self.model!r}, base_url={_settings.shown_url(self._base_url)!r})"


def _client(key: _settings.Secret, url: str, headers: Mapping[str, str]) -> AsyncOpenAI:
    try:
        import openai
    except ImportError as exc:
        raise _settings.missing_extra("openai") from exc
    return openai.AsyncOpenAI(
        api_key=key(),
        base_url=url,
        max_retries=0,
        default_headers=headers,
        # The SDK's default client closes itself from whichever loop collects it; ours is held.
        http_client=openai.DefaultAsyncHttpxClient(),
    )


def _errors() -> tuple[type[Exception], type[Exception]]:
    import openai

    return openai.APIStatusError, openai.APIConnectionError
