"""Workers in this process, and what they tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from agentkit.agents import Agent
from agentkit.core.contracts.model import LLMPort
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.core.runtime import Invoker, Services, SystemClock
from agentkit.core.testing import FakeClock
from agentkit.dispatch import Worker, WorkerEvent

SOON_SECONDS = 30.0
POLL_SECONDS = 0.02


class Told:
    """Everything that a worker told."""

    def __init__(self) -> None:
        self.events: list[WorkerEvent] = []
        self._more = asyncio.Event()

    def __call__(self, event: WorkerEvent) -> None:
        """Take it in."""
        self.events.append(event)
        self._more.set()

    def of(self, *kinds: str) -> list[tuple[str, str]]:
        """Kind and run of the events of these kinds."""
        return [(one.kind, one.run_id) for one in self.events if one.kind in kinds]

    def texts(self, kind: str) -> list[str]:
        """What was said with the events of this kind."""
        return [one.text for one in self.events if one.kind == kind]

    async def until(self, kind: str, count: int = 1) -> None:
        """Wait until so many events of this kind were told."""
        async with asyncio.timeout(SOON_SECONDS):
            while len(self.of(kind)) < count:
                self._more.clear()
                await self._more.wait()


async def pass_time(clock: FakeClock, told: Told, kind: str, count: int = 1) -> None:
    """Let time pass until so many events of this kind were told."""
    async with asyncio.timeout(SOON_SECONDS):
        while len(told.of(kind)) < count:
            clock.advance(0.25)
            for _ in range(20):
                await asyncio.sleep(0)


def worker_of(
    agents: Sequence[Agent],
    store: JournalPort,
    told: Told,
    *,
    llm: LLMPort | None = None,
    clock: ClockPort | None = None,
    concurrency: int = 4,
    grace_seconds: float = 5.0,
    poll_seconds: float = POLL_SECONDS,
) -> Worker:
    """A worker that looks often."""
    services = Services(
        invoker=Invoker(llm=llm) if llm is not None else None, clock=clock or SystemClock()
    )
    return Worker(
        agents,
        store=store,
        concurrency=concurrency,
        poll_seconds=poll_seconds,
        grace_seconds=grace_seconds,
        services=services,
        on_event=told,
    )


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    """The worker at work, and told to stop at the end."""
    task = asyncio.get_running_loop().create_task(worker.run())
    try:
        yield task
    finally:
        if not task.done():
            worker.stop()
        async with asyncio.timeout(SOON_SECONDS):
            await asyncio.wait([task])
    if not task.cancelled():
        task.result()
