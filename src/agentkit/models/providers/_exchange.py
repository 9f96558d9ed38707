"""One HTTP exchange through an official SDK: what is sent, how long it may take, what goes wrong.

The SDK gives us the client, its authentication and its reading of refusals. We send bytes that we
rendered ourselves, so that recorded content leaves as it was recorded, and we read the body as raw
bytes: both SDKs take a stream that was cut for one that ended, and errors of the HTTP library come
through their streams unmapped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

import msgspec

from agentkit.core.contracts.errors import ModelError
from agentkit.core.contracts.model import FailureKind, ModelReply, TextDelta
from agentkit.core.contracts.types import JSON
from agentkit.models.providers._clients import Clients, SDKClient
from agentkit.models.providers._failures import refused
from agentkit.models.providers._json import load, mend
from agentkit.models.providers._shape import misshapen
from agentkit.models.providers._sse import EventTooLarge, SSEDecoder

if TYPE_CHECKING:
    import httpx2

__all__ = ["MAX_ANSWER_BYTES", "Assembly", "Exchange", "Limits"]

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""No answer, streamed or whole, may be longer."""

_DRAIN_SECONDS = 0.25
"""How long the end of a finished stream is waited for, so that its connection can be used again."""

_KEY_CHARACTERS = 16
"""So much of a key may not be shown; less of it is the prefix that all keys of a kind share."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long an attempt may be silent.

    Args:
        connect_seconds: to open a connection.
        stall_seconds: without a byte while a stream is wanted. A whole answer is silent by nature
            until it is there; it is limited by the request's own `timeout_seconds` alone.
    """

    connect_seconds: float = 10.0
    stall_seconds: float = 120.0


class Assembly(Protocol):
    """Puts the events of one stream together."""

    @property
    def done(self) -> bool:
        """Whether the answer is complete: a connection that breaks now breaks nothing."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the stream has said that nothing more comes."""
        ...

    def feed(self, data: str) -> str:
        """Take one event; returns the visible text that it brings."""
        ...

    def reply(self) -> ModelReply:
        """The complete reply, or a `ModelError` of kind `truncated`."""
        ...


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """How one provider is spoken to.

    Args:
        provider: its name in messages.
        path: where requests go, below the client's base URL.
        clients: the SDK's clients.
        errors: the SDK's `APIStatusError` and `APIConnectionError`, asked for when one is there.
        limits: how long it may be silent.
        secret: a text that no message may hold.
    """

    provider: str
    path: str
    clients: Clients
    errors: Callable[[], tuple[type[Exception], type[Exception]]]
    limits: Limits
    secret: Callable[[], str]

    async def attempt(
        self,
        body: bytes,
        *,
        timeout_seconds: float,
        assembly: Assembly | None,
        whole: Callable[[JSON], ModelReply],
    ) -> AsyncGenerator[TextDelta | ModelReply, None]:
        """Send `body` once; text as it comes, then the reply.

        Args:
            body: the JSON to send.
            timeout_seconds: the longest the attempt may take.
            assembly: for a streamed answer; `None` for a whole one.
            whole: reads a whole answer, also where a server does not stream though asked to.

        Raises:
            ModelError: whatever went wrong; the connection is closed.
        """
        client = await self.clients.current()  # the first one imports the SDK: not in the time
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        async with AsyncExitStack() as stack:
            response = await self._send(
                client, body, deadline, timeout_seconds, stream=assembly is not None
            )
            chunks = response.aiter_bytes()
            stack.push_async_callback(_hang_up, response, chunks)
            content_type = response.headers.get("content-type", "")
            if "html" in content_type:
                raise misshapen(self.provider, "a page of HTML")
            reader = _Reader(self, chunks, deadline, timeout_seconds)
            if assembly is None or "json" in content_type:
                answer = await reader.rest()
                with self._clean():
                    reply = whole(_decoded(answer, self.provider))
            else:
                decoder = SSEDecoder()
                while not assembly.ended and (chunk := await reader.next(assembly)):
                    with self._clean():
                        events = _events(decoder, chunk, self.provider)
                        texts = [assembly.feed(data) for data in events]
                    for text in filter(None, texts):
                        yield TextDelta(mend(text))
                await _drain(chunks)
                with self._clean():
                    reply = assembly.reply()
        yield reply  # the connection is free again while the reply is recorded

    async def _send(
        self,
        client: SDKClient,
        body: bytes,
        deadline: float,
        timeout_seconds: float,
        *,
        stream: bool,
    ) -> httpx2.Response:
        import httpx2

        try:
            async with asyncio.timeout_at(deadline):
                timeout = httpx2.Timeout(
                    connect=self.limits.connect_seconds,
                    read=self.limits.stall_seconds if stream else None,
                    write=self.limits.stall_seconds,
                    pool=timeout_seconds,
                )
                return await client.post(
                    self.path,
                    cast_to=httpx2.Response,
                    content=body,
                    options={"timeout": timeout},
                    stream=True,
                )
        except TimeoutError as exc:
            raise self.timed_out(timeout_seconds) from exc
        except ModelError:
            raise
        except Exception as exc:  # the provider's edge: nothing raw goes further
            with self._clean():
                raise self._failure(exc) from exc

    def timed_out(self, seconds: float) -> ModelError:
        """The error for an attempt that took too long."""
        return self._error(f"did not answer in full within {seconds:g} s", "timeout", paid=True)

    def broken(self, exc: Exception) -> ModelError:
        """The error for a body that could not be read to its end."""
        import httpx2

        if isinstance(exc, httpx2.TimeoutException):
            return self._stalled()
        return self._error(f"broke off its answer ({_named(exc)})", "truncated", paid=True)

    def _stalled(self) -> ModelError:
        silent = f"sent no byte for {self.limits.stall_seconds:g} s"
        return self._error(silent, "timeout", paid=True)

    def _failure(self, exc: Exception) -> ModelError:
        """What an exception of the SDK, or one that it let through, means."""
        status_error, connection_error = self.errors()
        response = getattr(exc, "response", None)
        if isinstance(exc, status_error) and response is not None:
            body = getattr(exc, "body", None)
            return refused(self.provider, response.status_code, body, response.headers)
        wrapped = exc.__cause__ if isinstance(exc, connection_error) else exc
        cause = wrapped if isinstance(wrapped, Exception) else exc
        kind, paid = _network_kind(cause)
        if kind == "timeout":
            return self._stalled()
        doing = "could not be asked" if not paid else "was asked, but no answer could be read"
        return self._error(f"{doing} ({_named(cause)})", kind, paid=paid)

    def _error(self, what: str, kind: FailureKind, *, paid: bool) -> ModelError:
        return ModelError(f"{self.provider} {what}.", kind=kind, may_be_paid=paid)

    @contextmanager
    def _clean(self) -> Iterator[None]:
        """Let no error through whose text, or whose causes' text, shows the key."""
        try:
            yield
        except ModelError as exc:
            secret = self.secret()
            exc.args = (_without_key(str(exc), secret),)
            chain, cause = "", exc.__cause__
            while cause is not None:
                chain, cause = f"{chain}{cause}", cause.__cause__
            if chain != _without_key(chain, secret):
                raise exc from None
            raise


def _without_key(text: str, key: str) -> str:
    """The text with `[key]` where it holds the key, or the beginning of it.

    What a provider says is shortened for people, and the end may fall into the key.
    """
    clean, position = "", 0
    start = key[:_KEY_CHARACTERS]
    while (found := text.find(start, position)) >= 0:
        size = len(start)
        while size < len(key) and text.startswith(key[: size + 1], found):
            size += 1
        clean += f"{text[position:found]}[key]"
        position = found + size
    return clean + text[position:]


class _Reader:
    """Reads a body under the attempt's deadline and size limit."""

    def __init__(
        self,
        exchange: Exchange,
        chunks: AsyncIterator[bytes],
        deadline: float,
        timeout_seconds: float,
    ) -> None:
        self._exchange = exchange
        self._chunks = chunks
        self._deadline = deadline
        self._timeout_seconds = timeout_seconds
        self._bytes = 0

    async def next(self, assembly: Assembly | None = None) -> bytes:
        """The next bytes; none at the end, or where a finished stream breaks."""
        try:
            async with asyncio.timeout_at(self._deadline):
                chunk = await anext(self._chunks, b"")
        except Exception as exc:  # the provider's edge: nothing raw goes further
            if assembly is not None and assembly.done:
                return b""
            if isinstance(exc, TimeoutError):
                raise self._exchange.timed_out(self._timeout_seconds) from exc
            raise self._exchange.broken(exc) from exc
        self._bytes += len(chunk)
        if self._bytes > MAX_ANSWER_BYTES:
            raise misshapen(self._exchange.provider, f"more than {MAX_ANSWER_BYTES} bytes")
        return chunk

    async def rest(self) -> bytes:
        """Everything up to the end."""
        parts = []
        while chunk := await self.next():
            parts.append(chunk)
        return b"".join(parts)


def _network_kind(exc: Exception) -> tuple[FailureKind, bool]:
    """The kind of a failure below HTTP, and whether the request may have been worked on."""
    import httpx2

    match exc:
        case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.PoolTimeout():
            return "network", False
        case httpx2.ProxyError() | httpx2.WriteError() | httpx2.WriteTimeout():
            return "network", False
        case httpx2.TimeoutException():
            return "timeout", True
        case httpx2.UnsupportedProtocol() | httpx2.LocalProtocolError() | httpx2.InvalidURL():
            return "invalid_request", False
        case httpx2.TooManyRedirects():
            return "invalid_request", False
        case httpx2.HTTPError() | OSError():
            return "network", True
        case _:
            return "invalid_request", True


def _named(exc: Exception) -> str:
    text = " ".join(str(exc).split())[:200]
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__


def _decoded(answer: bytes, provider: str) -> JSON:
    try:
        return load(answer)
    except ValueError as exc:
        raise misshapen(provider, "an answer that is not JSON") from exc


def _events(decoder: SSEDecoder, chunk: bytes, provider: str) -> list[str]:
    try:
        return decoder.feed(chunk)
    except EventTooLarge as exc:
        raise misshapen(provider, str(exc)) from exc


async def _hang_up(response: httpx2.Response, chunks: AsyncIterator[bytes]) -> None:
    with suppress(Exception):  # what breaks while closing is closed, and the answer is known
        try:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()
        finally:
            await response.aclose()


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    with suppress(Exception):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in chunks:
                pass
