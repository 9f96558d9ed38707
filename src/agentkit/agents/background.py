"""One event loop in one daemon thread, for callers that have none."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Coroutine
from typing import TypeVar

from agentkit.core.contracts.errors import StoreMisused

__all__ = ["run_in_background"]

_T = TypeVar("_T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run_in_background(work: Coroutine[object, object, _T]) -> _T:
    """Run `work` in the process's background loop and wait for it.

    An interrupt (Ctrl-C) cancels the work, waits until it has closed in order, and goes on.

    Raises:
        StoreMisused: called from a running event loop, which it would block.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        work.close()
        message = "run_sync was called inside a running event loop; use `await agent.run(…)` there"
        raise StoreMisused(message)
    future = asyncio.run_coroutine_threadsafe(work, _background_loop())
    try:
        return future.result()
    except BaseException:
        if future.cancel():
            _drain()
        raise


def _background_loop() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603 - one per process, made at first use
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            thread = threading.Thread(
                target=_serve, args=[_loop], name="agentkit-loop", daemon=True
            )
            thread.start()
        return _loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop for as long as the process lives. Asyncio lets `SystemExit` and its like through
    to whoever runs the loop; here they belong to the call whose tool raised them, which gets them
    from its future, and the other calls go on.
    """
    while True:
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()


def _drain() -> None:
    """Wait until what was cancelled has run its last turn."""

    async def others() -> None:
        me = asyncio.current_task()
        pending = [task for task in asyncio.all_tasks() if task is not me and task.cancelling()]
        if pending:
            await asyncio.wait(pending, timeout=15.0)

    asyncio.run_coroutine_threadsafe(others(), _background_loop()).result()


def _after_fork() -> None:
    global _lock, _loop  # noqa: PLW0603 - the parent's loop does not run in the child
    _lock = threading.Lock()
    _loop = None


os.register_at_fork(after_in_child=_after_fork)
