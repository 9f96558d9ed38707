"""How a command opens the store, runs to its end and leaves: one way for all of them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import warnings
from collections.abc import Awaitable, Callable, Mapping
from shlex import join
from typing import NoReturn

from agentkit.agents.draining import drain
from agentkit.cli.exits import FAILED, INTERRUPTED, exit_code_of
from agentkit.cli.loop import CommandLoop
from agentkit.cli.output import emit_json, one_line, say, to_plain
from agentkit.core.contracts.errors import (
    AgentkitError,
    InvalidStoreUrl,
    RunError,
    RunInterrupted,
    StoreUnreachable,
)
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.state.checkpoints.adapters import open_store
from agentkit.state.checkpoints.adapters.url import masked_url
from agentkit.state.checkpoints.places import in_memory, is_missing

__all__ = [
    "DEFAULT_STORE",
    "STORE_VARIABLE",
    "check_there",
    "leave_interrupted",
    "leave_with",
    "resume_command",
    "run_command",
]

STORE_VARIABLE = "AGENTKIT_STORE_URL"
DEFAULT_STORE = "sqlite:///agentkit.db"

_NOTHING: Mapping[str, str] = {}


def run_command(
    store_url: str | None,
    work: Callable[[JournalPort], Awaitable[int]],
    *,
    as_json: bool,
    creates: bool = False,
    left_behind: Mapping[str, str] = _NOTHING,
    grace_seconds: float = 0.0,
    on_signal: Callable[[int], bool] = lambda _: False,
) -> NoReturn:
    """Open the store, run `work` on it, close it, and leave with what it says.

    SIGTERM and SIGINT end the work in order: what runs is left resumable with its lease released,
    at once, or when what is under way has ended within `grace_seconds`; the second one stops it,
    the third does what it does by default. A tool that does not let go ends with the process.
    Errors of ours become one paragraph (or one JSON object) and an exit code.

    Args:
        store_url: as given on the command line.
        work: gets the store and returns an exit code.
        as_json: print an error as JSON.
        creates: a store that is not there yet is made; otherwise it is an error.
        left_behind: the run that can be resumed where `work` is interrupted, and the command that
            does it; read at that moment.
        grace_seconds: see above.
        on_signal: is given each signal; true where `work` ends by itself because of it.
    """
    warnings.showwarning = _show_warning
    loop = CommandLoop()
    work_on = _interruptible(
        store_url, work, creates=creates, grace_seconds=grace_seconds, on_signal=on_signal
    )
    code = FAILED
    try:
        try:
            sys.exit(loop.run(work_on))
        except AgentkitError as error:
            if not isinstance(error, RunInterrupted):
                leave_with(error, as_json=as_json)
            leave_interrupted(left_behind, as_json=as_json)
        except (KeyboardInterrupt, asyncio.CancelledError):
            leave_interrupted(left_behind, as_json=as_json)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else FAILED
        raise
    finally:
        loop.leave(code)


def leave_with(error: AgentkitError, *, as_json: bool) -> NoReturn:
    """Tell of `error` and leave with its exit code."""
    code = exit_code_of(error)
    if as_json:
        facts = {name: to_plain(value) for name, value in vars(error).items() if name != "run_id"}
        run_id = error.run_id if isinstance(error, RunError) else None
        emit_json(
            {"error": type(error).__name__, "message": str(error), "run": run_id, "facts": facts}
        )
    else:
        say(f"Error: {one_line(str(error))}", error=True)
    sys.exit(code)


def leave_interrupted(left_behind: Mapping[str, str] = _NOTHING, *, as_json: bool) -> NoReturn:
    """Tell of an interruption, and how the run goes on that it left behind; leave with 130."""
    message = "; the run is resumable: ".join(["interrupted", *left_behind.values()])
    if as_json:
        run = next(iter(left_behind), None)
        emit_json({"error": "Interrupted", "message": message, "run": run, "facts": {}})
    else:
        say(message, error=True)
    sys.exit(INTERRUPTED)


def resume_command(
    run_id: str,
    *,
    store_url: str | None,
    scope: Scope,
    agent: str = "",
    model: str = "",
    command: str = "resume",
) -> str:
    """The command that carries the run on, or another about it, to be pasted into this shell.

    What was given as an option is needed again, but for a password, which is shown to nobody; what
    the environment says will be there.
    """
    store = masked_url(store_url) if store_url else None
    given = {
        "--store": store,
        "--tenant": scope.tenant,
        "--user": scope.user,
        "--agent": agent,
        "--model": model,
    }
    words = [word for option, value in given.items() if value for word in (option, value)]
    return join(["agentkit", command, run_id, *words])


async def _interruptible(
    store_url: str | None,
    work: Callable[[JournalPort], Awaitable[int]],
    *,
    creates: bool,
    grace_seconds: float,
    on_signal: Callable[[int], bool],
) -> int:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    left = [grace_seconds] if grace_seconds > 0 else []

    numbers = [signal.SIGTERM, signal.SIGINT]
    heard: list[int] = []

    def stop(number: int) -> None:
        heard.append(number)
        if len(heard) > 1:
            for one in numbers:
                loop.remove_signal_handler(one)
        if on_signal(number):
            return
        if left and drain(grace_seconds=(seconds := left.pop())):
            text = f"stopping: what is under way has {seconds:g} s to end; again to stop at once"
            say(text, error=True)
        elif task is not None:
            task.cancel()

    for number in numbers:
        loop.add_signal_handler(number, stop, number)
    store = open_store(store_url or os.environ.get(STORE_VARIABLE) or DEFAULT_STORE)
    try:
        if not creates:
            await check_there(store)
        return await work(store)
    finally:
        await store.aclose()


async def check_there(store: JournalPort) -> None:
    """Refuse a store in which a command that only finds can find nothing.

    Raises:
        InvalidStoreUrl: it is in memory, so this process's own and empty.
        StoreUnreachable: it is not there yet.
    """
    if in_memory(store):
        raise InvalidStoreUrl(
            "memory:// belongs to one process and is gone with it, so nothing can be found there. "
            f"Name the store of your runs with --store or {STORE_VARIABLE}: sqlite:///runs.db"
        )
    if await is_missing(store):
        raise StoreUnreachable(
            f"there is no store at {store.location}. `agentkit run` creates it; check --store and "
            f"{STORE_VARIABLE}, and the current folder or the schema."
        )


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    say(f"Warning: {one_line(str(message))}", error=True)
