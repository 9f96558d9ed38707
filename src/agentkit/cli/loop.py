"""The event loop of a command, which no tool can keep from ending."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NoReturn, ParamSpec, TypeVar

from agentkit.cli.output import one_line, say
from agentkit.tools.execute import call_under_way, left_behind

__all__ = ["LET_GO_SECONDS", "CommandLoop"]

LET_GO_SECONDS = 1.0
"""How long tasks and threads that nobody waits for may take to end before the process goes."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class CommandLoop:
    """Runs a command's coroutine; then leaves, also where something does not let go."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._threads = _NamedThreads()

    def run(self, work: Coroutine[object, object, int]) -> int:
        """What `work` returns."""
        self._runner.get_loop().set_default_executor(self._threads)
        return self._runner.run(work)

    def leave(self, code: int) -> None:
        """Close the loop. Where a task ignores its cancellation, or a thread of
        `asyncio.to_thread` goes on, tell whose they are and end the process here with `code`.
        """
        stuck = self._close()
        if stuck:
            names = one_line(", ".join(stuck))
            say(f"did not let go, and ends with this process: {names}", error=True)
            _end_process(code)

    def _close(self) -> list[str]:
        loop = self._runner.get_loop()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=LET_GO_SECONDS))
        self._threads.shutdown(wait=False, cancel_futures=True)
        known = left_behind()
        stuck = [known.get(task) or task.get_name() for task in tasks if not task.done()]
        stuck += self._threads.busy(wait_seconds=LET_GO_SECONDS)
        if not stuck:
            self._runner.close()
        return sorted({*stuck})


class _NamedThreads(ThreadPoolExecutor):
    """The threads of `asyncio.to_thread`, of which it is known for which tool they work."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="asyncio")
        self._calls: dict[Future[object], str] = {}

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """As the base says; called by whoever wants the thread, so in the tool's context."""
        future = super().submit(fn, *args, **kwargs)
        kept: Future[object] = future  # type: ignore[assignment]  # only its end matters
        self._calls[kept] = call_under_way.get("") or "a thread"
        kept.add_done_callback(lambda done: self._calls.pop(done, None))
        return future

    def busy(self, *, wait_seconds: float) -> list[str]:
        """For whom threads still work after so long."""
        wait([*self._calls], timeout=wait_seconds)
        return [*self._calls.values()]


def _end_process(code: int) -> NoReturn:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
