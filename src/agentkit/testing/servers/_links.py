"""One connection through a proxy: its bytes in both directions, and what strikes them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from dataclasses import dataclass, field

from agentkit.testing.servers.faults import CutRequest, Fault, HoldAnswer, LoseAnswer, LoseRequest

__all__ = ["Faults", "Link"]

_PIECE_BYTES = 65_536
_TAIL_BYTES = 1024  # a pattern may be longer by one, and still be found across two pieces


class Faults:
    """The faults that are set, and how often each has struck. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: list[_Set] = []
        self._always: _Set | None = None
        self._struck: Counter[str] = Counter()

    def add(self, *faults: Fault) -> None:
        """Let each strike once; the first in the queue that matches does."""
        with self._lock:
            self._queue += map(_Set, faults)

    def always(self, fault: Fault | None) -> None:
        """Let a fault strike whenever none of the queue does."""
        with self._lock:
            self._always = None if fault is None else _Set(fault)

    def clear(self) -> None:
        """Forget all that have not struck."""
        with self._lock:
            self._queue, self._always = [], None

    def count(self, kind: str) -> None:
        """Put on the record that something struck."""
        with self._lock:
            self._struck[kind] += 1

    @property
    def struck(self) -> Counter[str]:
        """How often what has struck."""
        with self._lock:
            return Counter(self._struck)

    def match(self, link: int, tail: bytes, piece: bytes) -> tuple[Fault, int] | None:
        """The fault that strikes now, and how many bytes of the piece are passed on before.

        `tail` is what the connection sent just before the piece.
        """
        with self._lock:
            for entry in [*self._queue, *([] if self._always is None else [self._always])]:
                passed = entry.passes(link, tail, piece)
                if passed is not None:
                    if entry is not self._always:
                        self._queue.remove(entry)
                    return entry.fault, passed
        return None


@dataclass(eq=False)
class _Set:
    """A fault that is set. A hit on one connection does not touch the counts of another."""

    fault: Fault
    seen: int = 0
    bytes_of: Counter[int] = field(default_factory=Counter)

    def passes(self, link: int, tail: bytes, piece: bytes) -> int | None:
        """How much of the piece passes before it strikes; None if it does not strike."""
        fault = self.fault
        if isinstance(fault, CutRequest):
            left = fault.after_bytes - self.bytes_of[link]
            self.bytes_of[link] += len(piece)
            return left if left <= len(piece) else None
        before = tail[max(0, len(tail) - len(fault.request) + 1) :]  # too short to match again
        if fault.request not in before + piece:
            return None
        self.seen += 1
        if self.seen <= fault.skip:
            return None
        self.seen = 0
        return 0 if isinstance(fault, LoseRequest) else len(piece)


@dataclass(eq=False)
class Link:
    """A client's connection and the proxy's own one to the server."""

    number: int
    faults: Faults
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    server: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    silent: bool = False
    _losing: LoseAnswer | HoldAnswer | None = None
    _tail: bytes = b""
    _kept: bytes = b""

    async def run(self) -> None:
        """Pass bytes on until one side ends or the link is cut."""
        pumps = [asyncio.create_task(self._requests()), asyncio.create_task(self._answers())]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for _, writer in (self.client, self.server):
                writer.close()

    def cut(self) -> None:
        """Reset both connections."""
        for _, writer in (self.client, self.server):
            writer.transport.abort()

    async def _requests(self) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await self.client[0].read(_PIECE_BYTES):
                if self.silent:
                    continue
                hit = self.faults.match(self.number, self._tail, piece)
                self._tail = (self._tail + piece)[-_TAIL_BYTES:]
                if hit is None:
                    await self._give(piece)
                else:
                    await self._strike(*hit, piece)

    async def _strike(self, fault: Fault, passed: int, piece: bytes) -> None:
        if isinstance(fault, LoseAnswer | HoldAnswer):
            self._losing, self._kept = fault, b""
        await self._give(piece[:passed])
        match fault:
            case LoseAnswer():
                pass  # it strikes when the server has answered
            case HoldAnswer():
                self.faults.count("HoldAnswer")
            case _:
                self.faults.count(type(fault).__name__)
                self.cut()

    async def _answers(self) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await self.server[0].read(_PIECE_BYTES):
                losing = self._losing
                if isinstance(losing, LoseAnswer):
                    self._kept += piece
                    if losing.answer in self._kept:
                        self.faults.count("LoseAnswer")
                        self.cut()
                elif losing is None and not self.silent:
                    self.client[1].write(piece)
                    await self.client[1].drain()

    async def _give(self, piece: bytes) -> None:
        self.server[1].write(piece)
        await self.server[1].drain()
