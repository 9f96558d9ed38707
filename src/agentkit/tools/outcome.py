"""What the end of an attempt means: pure rules."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
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
from agentkit.core.contracts.values import to_text
from agentkit.tools.decorator import Tool

__all__ = [
    "MAX_ERROR_CHARACTERS",
    "MAX_RESULT_BYTES",
    "CallResult",
    "Ended",
    "judge",
    "result_of",
    "store_fault",
]

MAX_ERROR_CHARACTERS = 8_000
"""Longest error text of a tool that is kept; the rest is cut off."""

MAX_RESULT_BYTES = 15 * 1024 * 1024
"""Largest result of a tool, as JSON text; a bigger one is an error outcome."""


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


@dataclass(frozen=True, slots=True)
class Ended:
    """The bare end of an attempt: a value, an error, or neither in time.

    Args:
        value: what the tool returned.
        error: what it raised.
        timed_out: it did neither within its timeout (or raised because of it).
        running: it still runs, and nobody waits for it any more.
        started: it was run at all.
        held: it was not, because it was not to begin then.
    """

    value: object = None
    error: BaseException | None = None
    timed_out: bool = False
    running: bool = False
    started: bool = True
    held: bool = False


def judge(tool: Tool, ended: Ended, attempt: int) -> CallResult:
    """The outcome of attempt number `attempt`, and whether another one is due."""
    again = (
        tool.repeatable
        and tool.max_attempts is not None
        and attempt < tool.max_attempts
        and not ended.running
    )
    doubtful = tool.side_effecting and not tool.transactional  # what failed was rolled back
    maybe: Outcome = "unknown" if doubtful else "error"
    if not ended.started:
        content = f"Tool {tool.name!r} was not run: no thread was free for it"
        return CallResult("error", content, retry=again)
    if ended.timed_out:
        return CallResult(maybe, _timeout_text(tool), retry=again)
    if ended.error is None:
        return result_of(tool, ended.value)
    leaves = list(_leaves(ended.error))
    unclear: tuple[type[BaseException], ...] = (
        OutcomeUnknown,
        asyncio.CancelledError,
        *tool.in_doubt_on,
    )
    unsure = any(isinstance(leaf, unclear) for leaf in leaves)
    content = _error_text(leaves)
    return CallResult(maybe if unsure else "error", content, retry=again)


def store_fault(error: BaseException | None, run_id: str) -> BaseException | None:
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


def result_of(tool: Tool, value: object) -> CallResult:
    """The outcome of a call that returned `value`."""
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
