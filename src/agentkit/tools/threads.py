"""Daemon threads for synchronous tools. A tool that never returns cannot keep the process alive."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from functools import cache
from typing import TypeVar, cast

__all__ = ["MAX_TOOL_THREADS", "DaemonThreads", "default_threads"]

MAX_TOOL_THREADS = 64
"""Sync tools that run at once in one process; the next one waits for a free thread."""

_T = TypeVar("_T")


class DaemonThreads:
    """Threads that run one call each at a time and are kept for the next one.

    Implements `ToolThreads`. May be used from several loops and threads at once. A call sees the
    context variables of whoever submitted it. A forked child starts with no threads.

    Args:
        limit: most threads at once; further calls wait in order.
    """

    def __init__(self, limit: int = MAX_TOOL_THREADS) -> None:
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        self._limit = limit
        self._reset()

    def submit(self, call: Callable[[], _T]) -> Awaitable[_T]:
        """Run `call` in a thread and resolve, in the calling loop, with its result or exception."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()
        context = contextvars.copy_context()

        def job() -> Callable[[], None]:
            result: _T | None = None
            error: BaseException | None = None
            try:
                result = context.run(call)
            except BaseException as exc:  # noqa: BLE001  # it belongs to whoever awaits the call
                error = exc

            def answer() -> None:
                # A loop that is closed refuses: nobody waits any more.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(_settle, future, result, error)

            return answer

        if os.getpid() != self._pid:
            self._reset()
        with self._changed:
            self._jobs.append(job)
            self._provide()
        return future

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], Callable[[], None]]] = deque()
        self._threads = 0
        self._free = 0  # threads that come for a job without being made

    def _provide(self) -> None:
        """See that somebody takes the new job; called under the lock."""
        if len(self._jobs) <= self._free:
            self._changed.notify()
        elif self._threads < self._limit:
            self._threads += 1
            self._free += 1
            name = f"agentkit-tool-{self._threads}"
            try:
                threading.Thread(target=self._work, name=name, daemon=True).start()
            except RuntimeError:
                self._threads -= 1
                self._free -= 1
                if not self._threads:
                    self._jobs.pop()
                    raise

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._jobs:
                    self._changed.wait()
                self._free -= 1
                job = self._jobs.popleft()
            answer = job()
            with self._changed:
                self._free += 1  # first: who hears the answer may bring the next call at once
            answer()
            del job, answer  # an idle thread must not keep the last call's values alive


@cache
def default_threads() -> DaemonThreads:
    """The threads that all runs of this process share."""
    return DaemonThreads()


def _settle(future: asyncio.Future[_T], result: _T | None, error: BaseException | None) -> None:
    if future.done():
        return
    if isinstance(error, StopIteration):  # a future refuses it
        wrapped = RuntimeError("the call raised StopIteration")
        wrapped.__cause__ = error
        error = wrapped
    if error is None:
        future.set_result(cast("_T", result))
    else:
        future.set_exception(error)
