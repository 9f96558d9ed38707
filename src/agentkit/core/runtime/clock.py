"""The machine's own clock behind the clock port: the one place that asks the time."""

from __future__ import annotations

import asyncio
import time
from typing import Final

__all__ = ["SystemClock"]

_BOOTTIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)

_LONGEST_NAP_SECONDS = 10.0
"""The event loop's own timers stand still while the machine is suspended; so a long sleep looks at
the elapsed time this often and ends at most this much late after the machine woke up."""


class SystemClock:
    """A `ClockPort` on the system's clocks.

    `elapsed` is CLOCK_BOOTTIME where the system has it (Linux), which goes on while the machine is
    suspended: a laptop that slept through its lease knows it. Elsewhere it is the monotonic clock,
    which may stand still meanwhile; there the store's refusal of a lost epoch is what remains.
    """

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        return time.time()  # noqa: TID251 - this is the clock port

    def elapsed(self) -> float:
        """Seconds since an arbitrary start, never stepping back."""
        if _BOOTTIME is None:
            return time.monotonic()  # noqa: TID251 - this is the clock port
        return time.clock_gettime(_BOOTTIME)  # noqa: TID251 - this is the clock port

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of elapsed time; at the next loop turn where they are not > 0."""
        until = self.elapsed() + seconds
        left = seconds
        while left > _LONGEST_NAP_SECONDS:
            await asyncio.sleep(_LONGEST_NAP_SECONDS)  # noqa: TID251 - this is the clock port
            left = until - self.elapsed()
        await asyncio.sleep(left)  # noqa: TID251 - this is the clock port
