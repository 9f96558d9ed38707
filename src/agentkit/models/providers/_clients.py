"""One SDK client per event loop, closed when its loop ends or its owner is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Protocol

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

    async def close(self) -> None:
        """Close the connections."""
        ...


class Clients:
    """The clients of one adapter, made when a loop first needs one.

    Connections belong to the loop that opened them. So each loop has a client of its own, and an
    asynchronous generator that holds it: `loop.shutdown_asyncgens()`, which `asyncio.run` calls,
    closes it in order, and so does the loop when the adapter is forgotten before.
    """

    def __init__(self, build: Callable[[], SDKClient]) -> None:
        self._build = build
        self._held: dict[asyncio.AbstractEventLoop, AsyncGenerator[SDKClient, None]] = {}
        self._clients: dict[asyncio.AbstractEventLoop, SDKClient] = {}

    async def current(self) -> SDKClient:
        """The client of the running loop."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            for closed in [other for other in list(self._clients) if other.is_closed()]:
                self._clients.pop(closed, None)
                self._held.pop(closed, None)
            client = self._build()
            holder = _hold(client)
            await anext(holder)
            self._clients[loop], self._held[loop] = client, holder
        return client


async def _hold(client: SDKClient) -> AsyncGenerator[SDKClient, None]:
    try:
        yield client
    finally:
        await client.close()
