"""The one place that runs a tool, and what its end means."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from agentkit.core.contracts.entries import Outcome
from agentkit.core.contracts.errors import (
    EntryTooLarge,
    OutcomeUnknown,
    ResultNotStorable,
    RunError,
    StoreError,
)
from agentkit.core.contracts.ports import ToolThreads
from agentkit.core.contracts.values import to_text
from agentkit.tools.context import ToolContext
from agentkit.tools.decorator import Tool

__all__ = [
    "CANCEL_GRACE_SECONDS",
    "MAX_ERROR_CHARACTERS",
    "MAX_RESULT_BYTES",
    "CallResult",
    "run_call",
]

MAX_ERROR_CHARACTERS = 8_000
"""Longest error text of a tool that is kept; the rest is cut off."""

MAX_RESULT_BYTES = 15 * 1024 * 1024
"""Largest result of a tool, as JSON text; a bigger one is an error outcome."""

CANCEL_GRACE_SECONDS = 0.5
"""How long a cancelled async tool may take to clean up before it is left behind."""

_LEFT_BEHIND: set[asyncio.Future[object]] = set()
"""Calls nobody waits for any more; the loop itself holds tasks only weakly."""


class CallResult(msgspec.Struct, frozen=True):
    """How one attempt of a call ended.

    Args:
        outcome: `ok`, `error` or `unknown`.
        content: what the model sees, a valid Unicode text.
        retry: the tool's `max_attempts` asks for another attempt, and none is still running.
    """

    outcome: Outcome
    content: str
    retry: bool = False


async def run_call(
    tool: Tool, arguments: Mapping[str, object], context: ToolContext, *, threads: ToolThreads
) -> CallResult:
    """Run one attempt of one call and say how it ended.

    Async tools run in a task of their own in this loop, sync ones in `threads`. At the tool's
    timeout an async tool is cancelled; a sync one is left to its thread.

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
    if tool.is_async:
        ended = await _in_loop(tool, lambda: tool.function(**given))
    else:
        ended = await _in_thread(tool, lambda: tool.function(**given), threads)
        if inspect.isawaitable(ended.value):  # a sync function that hands on a coroutine
            awaitable = ended.value
            ended = await _in_loop(tool, lambda: awaitable)
    fault = context.fault or _store_fault(ended.error, context.run_id)
    if fault is not None:
        raise fault
    return _judge(tool, ended, context.attempt)


@dataclass(frozen=True, slots=True)
class _Ended:
    """The bare end of an attempt: a value, an error, or neither in time."""

    value: object = None
    error: BaseException | None = None
    timed_out: bool = False
    running: bool = False
    started: bool = True


async def _in_loop(tool: Tool, call: Callable[[], object]) -> _Ended:
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
        return _Ended(timed_out=True, running=True)
    ended = _end_of(task)
    return ended if ended.error is None else _Ended(timed_out=True, error=ended.error)


async def _awaited(call: Callable[[], object]) -> object:
    value = call()
    return await value if inspect.isawaitable(value) else value


async def _stop(task: asyncio.Future[object]) -> None:
    """Cancel the task and give it a moment; a tool that goes on regardless is left behind."""
    task.cancel()
    try:
        await asyncio.wait({task}, timeout=CANCEL_GRACE_SECONDS)
    finally:
        if not task.done():
            _leave(task)
        elif not task.cancelled():
            task.exception()  # read, so that the loop does not complain about it


def _end_of(task: asyncio.Future[object]) -> _Ended:
    if task.cancelled():
        return _Ended(error=asyncio.CancelledError("the tool cancelled itself"))
    error = task.exception()
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error
    return _Ended(error=error) if error is not None else _Ended(value=task.result())


async def _in_thread(tool: Tool, call: Callable[[], object], threads: ToolThreads) -> _Ended:
    loop = asyncio.get_running_loop()
    turn = threading.Lock()
    began: list[float] = []

    def attempt() -> _Ended:
        if not turn.acquire(blocking=False):
            return _Ended(started=False)  # given up before a thread was free
        began.append(loop.time())
        try:
            return _Ended(value=call())
        except BaseException as exc:  # noqa: BLE001  # in a thread even SystemExit is the tool's
            return _Ended(error=exc)

    async def submitted(pending: Awaitable[_Ended]) -> _Ended:
        return await pending

    try:
        pending = threads.submit(attempt)
    except RuntimeError:  # the system gives no more threads
        return _Ended(started=False)
    future = asyncio.ensure_future(submitted(pending))
    left = tool.timeout
    try:
        while left > 0:
            await asyncio.wait({future}, timeout=left)
            if future.done():
                return future.result()
            if turn.acquire(blocking=False):
                return _Ended(timed_out=True, started=False)
            left = began[0] + tool.timeout - loop.time() if began else 0.001
    except asyncio.CancelledError:
        turn.acquire(blocking=False)
        raise
    finally:
        if not future.done():
            _leave(future)
    return _Ended(timed_out=True, running=True)


def _leave(future: asyncio.Future[object] | asyncio.Future[_Ended]) -> None:
    """Keep what nobody waits for until it ends, and read its end so that nothing is logged."""
    kept: asyncio.Future[object] = future  # type: ignore[assignment]  # only its end matters
    _LEFT_BEHIND.add(kept)

    def forget(done: asyncio.Future[object]) -> None:
        _LEFT_BEHIND.discard(done)
        if not done.cancelled():
            done.exception()

    kept.add_done_callback(forget)


# --- what the end means (pure) --------------------------------------------------------------------


def _judge(tool: Tool, ended: _Ended, attempt: int) -> CallResult:
    again = (
        tool.repeatable
        and tool.max_attempts is not None
        and attempt < tool.max_attempts
        and not ended.running
    )
    maybe: Outcome = "unknown" if tool.side_effecting else "error"
    if not ended.started:
        content = f"Tool {tool.name!r} was not run: no thread was free for it"
        return CallResult("error", content, retry=again)
    if ended.timed_out:
        return CallResult(maybe, _timeout_text(tool), retry=again)
    if ended.error is None:
        return _result(tool, ended.value)
    leaves = list(_leaves(ended.error))
    unsure = any(isinstance(leaf, OutcomeUnknown | asyncio.CancelledError) for leaf in leaves)
    content = _error_text(leaves)
    return CallResult(maybe if unsure else "error", content, retry=again)


def _result(tool: Tool, value: object) -> CallResult:
    try:
        content = to_text(value)
    except ResultNotStorable as exc:
        content = f"Tool {tool.name!r} ran, but its result cannot be kept: {exc}"
        return CallResult("error", content[:MAX_ERROR_CHARACTERS])
    # JSON text is at most six times as long: a control character becomes \\u00XX.
    if len(content) * 6 > MAX_RESULT_BYTES:
        size = len(msgspec.json.encode(content))
        if size > MAX_RESULT_BYTES:
            return CallResult(
                "error",
                f"Tool {tool.name!r} ran, but its result of {size} bytes is over the limit of "
                f"{MAX_RESULT_BYTES}",
            )
    return CallResult("ok", content)


def _timeout_text(tool: Tool) -> str:
    text = f"Tool {tool.name!r} timed out after {tool.timeout:g} seconds"
    return f"{text}; whether it took effect is not known" if tool.side_effecting else text


def _error_text(leaves: list[BaseException]) -> str:
    shown = []
    for leaf in leaves:
        kind = type(leaf).__name__
        try:
            message = str(leaf)
        except Exception as exc:  # noqa: BLE001  # the error is the tool's own class
            message = f"<its message cannot be read: {type(exc).__name__}>"
        shown.append(f"{kind}: {message}" if message else kind)
    text = to_text("; ".join(shown))
    return text if len(text) <= MAX_ERROR_CHARACTERS else text[: MAX_ERROR_CHARACTERS - 1] + "…"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The error itself, or the errors that a group holds."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _store_fault(error: BaseException | None, run_id: str) -> BaseException | None:
    """The store's or this run's error that the tool raised, or wrapped into one of its own."""
    pending = [error]
    seen: set[int] = set()
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        ours = isinstance(current, RunError) and current.run_id == run_id
        if isinstance(current, StoreError) or (ours and not isinstance(current, EntryTooLarge)):
            return current
        pending += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            pending += current.exceptions
    return None
