"""The one place that runs a tool."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future as ThreadFuture
from contextvars import ContextVar

from agentkit.core.contracts.ports import ToolThreads
from agentkit.tools.context import ToolContext
from agentkit.tools.decorator import Tool
from agentkit.tools.outcome import Ended, store_fault
from agentkit.tools.waiting import AttemptLeft

__all__ = ["CANCEL_GRACE_SECONDS", "Attempt", "HeldBack", "call_under_way", "left_behind"]

CANCEL_GRACE_SECONDS = 0.5
"""How long a cancelled async tool may take to clean up before it is left behind."""

call_under_way: ContextVar[str] = ContextVar("call_under_way")
"""Within a tool, and what it starts: which tool of which run, in words."""

_LEFT_BEHIND: dict[asyncio.Future[object], str] = {}
"""Tasks nobody waits for any more, and of which call; a loop itself holds its tasks only weakly."""

_IN_THREADS: dict[str, ThreadFuture[Ended]] = {}
"""Calls that a thread of this process works on, by idempotency key."""

os.register_at_fork(after_in_child=_IN_THREADS.clear)  # the threads stayed with the parent


class HeldBack(Exception):
    """Raised by what is asked right before a tool is entered: it is not to begin now."""


class Attempt:
    """One attempt of one call, under way in a task of its own as soon as it is made.

    Async tools run in that task, sync ones in `threads`. At the tool's timeout an async tool is
    cancelled, and left behind if it goes on regardless; a sync one is left to its thread. Where a
    thread still works on an earlier attempt of the same side-effecting call, this attempt waits for
    that one's end and takes it as its own: two attempts never overlap in one process.

    Args:
        tool: the tool.
        arguments: what `Tool.bind` gave.
        context: passed to the tool if it asks for one.
        key: attempts of one key never overlap in this process; empty for calls that may.
        threads: where sync tools run.
        check: asked, in the tool's thread, right before the tool is entered, which may be long
            after the attempt was made; may refuse by raising. `HeldBack` means that it was not run.
        report: hears once how the attempt ended, in this loop. An exception is no outcome of the
            tool: the store failed under `ToolContext.record` (`StoreError`) or this run's state
            forbids going on (`RunError`), whatever the tool made of that; or a person interrupts
            the process.
        late: hears, in this loop, how the tool itself ended, where it was left behind before.
    """

    def __init__(
        self,
        tool: Tool,
        arguments: Mapping[str, object],
        context: ToolContext,
        *,
        key: str,
        threads: ToolThreads,
        check: Callable[[], None],
        report: Callable[[Ended | BaseException], None],
        late: Callable[[Ended], None] | None = None,
    ) -> None:
        given = dict(arguments)
        if tool.signature.context:
            given[tool.signature.context] = context
        self._tool = tool
        self._context = context
        self._threads = threads
        self._report: Callable[[Ended | BaseException], None] | None = report
        self._late = late
        self._key = key
        self._words = f"{tool.name} of run {context.run_id!r}"
        self._earlier = _IN_THREADS.get(key)
        self._timed_out = False
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

        def call() -> object:
            check()
            return tool.function(**given)

        self._task = self._loop.create_task(self._run(call))

    @property
    def interrupted(self) -> bool:
        """Whether somebody else cancelled it: what it reported says nothing about the tool then."""
        return self._task.cancelling() > self._timed_out

    @staticmethod
    async def stop(attempts: Iterable[Attempt]) -> None:
        """Cancel those that have not reported and give them a moment to clean up; a tool that goes
        on regardless is left behind. They may have acted.
        """
        running = [attempt for attempt in attempts if attempt._report is not None]  # noqa: SLF001 - our own
        tasks = [attempt._cancel() for attempt in running]  # noqa: SLF001 - our own
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=CANCEL_GRACE_SECONDS)
        finally:
            for attempt, task in zip(running, tasks, strict=True):
                _leave(task, attempt._words)  # noqa: SLF001 - our own
                attempt._report = None  # noqa: SLF001 - our own; from here on its end comes late

    def leave(self) -> None:
        """End it now, because it waits: whatever it makes of that, nothing is heard of it."""
        self._context.leave()
        self._report = self._late = None
        _leave(self._cancel(), self._words)

    def _cancel(self) -> asyncio.Task[None]:
        self._stop_timer()
        self._task.cancel()
        return self._task

    async def _run(self, call: Callable[[], object]) -> None:
        call_under_way.set(self._words)
        try:
            ended = await self._end_of(call)
        except BaseException as exc:  # whoever hears of it raises it
            self._tell(exc)
            if isinstance(exc, KeyboardInterrupt):
                raise
        else:
            self._tell(self._faultless(ended))

    async def _end_of(self, call: Callable[[], object]) -> Ended:
        tool, key = self._tool, self._key
        earlier = self._earlier
        ended = None if earlier is None else await self._end_in_thread(earlier)
        if ended is None and tool.is_async:
            ended = await self._in_loop(call)
        elif ended is None:
            ended = await _in_thread(
                tool,
                self._unless_left(call),
                key=key,
                threads=self._threads,
                late=self._tell_late,
            )
        if inspect.isawaitable(ended.value):  # a sync function that hands on a coroutine
            awaitable = ended.value
            ended = await self._in_loop(lambda: awaitable)
        return ended

    def _unless_left(self, call: Callable[[], object]) -> Callable[[], object]:
        """`call`, whose end counts for nothing where its attempt was left meanwhile."""

        def made() -> object:
            try:
                return call()
            finally:
                if self._context.left:
                    raise AttemptLeft

        return made

    async def _end_in_thread(self, end: ThreadFuture[Ended]) -> Ended | None:
        """The end of an earlier attempt that a thread of this process still works on; where it
        comes too late, it is this one's late end too.
        """
        loop = self._loop
        woken = loop.create_future()

        def hear() -> None:
            if woken.cancelled():
                self._tell_late(end.result())
            else:
                woken.set_result(None)

        def wake(_: ThreadFuture[Ended]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(hear)

        end.add_done_callback(wake)
        try:
            await asyncio.wait({woken}, timeout=self._tool.timeout)
            if not end.done():
                return Ended(timed_out=True, running=True)
        finally:
            if not woken.done():
                woken.cancel()
        ended = end.result()
        if isinstance(ended.error, AttemptLeft):  # it waited, and this attempt goes on from there
            return None
        # A store's or lease's error was the earlier worker's: this attempt is free of it.
        return None if store_fault(ended.error, self._context.run_id) else ended

    async def _in_loop(self, call: Callable[[], object]) -> Ended:
        self._timer = self._loop.call_later(self._tool.timeout, self._time_out)
        try:
            value = call()
            return Ended(value=await value if inspect.isawaitable(value) else value)
        except HeldBack:
            return Ended(started=False, held=True)
        except KeyboardInterrupt:  # a person's, where nothing else listens to signals
            raise
        except asyncio.CancelledError:
            error = asyncio.CancelledError("the tool cancelled itself")
            return Ended(error=error, timed_out=self._timed_out)
        except BaseException as exc:  # noqa: BLE001 - the tool's own, `sys.exit` included
            return Ended(error=exc, timed_out=self._timed_out)
        finally:
            self._stop_timer()

    def _time_out(self) -> None:
        self._timed_out = True
        self._task.cancel()
        self._timer = self._loop.call_later(CANCEL_GRACE_SECONDS, self._abandon)

    def _abandon(self) -> None:
        """The tool ignores its cancellation: report without it."""
        _leave(self._task, self._words)
        self._tell(Ended(timed_out=True, running=True))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _faultless(self, ended: Ended) -> Ended | BaseException:
        fault = self._context.fault or store_fault(ended.error, self._context.run_id)
        return ended if fault is None else fault

    def _tell(self, ended: Ended | BaseException) -> None:
        report, self._report = self._report, None
        if report is not None:
            report(ended)
        elif isinstance(ended, Ended) and (ended.error is None or not self.interrupted):
            self._tell_late(ended)  # it was left behind, and ends after all

    def _tell_late(self, ended: Ended) -> None:
        """A coroutine that a sync function handed on is not run any more, so it says nothing."""
        told = ended.started and not inspect.isawaitable(ended.value)
        if self._late is not None and told and self._faultless(ended) is ended:
            self._late(ended)


async def _in_thread(
    tool: Tool,
    call: Callable[[], object],
    *,
    key: str,
    threads: ToolThreads,
    late: Callable[[Ended], None],
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
    except asyncio.CancelledError:
        if future.done() and not inspect.isawaitable(future.result().value):
            return future.result()  # its end came at the same moment
        if future.done() or not attempt.give_up():
            raise
        return Ended(started=False)  # it was still waiting for a thread
    finally:
        if not future.done() and not attempt.give_up():
            future.add_done_callback(lambda done: None if done.cancelled() else late(done.result()))
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
        except HeldBack:
            ended = Ended(started=False, held=True)
        except BaseException as exc:  # noqa: BLE001  # in a thread even SystemExit is the tool's
            ended = Ended(error=exc)
        _IN_THREADS.pop(self._key, None)
        end.set_result(ended)
        return ended


def left_behind() -> dict[asyncio.Future[object], str]:
    """Tasks that nobody waits for any more and that go on, and which call that is, in words."""
    return _LEFT_BEHIND.copy()


def _leave(
    future: asyncio.Future[object] | asyncio.Future[Ended] | asyncio.Task[None], words: str = ""
) -> None:
    """Keep what nobody waits for until it ends, and read its end so that nothing is logged."""
    kept: asyncio.Future[object] = future  # type: ignore[assignment]  # only its end matters
    _LEFT_BEHIND[kept] = words

    def forget(done: asyncio.Future[object]) -> None:
        _LEFT_BEHIND.pop(done, None)
        if not done.cancelled():
            done.exception()

    kept.add_done_callback(forget)
