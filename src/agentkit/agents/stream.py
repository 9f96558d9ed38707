"""The public stream of a run: one object whose own end closes its drive, however it is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from agentkit.agents.result import AgentEvent, AgentResult
from agentkit.core.contracts.errors import StoreMisused
from agentkit.state.journal.drives import DriveRecord, RunKey, forget, make_way, register

__all__ = ["RunStream"]


class RunStream(AsyncIterator[AgentEvent]):
    """Events of one tenure; iterate it with `async for`.

    Leaving the loop early (`break`, an exception, `aclose()`, cancelling the task) ends the
    tenure in order: the run stays resumable and its lease is released. A stream is read by one
    task at a time, in the loop in which it was first read.

    Args:
        key: the run.
        open_events: makes the generator of events, given this drive's record.
    """

    def __init__(
        self,
        key: RunKey,
        open_events: Callable[[DriveRecord], AsyncGenerator[AgentEvent, None]],
    ) -> None:
        self._key = key
        self._open_events = open_events
        self._record: DriveRecord | None = None
        self._events: AsyncGenerator[AgentEvent, None] | None = None
        self._reading = False

    def __aiter__(self) -> RunStream:
        return self

    async def __anext__(self) -> AgentEvent:
        if self._reading:
            message = f"run {self._key[2]!r}: its stream is being read by another task already"
            raise StoreMisused(message)
        self._reading = True
        try:
            return await self._next()
        finally:
            self._reading = False

    async def _next(self) -> AgentEvent:
        record = self._record
        if record is None:
            await make_way(self._key)
            record = self._record = register(self._key, self)
            self._events = self._open_events(record)
        if self._events is None or record.phase in ("closing", "closed"):
            raise StopAsyncIteration
        record.phase = "running"
        try:
            event = await anext(self._events)
        except BaseException:
            forget(record)
            raise
        record.phase = "at_yield"
        return event

    async def result(self) -> AgentResult:
        """Read to the end, and return the run's result.

        Raises:
            CancelledError: a newer drive of this loop has closed it before.
            Others as they come from the stream.
        """
        result: AgentResult | None = None
        try:
            async for event in self:
                result = event.result or result
        finally:
            await self.aclose()
        if result is None:
            message = f"run {self._key[2]!r} was closed by a newer drive of this loop"
            raise asyncio.CancelledError(message)
        return result

    async def aclose(self) -> None:
        """End the tenure in order; does nothing on a stream that has ended or never began.

        Raises:
            StoreMisused: another task is reading it; cancel that task instead.
        """
        if self._reading:
            message = f"run {self._key[2]!r}: another task reads its stream; cancel that task"
            raise StoreMisused(message)
        record, events = self._record, self._events
        if record is None or events is None or record.phase == "closed":
            return
        record.phase = "closing"
        try:
            await events.aclose()
        finally:
            forget(record)

    def __del__(self) -> None:
        record, events = self._record, self._events
        if record is not None and events is not None and record.phase == "at_yield":
            record.begin_close(events.aclose)
