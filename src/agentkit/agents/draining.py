"""Leaving runs in order when a process is to end: what is under way gets a moment, then is left."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from agentkit.state.journal.drives import drives_of

__all__ = ["DRAIN_SECONDS", "drain", "draining"]

DRAIN_SECONDS = 5.0
"""How long what is under way may take to end when a worker is told to stop."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def drain(*, grace_seconds: float = DRAIN_SECONDS) -> int:
    """Have every run that this event loop works on left by its worker; returns how many there are.

    No act begins any more. Those under way have `grace_seconds` to end and are recorded as they
    do; then they are cut off, and a tool whose outcome is not known is in doubt. `Agent.run` and
    the streams then raise `RunInterrupted`, with the leases released: the runs are resumable at
    once, and neither an attempt nor a recovery is counted. Draining again, with another grace,
    takes the place of what was asked before; 0 stops at once.

    Args:
        grace_seconds: see above.
    """
    records = drives_of(asyncio.get_running_loop())
    for record in records:
        if record.drain is not None:
            record.drain(grace_seconds)
    return len(records)


@contextmanager
def draining(
    *, grace_seconds: float = DRAIN_SECONDS, signals: Sequence[signal.Signals] = _SIGNALS
) -> Iterator[None]:
    """Within this, the first of `signals` drains this loop's runs, and the second stops at once.

    For the main task of a program of one's own, in the main thread; a third signal does what it
    does by default. While nothing is driven, a signal cancels the task.

    Args:
        grace_seconds: as for `drain`.
        signals: SIGTERM and SIGINT by default.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    heard: list[int] = []

    def hear() -> None:
        heard.append(1)
        if not drain(grace_seconds=grace_seconds if len(heard) == 1 else 0.0) and task is not None:
            task.cancel()
        if len(heard) > 1:
            leave()

    def leave() -> None:
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, hear)
    try:
        yield
    finally:
        leave()
