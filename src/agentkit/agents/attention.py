"""How a drive is reached while it waits: to leave its run, or because somebody has stopped the run.

A wait is cut off as `asyncio.timeout` does it, by cancelling the drive's own task and taking that
cancellation back, and only while the drive itself waits: at a yield the consumer's code runs in the
same task.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["Attention", "Later", "Stopped"]

_T = TypeVar("_T")


class Stopped(Exception):
    """What was waited for was cut off."""


class Attention:
    """Belongs to one drive, and to its loop.

    Attributes:
        draining: no act begins any more; the drive leaves when those under way have ended.
        hurried: nor does it wait for these.
        on_change: called when either becomes true.
    """

    def __init__(self) -> None:
        self.draining = False
        self.hurried = False
        self.on_change: Callable[[], None] = lambda: None
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self._until: Callable[[], bool] = lambda: False
        self._fired = False
        self._timer: asyncio.TimerHandle | None = None

    def drain(self, grace_seconds: float) -> None:
        """Have the drive leave its run: what is under way has so long to end."""
        self.draining = True
        if self._timer is not None:
            self._timer.cancel()
        if grace_seconds > 0:
            self._timer = self._loop.call_later(grace_seconds, self._hurry)
            self._changed()
        else:
            self._hurry()

    def call_threadsafe(self, call: Callable[[], object]) -> None:
        """Call it in the drive's loop; from any thread, and too late is no error."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(call)

    def poke(self) -> None:
        """Something has changed: cut off what the drive waits for, if it waits until that."""
        if self._task is not None and not self._fired and self._until():
            self._fired = True
            self._task.cancel()

    def close(self) -> None:
        """The drive is over."""
        if self._timer is not None:
            self._timer.cancel()

    async def wait(self, begin: Callable[[], Awaitable[_T]], *, until: Callable[[], bool]) -> _T:
        """What `begin` gives, unless `until` is true or becomes so first.

        Raises:
            Stopped: it is or became so; what was begun has been cancelled.
        """
        if until():
            raise Stopped
        task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0
        self._task, self._until, self._fired = task, until, False
        try:
            return await begin()
        except asyncio.CancelledError:
            if task is not None and self._fired:
                self._fired = False
                if task.uncancel() <= before:
                    raise Stopped from None
            raise
        finally:
            if task is not None and self._fired:  # it came through all the same
                task.uncancel()
            self._task = None

    def _hurry(self) -> None:
        self.hurried = True
        self._changed()

    def _changed(self) -> None:
        self.poke()
        self.on_change()


class Later:
    """A callback whose target is known only after it was handed out."""

    def __init__(self) -> None:
        self.call: object = None

    def __call__(self) -> None:
        """Call the target, where it is known by now."""
        if callable(self.call):
            self.call()
