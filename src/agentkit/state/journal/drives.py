"""Which drives live in this process, and how a new one gets past an old one of the same run.

A lease is held by a drive, not by a process: the usual second worker is the same program, one
line further on. Its first drive may stand at a yield that nobody will ever leave, may be closing,
may really be running, or may have gone with its event loop. The table tells these apart, so that a
new drive waits for nothing that is over and takes nothing from one that is alive.

Why a stream's `__del__` closes its drive. `break` out of `async for` closes nothing: Python drops
the iterator and leaves an asynchronous generator to the event loop, some turns later. Code that
breaks and then starts the run again makes no turn in between, so by then the old drive must
already be known as closing. The stream is therefore one object of our own, the table refers to it
weakly, and its `__del__`, which CPython runs at the `break` itself, calls
`DriveRecord.begin_close`: it marks the record in that very moment and leaves the closing to a task
for which the new drive waits.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Literal, Protocol, TypeAlias

__all__ = [
    "CLOSE_SECONDS",
    "Closable",
    "DriveRecord",
    "Phase",
    "RunKey",
    "drives_of",
    "forget",
    "known",
    "make_way",
    "register",
]

CLOSE_SECONDS = 30.0
"""How long a closing may take, and a new drive waits for an old one of the same run."""

RunKey: TypeAlias = tuple[str, str, str]
"""The store's location, the scope's key and the run's id."""

Phase: TypeAlias = Literal["running", "at_yield", "closing", "closed"]
"""`running`: between the consumer's request and the next item; `at_yield`: the consumer has the
item; `closing`: no act starts any more, the lease is still to be released; `closed`: it is over."""

_log = logging.getLogger(__name__)


class Closable(Protocol):
    """What the table needs of a stream."""

    async def aclose(self) -> None:
        """Close the drive: settle what was not dispatched, stop renewal, release the lease.

        The table calls it when the record says `closing` already; it must not wait for `closed`.
        """
        ...


class DriveRecord:
    """One drive of this process, from `register` to `forget`.

    The drive sets `phase` to `running`, `at_yield` and `closing` as it goes; `closed` comes from
    `forget`. The record keeps neither its loop nor its stream alive.

    Attributes:
        drive_id: unique within the process; part of the owner that the lease names.
        key: the run.
        phase: see `Phase`.
        closed: set once the drive is over; to be awaited in the drive's own loop.
        drain: has the drive leave its run, given the seconds that what is under way may still
            take; to be called in its loop.
    """

    def __init__(self, key: RunKey, stream: Closable, loop: asyncio.AbstractEventLoop) -> None:
        self.drive_id = f"d{next(_numbers)}"
        self.key = key
        self.phase: Phase = "running"
        self.closed = asyncio.Event()
        self.drain: Callable[[float], None] | None = None
        self._loop = weakref.ref(loop)
        self._stream = weakref.ref(stream)
        self._close_begun = False
        self._close_task: asyncio.Task[None] | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The drive's event loop; `None` once it is closed or gone."""
        loop = self._loop()
        return None if loop is None or loop.is_closed() else loop

    @property
    def stream(self) -> Closable | None:
        """The public stream; `None` once nobody holds it."""
        return self._stream()

    def alive(self) -> bool:
        """Whether somebody can still go on with this drive, be it only to close it."""
        if self.phase == "closed" or self.loop is None:
            return False
        return self._close_begun or self.stream is not None

    def begin_close(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Mark the drive as closing and close it in a task of its loop; returns at once.

        May be called from any thread, also from a finaliser. Where the loop is closed there is
        nobody to close the drive: it is forgotten, its lease is that of a dead drive, and `close`
        is not called. The task is kept until it ends, and then the record is forgotten, whatever
        the task came to. The second call does nothing.

        Args:
            close: makes the coroutine that closes the drive; called in the drive's loop.
        """
        with _lock:
            if self._close_begun or self.phase == "closed":
                return
            loop = self.loop
            if loop is not None:
                self.phase = "closing"
                self._close_begun = True
        if loop is None:
            forget(self)
        elif loop is _running_loop():
            self._start_close(close)
        else:
            try:
                loop.call_soon_threadsafe(self._start_close, close)
            except RuntimeError:  # closed since we looked
                forget(self)

    def _start_close(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = _CloseTask(close)
        self._close_task = task
        task.add_done_callback(self._end_close)

    def _end_close(self, task: asyncio.Task[None]) -> None:
        self._close_task = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.warning("closing a drive of run %r failed: %r", self.key[2], error)
        forget(self)


def register(key: RunKey, stream: Closable) -> DriveRecord:
    """Enter a drive into the table; called in the drive's loop, before its lease is acquired.

    Before, because from the moment the lease is there somebody may ask whether its owner lives.
    """
    record = DriveRecord(key, stream, asyncio.get_running_loop())
    with _lock:
        _by_id[record.drive_id] = record
        _by_run.setdefault(key, []).append(record)
    return record


def forget(record: DriveRecord) -> None:
    """The drive is over: drop it from the table and wake who waits for that. Idempotent."""
    with _lock:
        record.phase = "closed"
        _by_id.pop(record.drive_id, None)
        siblings = _by_run.get(record.key, [])
        if record in siblings:
            siblings.remove(record)
        if not siblings:
            _by_run.pop(record.key, None)
    loop = record.loop
    if loop is None:
        return  # nobody can be waiting in a loop that is closed
    if loop is _running_loop():
        record.closed.set()
        return
    try:
        loop.call_soon_threadsafe(record.closed.set)
    except RuntimeError:
        return  # closed since we looked


def known(drive_id: str) -> bool:
    """Whether a drive of this process may still go on; `is_dead` takes its word for it.

    A drive whose loop is closed is not known, nor one whose stream nobody holds and nobody closes.
    """
    with _lock:
        record = _by_id.get(drive_id)
    return record is not None and record.alive()


def drives_of(loop: asyncio.AbstractEventLoop) -> list[DriveRecord]:
    """The drives of this loop that are not over."""
    with _lock:
        records = list(_by_id.values())
    return [record for record in records if record.loop is loop and record.alive()]


async def make_way(key: RunKey, *, patience_seconds: float = CLOSE_SECONDS) -> None:
    """Let the old drives of the run in this process come to their end, as far as they can.

    One at a yield in this loop is closed and waited for; one that is closing in this loop is
    waited for; one that nobody can go on with is forgotten. One that is running, or lives in
    another open loop, is left alone: it holds its lease and is known to be alive, so that the
    store answers `RunInUse`. Called before the new drive registers. Raises nothing of the old
    drive's: what it could not release is then taken over as a dead drive's.

    Args:
        key: the run.
        patience_seconds: how long to wait for each.
    """
    here = asyncio.get_running_loop()
    with _lock:
        records = list(_by_run.get(key, []))
    for record in records:
        if not record.alive():
            forget(record)
        elif record.loop is here:
            stream = record.stream
            if record.phase == "at_yield" and stream is not None:
                # In a task of its own: if this start is cancelled, the closing still goes on.
                record.begin_close(stream.aclose)
            del stream
            if record.phase == "closing":
                await _wait(record.closed, patience_seconds)


class _CloseTask(asyncio.Task[None]):
    """A task that the end of a program waits for instead of cancelling it.

    `asyncio.run` cancels every task when its main coroutine has returned, from outside the loop
    that then stands still, and waits for them: a program whose last act is the `break` would leave
    its lease behind. That cancellation is dropped, and so is any that comes before the first turn,
    because then not even the coroutine's own `finally` would run. What is cancelled inside the
    loop after that (a deadline in the closing, above all) is cancelled as ever.
    """

    def __init__(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._begun = False
        super().__init__(self._run(close), name="agentkit-close")

    async def _run(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._begun = True
        async with asyncio.timeout(CLOSE_SECONDS):
            await close()

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ANN401 - as the base class has it
        if not self._begun or _running_loop() is None:
            return False
        return super().cancel(msg)


async def _wait(closed: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await closed.wait()
    except TimeoutError:
        _log.warning("an old drive of the same run did not close within %s seconds", seconds)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


# Reentrant: collecting a stream while the lock is held comes back here in the same thread.
_lock = threading.RLock()
_numbers = itertools.count(1)
_by_id: dict[str, DriveRecord] = {}
_by_run: dict[RunKey, list[DriveRecord]] = {}


def _after_fork() -> None:
    # The drives went on in the parent. Another of its threads may have held the lock.
    global _lock  # noqa: PLW0603 - a lock cannot be emptied, only replaced
    _lock = threading.RLock()
    _by_id.clear()
    _by_run.clear()


os.register_at_fork(after_in_child=_after_fork)
