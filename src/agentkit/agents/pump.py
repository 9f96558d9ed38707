"""Acting goes on while a consumer takes its time: events wait for it, facts do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from agentkit.agents.result import AgentEvent

__all__ = ["told_while_running"]


async def told_while_running(
    first: Sequence[AgentEvent],
    step: Callable[[], Awaitable[Sequence[AgentEvent]]],
    running: Callable[[], bool],
) -> AsyncGenerator[AgentEvent, None]:
    """Tell `first` and what each `step` gives; the steps do not wait for the consumer.

    They run one after the other in a task of their own for as long as something is `running`, so
    an outcome is recorded when it comes, also while the consumer looks at an earlier event. What
    a step raises is raised here, after the events before it. Closing this generator stops them.
    """
    if not running():
        for event in first:
            yield event
        return
    told: asyncio.Queue[AgentEvent | None] = asyncio.Queue()
    failed: list[BaseException] = []

    async def steps() -> None:
        try:
            while running():
                for event in await step():
                    told.put_nowait(event)
        except asyncio.CancelledError:
            raise
        except BaseException as exc:  # noqa: BLE001 - raised again by whoever reads
            failed.append(exc)
        finally:
            told.put_nowait(None)

    task = asyncio.get_running_loop().create_task(steps())
    try:
        for event in first:
            yield event
        while (later := await told.get()) is not None:
            yield later
        if failed:
            raise failed[0]
    finally:
        task.cancel()
        await _let_end(task)


async def _let_end(task: asyncio.Task[None]) -> None:
    """Wait for a cancelled task, also if we are cancelled again meanwhile: it may be in the middle
    of an append, and nothing can be released before that has come to its end.
    """
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as exc:
            cancelled = exc
    if cancelled is not None:
        raise cancelled
