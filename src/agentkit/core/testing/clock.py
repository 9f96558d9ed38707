"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import threading
from typing import NamedTuple

__all__ = ["FakeClock"]


class _Sleeper(NamedTuple):
    due: float
    order: int
    future: asyncio.Future[None]


class FakeClock:
    """A `ClockPort` whose time a test sets.

    Wall time and elapsed time are apart, as in life: `advance` moves both, `set_now` the wall
    clock alone, also backwards. May be read and moved from any thread. A sleeper wakes in its own
    loop; when the clock is moved in that loop, one turn (`await asyncio.sleep(0)`) later it has
    run.

    Args:
        now: the wall clock's first reading, seconds since the Unix epoch.
        elapsed: the elapsed-time clock's first reading, seconds.
    """

    def __init__(self, now: float = 1_700_000_000.0, *, elapsed: float = 1_000.0) -> None:
        self._lock = threading.RLock()
        self._now = now
        self._elapsed = elapsed
        self._sleepers: list[_Sleeper] = []
        self._order = 0

    @property
    def sleepers(self) -> int:
        """How many sleeps have not ended: lets a test wait until everybody it expects sleeps."""
        return len(self._sleepers)

    def now(self) -> float:
        """The wall clock's reading, seconds since the Unix epoch."""
        return self._now

    def elapsed(self) -> float:
        """The elapsed-time clock's reading, seconds."""
        return self._elapsed

    def set_now(self, now: float) -> None:
        """Set the wall clock, forwards or backwards; elapsed time and sleepers do not notice."""
        with self._lock:
            self._now = now

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass on both clocks and wake whoever is due, in order of their times.

        Raises:
            ValueError: `seconds` is negative: elapsed time never steps back.
        """
        if not seconds >= 0:
            raise ValueError(f"elapsed time cannot move by {seconds!r} seconds")
        with self._lock:
            self._now += seconds
            self._elapsed += seconds
            due = sorted(one for one in self._sleepers if one.due <= self._elapsed)
            self._sleepers = [one for one in self._sleepers if one.due > self._elapsed]
        for sleeper in due:
            _wake(sleeper.future)

    async def sleep(self, seconds: float) -> None:
        """Return once the clock was moved by `seconds`; at the next loop turn if they are <= 0."""
        if seconds <= 0:
            await asyncio.sleep(0)  # noqa: TID251 - gives way to others; no time passes
            return
        future = asyncio.get_running_loop().create_future()
        with self._lock:
            self._order += 1
            sleeper = _Sleeper(self._elapsed + seconds, self._order, future)
            self._sleepers.append(sleeper)
        try:
            await future
        finally:
            with self._lock:
                self._sleepers = [one for one in self._sleepers if one is not sleeper]


def _wake(future: asyncio.Future[None]) -> None:
    loop = future.get_loop()
    if loop is asyncio._get_running_loop():  # noqa: SLF001 - the public getter raises outside a loop
        _resolve(future)
    elif not loop.is_closed():
        loop.call_soon_threadsafe(_resolve, future)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
