"""How a command opens the store, runs to its end and leaves: one way for all of them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import warnings
from collections.abc import Awaitable, Callable
from typing import NoReturn

from agentkit.cli.exits import INTERRUPTED, exit_code_of
from agentkit.cli.output import emit_json, say
from agentkit.core.contracts.errors import AgentkitError, RunError
from agentkit.core.contracts.ports import JournalPort
from agentkit.state.checkpoints.adapters import open_store

__all__ = ["DEFAULT_STORE", "STORE_VARIABLE", "leave_with", "run_command"]

STORE_VARIABLE = "AGENTKIT_STORE_URL"
DEFAULT_STORE = "sqlite:///agentkit.db"


def run_command(
    store_url: str | None, work: Callable[[JournalPort], Awaitable[int]], *, as_json: bool
) -> NoReturn:
    """Open the store, run `work` on it, close it, and leave with what it says.

    SIGTERM and SIGINT end the work in order: what runs is left resumable with its lease released.
    Errors of ours become one paragraph (or one JSON object) and an exit code.
    """
    warnings.showwarning = _show_warning
    try:
        code = asyncio.run(_interruptible(store_url, work))
    except AgentkitError as error:
        leave_with(error, as_json=as_json)
    except (KeyboardInterrupt, asyncio.CancelledError):
        say("interrupted; the run is resumable: agentkit resume RUN", error=True)
        code = INTERRUPTED
    sys.exit(code)


def leave_with(error: AgentkitError, *, as_json: bool) -> NoReturn:
    """Tell of `error` and leave with its exit code."""
    code = exit_code_of(error)
    if as_json:
        run_id = error.run_id if isinstance(error, RunError) else None
        emit_json({"error": type(error).__name__, "message": str(error), "run": run_id})
    else:
        say(f"Error: {error}", error=True)
    sys.exit(code)


async def _interruptible(
    store_url: str | None, work: Callable[[JournalPort], Awaitable[int]]
) -> int:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    for number in (signal.SIGTERM, signal.SIGINT):
        if task is not None:
            loop.add_signal_handler(number, task.cancel)
    store = open_store(store_url or os.environ.get(STORE_VARIABLE) or DEFAULT_STORE)
    try:
        return await work(store)
    finally:
        await store.aclose()


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    say(f"Warning: {message}", error=True)
