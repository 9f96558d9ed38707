"""The one place that runs a tool."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future as ThreadFuture

from agentkit.core.contracts.ports import ToolThreads
from agentkit.tools.context import ToolContext
from agentkit.tools.decorator import Tool
from agentkit.tools.outcome import CallResult, Ended, judge, store_fault

__all__ = ["CANCEL_GRACE_SECONDS", "run_call"]

CANCEL_GRACE_SECONDS = 0.5
"""How long a cancelled async tool may take to clean up before it is left behind."""

_LEFT_BEHIND: set[asyncio.Future[object]] = set()
"""Tasks nobody waits for any more; a loop itself holds its tasks only weakly."""

_IN_THREADS: dict[str, ThreadFuture[Ended]] = {}
"""Calls that a thread of this process works on, by idempotency key."""


async def run_call(
    tool: Tool, arguments: Mapping[str, object], context: ToolContext, *, threads: ToolThreads
) -> CallResult:
    """Run one attempt of one call and say how it ended.

    Async tools run in a task of their own in this loop, sync ones in `threads`. At the tool's
    timeout an async tool is cancelled; a sync one is left to its thread. Where a thread still
    works on an earlier attempt of the same side-effecting call, this attempt waits for that one's
    end and takes it as its own: two attempts never overlap in one process.

    Args:
        tool: the tool.
        arguments: what `Tool.bind` gave.
        context: passed to the tool if it asks for one.
        threads: where sync tools run.

    Raises:
        StoreError: the store failed under `ToolContext.record`, whatever the tool made of that.
        RunError: this run's own state forbids going on (`LeaseLost`, …); likewise.
        asyncio.CancelledError: the caller was cancelled; the tool may have acted.
    """
    given = dict(arguments)
    if tool.signature.context:
        given[tool.signature.context] = context
    ended = await _earlier(tool, context)
    if ended is None and tool.is_async:
        ended = await _in_loop(tool, lambda: tool.function(**given))
    elif ended is None:
        key = context.idempotency_key
        ended = await _in_thread(tool, lambda: tool.function(**given), key=key, threads=threads)
    if inspect.isawaitable(ended.value):  # a sync function that hands on a coroutine
        awaitable = ended.value
        ended = await _in_loop(tool, lambda: awaitable)
    fault = context.fault or store_fault(ended.error, context.run_id)
    if fault is not None:
        raise fault
    return judge(tool, ended, context.attempt)


async def _in_loop(tool: Tool, call: Callable[[], object]) -> Ended:
    task = asyncio.ensure_future(_awaited(call))
    try:
        await asyncio.wait({task}, timeout=tool.timeout)
    except asyncio.CancelledError:
        await _stop(task)
        raise
    if task.done():
        return _end_of(task)
    await _stop(task)
    if not task.done():
        return Ended(timed_out=True, running=True)
    ended = _end_of(task)
    return ended if ended.error is None else Ended(timed_out=True, error=ended.error)


async def _awaited(call: Callable[[], object]) -> object:
    value = call()
    return await value if inspect.isawaitable(value) else value


async def _stop(task: asyncio.Future[object]) -> None:
    """Cancel the task and give it a moment; a tool that goes on regardless is left behind."""
    task.cancel()
    try:
        await asyncio.wait({task}, timeout=CANCEL_GRACE_SECONDS)
    finally:
        _leave(task)


def _end_of(task: asyncio.Future[object]) -> Ended:
    if task.cancelled():
        return Ended(error=asyncio.CancelledError("the tool cancelled itself"))
    error = task.exception()
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error
    return Ended(error=error) if error is not None else Ended(value=task.result())


async def _in_thread(
    tool: Tool, call: Callable[[], object], *, key: str, threads: ToolThreads
) -> Ended:
    loop = asyncio.get_running_loop()
    attempt = _ThreadAttempt(call, key=key, now=loop.time)
    try:
        pending = threads.submit(attempt)
    except RuntimeError:  # the system gives no more threads
        return Ended(started=False)
    future = asyncio.ensure_future(pending)
    left = tool.timeout
    try:
        while left > 0:
            await asyncio.wait({future}, timeout=left)
            if future.done():
                return future.result()
            if attempt.give_up():
                return Ended(timed_out=True, started=False)
            left = attempt.began + tool.timeout - loop.time()
    finally:
        attempt.give_up()
        _leave(future)
    return Ended(timed_out=True, running=True)


class _ThreadAttempt:
    """A call that either a thread begins or its waiter gives up, never both.

    The tool's time runs from `began`: waiting for a free thread is not the tool's fault.
    """

    def __init__(self, call: Callable[[], object], *, key: str, now: Callable[[], float]) -> None:
        self.began = now()
        self._call = call
        self._key = key
        self._now = now
        self._turn = threading.Lock()

    def give_up(self) -> bool:
        """Whether the call has not begun; then it never will."""
        return self._turn.acquire(blocking=False)

    def __call__(self) -> Ended:
        self.began = self._now()  # first, so that whoever finds the turn taken can rely on it
        if not self._turn.acquire(blocking=False):
            return Ended(started=False)
        end: ThreadFuture[Ended] = ThreadFuture()
        if self._key:
            _IN_THREADS[self._key] = end
        try:
            ended = Ended(value=self._call())
        except BaseException as exc:  # noqa: BLE001  # in a thread even SystemExit is the tool's
            ended = Ended(error=exc)
        _IN_THREADS.pop(self._key, None)
        end.set_result(ended)
        return ended


async def _earlier(tool: Tool, context: ToolContext) -> Ended | None:
    """The end of an earlier attempt that a thread of this process still works on, if one does."""
    end = _IN_THREADS.get(context.idempotency_key)
    if end is None:
        return None
    loop = asyncio.get_running_loop()
    woken = loop.create_future()

    def wake(_: ThreadFuture[Ended]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(woken.set_result, None)

    end.add_done_callback(wake)
    await asyncio.wait({woken}, timeout=tool.timeout)
    if not end.done():
        return Ended(timed_out=True, running=True)
    ended = end.result()
    # A store's or lease's error was the earlier worker's: this attempt is free of it.
    return None if store_fault(ended.error, context.run_id) else ended


def _leave(future: asyncio.Future[object] | asyncio.Future[Ended]) -> None:
    """Keep what nobody waits for until it ends, and read its end so that nothing is logged."""
    kept: asyncio.Future[object] = future  # type: ignore[assignment]  # only its end matters
    _LEFT_BEHIND.add(kept)

    def forget(done: asyncio.Future[object]) -> None:
        _LEFT_BEHIND.discard(done)
        if not done.cancelled():
            done.exception()

    kept.add_done_callback(forget)
