"""One SDK client per event loop, closed when its loop ends or its owner is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol
from weakref import finalize

if TYPE_CHECKING:
    import httpx2

    from agentkit.core.contracts.types import JSON

__all__ = ["Clients", "SDKClient"]


class SDKClient(Protocol):
    """What we use of an official SDK's asynchronous client."""

    async def post(
        self,
        path: str,
        *,
        cast_to: type[httpx2.Response],
        content: bytes,
        options: dict[str, JSON | httpx2.Timeout],
        stream: bool,
    ) -> httpx2.Response:
        """One request; with `stream` the response comes back with its body unread."""
        ...

    def close(self) -> Coroutine[object, None, None]:
        """Close the connections."""
        ...


class Clients:
    """The clients of one adapter, made when a loop first needs one.

    Connections belong to the loop that opened them, so each loop has a client of its own. It is
    closed by `loop.shutdown_asyncgens()`, which `asyncio.run` calls, or before that when the
    adapter is forgotten: nobody has to close an adapter.
    """

    def __init__(self, build: Callable[[], SDKClient]) -> None:
        self._build = build
        self._opened: dict[asyncio.AbstractEventLoop, tuple[_Opened, finalize[..., Clients]]] = {}

    async def current(self) -> SDKClient:
        """The client of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._opened:
            for closed in [other for other in list(self._opened) if other.is_closed()]:
                ended, forget = self._opened.pop(closed)
                forget.detach()
                _OPEN.discard(ended)
            opened = _Opened(self._build())
            forget = finalize(self, _forget, loop, opened)
            forget.atexit = False
            self._opened[loop] = opened, forget
            await opened.keep()
        return self._opened[loop][0].client


_OPEN: set[_Opened] = set()
"""What is open. Without it a forgotten client would vanish before its loop could close it."""


class _Opened:
    """An open client and the asynchronous generator by which its loop closes it."""

    def __init__(self, client: SDKClient) -> None:
        self.client = client
        self._keeper = self._keep()
        self._closed: asyncio.Future[None] | None = None
        self._forgetting: asyncio.Task[None] | None = None

    async def keep(self) -> None:
        """Begin; does not let the loop turn."""
        _OPEN.add(self)
        await anext(self._keeper)

    def forget(self) -> None:
        """Close soon; called in the loop."""
        self._forgetting = asyncio.ensure_future(self._forget())

    async def _forget(self) -> None:
        await self._close()
        with suppress(RuntimeError):  # the loop ends just now and is closing the keeper itself
            await self._keeper.aclose()

    async def _keep(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self._close()

    async def _close(self) -> None:
        if self._closed is not None:
            await asyncio.shield(self._closed)
            return
        self._closed = asyncio.get_running_loop().create_future()
        with suppress(Exception):  # what breaks while closing is closed
            await _ToItsEnd(self.client.close())
        self._closed.set_result(None)
        _OPEN.discard(self)


def _forget(loop: asyncio.AbstractEventLoop, opened: _Opened) -> None:
    """The adapter is gone; this may be any thread, and the loop may have ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(opened.forget)
    if loop.is_closed():
        _OPEN.discard(opened)


class _ToItsEnd:
    """Awaits a coroutine that a cancellation of the task must not stop halfway.

    A loop that ends cancels its tasks, the closing of a forgotten client among them, and the client
    does not remember the connections that it has not closed yet.
    """

    def __init__(self, work: Coroutine[object, None, None]) -> None:
        self._work = work

    def __await__(self) -> Generator[object, None, None]:
        steps = self._work.__await__()
        while True:
            try:
                waited = steps.send(None)
            except StopIteration:
                return
            with suppress(asyncio.CancelledError):
                yield waited
