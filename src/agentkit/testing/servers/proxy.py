"""A TCP proxy in front of a server, which can do what networks do."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Literal, Self, TypeAlias

from agentkit.testing.servers._links import Faults, Link
from agentkit.testing.servers.faults import Fault
from agentkit.testing.servers.ports import HOST, take_port

__all__ = ["Proxy"]

_State: TypeAlias = Literal["open", "silent", "refusing"]

_SECONDS = 30.0


class Proxy:
    """Listens on a free loopback port and passes on to a server. Starts at once.

    Use it in a `with` statement. It runs in a thread of its own; any thread may command it.

    Args:
        target: the server's port on loopback. It need not be there: a connection is then cut.
    """

    def __init__(self, target: int) -> None:
        self.port = take_port()
        self.target = target
        self._faults = Faults()
        self._state: _State = "open"
        self._links: set[Link] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count()
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._do(self._listen)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def struck(self) -> Counter[str]:
        """How often each fault has struck, by the name of its class.

        `Cut`, `Silence` and `Refusal` count connections that `cut`, `fall_silent` and `refuse`
        struck; a connection that the closed port turned away is not seen, so a refusal counts at
        least once each time it begins.
        """
        return self._faults.struck

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._links)

    def fail_next(self, *faults: Fault) -> None:
        """Let each fault strike once, in this order, each the first request it is meant for."""
        self._faults.add(*faults)

    def always(self, fault: Fault | None) -> None:
        """Let a fault strike whenever no queued one does; None ends that."""
        self._faults.always(fault)

    def clear_faults(self) -> None:
        """Forget all faults that have not struck."""
        self._faults.clear()

    def cut(self) -> None:
        """Cut all connections that are open."""
        self._do(self._cut)

    def fall_silent(self) -> None:
        """Take connections and bytes, and neither pass them on nor answer: a black hole."""
        self._do(self._fall_silent)

    def refuse(self) -> None:
        """Cut all connections and refuse new ones."""
        self._do(self._refuse)

    def pass_on(self) -> None:
        """End silence or refusal. Connections that lost bytes are cut."""
        self._do(self._pass_on)

    def close(self) -> None:
        """Cut all connections and stop listening."""
        if self._thread.is_alive():
            self._do(self._end)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_SECONDS)
            self._loop.close()

    def _do(self, act: Callable[[], Coroutine[object, object, None]]) -> None:
        asyncio.run_coroutine_threadsafe(act(), self._loop).result(_SECONDS)

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(
            self._serve, HOST, self.port, reuse_address=True, backlog=512
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        try:
            server = await asyncio.open_connection(HOST, self.target)
        except OSError:
            writer.transport.abort()
            return
        link = Link(next(self._numbers), self._faults, (reader, writer), server)
        if self._state == "silent":
            self._silence(link)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    async def _cut(self, why: str = "Cut") -> None:
        for link in self._links:
            self._faults.count(why)
            link.cut()

    async def _fall_silent(self) -> None:
        self._state = "silent"
        for link in self._links:
            self._silence(link)

    def _silence(self, link: Link) -> None:
        link.silent = True
        self._faults.count("Silence")

    async def _refuse(self) -> None:
        self._state = "refusing"
        self._faults.count("Refusal")
        await self._stop_listening()
        await self._cut("Refusal")

    async def _pass_on(self) -> None:
        self._state = "open"
        for link in self._links:
            if link.silent:
                link.cut()
        if self._listener is None:
            await self._listen()

    async def _end(self) -> None:
        await self._stop_listening()
        await self._cut()
        if self._serving:
            await asyncio.wait(self._serving, timeout=_SECONDS)

    async def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
